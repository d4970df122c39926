"""lgamma and digamma.

Both have one polynomial around 1 and 2, from which its zeros are divided, and one for the rest of
Stirling's series. Between them and below the recurrences lead into the first interval:
lgamma(x) = log((x - 1) ... (x - k)) + lgamma(x - k). Sums are of numbers of one sign, but for
x < 0: there the reflections cancel beside the zeros of the functions.

Source: NIST Digital Library of Mathematical Functions, 5.5 and 5.11; the intervals of lgamma are
nearly those of Sun's fdlibm (`e_lgamma_r.c`).
"""

from __future__ import annotations

import math

from shlo_disc.lower.values.math.formulas import fma, horner, select
from shlo_disc.lower.values.math.logarithm import log
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.math.trigonometric import sin_cos_of_pi
from shlo_disc.lower.values.typed import Register

_INFINITY = float("inf")
_NAN = float("nan")
_CENTRE = float.fromhex("0x1.b33334p+0")
"""1.7, the middle of the interval of the polynomial of lgamma."""
_LGAMMA_FAR = 7.7
_DIGAMMA_FAR = 6.0
_STIRLING = (math.log(2 * math.pi) - 1) / 2
_ZERO = {
    "f32": (float.fromhex("0x1.762d86p+0"), float.fromhex("0x1.ab5f20p-27")),
    "f64": (float.fromhex("0x1.762d86356be3fp+0"), float.fromhex("0x1.b86a722197829p-54")),
}
"""The positive zero of digamma, as an unevaluated sum."""


def _inverse_square(a: Register) -> tuple[Register, Register]:
    """(1 / a, its square) up to a bound behind which no term of these counts."""
    inverse = 1.0 / a.at_most(2.0**60)  # the square is no denormal
    return inverse, inverse * inverse


@function(ulp=(4.0, 4.0), beside_zeros="x < 0: of max(1, lgamma(-x))")
def lgamma(x: Register) -> Register:
    """The logarithm of |gamma(x)|."""
    a = x.abs()
    small, large = a < _CENTRE - 1.0, a >= _LGAMMA_FAR
    # y - 1 is exact, that of a + 1 for small a.
    product, below = select(small, a, 1.0), a - 1.0
    below = select(small, a, below)
    for k in range(1, 6):
        reduced = a - float(k)
        more = reduced >= _CENTRE
        product = select(more, product * reduced, product)
        below = select(more, reduced - 1.0, below)
    polynomial = horner(below - (_CENTRE - 1.0), TABLES["lgamma", x.element])
    near = below * (below - 1.0) * polynomial
    logarithm = log(select(large, a, product))
    inverse, square = _inverse_square(a)
    rest = fma(horner(square, TABLES["lgamma_far", x.element]), inverse, _STIRLING)
    far = fma(a - 0.5, logarithm - 1.0, rest)
    positive = select(large, far, select(small, near - logarithm, near + logarithm))
    negative = x < 0.0
    with x.b.if_(negative.any()) as branch:
        # lgamma(-a) = -log(a sin(pi a) / pi) - lgamma(a); for small a of lgamma(a + 1) there.
        whole, finite = a.rint(), a < _INFINITY
        part = select(finite, (a - whole).abs(), 0.0)
        sine = sin_cos_of_pi(part)[0] * (1 / math.pi)
        sine = select(a < (2.0**-14 if x.element == "f32" else 2.0**-28), a, sine)
        base = select(small, near, positive)
        reflected = -(log(select(small, sine, sine * a)) + base)
        reflected = select(part.equals(0.0), _INFINITY, reflected)
        branch.yield_(select(negative, reflected, positive))
        with branch.otherwise():
            branch.yield_(positive)
    return branch.results[0]


@function(
    ulp=(3.5, 3.5), beside_zeros="x < 0: of the largest of 1, digamma(1 - x) and pi / tan(pi x)"
)
def digamma(x: Register) -> Register:
    """The derivative of lgamma; NaN at its poles, as XLA has it."""
    zero, zero_low = _ZERO[x.element]
    negative = x < 0.0
    a = select(negative, 1.0 - x, x)
    small = a < 1.0
    # A sum of reciprocals as a fraction.
    numerator, denominator = select(small, a.constant(-1.0), 0.0), select(small, a, 1.0)
    below = select(small, a, a - 1.0)
    for k in range(1, 4):
        reduced = a - float(k)
        more = reduced >= 2.0
        numerator = select(more, fma(numerator, reduced, denominator), numerator)
        denominator = select(more, denominator * reduced, denominator)
        below = select(more, reduced - 1.0, below)
    polynomial = horner(below - 1.0, TABLES["digamma", x.element])
    distance = (below - (zero - 1.0)) - zero_low
    near = fma(distance, polynomial, numerator / denominator)
    inverse, square = _inverse_square(a)
    tail = fma(square, horner(square, TABLES["digamma_far", x.element]), 0.5 * inverse)
    positive = select(a >= _DIGAMMA_FAR, log(a) - tail, near)
    with x.b.if_(negative.any()) as branch:
        # digamma(x) = digamma(1 - x) - pi / tan(pi x)
        whole = x.rint()
        part = x - whole
        sine, cosine = sin_cos_of_pi(part.abs())
        cotangent = (cosine / sine).copysign(part)
        reflected = fma(cotangent, -math.pi, positive)
        reflected = select(whole.equals(x), _NAN, reflected)
        branch.yield_(select(negative, reflected, positive))
        with branch.otherwise():
            branch.yield_(positive)
    return select(x.equals(0.0), _NAN, branch.results[0])
