"""Plans as GPUs run them: memory that tasks need beside their arrays, and scalars by value.

Emitters write kernels that read every operand from memory, and whose tasks may have scratch memory.
A launch of a GPU has neither threads that own memory nor device memory for a scalar of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.index_width import narrowed
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.text import signed
from shlo_disc.lower.plan import FfiCall, If, Input, KernelPlan, Launch, Step, Workspace
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.records import Planned

__all__ = ["for_threads"]

WITH_MEMORY = 1 << 14
"""Threads of a launch whose tasks need scratch memory, at most; each runs several tasks then."""

Emit = Callable[[Planned[Any], Machine], KernelPlan]


def for_threads(emit: Emit) -> Emit:
    """An emitter whose plans launches of a GPU can run."""

    def emitted(fusion: Planned[Any], machine: Machine) -> KernelPlan:
        plan = emit(fusion, machine)
        rewriter = _Rewriter(plan, fusion.by_value, machine)
        steps = narrowed(fusion, rewriter.steps(plan.steps), kind_of(fusion.op).name)
        return replace(plan, steps=steps, workspaces=tuple(rewriter.workspaces))

    return emitted


class _Rewriter:
    """Rewrites the launches of one plan."""

    def __init__(self, plan: KernelPlan, by_value: Mapping[int, int], machine: Machine) -> None:
        self.workspaces = list(plan.workspaces)
        self._by_value = by_value
        self._stack_space = machine.stack_space

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """`steps` with launches that a GPU runs."""
        return tuple(self._step(step) for step in steps)

    def _step(self, step: Step) -> Step:
        if isinstance(step, Launch):
            return self._with_values(self._with_memory(step))
        if isinstance(step, If):
            return replace(step, then=self.steps(step.then), otherwise=self.steps(step.otherwise))
        if isinstance(step, FfiCall):
            return step
        raise InternalError(f"a step that a GPU does not run: {step}")

    def _with_memory(self, launch: Launch) -> Launch:
        """Scratch memory is a workspace, a part of it for each thread (`GpuBuilder.head`)."""
        if not signed(launch.kernel.source).signature.needs_memory:
            return launch
        size = ceil_div(launch.scratch_bytes, 16) * 16  # 0 for arrays that are known to be empty
        threads = Expr.min(launch.extent, Expr.const(WITH_MEMORY))
        memory = Workspace(len(self.workspaces))
        self.workspaces.append(size * threads)
        return replace(
            launch,
            args=(*launch.args, memory),
            params=(*launch.params, size, launch.extent),
            extent=threads,
            scratch_bytes=Expr.const(0),
        )

    def _with_values(self, launch: Launch) -> Launch:
        """The kernel finds scalars that it gets by value on its stack, where it reads them."""
        found = {
            position: self._by_value[buffer.index]
            for position, buffer in enumerate(launch.args)
            if isinstance(buffer, Input) and buffer.index in self._by_value
        }
        if not found:
            return launch
        source = signed(launch.kernel.source)
        if any(described.argument in found for described in source.signature.maps):
            raise InternalError(f"{launch.kernel.name} has a tensor map of a scalar")
        cells = [self._on_stack(position, f"i{8 * found[position]}") for position in found]
        source = replace(
            source,
            signature=replace(source.signature, by_value=tuple(found.items())),
            body="".join([*reversed(cells), source.body]),
        )
        return replace(launch, kernel=replace(launch.kernel, source=source))

    def _on_stack(self, position: int, kind: str) -> str:
        """What makes %aN the place of a copy of the value %vN."""
        space = self._stack_space
        cell, type_ = (
            (f"%_cell{position}", f"!llvm.ptr<{space}>")
            if space
            else (f"%a{position}", "!llvm.ptr")
        )
        lines = [
            f"%_one{position} = llvm.mlir.constant(1 : i64) : i64",
            f"{cell} = llvm.alloca %_one{position} x {kind} : (i64) -> {type_}",
            f"llvm.store %v{position}, {cell} : {kind}, {type_}",
        ]
        if space:
            lines.append(f"%a{position} = llvm.addrspacecast {cell} : {type_} to !llvm.ptr")
        return "".join(f"  {line}\n" for line in lines)
