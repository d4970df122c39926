"""Sine, cosine, tangent and the angle of a point, in f64 (f32 is rounded from it)."""

from __future__ import annotations

import math

from shlo_disc.lower.cpu.vector_math.arith import Arith
from shlo_disc.lower.cpu.vector_math.coefficients import ATAN_F64, COS_F64, SIN_F64

__all__ = ["atan2", "cos", "sin", "tan"]

# pi/2 in parts of 33 bits, so that k * part is exact for |k| < 2^20 (fdlibm's pio2_*).
_PI2 = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624871116645580e-21,
        8.47842766036889956997e-32)  # fmt: skip
_CODY_WAITE_LIMIT = 2.0**20 * math.pi / 2


def _reduced(a: Arith, x: str) -> tuple[str, str, str]:
    """(quadrant, r, what r lost) with x = quadrant pi/2 + r, |r| <= pi/4."""
    from shlo_disc.lower.cpu.vector_math.payne_hanek import reduce_large  # noqa: PLC0415 - it needs Arith

    inside = a.clamp(x, -_CODY_WAITE_LIMIT, _CODY_WAITE_LIMIT)
    whole, k = a.split_round(a.mul(inside, 2 / math.pi))
    r = a.fma(whole, -_PI2[0], inside)
    high = a.fma(whole, -_PI2[1], r)
    low = a.fma(whole, -_PI2[1], a.sub(r, high))
    small = a.fma(whole, -_PI2[2], low)
    small = a.fma(whole, -_PI2[3], small)
    head = a.add(high, small)
    rest = a.add(a.sub(high, head), small)
    return reduce_large(a, x, _CODY_WAITE_LIMIT, (k, head, rest))


def _sine(a: Arith, r: str, low: str) -> str:
    z = a.mul(r, r)
    cube = a.mul(z, r)
    return a.add(r, a.fma(cube, a.poly(z, SIN_F64), a.fma(z, a.mul(low, -0.5), low)))


def _cosine(a: Arith, r: str, low: str) -> str:
    z = a.mul(r, r)
    half = a.mul(z, 0.5)
    w = a.sub(1.0, half)
    lost = a.sub(a.sub(1.0, w), half)
    return a.add(w, a.fma(a.mul(z, z), a.poly(z, COS_F64), a.fma(a.neg(r), low, lost)))


def _wave(a: Arith, x: str, shift: int) -> str:
    k, r, low = _reduced(a, x)
    quadrant = a.iop("addi", k, shift)
    odd = a.b.cmpi("ne", a.iop("andi", quadrant, 1), a.i(0))
    minus = a.b.cmpi("ne", a.iop("andi", quadrant, 2), a.i(0))
    value = a.where(odd, _cosine(a, r, low), _sine(a, r, low))
    value = a.where(minus, a.neg(value), value)
    return a.where(a.lt(a.abs(x), math.inf), value, math.nan)


def sin(a: Arith, x: str) -> str:
    """The sine of x radians; NaN for infinities."""
    tiny = a.lt(a.abs(x), 2.0**-27)
    return a.where(tiny, x, _wave(a, x, 0))


def cos(a: Arith, x: str) -> str:
    """The cosine of x radians; NaN for infinities."""
    return _wave(a, x, 1)


def tan(a: Arith, x: str) -> str:
    """The tangent of x radians; NaN for infinities."""
    k, r, low = _reduced(a, x)
    odd = a.b.cmpi("ne", a.iop("andi", k, 1), a.i(0))
    s, c = _sine(a, r, low), _cosine(a, r, low)
    value = a.div(a.where(odd, a.neg(c), s), a.where(odd, s, c))
    value = a.where(a.lt(a.abs(x), math.inf), value, math.nan)
    return a.where(a.lt(a.abs(x), 2.0**-27), x, value)


def atan2(a: Arith, y: str, x: str) -> str:
    """The angle of the point (x, y) in [-pi, pi], with C99's signs and infinities."""
    ax, ay = a.abs(x), a.abs(y)
    steep = a.gt(ay, ax)
    bottom, top = a.where(steep, ay, ax), a.where(steep, ax, ay)
    ratio = a.div(top, bottom)
    ratio = a.where(a.eq(top, 0.0), 0.0, ratio)
    ratio = a.where(a.both(a.eq(top, math.inf), a.eq(bottom, math.inf)), 1.0, ratio)
    # atan(q) = pi/4 + atan((q - 1) / (q + 1)) keeps the polynomial's argument small.
    upper = a.gt(ratio, math.sqrt(2) - 1)
    q = a.where(upper, a.div(a.sub(ratio, 1.0), a.add(ratio, 1.0)), ratio)
    z = a.mul(q, q)
    angle = a.fma(a.mul(q, z), a.poly(z, ATAN_F64), q)
    # pi in two parts, the second what the first lost.
    quarter, quarter_low = math.pi / 4, 3.061616997868383e-17
    angle = a.where(upper, a.add(a.add(angle, quarter_low), quarter), angle)
    angle = a.where(steep, a.add(a.sub(2 * quarter_low, angle), 2 * quarter), angle)
    left = a.b.cmpi("slt", a.bits(x), a.i(0))
    angle = a.where(left, a.add(a.sub(4 * quarter_low, angle), 4 * quarter), angle)
    angle = a.copysign(angle, y)
    return a.where(a.either(a.nan(x), a.nan(y)), math.nan, angle)
