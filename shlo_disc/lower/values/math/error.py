"""erf, erfc, erf_inv.

erfc through (1 + 2a) exp(a^2) erfc(a), which is smooth in (a - k) / (a + k): M. Shepherd and
J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x" (1981). erf_inv as a function
of w = -log(1 - x^2): M. Giles, "Approximating the erfinv function" (2010).
"""

from __future__ import annotations

from shlo_disc.lower.values.math.exponential import (
    exp_reduced,
    expm1_reduced,
    power_of_two,
    scale_down,
    split,
)
from shlo_disc.lower.values.math.formulas import estrin, fma, horner, select, squared
from shlo_disc.lower.values.math.logarithm import log
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Register

_INFINITY = float("inf")


def _erf_small(x: Register) -> Register:
    """erf(x) of f64, |x| < 0.95."""
    return fma(x, horner(squared(x), TABLES["erf", x.element]), x)


@function(ulp=(3.0, 1.5))
def erf(x: Register) -> Register:
    """The error function."""
    a = x.abs()
    if x.is_double:
        large = 1.0 - _erfc_positive(a.at_most(6.0))
        return select(a >= 1.0, large.copysign(x), _erf_small(x))
    # -expm1(log(erfc(a))): one polynomial for all of it, exact near 0. Of 1 - 2^n e^r, the last
    # places of r count less the larger n is.
    a = a.at_most(4.0)
    first, *rest = TABLES["erf_log", "f32"]
    _, n, r = split(fma(a, -first, -(a * a) * estrin(a, rest)), is_exact=False)
    power = power_of_two(n, "f32")
    return fma(-power, expm1_reduced(r), 1.0 - power).copysign(x)


def _erfc_positive(a: Register) -> Register:
    """erfc(a), 0 <= a <= 27.3 (10.1 for f32)."""
    k = 4.0 if a.is_double else 2.0
    quotient = a.b.ordinary_quotient
    t = quotient(a - k, a + k)
    # Two halves of all terms would be larger than what they cancel to.
    first, second, *rest = TABLES["erfc", a.element]
    g = fma(fma(horner(t, rest), t, second), t, first)
    square = a * a
    _, n, r = split(-square)
    r = r - fma(a, a, -square)
    return scale_down(quotient(exp_reduced(r) * g, fma(a, 2.0, 1.0)), n)


@function(ulp=(5.0, 4.0))
def erfc(x: Register) -> Register:
    """1 - erf(x)."""
    a = x.abs()
    positive = _erfc_positive(a.at_most(27.3 if x.is_double else 10.1))
    result = select(x < 0.0, 2.0 - positive, positive)
    return select(a < 0.45, 1.0 - _erf_small(x), result) if x.is_double else result


@function(ulp=(2.0, 4.0))
def erf_inv(x: Register) -> Register:
    """The inverse of the error function: infinite at -1 and 1, NaN beyond."""
    dtype = x.element
    w = -log(fma(-x, x, 1.0))  # infinite at the ends, NaN beyond
    root = w.sqrt()
    if x.is_double:
        p = horner(w - 1.5, TABLES["erf_inv", dtype])
        tail = horner(root - 3.25, TABLES["erf_inv_tail", dtype])
        far = horner(root - 5.0, TABLES["erf_inv_far", dtype])
        p = select(w < 6.25, p, select(w < 16.0, tail, far))
    else:
        p = horner(w, TABLES["erf_inv", dtype])
        p = select(w < 5.0, p, horner(root - 3.0, TABLES["erf_inv_tail", dtype]))
    return select(
        w.equals(_INFINITY), x * _INFINITY, select(w.is_nan(), w, fma(x, p, x).copysign(x))
    )
