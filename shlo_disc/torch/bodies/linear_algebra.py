"""`torch.linalg` of square matrices: systems, inverses and determinants, by elimination.

Where PyTorch raises LinAlgError, the result is not finite: a program does not look at its data.
"""

from __future__ import annotations

from shlo_disc.builders import (
    broadcast,
    compare,
    create,
    dimension,
    integer,
    reduced,
    scalar,
    vector,
    with_element,
)
from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.elimination import (
    Eliminated,
    back_substituted,
    determinant,
    diagonal_or,
    eliminated,
    inverted,
    log_determinant,
)
from shlo_disc.ingest.size_values import binary
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, element_of, iota, spread

__all__ = ["det", "inv_ex", "slogdet", "solve_ex"]


def _pivots(found: Eliminated) -> ir.Value:
    """From 1, as LAPACK has them."""
    one = spread(constant(1, [], element_of(found.pivots)), [], found.pivots)
    return binary("add", found.pivots, one)


def _info(found: Eliminated) -> ir.Value:
    """[...] i32: the number of the first pivot that is 0, else 0."""
    rank = ir.RankedTensorType(found.factors.type).rank
    i32 = ir.IntegerType.get_signless(32)
    a = diagonal_or(found.factors, 1.0)
    truth = with_element(a.type, ir.IntegerType.get_signless(1))
    zero = compare("EQ", a, spread(constant(0, [], element_of(a)), [], a), truth)
    end = spread(constant(2**31 - 1, [], i32), [], zero)
    place = iota(a, rank - 1, i32)
    place = binary("add", place, spread(constant(1, [], i32), [], place))
    place = create("stablehlo.select", [zero, place, end], place.type)
    first = reduced(place, [rank - 2, rank - 1], "minimum", constant(2**31 - 1, [], i32))
    none = compare(
        "EQ", first, spread(constant(2**31 - 1, [], i32), [], first),
        with_element(first.type, ir.IntegerType.get_signless(1)),
    )  # fmt: skip
    return create(
        "stablehlo.select", [none, spread(constant(0, [], i32), [], first), first], first.type
    )


def solve_ex(call: BodyCall) -> list[ir.Value]:
    """`aten._linalg_solve_ex`: the solution, the factors, the pivots and what is singular.

    A: [..., n, n]    B: [..., n, m], or [..., n]. Raises UnsupportedError for `left=False`, and for
    batches that are broadcast.
    """
    a, b = call["A"], call["B"]
    if not call["left"]:
        raise UnsupportedError("left=False is not covered; solve the transposed system")
    sizes, right = call.shape("A"), call.shape("B")
    if len(right) == len(sizes) - 1 and list(right) == list(sizes[:-1]):
        kind = ir.RankedTensorType(b.type)
        wide = ir.RankedTensorType.get([*kind.shape, 1], kind.element_type)
        ones = _with_column(b, wide)
        found = eliminated(a, [ones])
        solved = _without_column(back_substituted(found.factors, found.right[0]))
    elif list(right[:-1]) == list(sizes[:-1]):
        found = eliminated(a, [b])
        solved = back_substituted(found.factors, found.right[0])
    else:
        raise UnsupportedError("batches of A and B must have equal sizes; expand them first")
    return [solved, found.factors, _pivots(found), _info(found)]


def _with_column(b: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    def sizes() -> ir.Value:
        rank = ir.RankedTensorType(b.type).rank
        one = integer(1, ir.RankedTensorType.get([], ir.IntegerType.get_signless(32)))
        return vector([*(dimension(b, k) for k in range(rank)), one])

    return broadcast(b, range(kind.rank - 1), kind, sizes)


def _without_column(x: ir.Value) -> ir.Value:
    rank = ir.RankedTensorType(x.type).rank
    return reduced(x, [rank - 1], "add", scalar(0.0, element_of(x)))


def inv_ex(call: BodyCall) -> list[ir.Value]:
    """`aten.linalg_inv_ex`: the inverse, and what is singular."""
    inverse, found = inverted(call["A"])
    return [inverse, _info(found)]


def det(call: BodyCall) -> list[ir.Value]:
    """`aten._linalg_det`: the product of the pivots, the factors and the pivots."""
    found = eliminated(call["A"])
    return [determinant(found), found.factors, _pivots(found)]


def slogdet(call: BodyCall) -> list[ir.Value]:
    """`aten._linalg_slogdet`: the sign and the logarithm of the size, the factors, the pivots."""
    found = eliminated(call["A"])
    return [*log_determinant(found), found.factors, _pivots(found)]
