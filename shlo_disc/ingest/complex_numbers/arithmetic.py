"""Products, quotients and elementary functions of complex numbers on their planes.

Special values are those of C99, Annex G, where it defines them. `multiply` is the plain formula, as
XLA computes it. Error bounds: docs/complex.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_disc.ingest.complex_numbers.magnitude import (
    absolute,
    either,
    log_absolute,
    log_absolute_of_next,
    log_absolute_of_singles,
    scale_of,
    wide,
)
from shlo_disc.ingest.complex_numbers.planes import Planes
from shlo_disc.ingest.complex_numbers.reals import Frame, Part, Real, Truth

# --- arithmetic -----------------------------------------------------------------------------------


def product(z: Part, w: Part) -> Part:
    """(a + ib)(c + id) as ac - bd + i(ad + bc)."""
    (a, b), (c, d) = z, w
    return a * c - b * d, a * d + b * c


def quotient(z: Part, w: Part) -> Part:
    """Z / w; every intermediate number is near 1 or exact.

    Annex G: a number by zero and infinity by a number are infinite, a number by infinity is zero.
    """
    (a, b), (c, d) = z, w
    frame = a.frame
    f = wide(frame)
    if frame.is_single:
        p, q, r, s = (x.converted(f) for x in (a, b, c, d))
        norm = r * r + s * s
        re, im = (p * r + q * s) / norm, (q * r - p * s) / norm
        parts = re.converted(frame), im.converted(frame)
    else:
        above, below = (scale_of(abs(x).maximum(abs(y))) for x, y in (z, w))
        p, q = a * above.inverse, b * above.inverse
        r, s = c * below.inverse, d * below.inverse
        norm = r * r + s * s
        parts = (
            above.by(below, (p * r + q * s) / norm),
            above.by(below, (q * r - p * s) / norm),
        )
    by_zero = abs(c).maximum(abs(d)).equals(0)
    pole = frame.constant(math.inf).with_sign_of(c)
    parts = _chosen(by_zero, (pole * a, pole * b), parts)
    finite_z, finite_w = (x.is_finite & y.is_finite for x, y in (z, w))
    ones = [_unit(x) for x in z]
    ratio = ones[0] * c + ones[1] * d, ones[1] * c - ones[0] * d
    infinite = math.inf * ratio[0], math.inf * ratio[1]
    parts = _chosen(either(a, b) & finite_w & ~by_zero, infinite, parts)
    ones = [_unit(x) for x in w]
    nothing = a * ones[0] + b * ones[1], b * ones[0] - a * ones[1]
    return _chosen(either(c, d) & finite_z, (0.0 * nothing[0], 0.0 * nothing[1]), parts)


def _unit(x: Real) -> Real:
    """1 at infinity and 0 elsewhere, with the sign of x."""
    return x.is_infinite.choose(1.0, 0.0).with_sign_of(x)


def _chosen(where: Truth, yes: Part, no: Part) -> Part:
    return where.choose(yes[0], no[0]), where.choose(yes[1], no[1])


def absolute_of(z: Part) -> Real:
    """|z|."""
    return absolute(*z)


def _sign(z: Part) -> Part:
    """Z / |z|; z itself where it is zero, NaN where it is infinite."""
    size = absolute(*z)
    a, b = z
    nan = a.is_nan | b.is_nan
    size = nan.choose(math.nan, size)
    tiny = size < _smallest_normal(a.frame)
    # A denormal magnitude has few bits.
    scale = tiny.choose(_up(a.frame), 1.0)
    a, b = a * scale, b * scale
    scaled = tiny.choose(absolute(a, b), size)
    parts = a / scaled, b / scaled
    return _chosen(size.equals(0), z, parts)


def _smallest_normal(frame: Frame) -> float:
    return 2.0 ** (1 - frame.format.bias)


def _up(frame: Frame) -> float:
    return 2.0 ** (frame.format.fraction + 2)


# --- exponentials ---------------------------------------------------------------------------------


def _powers_of_e(x: Real) -> Part:
    """Two factors of e**x; none overflows before the product with a sine would."""
    big = x > x.frame.largest_exponent
    first = big.choose(x * 0.5, x).exp()
    return first, big.choose(first, 1.0)


def _exponential(z: Part) -> Part:
    x, y = z
    # e**-inf is zero in any direction.
    y = (x.equals(-math.inf) & ~y.is_finite).choose(0.0, y)
    first, second = _powers_of_e(x)
    re = (first * y.cos()) * second
    re = (x.equals(math.inf) & ~y.is_finite).choose(math.inf, re)
    im = y.equals(0).choose(y, (first * y.sin()) * second)
    return re, im


def _exponential_minus_one(z: Part) -> Part:
    """expm1(x) cos y - 2 sin²(y/2), and the imaginary part of e**z."""
    x, y = z
    re, im = _exponential(z)
    half = (y * 0.5).sin()
    small = x.expm1() * y.cos() - 2 * (half * half)
    re = (x > _NO_ONE).choose(re, small)
    return (x.equals(-math.inf) & ~y.is_finite).choose(-1.0, re), im


_NO_ONE = 40.0
"""e**x - 1 = e**x to f64's precision from there on."""


def _hyperbolic(y: Real) -> tuple[Real, Real, Real]:
    """(c, s, k): cosh y = c * k, sinh y = s * k; c, s and k are finite where y is."""
    t = abs(y)
    big = t > y.frame.largest_exponent - 2
    e = big.choose(t * 0.5, t).expm1()
    one_more = e + 1
    c = big.choose(one_more, (one_more + 1 / one_more) * 0.5)
    s = big.choose(one_more, (e + e / one_more) * 0.5)
    return c, s.with_sign_of(y), big.choose(one_more * 0.5, 1.0)


def _sine_parts(z: Part) -> tuple[Part, Part]:
    """(sin x cosh y, cos x sinh y) and (cos x cosh y, sin x sinh y), zeros and infinities exact."""
    x, y = z
    c, s, k = _hyperbolic(y)
    sin, cos = x.sin(), x.cos()
    wild = ~x.is_finite
    at_zero, at_infinity = y.equals(0) & wild, y.is_infinite & wild
    sine_im = (at_zero | at_infinity).choose(y, (cos * s) * k)
    cosine_im = at_zero.choose(y, (sin * s) * k)
    sine = x.equals(0).choose(x, (sin * c) * k), sine_im
    unit = y.frame.constant(1.0).with_sign_of(y)
    cosine = at_infinity.choose(math.inf, (cos * c) * k), x.equals(0).choose(x * unit, cosine_im)
    return sine, cosine


def _sine(z: Part) -> Part:
    return _sine_parts(z)[0]


def _cosine(z: Part) -> Part:
    re, im = _sine_parts(z)[1]
    return re, -im


def _tanh(z: Part) -> Part:
    """Numerators and denominator of sinh x cosh x + i sin y cos y by sinh² x + cos² y.

    All multiplied by 4 e**-2|x|, which cannot overflow. With u = e**-2|x| - 1 the denominator is
    u² + 4 (1 + u) cos² y, a sum of positive numbers.
    """
    x, y = z
    y = (x.is_infinite & ~y.is_finite).choose(0.0, y)
    twice = abs(x) * -2.0
    u, e = twice.expm1(), twice.exp()
    sin, cos = y.sin(), y.cos()
    denominator = u * u + 4 * e * (cos * cos)
    re = (-u * (1 + e) / denominator).with_sign_of(x)
    im = 4 * e * sin * cos / denominator
    re = x.equals(0).choose(x, x.is_nan.choose(x, (y.is_nan | y.is_infinite).choose(math.nan, re)))
    return re, y.equals(0).choose(y, im)


def _tan(z: Part) -> Part:
    x, y = z
    im, re = _tanh((y, x))
    return re, im


def _logistic(z: Part) -> Part:
    """1 / (1 + e**-z), with e = e**-|x| and c = cos(y/2), s = sin(y/2):

    |1 + e**-z|² e**(x - |x|) = (1 - e)² + 4 e c², a sum of positive numbers.
    """
    x, y = z
    y = (x.is_infinite & ~y.is_finite).choose(0.0, y)
    t = -abs(x)
    u, e = t.expm1(), t.exp()
    s, c = (y * 0.5).sin(), (y * 0.5).cos()
    around = 2 * (c * c)
    denominator = u * u + 2 * e * around
    positive = e * around - u
    negative = e * (u + around)
    re = (x < 0).choose(negative, positive) / denominator
    im = 2 * e * s * c / denominator
    return re, y.equals(0).choose(y, im)


# --- logarithms, powers and roots -----------------------------------------------------------------


def _log(z: Part) -> Part:
    return log_absolute(*z), z[1].atan2(z[0])


def _log_plus_one(z: Part) -> Part:
    x, y = z
    return log_absolute_of_next(x, y), y.atan2(x + 1)


def _sqrt(z: Part) -> Part:
    """With u = sqrt((|x| + |z|) / 2) and v = |y| / 2u: u + iv, or v + iu for negative x."""
    return _in_wide(_wide_sqrt, z)


def _wide_sqrt(z: Part, large: bool) -> Part:
    x, y = z
    if large:
        scale = scale_of(abs(x).maximum(abs(y)), even=True)
        a, b = x * scale.inverse, y * scale.inverse
        root = scale.root
    else:
        a, b, root = x, y, None
    size = either(x, y).choose(math.inf, (a * a + b * b).sqrt())
    u = ((abs(a) + size) * 0.5).sqrt()
    if root is not None:
        u = u * root
    v = abs(y) / (u + u)  # y as it is: scaled with a far larger x it would be 0
    v = u.equals(0).choose(u, v)
    u, v = (y.is_infinite.choose(math.inf, part) for part in (u, v))
    swap = (x < 0) | (x.is_nan & y.is_infinite)
    return swap.choose(v, u), swap.choose(u, v).with_sign_of(y)


def _in_wide(function: Callable[[Part, bool], Part], z: Part) -> Part:
    """`function` of z, of single precision in f64; its second argument: squares may overflow."""
    frame = z[0].frame
    f = wide(frame)
    re, im = function((z[0].converted(f), z[1].converted(f)), not frame.is_single)
    return re.converted(frame), im.converted(frame)


def _rsqrt(z: Part) -> Part:
    """conj(sqrt z) / |z|; infinite at zero, zero at infinity."""
    frame = z[0].frame
    f = wide(frame)
    x, y = z[0].converted(f), z[1].converted(f)
    infinite = either(x, y)
    if frame.is_single:
        p, q = _wide_sqrt((x, y), False)
        size = (x * x + y * y).sqrt()
        re, im = p / size, -q / size
    else:
        scale = scale_of(abs(x).maximum(abs(y)), even=True)
        a, b = x * scale.inverse, y * scale.inverse
        p, q = _wide_sqrt((a, b), False)
        size = (a * a + b * b).sqrt() * scale.root
        re, im = p / size, -q / size
    zero = abs(x).maximum(abs(y)).equals(0)
    re = zero.choose(math.inf, infinite.choose(0.0, re))
    im = zero.choose(math.nan, infinite.choose((y * 0.0).with_sign_of(-y), im))
    im = infinite.choose(f.constant(0.0).with_sign_of(-y), im)
    return re.converted(frame), im.converted(frame)


def _cbrt(z: Part) -> Part:
    """The cube root of |z| at a third of the angle."""
    size, angle = absolute(*z).cbrt(), z[1].atan2(z[0]) / 3
    return size * angle.cos(), size * angle.sin()


def _power(z: Part, w: Part) -> Part:
    """e**(w log z), in f64; 1 for w = 0, 0 for z = 0 with a positive real part of w."""
    frame = z[0].frame
    f = wide(frame)
    (x, y), (c, d) = ((p.converted(f), q.converted(f)) for p, q in (z, w))
    log = (log_absolute_of_singles if frame.is_single else log_absolute)(x, y)
    angle = y.atan2(x)
    re, im = _exponential((c * log - d * angle, d * log + c * angle))
    nothing = abs(x).maximum(abs(y)).equals(0) & (c > 0)
    re, im = nothing.choose(0.0, re), nothing.choose(0.0, im)
    one = c.equals(0) & d.equals(0)
    re, im = one.choose(1.0, re), one.choose(0.0, im)
    return re.converted(frame), im.converted(frame)


def _atan2(z: Part, w: Part) -> Part:
    """-i log(p / sqrt(p q)) with p = w + iz and q = w - iz, since p q = w² + z².

    That is -i log(p / q) / 2 = -i log1p(2iz / q) / 2, but for a multiple of pi in the real part.
    Each of arg p - arg q and arg p + arg q may leave (-pi, pi].
    Source: StableHLO, atan2.
    """
    frame = z[0].frame
    f = wide(frame)  # near a branch cut a rounding error is an error of pi
    (a, b), (c, d) = ((x.converted(f), y.converted(f)) for x, y in (z, w))
    p, q = (c - b, d + a), (c + b, d - a)
    twice = quotient((-2 * b, 2 * a), q)
    log, angle = _log_plus_one(twice)
    first, second = p[1].atan2(p[0]), q[1].atan2(q[0])
    leaves = [(total > math.pi) | (total <= -math.pi) for total in (first - second, first + second)]
    turned = (angle <= 0).choose(angle * 0.5 + math.pi, angle * 0.5 - math.pi)
    once = (leaves[0] | leaves[1]) & ~(leaves[0] & leaves[1])
    re, im = once.choose(turned, angle * 0.5), log * -0.5
    return re.converted(frame), im.converted(frame)


# --- order ----------------------------------------------------------------------------------------


def less(z: Part, w: Part, *, or_equal: bool = False) -> Truth:
    """Z before w in lexicographic order."""
    (a, b), (c, d) = z, w
    return (a < c) | (a.equals(c) & ((b <= d) if or_equal else (b < d)))


def _extreme(z: Part, w: Part, first: Truth) -> Part:
    nan = z[0].is_nan | z[1].is_nan
    return _chosen(nan | first & ~(w[0].is_nan | w[1].is_nan), z, w)


def _maximum(z: Part, w: Part) -> Part:
    return _extreme(z, w, less(w, z))


def _minimum(z: Part, w: Part) -> Part:
    return _extreme(z, w, less(z, w))


UNARY: dict[str, Callable[[Part], Part]] = {
    "stablehlo.cbrt": _cbrt,
    "stablehlo.cosine": _cosine,
    "stablehlo.exponential": _exponential,
    "stablehlo.exponential_minus_one": _exponential_minus_one,
    "stablehlo.log": _log,
    "stablehlo.log_plus_one": _log_plus_one,
    "stablehlo.logistic": _logistic,
    "stablehlo.rsqrt": _rsqrt,
    "stablehlo.sign": _sign,
    "stablehlo.sine": _sine,
    "stablehlo.sqrt": _sqrt,
    "stablehlo.tan": _tan,
    "stablehlo.tanh": _tanh,
}
"""Functions of one complex number."""

BINARY: dict[str, Callable[[Part, Part], Part]] = {
    "stablehlo.atan2": _atan2,
    "stablehlo.divide": quotient,
    "stablehlo.maximum": _maximum,
    "stablehlo.minimum": _minimum,
    "stablehlo.multiply": product,
    "stablehlo.power": _power,
}
"""Functions of two complex numbers."""


def on_planes(function: Callable[..., Part], *operands: Planes) -> Planes:
    """`function` of complex values of one type."""
    frame = Frame(operands[0].re)
    re, im = function(*((frame.of(z.re), frame.of(z.im)) for z in operands))
    return Planes(re.value, im.value)
