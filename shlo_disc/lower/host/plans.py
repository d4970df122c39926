"""The kernel plans of a program's fusions: equal fusions on equal shapes share one."""

from __future__ import annotations

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import UnsupportedError
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.speculate import Likely, Speculation
from shlo_disc.lower.target import Target
from shlo_disc.mlir import ir
from shlo_disc.passes.records import planned

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
        key = (_structure(op), *shapes)
        found = self._made.get(key)
        if found is None:
            emitter = self._target.emitters.get(kind)
            if emitter is None:
                raise UnsupportedError(
                    f"target {self._target.name} has no kernel for {kind} (at {op.location}); "
                    "keep it outside shlo_disc.jit"
                )
            found = self._made[key] = self._speculation.plan(
                op, lambda shapes: emitter(planned(op, shapes), self._target.machine)
            )
        return found


def _structure(fusion: ir.Operation) -> tuple[object, ...]:
    """A hashable form of what determines a fusion's kernel: equal for equal computations."""
    reduced, given = (fusion.attributes.get(name, None) for name in ("reduced", "given"))
    return fusion.attributes["kind"], reduced, given, _form(fusion.regions[0].blocks[0], {})


def _form(block: ir.Block, numbers: dict[ir.Value, int]) -> tuple[object, ...]:
    """The same of a block; values have numbers in the order in which they are made."""
    for argument in block.arguments:
        numbers[argument] = len(numbers)
    found: list[object] = [tuple(argument.type for argument in block.arguments)]
    for view in block.operations:
        op = view.operation
        operands = tuple(numbers[value] for value in op.operands)
        regions = tuple(_form(inner, numbers) for region in op.regions for inner in region.blocks)
        for result in op.results:
            numbers[result] = len(numbers)
        attributes = tuple((name, op.attributes[name]) for name in op.attributes)
        types = tuple(result.type for result in op.results)
        found.append((op.name, operands, attributes, types, regions))
    return tuple(found)
