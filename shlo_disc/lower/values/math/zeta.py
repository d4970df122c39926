"""zeta and polygamma.

The Hurwitz zeta function of s > 1 and q > 0 is computed by the Euler-Maclaurin formula. With
a = q + N and w = 1 / a^2:

    zeta(s, q) = sum((q + k)^-s, k < N) + a^-s (a / (s - 1) + 1/2 + s / a (c1 + (s+1)(s+2) w (c2 +
                 (s+3)(s+4) w (c3 + ...)))),   cj = B(2j) / (2j)!

Where the series stops to converge, for s > 2 pi a, the sum has all digits. f32 is computed in f64.

Source: NIST Digital Library of Mathematical Functions, 25.11.5.
"""

from __future__ import annotations

import math

from shlo_disc.lower.values.math.formulas import fma, select
from shlo_disc.lower.values.math.gamma import digamma
from shlo_disc.lower.values.math.power import positive_double, short_power
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.typed import Mask, Register

_INFINITY = float("inf")
_NAN = float("nan")
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
              43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730)  # fmt: skip
"""B(2), B(4), ..., B(24)."""
_SERIES = tuple(b / math.factorial(2 * j) for j, b in enumerate(_BERNOULLI, 1))


def _is_integer(x: Register) -> Mask:
    return x.rint().equals(x)


def _is_odd(n: Register) -> Mask:
    """True for an odd integer; `n` is an integer."""
    half = n * 0.5
    return half.rint().differs(half)


def _positive(s: Register, q: Register, single: bool) -> Register:
    """zeta(s, q) for finite s > 1, q > 0 of f64; `single`: in the precision of f32."""
    raised = short_power if single else positive_double
    count, series = (5, _SERIES[:6]) if single else (9, _SERIES)
    order = s.at_most(2.0**40)

    def term(k: Register | float) -> tuple[Register, Register]:
        """(q + k, its power -s): a correction makes up for the rounding of q + k."""
        base = q + k
        back = base - q
        lost = (q - (base - back)) + (k - back)
        power = raised(base, -s)
        return base, fma(power * (lost / base), -order, power)

    a, power = term(float(count))
    inverse = 1.0 / a
    square = inverse * inverse
    bounded = s.at_most(2.0**10) if single else s
    bounded = select(bounded > 8.0 * a, 8.0 * a, bounded)
    rest = s.constant(series[-1])
    for j in range(len(series) - 1, 0, -1):
        factors = (bounded + float(2 * j - 1)) * (bounded + float(2 * j)) * square
        rest = fma(factors, rest, series[j - 1])
    tail = power * (a / (s - 1.0) + fma(bounded * inverse, rest, 0.5))
    # The smallest terms first.
    first = s.constant(float(count - 1))
    with s.b.loop(0, count, 1, [tail, first], hint="term") as terms:
        total, k = terms.args
        terms.yield_(total + term(k)[1], k - 1.0)
    return terms.results[0]


def _zeta(s: Register, q: Register, single: bool) -> Register:
    """zeta(s, q) of f64.

    Below 0, with q = g - m, 0 < g < 1 and an integer m, terms of each sign are summed apart. The
    result is zeta(s, g) + (-1)^s (zeta(s, 1 - g) - zeta(s, 1 - q)).
    """
    b = s.b
    negative = q < 0.0
    nearest = q.rint()
    part = q - nearest
    above = part > 0.0
    size = part.abs()
    g = select(negative, select(above, size, 1.0 - size), q)
    mirrored = select(above, 1.0 - size, size)
    # Lanes without a value of their own stay among numbers that cost nothing.
    mirrored = select(negative & (size > 0.0), mirrored, 1.0)
    beyond = select(negative, 1.0 - q, 1.0)
    g = select((g > 0.0) & (g < _INFINITY), g, 1.0)
    beyond = select(beyond < _INFINITY, beyond, 1.0)
    order = select((s > 1.0) & (s < _INFINITY), s, 2.0)
    odd = _is_odd(s)
    sign = select(odd, s.constant(-1.0), 1.0)
    sign = select(negative, sign, 0.0)
    passes = b.select(negative.any(), b.index_constant(3, 0), b.index_constant(1, 0))
    one = s.constant(1.0)
    start = [s.constant(0.0), g, mirrored, beyond, one, sign, -sign]
    with b.loop(0, passes, 1, start, hint="part") as parts:
        total, here, second, third, factor, then, last = parts.args
        total = fma(factor, _positive(order, here, single), total)
        parts.yield_(total, second, third, here, then, last, factor)
    total = parts.results[0]
    pole = (q <= 0.0) & nearest.equals(q)
    undefined = pole | negative & ~_is_integer(s) | q.equals(_INFINITY) | q.is_nan()
    defined = (s > 1.0) & (s < _INFINITY) & ~undefined
    even = _is_integer(s) & ~odd & (s.abs() < _INFINITY)
    infinite = s.equals(1.0) | pole & even
    return select(infinite, _INFINITY, select(defined, total, _NAN))


@function(ulp=(0.6, 3.5), beside_zeros="q < 0: of the sum of the terms' sizes")
def zeta(s: Register, q: Register) -> Register:
    """The Hurwitz zeta function; infinite for s = 1, and at its poles (q = 0, -1, ...) for even s.

    Elsewhere NaN for s < 1, and at the poles: as the expansion of the op in StableHLO has it.
    """
    if s.is_double:
        return _zeta(s, q, single=False)
    wide, place = s.cast("arith.extf", "f64"), q.cast("arith.extf", "f64")
    return _zeta(wide, place, single=True).cast("arith.truncf", "f32")


def _factorial(n: Register) -> tuple[Register, Register]:
    """The factorial as an unevaluated sum, for integers n >= 0; infinite from 171 on."""
    last = n.at_most(171.0)
    one = n.constant(1.0)

    def step(carried: list[Register]) -> list[Register]:
        high, low, k = carried
        product = high * k
        rest = fma(low, k, fma(high, k, -product))
        more = k <= last
        return [select(more, product, high), select(more, rest, low), k + 1.0]

    init = [one, one.constant(0.0), one.constant(2.0)]
    high, low, _ = n.b.while_(init, lambda c: (c[2] <= last).any(), step)
    return high, select(high < _INFINITY, low, 0.0)


@function(ulp=(3.5, 4.0), beside_zeros="as zeta; n = 0: as digamma")
def polygamma(n: Register, x: Register) -> Register:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x); NaN unless n is a natural
    number.
    """
    wide, place = n, x
    if not n.is_double:
        wide, place = (v.cast("arith.extf", "f64") for v in (n, x))
    natural = (wide >= 0.0) & (wide < _INFINITY) & _is_integer(wide)
    order = select(natural, wide, 1.0)
    high, low = _factorial(order)
    sum_ = _zeta(order + 1.0, place, single=not n.is_double)
    size = fma(high, sum_, select(sum_ < _INFINITY, low * sum_, 0.0))
    size = select(_is_odd(order), size, -size)
    result = select(natural, size, _NAN)
    if not n.is_double:
        result = result.cast("arith.truncf", "f32")
    return select(n.equals(0.0), digamma(x), result)
