"""x^y.

f64: y log(x) in double-double arithmetic, as the error of the logarithm is multiplied by up to 745;
f32: everything in f64. Double-double formulas: T. J. Dekker, "A floating-point technique for
extending the available precision" (1971), with fma; the scheme is that of SLEEF's `pow_u1`.
Special cases: C99, annex F.9.4.4. Powers such as x^1.5 are products and a root (`constant_power`),
as XLA's algebraic simplifier has x^2, x^3, x^0.5 and x^-1.
"""

from __future__ import annotations

import functools
import operator

from shlo_disc.lower.values.math.exponential import (
    LN2_HIGH,
    LN2_LOW,
    exp_reduced,
    power_of_two,
    scale,
    split,
)
from shlo_disc.lower.values.math.formulas import fma, horner, select, two_sum
from shlo_disc.lower.values.math.logarithm import normalise, split_log
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Register

_INFINITY = float("inf")
_NAN = float("nan")
_THIRDS = (2.0 / 3.0, float.fromhex("0x1.5555555555555p-55"))
"""2/3 as an unevaluated sum."""


def _log_double(x: Register) -> tuple[Register, Register]:
    """log(x) of positive finite f64 as an unevaluated sum, relative error 2^-64."""
    scaled, shift = normalise(x)
    k, m = split_log(scaled)
    k = k + shift
    one = m.constant(1.0)
    denominator, below = m + one, m
    back = denominator - one
    below = (m - back) + (one - (denominator - back))
    inverse = one / denominator
    numerator = m - one
    s = numerator * inverse
    rest = fma(-s, denominator, numerator)
    s_low = fma(-s, below, rest) * inverse
    z = s * s
    z_low = fma(s, s, -z) + (s + s) * s_low
    t = z * horner(z, TABLES["log_dd", "f64"])
    u, u_low = two_sum(z.constant(_THIRDS[0]), t)
    u_low = u_low + _THIRDS[1]
    v = s * z
    v_low = fma(s, z, -v) + fma(s, z_low, s_low * z)
    w = v * u
    w_low = fma(v, u, -w) + fma(v, u_low, v_low * u)
    high, low = two_sum(k * LN2_HIGH["f64"], s + s)
    high, more = two_sum(high, w)
    low = low + more + (s_low + s_low) + w_low + k * LN2_LOW["f64"]
    return two_sum(high, low)


def positive_double(x: Register, y: Register) -> Register:
    """x^y of positive finite x."""
    high, low = _log_double(x)
    product = high * y
    rest = fma(high, y, -product) + low * y
    rest = select(product.abs() < 1000.0, rest, 0.0)
    _, n, r = split(product.at_most(720.0).at_least(-760.0))
    return scale(exp_reduced(r + rest), n)


def _positive_single(x: Register, y: Register) -> Register:
    """x^y of positive finite f32 x, through f64."""
    wide, exponent = x.cast("arith.extf", "f64"), y.cast("arith.extf", "f64")
    return short_power(wide, exponent).cast("arith.truncf", "f32")


def short_power(x: Register, y: Register) -> Register:
    """x^y of positive normal f64 x, relative error 2^-28 where the result is a normal f32."""
    k, m = split_log(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    odd = fma(s * z, horner(z, TABLES["log_short", "f64"]), s + s)
    logarithm = fma(k, LN2_HIGH["f64"] + LN2_LOW["f64"], odd)
    product = (logarithm * y).at_most(700.0).at_least(-700.0)
    _, n, r = split(product)
    return horner(r, TABLES["exp_short", "f64"]) * power_of_two(n, "f64")


@function(ulp=(0.6, 1.5), name="pow")
def power(x: Register, y: Register) -> Register:
    """x^y with the special cases of C99."""
    a = x.abs()
    positive = positive_double(a, y) if x.is_double else _positive_single(a, y)
    one = x.constant(1.0)
    positive = select(a.equals(1.0), one, positive)
    is_zero, is_infinite = a.equals(0.0), a.equals(_INFINITY)
    grows = is_zero ^ (y > 0.0)  # 0^-1 and inf^1 are inf
    positive = select(is_zero | is_infinite, select(grows, x.constant(_INFINITY), 0.0), positive)
    # Halves of odd integers are not integers; floats from 2^53 (2^24) on are even integers.
    integer = y.rint().equals(y)
    half = y * 0.5
    odd = integer & half.rint().differs(half)
    sign = x.bits() & (-1 << (63 if x.is_double else 31))
    result = select(odd, (positive.bits() | sign).floats(), positive)
    undefined = (x < 0.0) & ~integer & ~is_infinite
    result = select(undefined | x.is_nan() | y.is_nan(), x.constant(_NAN), result)
    return select(y.equals(0.0) | x.equals(1.0), one, result)


_MOST_HALVES = 8
"""Powers of f32 up to x^4 are products in f64, where none of them overflows or loses digits."""

_DOUBLES = frozenset((-1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0))
"""Powers of f64 with an error that `power` may have, and no product that leaves the range early."""


def constant_power(x: Register, y: float) -> Register:
    """x^y of a constant y: products, a root and a division where these are as good as `power`."""
    halves = 2 * y
    short = y in _DOUBLES if x.is_double else halves.is_integer() and abs(halves) <= _MOST_HALVES
    if not short or not y:
        return power(x, x.constant(y))
    # One operation is rounded correctly in f32, too.
    if x.is_double or y in (-1.0, 0.5, 1.0, 2.0):
        return _product_power(x, y)
    return _product_power(x.cast("arith.extf", "f64"), y).cast("arith.truncf", "f32")


def _product_power(x: Register, y: float) -> Register:
    """x^y, where 2 y is an integer and not 0."""
    count, has_root = divmod(int(2 * abs(y)), 2)
    factors = [x] * count
    if has_root:
        # x^0.5 of -0 is 0, and of -inf is inf; what is left below 0 has no root.
        root = select(x.equals(-_INFINITY), x.constant(_INFINITY), x.sqrt().abs())
        factors = [x.abs()] * count + [root]
    found = functools.reduce(operator.mul, factors)
    return 1.0 / found if y < 0 else found
