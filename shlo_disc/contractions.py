"""The dimensions of a `dot_general`, said once.

    batch x rows x k  times  batch x columns x k      lhs: batch (0,), contracting (2,), free (1,)
    ==> batch x rows x columns                        rhs: batch (0,), contracting (2,), free (1,)

Source: dot_general in the StableHLO specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_disc.mlir import ir, stablehlo

__all__ = ["Side", "dot_numbers", "dot_sides"]


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


def dot_numbers(
    batch: tuple[Sequence[int], Sequence[int]], contracting: tuple[Sequence[int], Sequence[int]]
) -> ir.Attribute:
    """The attribute `dot_dimension_numbers` of these dimensions of the left and the right side."""
    return stablehlo.DotDimensionNumbers.get(
        *(list(dims) for dims in batch), *(list(dims) for dims in contracting)
    )
