"""What this machine can do: operations a second and bytes a second, measured in this process.

The kernels that measure are generated and run as all others are (same code generator, same
threads), so the floor they give is one that a better kernel could really reach.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

import numpy as np

from shlo_disc import ral
from shlo_disc.base.records import dataclass
from shlo_disc.lower.target import Function, parse

MEASURES: list[Callable[[str], tuple[float, list[tuple[int, float]]]]] = []
"""How a target without probes is measured: by programs, which the driver can compile.

A function takes the target's name, and gives the fields of :class:`Peak`.
"""


@dataclass(frozen=True)
class Peak:
    """What a machine can do, measured with all threads of the runtime, or on the GPU."""

    gflops: float
    """Multiply-adds, two operations each, in 1e9 a second: of float32 in registers of a CPU, of
    bf16 products on a GPU.
    """
    bandwidth: tuple[tuple[int, float], ...]
    """(bytes of the array read again and again, 1e9 bytes a second), by size."""

    def gigabytes_per_second(self, touched: int) -> float:
        """Reading speed of data of this size that was touched before."""
        for size, speed in self.bandwidth:
            if touched <= size:
                return speed
        return self.bandwidth[-1][1]

    def floor_ms(self, flops: float, moved: float) -> float:
        """No kernel that does these operations and moves these bytes is faster, in ms.

        Operations are counted at the float32 rate; bytes at that of the cache they fit in.
        """
        speed = self.gigabytes_per_second(int(moved))
        return max(flops / self.gflops, moved / speed) / 1e6


@functools.cache
def peak(target: str) -> Peak:
    """What the machine of `target` can do; measured once in a process, in about half a second."""
    made_for = parse(target)
    if made_for.probes is None:
        (measure,) = MEASURES
        gflops, speeds = measure(target)
        return Peak(gflops, tuple(speeds))
    probes = made_for.probes()
    with made_for.generator() as generator:
        products, reads = generator.functions([probes.products, probes.reads])
    tasks = ral.num_threads() * 8
    gflops = probes.flops * tasks * 16.0 / _best(products, 0, 16, tasks * 16, 8) / 1e9
    bandwidth = []
    for size in (1 << 17, 1 << 19, 1 << 22, 1 << 24, 1 << 28):
        data = np.ones(size // 4, np.float32)
        # Small arrays again and again in one launch: threads cost microseconds.
        block = max(4096, min(1 << 16, size // tasks)) // 4
        repeat = max(1, (1 << 24) // size)
        count = size // 4 // block
        seconds = _best(reads, data.ctypes.data, block, count * repeat, 8, count)
        bandwidth.append((size, size * repeat / seconds / 1e9))
    return Peak(gflops, tuple(bandwidth))


def _best(
    kernel: Function, data: int, block: int, extent: int, attempts: int, count: int = 1
) -> float:
    arguments = (ctypes.c_void_p * 1)(data)
    sizes = (ctypes.c_int64 * 2)(block, count)
    times = []
    for _ in range(attempts):
        start = time.perf_counter()
        ral.parallel_for(
            kernel.address, ctypes.addressof(arguments), ctypes.addressof(sizes), extent, 1, 4096
        )
        times.append(time.perf_counter() - start)
    return min(times)
