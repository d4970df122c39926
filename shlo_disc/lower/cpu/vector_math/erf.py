"""The error function, its complement and its inverse."""

from __future__ import annotations

import math

from shlo_disc.lower.cpu.vector_math.arith import Arith
from shlo_disc.lower.cpu.vector_math.coefficients import ERF_F32, ERF_F64, ERFCX_F32, ERFCX_F64
from shlo_disc.lower.cpu.vector_math.exponential import exp, log1p

__all__ = ["erf", "erf_inv", "erfc"]

_SHIFT = {"f32": 2.0, "f64": 4.0}
_LAST = {"f32": 11.0, "f64": 28.0}
"""erfc is 0 from here on."""


def _small(a: Arith, x: str) -> str:
    """erf(x) for |x| <= 1."""
    return a.fma(x, a.poly(a.mul(x, x), ERF_F32 if a.element == "f32" else ERF_F64), x)


def _tail(a: Arith, size: str) -> str:
    """erfc(x) for 0.5 <= x: exp(-x^2) P(t) / (1 + x), t = (x - c) / (x + c)."""
    x = a.clamp(size, 0.5, _LAST[a.element])
    c = _SHIFT[a.element]
    t = a.div(a.sub(x, c), a.add(x, c))
    p = a.poly(t, ERFCX_F32 if a.element == "f32" else ERFCX_F64)
    square = a.mul(x, x)
    lost = a.fma(x, x, a.neg(square))
    # exp(-(square + lost)), to first order in what the square lost; the scaling into the
    # denormals comes last.
    scaled = a.div(a.fma(p, a.neg(lost), p), a.add(x, 1.0))
    return a.mul(exp(a, a.neg(square)), scaled)


def erf(a: Arith, x: str) -> str:
    """The error function: a polynomial up to 1, 1 - erfc(x) beyond."""
    size = a.abs(x)
    large = a.copysign(a.sub(1.0, _tail(a, size)), x)
    result = a.where(a.gt(size, 1.0), large, _small(a, x))
    return a.where(a.nan(x), x, result)


def erfc(a: Arith, x: str) -> str:
    """The complement: 1 - erf(x) below 0.5, the scaled tail above, 2 - tail for negative x."""
    size = a.abs(x)
    tail = _tail(a, size)
    small = a.lt(size, 0.5)
    inner = a.clamp(x, -0.5, 0.5)
    far = a.where(a.lt(x, 0.0), a.sub(2.0, tail), tail)
    result = a.where(small, a.sub(1.0, _small(a, inner)), far)
    return a.where(a.nan(x), x, result)


# Giles (2010), table 5: w < 5 in powers of w - 2.5, else of sqrt(w) - 3, highest power first.
_CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
            -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_OUTER = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
          -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def erf_inv(a: Arith, x: str) -> str:
    """The x with erf(x) = y: Giles' f32 approximation, then two Halley steps on erf (f64)."""
    w = a.neg(log1p(a, a.neg(a.mul(x, x))))
    # 1 - x^2 as (1 - x)(1 + x) keeps its precision near the ends.
    near = a.poly(a.sub(w, 2.5), _CENTRAL[::-1])
    far = a.poly(a.sub(a.sqrt(a.clamp(w, 5.0, 1e3)), 3.0), _OUTER[::-1])
    size = a.abs(x)
    y = a.abs(a.mul(a.where(a.lt(w, 5.0), near, far), size))
    outer = a.gt(size, 0.5)
    for _ in range(2):
        # The residual through the complement where erf is near 1.
        inner = a.sub(erf(a, y), size)
        tail = a.sub(a.sub(1.0, size), erfc(a, y))
        residual = a.where(outer, tail, inner)
        step = a.div(residual, a.mul(exp(a, a.neg(a.mul(y, y))), 2 / math.sqrt(math.pi)))
        y = a.sub(y, a.div(step, a.fma(y, step, 1.0)))
    tiny = a.lt(size, 1e-12)
    y = a.where(tiny, a.mul(size, math.sqrt(math.pi) / 2), y)
    y = a.where(a.eq(size, 1.0), math.inf, y)
    y = a.where(a.either(a.gt(size, 1.0), a.nan(x)), math.nan, y)
    return a.copysign(y, x)
