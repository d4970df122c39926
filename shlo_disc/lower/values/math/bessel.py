"""bessel_i1e: exp(-|x|) I1(x).

I1(a) / a is a series in a^2 without negative terms: a polynomial of it keeps its relative accuracy.
From a bound on, sqrt(a) exp(-a) I1(a) is a polynomial in 1 / a. Source of the two intervals: S.
Moshier's Cephes (`i1e`); the polynomials are our own.
"""

from __future__ import annotations

from shlo_disc.lower.values.math.exponential import exp
from shlo_disc.lower.values.math.formulas import fma, horner, select, squared
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Register

_BOUND = {"f32": 8.0, "f64": 12.0}
_SLOPE = (0.127, -0.0125, 0.00042)
"""About the logarithmic derivative of the series, I2(a) / (2a I1(a)), within 4 % for a <= 12."""


@function(ulp=(3.5, 4.5))
def bessel_i1e(x: Register) -> Register:
    """The modified Bessel function of order 1, scaled."""
    bound = _BOUND[x.element]
    a = x.abs()
    inside = a.at_most(bound)
    square = squared(inside)
    series = horner(square, TABLES["bessel_i1", x.element])
    # The series changes up to 5 times as much as its argument, which has a rounding error.
    series = fma(series * horner(inside, _SLOPE), fma(inside, inside, -square), series)
    near = exp(-inside) * series * x
    v = fma(1.0 / a.at_least(bound), 2.0 * bound, -1.0)
    far = (horner(v, TABLES["bessel_i1e_far", x.element]) / a.sqrt()).copysign(x)
    return select(a > bound, far, near)
