"""What a GPU can do, by programs of ours that are timed by its own events."""

from __future__ import annotations

import numpy as np

from shlo_disc.driver.compile import compile_one
from shlo_disc.executables.executable import Executable
from shlo_disc.report.marks import marked_host

_ADD = """
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
  %y = stablehlo.add %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}"""

_PRODUCT = """
func.func public @main(%x: tensor<?x?xbf16> {disc.shape = ["n", "n"]}) -> tensor<?x?xbf16> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] :
    (tensor<?x?xbf16>, tensor<?x?xbf16>) -> tensor<?x?xbf16>
  return %y : tensor<?x?xbf16>
}"""

_ROWS = 4096
"""Of the product: enough for every multiprocessor, and it takes a millisecond at most."""


def measured(target: str) -> tuple[float, list[tuple[int, float]]]:
    """Operations of bf16 products, in 1e9 a second, and (bytes, 1e9 bytes a second) by size.

    Bytes are those read and written. Raises DeviceError where no such device is here.
    """
    product, add = (compile_one(text, target=target) for text in (_PRODUCT, _ADD))
    ones = np.ones((_ROWS, _ROWS), product.signature.arguments[0].dtype)
    gflops = 2.0 * _ROWS**3 / _best_ns(product, ones)
    bandwidth = []
    for size in (1 << 20, 1 << 24, 1 << 28):
        moved = _best_ns(add, np.ones(size // 8, np.float32))
        bandwidth.append((size, size / moved))
    return gflops, bandwidth


def _best_ns(executable: Executable, array: np.ndarray) -> float:
    """Nanoseconds of the quickest of a few launches."""
    prepare, run = executable.target.compile_host(marked_host(executable.host))
    prepare.finish()  # and `run` with it
    times = []
    for _ in range(4):
        marks = executable.call_marked(run, [array]).marks
        times.append(float(marks[1, 2] - marks[0, 2]))
    return max(min(times), 1.0)
