"""Plans as GPUs run them: scalars by value.

Emitters write kernels that read every operand from memory. A launch of a GPU has no device memory
for a scalar of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shlo_disc.base.errors import InternalError
from shlo_disc.lower.gpu.index_width import narrowed
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import signed
from shlo_disc.lower.plan import FftCall, Input, KernelPlan, Launch, Pack, every, rewritten
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.records import Planned

Emit = Callable[[Planned[Any], Machine], KernelPlan]


def for_threads(emit: Emit) -> Emit:
    """An emitter whose plans launches of a GPU can run."""

    def emitted(fusion: Planned[Any], machine: Machine) -> KernelPlan:
        plan = emit(fusion, machine)
        for step in every(plan.steps):
            if isinstance(step, Pack | FftCall):
                raise InternalError(f"a step that a GPU does not run: {step}")
        values, space = fusion.by_value, machine.stack_space
        steps = rewritten(plan.steps, lambda launch: _launch(launch, values, space))
        return replace(plan, steps=narrowed(fusion, steps, kind_of(fusion.op).name))

    return emitted


def _launch(launch: Launch, by_value: Mapping[int, int], stack_space: int) -> Launch:
    """The kernel finds scalars that it gets by value on its stack, where it reads them."""
    found = {
        position: by_value[buffer.index]
        for position, buffer in enumerate(launch.args)
        if isinstance(buffer, Input) and buffer.index in by_value
    }
    if not found:
        return launch
    source = signed(launch.kernel.source)
    if any(described.argument in found for described in source.signature.maps):
        raise InternalError(f"{launch.kernel.name} has a tensor map of a scalar")
    cells = [_on_stack(position, f"i{8 * found[position]}", stack_space) for position in found]
    source = replace(
        source,
        signature=replace(source.signature, by_value=tuple(found.items())),
        body="".join([*reversed(cells), source.body]),
    )
    return replace(launch, kernel=replace(launch.kernel, source=source))


def _on_stack(position: int, kind: str, space: int) -> str:
    """MLIR that makes %aN the place of a copy of the value %vN."""
    cell, type_ = (
        (f"%_cell{position}", f"!llvm.ptr<{space}>") if space else (f"%a{position}", "!llvm.ptr")
    )
    lines = [
        f"%_one{position} = llvm.mlir.constant(1 : i64) : i64",
        f"{cell} = llvm.alloca %_one{position} x {kind} : (i64) -> {type_}",
        f"llvm.store %v{position}, {cell} : {kind}, {type_}",
    ]
    if space:
        lines.append(f"%a{position} = llvm.addrspacecast {cell} : {type_} to !llvm.ptr")
    return "".join(f"  {line}\n" for line in lines)
