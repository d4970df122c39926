"""What the formulas of this package share: fma, select, polynomials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.lower.values.typed import Mask, Register


def fma(a: Register, b: Register | float, c: Register | float) -> Register:
    """A * b + c, rounded once."""
    return a.b.op("math.fma", a, a.same(b), a.same(c))


def select(condition: Mask, a: Register | float, b: Register | float) -> Register:
    """`a` where `condition`, else `b`; at least one of them is a register."""
    like = a if isinstance(a, Register) else b
    if not isinstance(like, Register):
        raise TypeError("select wants at least one register")
    return condition.b.select(condition, like.same(a), like.same(b))


def choose(
    x: Register,
    easy: Mask,
    fast: Callable[[Register], Register],
    general: Callable[[Register], Register],
) -> Register:
    """`fast` of `x` when every lane is `easy`, else `general` of it: a branch.

    A scalar goes the general way: a branch costs as much as what it saves there.
    """
    if not x.lanes:
        return general(x)
    return x.b.either((~easy).any(), lambda: [general(x)], lambda: [fast(x)])[0]


def squared(x: Register) -> Register:
    """x^2, but not below 2^-60: powers of it must not become (slow) denormals, and polynomials in
    it no longer change there.
    """
    return (x * x).at_least(2.0**-60)


def horner(x: Register, coefficients: Sequence[float]) -> Register:
    """A polynomial, lowest power first; long ones in two interleaved halves for latency."""
    if len(coefficients) >= 8:
        square = x * x
        even, odd = (chain(square, coefficients[k::2]) for k in (0, 1))
        return fma(odd, x, even)
    return chain(x, coefficients)


def chain(x: Register, coefficients: Sequence[float]) -> Register:
    """A polynomial, lowest power first, in one chain: rounds less than two halves that cancel."""
    return _chain(x, coefficients)


def estrin(x: Register, coefficients: Sequence[float]) -> Register:
    """A polynomial, lowest power first, as a tree: for what a next step waits for.

    G. Estrin, "Organization of computer systems" (1960). Five terms wait for three operations, not
    for four, and need the square; seven for three, not for six, and need the fourth power.
    """
    terms: list[Register | float] = list(coefficients)
    while len(terms) > 3:
        pairs = [fma(x, b, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *terms[2 * len(pairs) :]]
        x = x * x
    return _chain(x, terms)


def _chain(x: Register, terms: Sequence[Register | float]) -> Register:
    result = x.same(terms[-1])
    for c in reversed(terms[:-1]):
        result = fma(result, x, c)
    return result


def two_sum(a: Register, b: Register) -> tuple[Register, Register]:
    """`a + b` as an unevaluated sum: rounded, and what rounding loses; `a` is 0 or the larger."""
    high = a + b
    return high, (a - high) + b
