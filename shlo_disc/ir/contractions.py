"""The dimensions of a `dot_general`, and how exact it is, said once.

    batch x rows x k  times  batch x columns x k      lhs: batch (0,), contracting (2,), free (1,)
    ==> batch x rows x columns                        rhs: batch (0,), contracting (2,), free (1,)

Source: dot_general in the StableHLO specification.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir, stablehlo


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
    for position, (batch, contracting) in enumerate(zip(batches, contractings, strict=True)):
        rank = ir.ShapedType(dot.operands[position].type).rank
        used = {*batch, *contracting}
        free = tuple(d for d in range(rank) if d not in used)
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


def may_round(op: ir.Operation) -> bool:
    """True if f32 operands of a contraction may be rounded to the digits of tf32.

    So it is at precision DEFAULT, as XLA has it on GPUs, and where `algorithm` names tf32. One of
    three products of tf32 each (`TF32_TF32_F32_X3` of JAX) asks for more digits.
    """
    if "algorithm" in op.attributes:
        text = str(op.attributes["algorithm"])
        return "lhs_precision_type = tf32" in text and "num_primitive_operations = 1," in text
    if "precision_config" not in op.attributes:
        return True
    return all("DEFAULT" in str(one) for one in ir.ArrayAttr(op.attributes["precision_config"]))
