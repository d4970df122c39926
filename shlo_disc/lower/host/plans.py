"""The kernel plans of a program's fusions: equal fusions on equal shapes share one."""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.dynamic import attributes as attr
from shlo_disc.dynamic.branch_sizes import branch_sizes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.speculate import Likely, Speculation
from shlo_disc.lower.target import Target
from shlo_disc.passes.homes import values_given
from shlo_disc.passes.op_classes import own_kind
from shlo_disc.passes.records import planned
from shlo_disc.passes.structure import structure

__all__ = ["Plans"]


class Plans:
    """Has plans made, each once. `likely`: values of symbols to have kernels for."""

    def __init__(self, shapes: ShapeAnalysis, target: Target, likely: Likely) -> None:
        self._shapes = shapes
        self._target = target
        self._speculation = Speculation(shapes, likely)
        self._made: dict[object, tuple[KernelPlan, tuple[str, ...]]] = {}

    def of(self, op: ir.Operation, kind: str) -> tuple[KernelPlan, tuple[str, ...]]:
        """The emitter's plan, and what was decided of its variants.

        Emitters read starts and paddings from operands with known elements, which the key holds.
        Raises UnsupportedError if the target has no emitter of this kind.
        """
        shapes = [(self._shapes.shape(v), self._shapes.entries(v)) for v in op.operands]
        known = branch_sizes(op, self._shapes)
        key = (structure(op), values_given(op), known, *shapes)
        found = self._made.get(key)
        if found is None:
            emitter = self._target.emitters.get(kind)
            if emitter is None:
                raise UnsupportedError(
                    f"{source_line(op)}: target {self._target.name} has no kernel for "
                    f"{_called(op, kind)}; keep it outside shlo_disc.jit"
                )
            found = self._made[key] = self._speculation.plan(
                op, known, lambda shapes: emitter(planned(op, shapes), self._target.machine)
            )
        return found


def _called(fusion: ir.Operation, kind: str) -> str:
    """The operation of a fusion of one kind, as its program calls it."""
    for op in fusion.regions[0].blocks[0].operations:
        if op.name == "stablehlo.custom_call":
            return f"{op.name} @{attr.text(op, 'call_target_name')}"
        if own_kind(op) == kind:
            return str(op.name)
    return kind
