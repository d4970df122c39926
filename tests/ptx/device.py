"""The same launches on a real GPU, by libcuda alone: what the interpreter says, seen on hardware.

With SHLO_DISC_PTX_DEVICE=1 the tests of the interpreter run there. Those of faults are skipped.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from tests.ptx.parser import parse
from tests.ptx.tensor_map import SWIZZLES, TensorMap

_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_DATA_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}
"""CUtensorMapDataType of unsigned integers, by bytes."""
_TF32 = 11
"""CU_TENSOR_MAP_DATA_TYPE_TFLOAT32."""


@functools.cache
def _driver() -> ctypes.CDLL:
    """The driver, with the primary context of device 0."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    _check(driver, driver.cuInit(0))
    _check(driver, driver.cuDeviceGet(ctypes.byref(device), 0))
    _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(driver, driver.cuCtxSetCurrent(context))
    return driver


def _check(driver: ctypes.CDLL, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"libcuda: {code}, {(text.value or b'?').decode()}")


def launch(
    ptx: str,
    blocks: int,
    threads: int,
    args: Sequence[np.ndarray | bytes | TensorMap],
    params: Sequence[int],
    tasks: int,
    *,
    shared_bytes: int = 0,
    seed: int = 0,
    fill: int = 0,
) -> None:
    """As `interpreter.launch`; `seed` and `fill` mean nothing here. Raises RuntimeError."""
    driver = _driver()
    (kernel,) = parse(ptx).kernels.values()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver, driver.cuModuleLoadData(ctypes.byref(module), ptx.encode()))
    name = kernel.name.encode()
    _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, name))
    _check(driver, driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes))
    bases: dict[int, int] = {}
    try:
        for k, arg in enumerate(args):
            if isinstance(arg, np.ndarray):
                base = ctypes.c_uint64()
                size = ctypes.c_size_t(arg.nbytes + 32)
                _check(driver, driver.cuMemAlloc_v2(ctypes.byref(base), size))
                bases[k] = base.value
                to, host = (
                    ctypes.c_uint64(_address(bases, args, k)),
                    ctypes.c_void_p(arg.ctypes.data),
                )
                _check(driver, driver.cuMemcpyHtoD_v2(to, host, ctypes.c_size_t(arg.nbytes)))
        values = [_value(driver, bases, args, k) for k in range(len(args))]
        values += [int(p).to_bytes(8, "little", signed=True) for p in (*params, tasks)]
        held = [aligned(value) for value in values]
        pointers = (ctypes.c_void_p * len(held))(*(at for _, at in held))
        code = driver.cuLaunchKernel(
            function, blocks, 1, 1, threads, 1, 1, shared_bytes, None, pointers, None
        )
        _check(driver, code)
        _check(driver, driver.cuCtxSynchronize())
        for k in bases:
            if args[k].flags.writeable:
                host = ctypes.c_void_p(args[k].ctypes.data)
                source = ctypes.c_uint64(_address(bases, args, k))
                size = ctypes.c_size_t(args[k].nbytes)
                _check(driver, driver.cuMemcpyDtoH_v2(host, source, size))
    finally:
        for base in bases.values():
            driver.cuMemFree_v2(ctypes.c_uint64(base))
        driver.cuModuleUnload(module)


def _address(bases: dict[int, int], args: Sequence[object], k: int) -> int:
    """Arrays are aligned as those of the interpreter's launches."""
    return bases[k] + 16 + args[k].ctypes.data % 16


def _value(driver: ctypes.CDLL, bases: dict[int, int], args: Sequence[object], k: int) -> bytes:
    arg = args[k]
    if isinstance(arg, bytes):
        return arg
    if isinstance(arg, np.ndarray):
        return _address(bases, args, k).to_bytes(8, "little")
    return encoded(driver, arg, _address(bases, args, arg.argument))


def encoded(driver: ctypes.CDLL, tensor: TensorMap, address: int) -> bytes:
    """The driver's 128 bytes for a map of the array at `address`. Raises RuntimeError."""
    rank = len(tensor.sizes)
    held, at = aligned(bytes(128))
    code = driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(at),
        _TF32 if tensor.rounds else _DATA_TYPES[tensor.element_bytes],
        rank,
        ctypes.c_void_p(address + tensor.first),
        (ctypes.c_uint64 * rank)(*tensor.sizes),
        (ctypes.c_uint64 * max(rank - 1, 1))(*tensor.strides),
        (ctypes.c_uint32 * rank)(*tensor.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,
        SWIZZLES.index(tensor.swizzle),
        0,
        0,
    )
    _check(driver, code)
    return ctypes.string_at(at, 128) if held is not None else b""


def aligned(value: bytes) -> tuple[object, int]:
    """A copy at a multiple of 64 bytes: what holds it, and its address."""
    held = ctypes.create_string_buffer(len(value) + 64)
    at = ctypes.addressof(held) + -ctypes.addressof(held) % 64
    ctypes.memmove(at, value, len(value))
    return held, at
