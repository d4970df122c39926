"""An interpreter of PTX: launches of kernels over host memory, with every access checked.

What faults: an access outside of its array, a misaligned one, a write to what may only be read, a
data race in shared memory, a barrier that some threads never reach. What a thread reads of shared
or local memory that nothing wrote is a fill pattern. Blocks run one after another, in an order
drawn from a seed; so do the warps of a block, each until it waits.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from shlo_disc.lower.gpu.builder import BLOCKS_ALONG_X
from tests.ptx import rules, tensor_rules  # noqa: F401 - they fill the table of rules
from tests.ptx.assembler import Assembled, PtxFault, assemble
from tests.ptx.native import SEGMENT, Launch
from tests.ptx.parser import parse
from tests.ptx.tensor_map import TensorMap

__all__ = ["PtxFault", "launch", "launch_raw", "parameters_of", "run_kernel"]

FILL = 0xFF
"""The byte of memory that nothing wrote: NaN in every float format, -1 in integers."""
LIMIT = 20_000_000
"""Instructions of the warps of a block, a few seconds: one that needs more does not end."""
_SHIFT = 40
"""Arrays of `launch` are at multiples of 2^40, so no access of one can reach another."""


@functools.lru_cache(maxsize=256)
def _assembled(ptx: str, entry: str | None) -> Assembled:
    kernels = parse(ptx).kernels
    if entry is None:
        (entry,) = kernels
    return assemble(kernels[entry])


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
    fill: int = FILL,
) -> int:
    """Launch a kernel `KERNEL(args..., i64 params..., i64 tasks)`, the only one of its module.

    Arrays are changed in place; one that NumPy may not write is read-only to the kernel. Bytes and
    tensor maps are parameters by value. An array lies at an odd multiple of 16 bytes, plus what
    its own address is above a multiple of 16. `blocks` of 0 launches nothing. Returns the number
    of instructions that warps ran.

    Raises PtxFault, NotImplementedError for an unknown instruction, ValueError where the arguments
    do not fit the kernel.
    """
    if not blocks:
        return 0
    segments, values = [], []
    for k, arg in enumerate(args):
        if isinstance(arg, bytes):
            values.append(arg)
            continue
        if isinstance(arg, TensorMap):
            values.append(arg.encoded(_address(args, arg.argument)))
            continue
        if not arg.flags.c_contiguous:
            raise ValueError(f"argument {k} is not contiguous")
        address = _address(args, k)
        segments.append((address, arg.nbytes, arg.ctypes.data, arg.flags.writeable))
        values.append(address.to_bytes(8, "little"))
    values += [int(p).to_bytes(8, "little", signed=True) for p in (*params, tasks)]
    declared = _assembled(ptx, None).parameters
    if [len(v) for v in values] != [p.bytes for p in declared]:
        given = [len(v) for v in values]
        raise ValueError(f"parameters of {[p.bytes for p in declared]} bytes, given {given}")
    packed = bytearray(declared[-1].offset + declared[-1].bytes)
    for value, p in zip(values, declared, strict=True):
        packed[p.offset : p.offset + p.bytes] = value
    grid = (min(blocks, BLOCKS_ALONG_X), -(-blocks // BLOCKS_ALONG_X), 1)
    return run_kernel(
        ptx, None, grid, (threads, 1, 1), shared_bytes, bytes(packed), segments,
        seed=seed, fill=fill,
    )  # fmt: skip


def _address(args: Sequence[object], k: int) -> int:
    """Where `launch` has array k."""
    return ((k + 1) << _SHIFT) + 16 + args[k].ctypes.data % 16


def launch_raw(
    ptx: str,
    entry: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    param_bytes: bytes,
    allocations: Sequence[tuple[int, int]],
    *,
    seed: int = 0,
    fill: int = FILL,
) -> int:
    """Launch `entry` over memory of this process: `allocations` are addresses and bytes.

    `param_bytes` has every parameter at the offset that `parameters_of` says. Nothing outside of
    the allocations is read or written. Raises as `launch` does.
    """
    segments = [(address, size, address, True) for address, size in allocations if size]
    return run_kernel(
        ptx, entry, grid, block, shared_bytes, param_bytes, segments, seed=seed, fill=fill
    )


def parameters_of(ptx: str, entry: str) -> list[tuple[int, int]]:
    """Offset and bytes of the parameters of a kernel."""
    return [(p.offset, p.bytes) for p in _assembled(ptx, entry).parameters]


def run_kernel(
    ptx: str,
    entry: str | None,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    param_bytes: bytes,
    segments: Sequence[tuple[int, int, int, bool]],
    *,
    seed: int = 0,
    fill: int = FILL,
) -> int:
    """Launch over `segments`: address for the kernel, bytes, host address, whether writable."""
    kernel = _assembled(ptx, entry)
    module = [(at, content.copy(), writable) for at, content, writable in kernel.arrays]
    rows = [*segments, *((at, a.nbytes, a.ctypes.data, writable) for at, a, writable in module)]
    table = np.array(sorted(rows), SEGMENT)
    dynamic = [] if kernel.dynamic is None else [(kernel.dynamic, shared_bytes)]
    shared = np.array([*kernel.shared, *dynamic], np.uint64).reshape(-1, 2)
    local = np.array(kernel.local, np.uint64).reshape(-1, 2)
    state = Launch()
    state.grid[:] = [*grid, 1, 1][:3]
    state.block[:] = [*block, 1, 1][:3]
    state.params, state.param_bytes = param_bytes, len(param_bytes)
    for name, array in (("segment", table), ("shared", shared), ("local", local)):
        setattr(state, f"{name}s", ctypes.c_void_p(array.ctypes.data))
        setattr(state, f"{name}_count", len(array))
    state.granule, state.global_granule = kernel.granule, kernel.global_granule
    state.seed, state.limit, state.fill = seed, LIMIT, fill
    code = kernel.program.launch(state)
    if code:
        message = f"{state.message.decode()}: {kernel.texts[state.at]}"
        raise (PtxFault, NotImplementedError, RuntimeError)[code - 1](message)
    return int(state.steps)
