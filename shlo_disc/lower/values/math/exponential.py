"""exp, expm1, tanh, logistic.

All reduce x = n log(2) + r with |r| <= log(2) / 2 (W. Cody and W. Waite, "Software Manual for the
Elementary Functions", 1980) and share the polynomial of exp(r) - 1.
"""

from __future__ import annotations

import math

from shlo_disc.ir.element_types import FLOATS
from shlo_disc.lower.values.math.formulas import choose, estrin, fma, horner, select
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Mask, Register

LN2_HIGH = {"f32": float.fromhex("0x1.62e4p-1"), "f64": float.fromhex("0x1.62e42fefa3800p-1")}
"""log(2) with trailing zeros, so that n * LN2_HIGH is exact."""
LN2_LOW = {"f32": float.fromhex("0x1.7f7d1cp-20"), "f64": float.fromhex("0x1.ef35793c76730p-45")}
"""log(2) - LN2_HIGH."""
_MAGIC = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
"""Adding it rounds to an integer and leaves that integer in the low bits."""
_MAGIC_BITS = {"f32": 0x4B400000, "f64": 0x4338000000000000}


def split(x: Register, *, is_exact: bool = True) -> tuple[Register, Register, Register]:
    """(n as float, n as integer, r) with x = n log(2) + r; |x| < 2^20.

    Where that need not be exact, r lacks up to n / 2 units of the last place of log(2).
    """
    shifted = fma(x, 1 / math.log(2), _MAGIC[x.element])
    n = shifted - _MAGIC[x.element]
    if is_exact:
        r = fma(n, -LN2_LOW[x.element], fma(n, -LN2_HIGH[x.element], x))
    else:
        r = fma(n, -math.log(2), x)
    return n, shifted.bits() - _MAGIC_BITS[x.element], r


def expm1_reduced(r: Register) -> Register:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    polynomial = horner if r.is_double else estrin
    return fma(r * r, polynomial(r, TABLES["exp", r.element]), r)


def exp_reduced(r: Register) -> Register:
    """exp(r) for |r| <= log(2) / 2."""
    return expm1_reduced(r) + 1.0


def power_of_two(n: Register, dtype: str) -> Register:
    """2^n of integers in the range of normal floats."""
    return ((n + FLOATS[dtype].bias) << FLOATS[dtype].fraction).floats()


def _scales_at_once(x: Register) -> bool:
    """True if :func:`scale` is one instruction: then a way around it saves nothing."""
    return x.b.has_ldexp(x.type)


def scale(x: Register, n: Register) -> Register:
    """X * 2^n, also where the result is denormal or infinite; |n| < 250 (f32), 2000 (f64)."""
    if _scales_at_once(x):
        return x.b.intrinsic("llvm.ldexp", x, n, type_=x.type)  # vscalef
    half = n.sar(1)
    return x * power_of_two(half, x.element) * power_of_two(n - half, x.element)


_SPARE = {"f32": 32, "f64": 60}
"""The power of two that :func:`scale_down` first makes a number larger by."""


def scale_down(x: Register, n: Register) -> Register:
    """X * 2^n as :func:`scale` has it, of |x| from 2^-6.2 to 2 and n from -147 (f32) or -1075 (f64)
    to 0. The first product is a normal number: the other one rounds.
    """
    if _scales_at_once(x):
        return scale(x, n)
    spare = _SPARE[x.element]
    return x * power_of_two(n + spare, x.element) * 2.0**-spare


@function(ulp=(1.1, 1.1))
def exp(x: Register) -> Register:
    """e^x."""
    if _scales_at_once(x):
        return _exp_any(x)
    return choose(x, _is_ordinary(x), _exp_ordinary, _exp_any)


def _is_ordinary(x: Register) -> Mask:
    """True if e^x is a normal number and 2^n by itself too; False for NaN."""
    return x.abs() <= (87.0 if x.element == "f32" else 708.0)


def _exp_ordinary(x: Register) -> Register:
    _, n, r = split(x)
    return (exp_reduced(r).bits() + (n << FLOATS[x.element].fraction)).floats()


def _exp_any(x: Register) -> Register:
    vanishes, safe = _vanishing(x)
    _, n, r = split(safe.at_most(89.0 if x.element == "f32" else 710.0))
    return select(vanishes, 0.0, scale(exp_reduced(r), n))


def _vanishing(x: Register) -> tuple[Mask, Register]:
    """(a mask of the lanes where e^x is 0, `x` with 0 in these lanes).

    An instruction that underflows takes a hundred cycles, and a masked softmax is full of them.
    """
    vanishes = x < (-104.5 if x.element == "f32" else -746.0)
    return vanishes, select(vanishes, 0.0, x)


@function(ulp=(2.0, 2.0))
def expm1(x: Register) -> Register:
    """e^x - 1 without cancellation."""
    low, high, tiny = (-18.0, 89.0, 2.0**-26) if x.element == "f32" else (-39.0, 710.0, 2.0**-55)
    _, n, r = split(x.at_most(high).at_least(low))
    e = expm1_reduced(r)
    half = power_of_two(n - 1, x.element)  # 2^n itself may overflow
    result = fma(half, e, half - 0.5)
    result = result + result
    # Keeps -0 and denormals; NaN reaches the result through e.
    return select(x.abs() < tiny, x, result)


@function(ulp=(2.5, 2.0))
def tanh(x: Register) -> Register:
    """With t = (e^2|x| - 1) / 2: t / (t + 1), where 2|x| = n log(2) + 2r.

    The powers of two are in the constants, and change no rounding.
    """
    dtype = x.element
    a = x.abs().at_most(9.5 if dtype == "f32" else 20.0)
    shifted = fma(a, 2 / math.log(2), _MAGIC[dtype])
    n = shifted - _MAGIC[dtype]
    r = fma(n, -LN2_HIGH[dtype] / 2, a)
    r = fma(n, -LN2_LOW[dtype] / 2, r)
    doubled = [c * 2.0 ** (k + 1) for k, c in enumerate(TABLES["exp", dtype])]
    half = fma(r * r, horner(r, doubled), r)  # of e^2r - 1
    power = power_of_two(shifted.bits() - _MAGIC_BITS[dtype], dtype)
    t = fma(power, half, fma(power, 0.5, -0.5))
    return x.b.signed(x.b.ordinary_quotient(t, t + 1.0), x)  # -0 stays


@function(ulp=(2.5, 2.5))
def logistic(x: Register) -> Register:
    """1 / (1 + e^-x), exact to the last denormal: e^x / (1 + e^x) for negative x."""
    e = exp(-x.abs())
    return x.b.ordinary_quotient(select(x < 0.0, e, 1.0), e + 1.0)
