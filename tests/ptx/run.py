"""One fusion through two targets: what PTX threads compute, and what the CPU's kernel does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shlo_disc.debug.launch import run_plan
from shlo_disc.element_types import ELEMENT_TYPES
from shlo_disc.lower.plan import Input, Launch, Output
from tests.lower.helpers import Emitted, _compiled_all, symbols_of
from tests.ptx.codegen import ptx_of
from tests.ptx.interpreter import run_kernel

__all__ = ["run_cpu", "run_ptx"]


def _results(emitted: Emitted, env: dict[str, int]) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [
        (tuple(s.evaluate(env) for s in sizes), ELEMENT_TYPES[name].dtype)
        for sizes, name in emitted.results
    ]


def run_cpu(
    emitted: Emitted, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The results of a plan of the CPU's, between inaccessible pages.

    `symbols` has the sizes that no operand tells.
    """
    env = symbols_of(emitted, inputs) | dict(symbols or {})
    return run_plan(emitted.plan, env, inputs, _results(emitted, env), _compiled_all)


BLOCK = 32
"""Threads of a block."""


def run_ptx(
    emitted: Emitted, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The results of a plan of launches of PTX. Raises PtxFault."""
    env = symbols_of(emitted, inputs) | dict(symbols or {})
    memory = {Input(k): np.ascontiguousarray(array) for k, array in enumerate(inputs)}
    for k, (shape, dtype) in enumerate(_results(emitted, env)):
        filled = np.full(shape, 0xA5, np.uint8).repeat(
            dtype.itemsize
        )  # nothing writes it: it shows
        memory[Output(k)] = filled.view(dtype).reshape(shape)
    for step in emitted.plan.steps:
        assert isinstance(step, Launch)
        _launch(
            ptx_of(step.kernel.text),
            step.extent.evaluate(env),
            [(memory[buffer], isinstance(buffer, Output)) for buffer in step.args],
            [size.evaluate(env) for size in step.params],
        )
    return [memory[Output(k)] for k in range(len(emitted.results))]


def _launch(
    ptx: str, tasks: int, args: Sequence[tuple[np.ndarray, bool]], params: Sequence[int]
) -> None:
    """Launch a kernel that is called as `PtxBuilder` says, one thread a task."""
    rows = [((k + 1) << 40, a.nbytes, a.ctypes.data, w) for k, (a, w) in enumerate(args)]
    # One element more: a load for all lanes of a mask that is off reads any valid address.
    pointers = np.array([*(at for at, *_ in rows), 0], np.uint64)
    sizes = np.array([*params, 0], np.int64)
    for array in (pointers, sizes):
        rows.append(((len(rows) + 1) << 40, array.nbytes, array.ctypes.data, False))
    packed = np.array([rows[-2][0], rows[-1][0], tasks], np.int64).tobytes()
    # A task's guard must hold where a thread has no task: there is always a thread too many.
    run_kernel(ptx, None, (tasks // BLOCK + 1,), (BLOCK,), 0, packed, rows)
