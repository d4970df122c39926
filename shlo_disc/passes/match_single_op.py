"""Fusions of one op with an emitter of its own (sort, scatter, ...), and kind `loop`."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.mlir import ir
from shlo_disc.passes.op_classes import own_kind
from shlo_disc.passes.region import Region

__all__ = ["LoopRecord", "SingleOpRecord", "match_loop", "match_single_op"]


@dataclass(frozen=True)
class SingleOpRecord:
    """One op; the others of the region compute its operands."""

    op: ir.Operation
    results: tuple[int | None, ...]
    """For every result of `op` its number as a result of the region; None: nobody reads it."""


@dataclass(frozen=True)
class LoopRecord:
    """Kind `loop`: every element of every root on its own."""

    roots: tuple[ir.Value, ...]
    space: tuple[Expr, ...]
    """The sizes of the first root; the others have as many elements."""


def match_single_op(region: Region) -> SingleOpRecord | str:
    """The op of a region that has an emitter of its own; or why there is none."""
    ops = [op for op in region.ops if own_kind(op) is not None]
    if len(ops) != 1:
        return f"{len(ops)} ops with emitters of their own"
    (op,) = ops
    if any(result not in op.results for result in region.results):
        return "it has several results"
    numbers = {value: k for k, value in enumerate(region.results)}
    return SingleOpRecord(op, tuple(numbers.get(result) for result in op.results))


def match_loop(region: Region) -> LoopRecord | str:
    """The roots of a region; or why they are no loop."""
    shapes = region.shapes
    if not region.results:
        return LoopRecord((), ())
    space = shapes.shape(region.results[0])
    for root in region.results[1:]:
        if not shapes.constraints.product_equal(shapes.shape(root), space):
            return (
                f"results of one loop fusion with different element counts: {space} and "
                f"{shapes.shape(root)}"
            )
    return LoopRecord(region.results, space)
