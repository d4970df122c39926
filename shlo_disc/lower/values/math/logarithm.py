"""log and log1p.

x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). For f32 a polynomial in f as in S. Moshier's
Cephes (`logf`), for f64 the odd series in f / (2 + f) as in Sun's fdlibm (`e_log.c`); both with
coefficients of our own.
"""

from __future__ import annotations

from shlo_disc.ir.element_types import FLOATS
from shlo_disc.lower.values.math.exponential import LN2_HIGH, LN2_LOW
from shlo_disc.lower.values.math.formulas import fma, horner, select
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Register

_INFINITY = float("inf")
_NAN = float("nan")
_SQRT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}
"""Bits of sqrt(1/2)."""


def split_log(x: Register) -> tuple[Register, Register]:
    """(k as float, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2)); positive normal x."""
    dtype, shift = x.element, FLOATS[x.element].fraction
    offset = x.bits() - _SQRT_HALF[dtype]
    k = offset.sar(shift)
    m = (x.bits() - (k << shift)).floats()
    return k.cast("arith.sitofp", dtype), m


def normalise(x: Register) -> tuple[Register, Register]:
    """(x or x * 2^p, 0 or -p) so that positive denormals become normal."""
    tiny, p = (2.0**-126, 25) if x.element == "f32" else (2.0**-1022, 54)
    denormal = x < tiny
    return select(denormal, x * 2.0**p, x), select(denormal, x.constant(-float(p)), 0.0)


def _log_of(k: Register, f: Register, correction: Register | None) -> Register:
    """K log(2) + log(1 + f) + correction."""
    dtype = f.element
    low = k * LN2_LOW[dtype]
    if correction is not None:
        low = low + correction
    half = 0.5 * f * f
    if dtype == "f32":
        cubic = f * f * f * horner(f, TABLES["log", dtype])
        tail = cubic + low
        return fma(k, LN2_HIGH[dtype], (tail - half) + f)
    s = f / (f + 2.0)
    z = s * s
    r = z * horner(z, TABLES["log", dtype])
    tail = fma(s, half + r, low)
    return fma(k, LN2_HIGH[dtype], f - (half - tail))


def _edges(x: Register, result: Register, zero: float) -> Register:
    """The value at the ends of the domain: -inf at `zero`, NaN below it, inf at inf."""
    at_end = select(x.equals(_INFINITY), x, select(x.equals(zero), -_INFINITY, x.constant(_NAN)))
    inside = (x > zero) & (x < _INFINITY)
    return select(inside, result, at_end)


@function(ulp=(1.0, 1.0))
def log(x: Register) -> Register:
    """The natural logarithm."""
    scaled, shift = normalise(x)
    k, m = split_log(scaled)
    return _edges(x, _log_of(k + shift, m - 1.0, None), 0.0)


@function(ulp=(1.0, 1.0))
def log1p(x: Register) -> Register:
    """log(1 + x): the rounding error of 1 + x enters as a correction."""
    u = x + 1.0
    back = u - 1.0
    error = (x - back) + (1.0 - (u - back))
    k, m = split_log(u)
    result = _log_of(k, m - 1.0, error / u)
    result = select(x.abs() < (2.0**-25 if x.element == "f32" else 2.0**-54), x, result)
    return _edges(x, result, -1.0)
