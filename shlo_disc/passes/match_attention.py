"""Which clusters are one attention: a product, row work on it, and a product with the outcome.

`plan-fusion` asks for every dot whether it is the second product. What the kernel needs is checked
here on dimension numbers: both products are batched, contract one dimension, and have one dimension
of keys and one of values; the keys are the innermost dimension of the scores, the values that of
the result. Nobody else reads the scores or the weights, so neither has to exist in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.mlir import ir, stablehlo

__all__ = ["Side", "dot_sides", "is_mix", "is_score", "key_side"]


@dataclass(frozen=True)
class Side:
    """The dimensions of one operand of a dot_general."""

    batch: tuple[int, ...]
    contracting: tuple[int, ...]
    free: tuple[int, ...]
    results: tuple[int, ...]
    """Which dimension of the result each free one is."""


def dot_sides(dot: ir.Operation) -> tuple[Side, Side]:
    """The left and the right side of a dot_general."""
    n = stablehlo.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
    batches = tuple(n.lhs_batching_dimensions), tuple(n.rhs_batching_dimensions)
    contractings = tuple(n.lhs_contracting_dimensions), tuple(n.rhs_contracting_dimensions)
    sides, first = [], len(batches[0])
    for value, batch, contracting in zip(dot.operands, batches, contractings, strict=True):
        rank = ir.ShapedType(value.type).rank
        free = tuple(d for d in range(rank) if d not in (*batch, *contracting))
        sides.append(Side(batch, contracting, free, tuple(range(first, first + len(free)))))
        first += len(free)
    return sides[0], sides[1]


def key_side(dot: ir.Operation, order: Sequence[int]) -> int | None:
    """Which operand the innermost dimension of the scores is of; `order` as for `is_score`."""
    return next((k for k, side in enumerate(dot_sides(dot)) if order[-1] in side.results), None)


def is_score(
    dot: ir.Operation, order: Sequence[int], shapes: Sequence[Sequence[Expr]]
) -> str | None:
    """Why `dot` cannot give the scores of an attention; None: it can.

    `order` says which dimension of the dot each dimension of the scores is, `shapes` are those of
    the operands.
    """
    sides = dot_sides(dot)
    if not sides[0].batch:
        return "the scores have no batch dimension"
    if len(sides[0].contracting) != 1:
        return "the scores contract several dimensions"
    keys = key_side(dot, order)
    if keys is None or len(_large(sides[keys].free, shapes[keys])) > 1:
        return "the innermost dimension of the scores is not the only one of the keys"
    return None


def is_mix(
    dot: ir.Operation, weights: int, order: Sequence[int], shapes: Sequence[Sequence[Expr]]
) -> str | None:
    """Why `dot` cannot mix values by its operand number `weights`; None: it can.

    `order` says which dimension of the dot each dimension of the result is, `shapes` are those of
    the operands.
    """
    sides = dot_sides(dot)
    mine, theirs = sides[weights], sides[1 - weights]
    if not mine.batch:
        return "the second product has no batch dimension"
    if mine.contracting != (len(shapes[weights]) - 1,):
        return "the second product contracts another dimension than the row work reduces"
    large = _large(theirs.free, shapes[1 - weights])
    if len(large) > 1:
        return "the values have several dimensions of their own"
    if large and theirs.results[theirs.free.index(large[0])] != order[-1]:
        return "the innermost dimension of the result is not the values'"
    if not large and order[-1] not in theirs.results:
        return "the innermost dimension of the result is not the values'"
    return None


def _large(dimensions: Sequence[int], shape: Sequence[Expr]) -> list[int]:
    return [d for d in dimensions if not (shape[d].is_const and shape[d].value == 1)]
