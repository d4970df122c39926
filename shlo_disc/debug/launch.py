"""Running one kernel plan by itself, without host program and runtime, where mistakes show.

Arrays lie between inaccessible pages (`memory.py`). A launch is cut into uneven chunks of tasks.
The chunks of an unordered launch run in a random order, those of an ordered one in order. Kernels
run in a process of their own (`process.py`): a fault is an error of this one, not its end.
"""

from __future__ import annotations

import ctypes
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.debug.memory import Guarded
from shlo_disc.debug.process import Code, KernelCall, Zeroing, run_calls
from shlo_disc.lower.plan import (
    Buffer,
    FftCall,
    If,
    Input,
    Kernel,
    KernelPlan,
    Launch,
    Output,
    Pack,
    Packed,
    Step,
    Workspace,
)
from shlo_disc.ral import fft_transform

Array = npt.NDArray[Any]

LIMIT_S = 120.0
"""Of one plan. Kernels run on one core here, and those that wait for others may wait forever."""

MOST_CHUNKS = 12


class KernelFault(InternalError):
    """A kernel broke its contract: it touched memory that is not its own, or did not end."""


@dataclass(frozen=True)
class _Ready:
    """One launch at concrete sizes."""

    kernel: Kernel
    address: int
    pointers: Any
    params: Any
    chunks: Sequence[tuple[int, int]]
    scratch: Guarded
    zeroed: list[Zeroing]


def run_plan(
    plan: KernelPlan,
    sizes: Mapping[str, int],
    inputs: Sequence[Array],
    results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    code: Code,
    seed: int = 0,
) -> list[Array]:
    """The results of `plan` on arrays.

    `sizes`: the values of all symbols. `results`: shape and dtype of each. `seed` decides the
    order of independent tasks. Of a `Pack`, the side with packed copies runs.

    Raises KernelFault, with the kernel and its tasks, if a kernel reads or writes outside its
    buffers, writes to an operand, or does not end in LIMIT_S seconds.
    """
    memory: dict[Buffer, Guarded] = {}
    for i, array in enumerate(inputs):
        memory[Input(i)] = Guarded.of(array)
    for i, (shape, dtype) in enumerate(results):
        memory[Output(i)] = Guarded(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    for i, size in enumerate(plan.workspaces):
        memory[Workspace(i)] = Guarded(size.evaluate(sizes), align=64)
    if plan.steps and isinstance(plan.steps[0], FftCall):
        launches = []
        _transform(plan.steps[0], sizes, memory)
    else:
        launches = _ready(list(_launches(plan.steps, sizes, memory)), sizes, memory, code, seed)
        _run(launches, code)
    for launch in launches:
        _expect(launch.scratch.is_intact(), launch.kernel.name, "wrote outside its scratch memory")
    name = launches[-1].kernel.name if launches else "none"
    for buffer, room in memory.items():
        _expect(room.is_intact(), name, f"or one before it wrote in front of {buffer}")
    for i, array in enumerate(inputs):
        same = memory[Input(i)].bytes.tobytes() == np.ascontiguousarray(array).tobytes()
        _expect(same, name, f"or one before it wrote to operand {i}")
    return [memory[Output(i)].array(dtype, shape) for i, (shape, dtype) in enumerate(results)]


def chunks(extent: int, ordered: bool, order: random.Random) -> list[tuple[int, int]]:
    """Uneven parts of the tasks below `extent`, in the order in which they run."""
    most = min(extent - 1, MOST_CHUNKS - 1)
    cuts = sorted(order.sample(range(1, extent), most)) if most > 0 else []
    parts = list(pairwise([0, *cuts, extent]))
    if not ordered:
        order.shuffle(parts)
    return parts


def _transform(call: FftCall, sizes: Mapping[str, int], memory: Mapping[Buffer, Guarded]) -> None:
    """The runtime's transform, in this process: it is no generated code."""
    addresses = [memory[buffer].address for buffer in call.buffers]
    batch, length, inner = (x.evaluate(sizes) for x in (call.batch, call.length, call.inner))
    if not fft_transform(call.options, batch, length, addresses, inner):
        raise MemoryError(f"a Fourier transform of {length} elements")


def _launches(
    steps: Sequence[Step], sizes: Mapping[str, int], memory: dict[Buffer, Guarded]
) -> Iterator[Launch]:
    """The launches that run at these sizes, in order; packed copies get memory."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        elif isinstance(step, If):
            chosen = step.then if step.condition.holds(sizes) else step.otherwise
            yield from _launches(chosen, sizes, memory)
        else:
            assert isinstance(step, Pack)
            # Several packs of one operand have a copy each.
            copies: dict[Buffer, Buffer] = {}
            for part in step.parts:
                here = Workspace(len(memory))
                memory[here] = Guarded(part.bytes.evaluate(sizes), align=64)
                copies[Packed(part.operand)] = here
                yield part.fill.moved(copies)
            for launch in _launches(step.then, sizes, memory):
                yield launch.moved(copies)


def _ready(
    launches: Sequence[Launch],
    sizes: Mapping[str, int],
    memory: Mapping[Buffer, Guarded],
    code: Code,
    seed: int,
) -> list[_Ready]:
    order = random.Random(seed)
    launches = [launch for launch in launches if launch.extent.evaluate(sizes) > 0]
    texts = [kernel.text for launch in launches for kernel in launch.kernels]
    functions = dict(zip(texts, code(texts), strict=True))
    made = []
    for launch in launches:
        _expect(launch.cost.evaluate(sizes) >= 0, launch.kernel.name, "has a negative cost")
        addresses = [
            functions[arg.text].address if isinstance(arg, Kernel) else memory[arg].address
            for arg in launch.args
        ]
        params = [size.evaluate(sizes) for size in launch.params]
        zeroed = []
        for buffer, size in launch.zeroed:
            bytes_ = size.evaluate(sizes)
            _expect(bytes_ <= memory[buffer].bytes.size, launch.kernel.name, "zeroes too much")
            zeroed.append(Zeroing(memory[buffer].address, bytes_))
        made.append(
            _Ready(
                kernel=launch.kernel,
                address=functions[launch.kernel.text].address,
                pointers=(ctypes.c_void_p * max(1, len(addresses)))(*addresses),
                params=(ctypes.c_int64 * max(1, len(params)))(*params),
                chunks=chunks(launch.extent.evaluate(sizes), launch.ordered, order),
                scratch=Guarded(launch.scratch_bytes.evaluate(sizes), align=64),
                zeroed=zeroed,
            )
        )
    return made


def _expect(holds: bool, kernel: str, said: str) -> None:
    if not holds:
        raise KernelFault(f"kernel {kernel} {said}")


def _run(launches: Sequence[_Ready], code: Code) -> None:
    """Raises KernelFault, with the kernel and its tasks, where one faults or does not end."""
    calls: list[KernelCall | Zeroing] = []
    where: list[str] = []
    for launch in launches:
        name = launch.kernel.name
        calls += launch.zeroed
        where += [f"zeroing before kernel {name}"] * len(launch.zeroed)
        pointers, params = map(ctypes.addressof, (launch.pointers, launch.params))
        for lo, hi in launch.chunks:
            scratch = launch.scratch.address
            calls.append(KernelCall(launch.address, pointers, params, lo, hi, scratch))
            where.append(f"kernel {name}, tasks {lo} to {hi - 1}")
    if not calls:
        return
    ended = run_calls(calls, code, LIMIT_S)
    if ended is None:
        return
    if ended.signal is None:
        raise KernelFault(f"{where[ended.call]}: no end after {LIMIT_S:.0f} s")
    if ended.signal in (signal.SIGSEGV, signal.SIGBUS):
        raise KernelFault(f"{where[ended.call]}: read or wrote outside its buffers")
    raise KernelFault(f"{where[ended.call]}: ended by {signal.Signals(ended.signal).name}")
