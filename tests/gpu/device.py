"""Launches on a real GPU, in place of the interpreter: SHLO_DISC_TEST_ON_GPU=1.

Every array lies at the end of memory of its own, behind a margin whose bytes must stay what they
are.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_disc.lower.gpu.builder import BLOCKS_ALONG_X
from tests.ptx.device import aligned, encoded
from tests.ptx.tensor_map import TensorMap

ON_DEVICE = os.environ.get("SHLO_DISC_TEST_ON_GPU") == "1"
MARGIN = 256
_MARGIN_BYTE = 0xA5
_MAX_DYNAMIC_SHARED = 8
_MAJOR, _MINOR = 75, 76


class _Driver:
    """The functions of libcuda that tests need, in its first device's context."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self.device = device

    def __call__(self, name: str, *args: Any) -> None:
        """Call a function. Raises RuntimeError with the driver's words."""
        status = getattr(self.library, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {status} {text.value!r}")

    def attribute(self, number: int) -> int:
        """An attribute of the device."""
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value


@functools.cache
def _driver() -> _Driver:
    return _Driver()


def architecture() -> str:
    """Of the first device: "sm_90"."""
    driver = _driver()
    return f"sm_{driver.attribute(_MAJOR)}{driver.attribute(_MINOR)}"


@functools.lru_cache(maxsize=256)
def _function(code: str, shared_bytes: int) -> tuple[ctypes.c_void_p, str]:
    driver, module, function = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
    symbol = code.partition(".entry ")[2].partition("(")[0]
    driver("cuModuleLoadData", ctypes.byref(module), code.encode() + b"\0")
    driver("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
    if shared_bytes:
        driver("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
    return function, symbol


class _Array:
    """A copy of an array on the device, between margins."""

    def __init__(self, array: np.ndarray, fill: int) -> None:
        self.array, self.fill = array, fill
        self.raw = np.full(array.nbytes + 2 * MARGIN, _MARGIN_BYTE, np.uint8)
        self.raw[MARGIN : MARGIN + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self.pointer = ctypes.c_uint64()
        driver = _driver()
        driver("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(self.raw.nbytes))
        driver("cuMemcpyHtoD_v2", self.pointer, self._host, ctypes.c_size_t(self.raw.nbytes))

    @property
    def _host(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.raw.ctypes.data)

    @property
    def address(self) -> int:
        return self.pointer.value + MARGIN

    def fetch(self) -> None:
        """Copy back. Raises AssertionError for a write outside or to what may only be read."""
        before = self.raw.copy()
        driver = _driver()
        driver("cuMemcpyDtoH_v2", self._host, self.pointer, ctypes.c_size_t(self.raw.nbytes))
        driver("cuMemFree_v2", self.pointer)
        inside = slice(MARGIN, MARGIN + self.array.nbytes)
        outside = np.delete(self.raw, inside)
        assert (outside == _MARGIN_BYTE).all(), "a kernel wrote outside of its arrays"
        if not self.array.flags.writeable:
            assert (self.raw[inside] == before[inside]).all(), "a kernel wrote to an operand"
        elif self.array.nbytes:
            flat = self.raw[inside].view(self.array.dtype).reshape(self.array.shape)
            self.array[...] = flat


def launch(
    code: str,
    blocks: int,
    threads: int,
    args: Sequence[np.ndarray | bytes | TensorMap],
    params: Sequence[int],
    tasks: int,
    *,
    shared_bytes: int = 0,
    seed: int = 0,
    fill: int = 0xFF,
) -> None:
    """As `tests.ptx.interpreter.launch`; the device orders blocks."""
    if not blocks:
        return
    driver = _driver()
    function, _ = _function(code, shared_bytes)
    arrays = {k: _Array(arg, fill) for k, arg in enumerate(args) if isinstance(arg, np.ndarray)}
    values: list[bytes] = []
    for k, arg in enumerate(args):
        if isinstance(arg, TensorMap):
            values.append(encoded(driver.library, arg, arrays[arg.argument].address))
        elif isinstance(arg, bytes):
            values.append(arg.ljust(8, b"\0"))
        else:
            values.append(arrays[k].address.to_bytes(8, "little"))
    values += [int(p).to_bytes(8, "little", signed=True) for p in (*params, tasks)]
    held = [aligned(value) for value in values]
    pointers = (ctypes.c_void_p * len(values))(*(at for _, at in held))
    grid = min(blocks, BLOCKS_ALONG_X), -(-blocks // BLOCKS_ALONG_X), 1
    driver("cuLaunchKernel", function, *grid, threads, 1, 1, shared_bytes, None, pointers, None)
    driver("cuCtxSynchronize")
    for array in arrays.values():
        array.fetch()
