"""Exponentials, logarithms, powers and hyperbolic functions."""

from __future__ import annotations

import math

from shlo_disc.lower.cpu.vector_math.arith import Arith
from shlo_disc.lower.cpu.vector_math.coefficients import EXPM1_F32, EXPM1_F64, LOG_F32, LOG_F64

__all__ = ["cbrt", "exp", "expm1", "log", "log1p", "logistic", "power", "rsqrt", "tanh"]

INF, NAN = math.inf, math.nan

# log(2) in two parts: the first has trailing zeros, so that k * first is exact.
_LN2 = {
    "f32": (0.693145751953125, 1.428606765330187e-06),
    "f64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
# Beyond these exp is inf or 0, well after the rounding to them has become right.
_EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}


def _reduced(a: Arith, x: str) -> tuple[str, str, str]:
    """(k as float, k, r) with x = k log 2 + r and |r| <= log(2) / 2."""
    high, low = _LN2[a.element]
    whole, k = a.split_round(a.mul(x, 1 / math.log(2)))
    r = a.fma(whole, -low, a.fma(whole, -high, x))
    return whole, k, r


def _expm1_small(a: Arith, r: str) -> str:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    tail = a.poly(r, EXPM1_F32 if a.element == "f32" else EXPM1_F64)
    return a.fma(a.mul(r, r), tail, r)


def exp(a: Arith, x: str) -> str:
    """e^x: 2^k times a polynomial of the reduced argument."""
    _, k, r = _reduced(a, a.clamp(x, *_EXP_RANGE[a.element]))
    result = a.scale(a.add(_expm1_small(a, r), 1.0), k)
    return a.where(a.nan(x), x, result)


def expm1(a: Arith, x: str) -> str:
    """e^x - 1 = 2^k (e^r - 1) + (2^k - 1)."""
    low, high = _EXP_RANGE[a.element]
    _, k, r = _reduced(a, a.clamp(x, low, high))
    small = _expm1_small(a, r)
    # 2^bias is the largest power; the last step to infinity is exp's.
    power = a.scale(a.c(1.0), k)
    result = a.fma(small, power, a.sub(power, 1.0))
    big = a.gt(x, high - 1.5)
    result = a.where(big, exp(a, x), result)
    tiny = a.lt(a.abs(x), 2.0 ** -(a.mantissa + 1))
    return a.where(a.either(tiny, a.nan(x)), x, result)


def _split(a: Arith, x: str) -> tuple[str, str]:
    """(k, m) with x = 2^k m and sqrt(1/2) <= m < sqrt(2), for positive finite x."""
    denormal = a.lt(x, 2.0 ** (1 - a.bias))
    scaled = a.where(denormal, a.mul(x, 2.0**54), x)
    bits = a.bits(scaled)
    above = a.iop("subi", bits, a.bits(a.c(math.sqrt(0.5))))
    k = a.iop("shrsi", above, a.mantissa)
    m = a.of_bits(a.iop("subi", bits, a.iop("shli", k, a.mantissa)))
    k = a.int_to_float(k)
    return a.where(denormal, a.sub(k, 54.0), k), m


def _log_special(a: Arith, x: str, result: str) -> str:
    result = a.where(a.eq(x, INF), INF, result)
    result = a.where(a.eq(x, 0.0), -INF, result)
    return a.where(a.either(a.lt(x, 0.0), a.nan(x)), NAN, result)


def log(a: Arith, x: str) -> str:
    """The natural logarithm."""
    k, m = _split(a, x)
    high, low = _LN2[a.element]
    f = a.sub(m, 1.0)
    if a.element == "f32":
        # f - f^2/2 + f^3 P(f), smallest terms first.
        square = a.mul(f, f)
        y = a.mul(a.mul(square, f), a.poly(f, LOG_F32))
        y = a.fma(k, low, y)
        y = a.fma(square, -0.5, y)
        return _log_special(a, x, a.fma(k, high, a.add(f, y)))
    # fdlibm: log(1+f) = f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f), R = s^2 P(s^2).
    s = a.div(f, a.add(f, 2.0))
    z = a.mul(s, s)
    rest = a.mul(z, a.poly(z, LOG_F64))
    half = a.mul(a.mul(f, f), 0.5)
    inner = a.fma(s, a.add(half, rest), a.mul(k, low))
    return _log_special(a, x, a.sub(a.mul(k, high), a.sub(a.sub(half, inner), f)))


def log1p(a: Arith, x: str) -> str:
    """log(1 + x): log of the rounded sum plus the rounding's share."""
    u = a.add(x, 1.0)
    lost = a.where(a.gt(u, 2.0), a.sub(1.0, a.sub(u, x)), a.sub(x, a.sub(u, 1.0)))
    result = a.add(log(a, u), a.div(lost, u))
    result = a.where(a.eq(x, -1.0), -INF, result)
    result = a.where(a.eq(x, INF), INF, result)
    tiny = a.lt(a.abs(x), 2.0 ** -(a.mantissa + 1))
    return a.where(tiny, x, result)


def logistic(a: Arith, x: str) -> str:
    """1 / (1 + e^-x), from e^-|x| so that small results keep their precision."""
    e = exp(a, a.neg(a.abs(x)))
    return a.div(a.where(a.lt(x, 0.0), e, 1.0), a.add(e, 1.0))


def tanh(a: Arith, x: str) -> str:
    """T / (t + 2) with t = e^(2|x|) - 1."""
    bound = 9.5 if a.element == "f32" else 22.0
    size = a.abs(x)
    doubled = a.mul(a.clamp(size, 0.0, bound), 2.0)
    _, k, r = _reduced(a, doubled)
    power = a.power_of_two(k)
    t = a.fma(_expm1_small(a, r), power, a.sub(power, 1.0))
    result = a.where(a.lt(size, bound), a.div(t, a.add(t, 2.0)), 1.0)
    tiny = a.lt(size, 2.0 ** -(a.mantissa // 2 + 2))
    result = a.where(tiny, size, result)
    return a.where(a.nan(x), x, a.copysign(result, x))


def rsqrt(a: Arith, x: str) -> str:
    """1 / sqrt(x)."""
    return a.div(1.0, a.sqrt(x))


def cbrt(a: Arith, x: str) -> str:
    """The real cube root: an exponent third as the start, then Halley's iteration (f64)."""
    size = a.abs(x)
    denormal = a.lt(size, 2.0**-1022)
    scaled = a.where(denormal, a.mul(size, 2.0**54), size)
    # 715094163 is fdlibm's B1: (1023 - 1023/3 - 0.03306235651) * 2^20, in the high word.
    high = a.iop("shrui", a.bits(scaled), 32)
    y = a.of_bits(a.iop("shli", a.iop("addi", a.iop("divui", high, 3), 715094163), 32))
    for _ in range(3):
        cube = a.mul(a.mul(y, y), y)
        y = a.mul(y, a.div(a.fma(scaled, 2.0, cube), a.fma(cube, 2.0, scaled)))
    # One Newton step with the residual in one rounding.
    square = a.mul(y, y)
    low = a.fma(y, y, a.neg(square))
    residual = a.fma(a.neg(square), y, scaled)
    residual = a.fma(a.neg(low), y, residual)
    y = a.add(y, a.div(residual, a.mul(square, 3.0)))
    y = a.where(denormal, a.mul(y, 2.0**-18), y)
    special = a.either(a.either(a.eq(x, 0.0), a.eq(size, INF)), a.nan(x))
    return a.where(special, x, a.copysign(y, x))


def _two_sum(a: Arith, x: str, y: str) -> tuple[str, str]:
    """X + y exactly, as (rounded, rest) (Knuth)."""
    s = a.add(x, y)
    t = a.sub(s, x)
    return s, a.add(a.sub(x, a.sub(s, t)), a.sub(y, t))


def _log_double(a: Arith, x: str) -> tuple[str, str]:
    """log(x) as the sum of two f64, for positive finite x."""
    k, m = _split(a, x)
    f = a.sub(m, 1.0)
    bottom = a.add(f, 2.0)
    bottom_low = a.sub(f, a.sub(bottom, 2.0))
    s = a.div(f, bottom)
    rest = a.fma(a.neg(s), bottom, f)
    s_low = a.div(a.fma(a.neg(s), bottom_low, rest), bottom)
    z = a.mul(s, s)
    tail = a.mul(a.mul(z, s), a.poly(z, LOG_F64))
    high, low = _LN2["f64"]
    total, lost = _two_sum(a, a.mul(k, high), a.mul(s, 2.0))
    small = a.add(a.fma(k, low, tail), a.add(a.mul(s_low, 2.0), lost))
    head = a.add(total, small)
    return head, a.add(a.sub(total, head), small)


def power(a: Arith, x: str, y: str) -> str:
    """x^y as C99 defines it: exp(y log|x|), the logarithm in two f64; signs and specials after."""
    size = a.abs(x)
    high, low = _log_double(a, size)
    product = a.mul(high, y)
    rest = a.fma(high, y, a.neg(product))
    rest = a.fma(low, y, rest)
    clamped = a.clamp(product, -760.0, 720.0)
    e = exp(a, clamped)
    finite = a.lt(a.abs(product), 720.0)
    correction = a.where(finite, rest, 0.0)
    result = a.where(a.lt(e, INF), a.fma(e, correction, e), e)
    # |x| special: 0, inf, 1.
    negative = a.lt(y, 0.0)
    result = a.where(a.eq(size, 0.0), a.where(negative, INF, 0.0), result)
    result = a.where(a.eq(size, INF), a.where(negative, 0.0, INF), result)
    infinite = a.eq(a.abs(y), INF)
    grows = a.b.cmpi("eq", a.b.cast("arith.extui", a.gt(size, 1.0), "i8"),
                     a.b.cast("arith.extui", a.gt(y, 0.0), "i8"))  # fmt: skip
    result = a.where(infinite, a.where(grows, INF, 0.0), result)
    result = a.where(a.both(infinite, a.eq(size, 1.0)), 1.0, result)
    # Sign and domain of a negative base (-0 included).
    integer = a.eq(a.rint(y), y)
    half = a.mul(y, 0.5)
    odd = a.both(integer, a.b.cmpf("one", a.rint(half), half))
    odd = a.both(odd, a.lt(a.abs(y), 2.0**53))
    minus = a.b.cmpi("slt", a.bits(x), a.i(0))
    result = a.where(a.both(odd, minus), a.neg(result), result)
    fractional = a.both(a.b.cmpf("one", a.rint(y), y), a.lt(x, 0.0))
    result = a.where(a.both(fractional, a.lt(size, INF)), NAN, result)
    result = a.where(a.either(a.nan(x), a.nan(y)), NAN, result)
    return a.where(a.either(a.eq(y, 0.0), a.eq(x, 1.0)), 1.0, result)
