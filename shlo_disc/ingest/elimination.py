"""Systems of linear equations by Gaussian elimination with partial pivoting, as loops.

    a: [..., n, n] f32 or f64    b: [..., n, m]

    while k < n:  p = the row >= k with the largest |a[p, k]|
                  exchange rows k and p of a, of b and of the permutation
                  rows i > k:  f = a[i, k] / a[k, k]
                               a[i, :] -= f * a[k, :]; b[i, :] -= f * b[k, :]

Any front end may write it: no LAPACK is called. A step is element-wise over the matrix, with four
sums of masked rows and columns. A matrix that is singular has a zero pivot: the solution is then
not finite.

Source: Golub and Van Loan, Matrix Computations, 4th edition, algorithms 3.4.1 and 3.1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.ir.builders import (
    broadcast,
    broadcast_like,
    compare,
    create,
    dimension,
    element_of,
    integer,
    iota_like,
    rank_of,
    reduced,
    scalar,
    select,
    summed,
    vector,
    while_loop,
)
from shlo_disc.ir.mlir import ir


@dataclass(frozen=True)
class Eliminated:
    """What elimination makes of a matrix."""

    factors: ir.Value
    """[..., n, n]: U on and above the diagonal, L without its diagonal of ones below."""
    pivots: ir.Value
    """[..., n] i32: the row that each row was exchanged with, from 0."""
    sign: ir.Value
    """[...]: 1 for an even number of exchanges, else -1."""
    right: list[ir.Value]
    """L^-1 P b of every right side."""


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _number(n: int) -> ir.Value:
    return integer(n, ir.RankedTensorType.get([], _i32()))


def _is(direction: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """A comparison; `b` may have the first dimensions of `a`, or none."""
    b = b if rank_of(a) == rank_of(b) else broadcast_like(b, range(rank_of(b)), a)
    return compare(direction, a, b)


def _full(value: ir.Value, like: ir.Value) -> ir.Value:
    return broadcast_like(value, [], like)


def _zeros(like: ir.Value) -> ir.Value:
    element = element_of(like)
    zero = _number(0) if isinstance(element, ir.IntegerType) else scalar(0.0, element)
    return _full(zero, like)


def _picked(x: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    """`x` at `index` along `axis`, which has the dimensions before the matrix, or none."""
    return summed(select(_is("EQ", iota_like(x, axis), index), x, _zeros(x)), [axis])


def _row(x: ir.Value, like: ir.Value) -> ir.Value:
    """[..., m] as rows of `like`, [..., n, m]."""
    rank = rank_of(like)
    return broadcast_like(x, [*range(rank - 2), rank - 1], like)


def _column(x: ir.Value, like: ir.Value) -> ir.Value:
    """[..., n] as columns of `like`, [..., n, m]."""
    return broadcast_like(x, range(rank_of(like) - 1), like)


def _loop(
    count: ir.Value,
    states: Sequence[ir.Value],
    step: Callable[[ir.Value, Sequence[ir.Value]], list[ir.Value]],
) -> list[ir.Value]:
    """`states` after `step(k, states)` for k from 0 to `count`, an i32."""

    def counted(k: ir.Value, *values: ir.Value) -> list[ir.Value]:
        after = create("stablehlo.add", [k, _number(1)], k.type)
        return [after, *step(k, values)]

    return while_loop([_number(0), *states], lambda k, *_: _is("LT", k, count), counted)[1:]


def _exchanged(x: ir.Value, k: ir.Value, p: ir.Value, axis: int) -> tuple[ir.Value, ir.Value]:
    """`x` with rows `k` and `p` exchanged, and its new row `k`."""
    first, second = _picked(x, k, axis), _picked(x, p, axis)
    index = iota_like(x, axis)
    wide = [_row(v, x) for v in (first, second)]
    moved = select(_is("EQ", index, p), wide[0], x)
    return select(_is("EQ", index, k), wide[1], moved), second


def eliminated(a: ir.Value, right: Sequence[ir.Value] = ()) -> Eliminated:
    """Eliminate below the diagonal of `a`, and in every right side along with it."""
    rank = rank_of(a)
    rows = rank - 2
    line = summed(a, [rank - 1])  # [..., n], for its shape
    one = _full(scalar(1.0, element_of(a)), summed(a, [rows, rows + 1]))
    pivots = iota_like(line, rows)

    def step(k: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        a, pivots, sign, *right = states
        column = _picked(a, k, rows + 1)
        index = iota_like(column, rows)
        size = create("stablehlo.abs", [column], column.type)
        nothing = _full(scalar(-1.0, element_of(a)), size)
        size = select(_is("GE", index, k), size, nothing)
        largest = reduced(size, [rows], "maximum", scalar(-1.0, element_of(a)))
        end = _full(dimension(a, rows), index)
        first = reduced(
            select(_is("EQ", size, largest), index, end), [rows], "minimum", dimension(a, rows)
        )
        is_nan = _is("GE", first, dimension(a, rows))
        p = select(is_nan, _full(k, first), first)
        a, row = _exchanged(a, k, p, rows)
        moved = [_exchanged(b, k, p, rows) for b in right]
        pivot = _picked(row, k, rows)
        zero = _is("EQ", pivot, _zeros(pivot))
        divisor = select(zero, _full(scalar(1.0, element_of(a)), pivot), pivot)
        column = _picked(a, k, rows + 1)
        divisor = broadcast_like(divisor, range(rows), column)
        factor = create("stablehlo.divide", [column, divisor], column.type)
        factor = select(_is("GT", index, k), factor, _zeros(factor))
        is_below, at_k = _is("GT", iota_like(a, rows), k), _is("EQ", iota_like(a, rows + 1), k)
        is_right = _is("GT", iota_like(a, rows + 1), k)
        less = _less(a, factor, row)
        below = select(at_k, _column(factor, a), select(is_right, less, a))
        a = select(is_below, below, a)
        after = [_less(b, factor, own) for b, own in moved]
        other = create("stablehlo.negate", [sign], sign.type)
        sign = select(_is("EQ", p, k), sign, other)
        wide = broadcast_like(p, range(rows), index)
        return [a, select(_is("EQ", index, k), wide, pivots), sign, *after]

    a, pivots, sign, *after = _loop(dimension(a, rows), [a, pivots, one, *right], step)
    return Eliminated(a, pivots, sign, after)


def permutation(a: ir.Value, pivots: ir.Value) -> ir.Value:
    """[..., n] i32: the row of `a`, [..., n, m], in each place once rows were exchanged.

    Row k was exchanged with row `pivots[k]`, from 1, in this order.
    """
    rank = rank_of(a)
    order = iota_like(summed(a, [rank - 1]), rank - 2)
    column = ir.RankedTensorType.get([*ir.RankedTensorType(order.type).shape, 1], _i32())
    sizes = [dimension(order, k) for k in range(rank - 1)]
    wide = broadcast(order, range(rank - 1), column, lambda: vector([*sizes, _number(1)]))

    def step(k: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        p = _picked(pivots, k, rank - 2)
        p = create("stablehlo.subtract", [p, _full(_number(1), p)], p.type)
        return [_exchanged(states[0], k, p, rank - 2)[0]]

    (wide,) = _loop(dimension(pivots, rank - 2), [wide], step)
    return summed(wide, [rank - 1])


def _less(x: ir.Value, factor: ir.Value, row: ir.Value) -> ir.Value:
    """`x` without the products of a column and a row."""
    product = create("stablehlo.multiply", [_column(factor, x), _row(row, x)], x.type)
    return create("stablehlo.subtract", [x, product], x.type)


def back_substituted(factors: ir.Value, right: ir.Value) -> ir.Value:
    """U^-1 `right`, where U is on and above the diagonal of `factors`."""
    rows = rank_of(factors) - 2
    count = dimension(factors, rows)

    def step(number: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        (x,) = states
        last = create("stablehlo.subtract", [count, _number(1)], count.type)
        k = create("stablehlo.subtract", [last, number], count.type)
        column = _picked(factors, k, rows + 1)
        pivot = _picked(column, k, rows)
        row = _picked(x, k, rows)
        row = create("stablehlo.divide", [row, broadcast_like(pivot, range(rows), row)], row.type)
        index = iota_like(column, rows)
        above = select(_is("LT", index, k), column, _zeros(column))
        x = _less(x, above, row)
        return [select(_is("EQ", iota_like(x, rows), k), _row(row, x), x)]

    return _loop(count, [right], step)[0]


# -- inverses and determinants ---------------------------------------------------------------------


def diagonal_or(a: ir.Value, other: float) -> ir.Value:
    """`a`, with `other` outside the diagonal."""
    rank = rank_of(a)
    on = _is("EQ", iota_like(a, rank - 2), iota_like(a, rank - 1))
    return select(on, a, _full(scalar(other, element_of(a)), a))


def inverted(a: ir.Value) -> tuple[ir.Value, Eliminated]:
    """The inverse of `a`, and what elimination makes of `a`."""
    identity = diagonal_or(_full(scalar(1.0, element_of(a)), a), 0.0)
    found = eliminated(a, [identity])
    return back_substituted(found.factors, found.right[0]), found


def determinant(found: Eliminated) -> ir.Value:
    """The product of the pivots, with the sign of the exchanges; 1 of a matrix of size 0."""
    return _signed(found, diagonal_or(found.factors, 1.0))


def log_determinant(found: Eliminated) -> tuple[ir.Value, ir.Value]:
    """The sign of the determinant, and the logarithm of its size: 0 and -inf if it is 0."""
    diagonal = diagonal_or(found.factors, 1.0)
    size = create("stablehlo.abs", [diagonal], diagonal.type)
    logarithm = create("stablehlo.log", [size], size.type)
    signs = create("stablehlo.sign", [diagonal], diagonal.type)
    rank = rank_of(diagonal)
    return _signed(found, signs), summed(logarithm, [rank - 2, rank - 1])


def _signed(found: Eliminated, factors: ir.Value) -> ir.Value:
    """The product of the elements of matrices, with the sign of the exchanges."""
    rank = rank_of(factors)
    one = scalar(1.0, element_of(factors))
    product = reduced(factors, [rank - 2, rank - 1], "multiply", one)
    return create("stablehlo.multiply", [product, found.sign], product.type)
