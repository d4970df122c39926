"""Magnitudes of complex numbers without overflow, underflow or cancellation.

Logarithms of single precision are computed in f64: squares of f32 numbers and their products are
exact there, and none overflows. Absolute values and double precision are scaled by powers of two,
which rounds nothing.
"""

from __future__ import annotations

import math

from shlo_disc.ingest.complex_numbers.reals import Frame, Real, Truth
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir


def wide(frame: Frame) -> Frame:
    """The frame in which a function of `frame` is computed: f64."""
    return frame if not frame.is_single else Frame(frame.constant(0.0).value, ir.F64Type.get())


def either(x: Real, y: Real) -> Truth:
    """True where x or y is infinite."""
    return x.is_infinite | y.is_infinite


class Scale:
    """A power of two near a number: 2**exponent, and ways to multiply by it.

    The exponent lies in [-1022, 1022]; numbers beyond keep a factor of 4 or a denormal's 2**-52.
    """

    def __init__(self, frame: Frame, biased: ir.Value) -> None:
        self._frame = frame
        self._biased = biased

    @property
    def factor(self) -> Real:
        """2**exponent."""
        return self._power(self._biased)

    @property
    def inverse(self) -> Real:
        """2**-exponent."""
        top = self._frame.integer(2 * self._frame.format.bias)
        return self._power(create("stablehlo.subtract", [top, self._biased], self._biased.type))

    @property
    def root(self) -> Real:
        """2**(exponent / 2), of an even exponent."""
        return self._power(self._half(self._frame.format.bias))

    @property
    def exponent(self) -> Real:
        """The exponent as a number."""
        f = self._frame
        bias = f.integer(f.format.bias)
        unbiased = create("stablehlo.subtract", [self._biased, bias], bias.type)
        return Real(f, create("stablehlo.convert", [unbiased], f.type))

    def by(self, other: Scale, x: Real) -> Real:
        """X * 2**(exponent - other's exponent), in two steps that do not overflow on the way."""
        f = self._frame
        difference = create("stablehlo.subtract", [self._biased, other._biased], self._biased.type)
        one = f.integer(1)
        half = create("stablehlo.shift_right_arithmetic", [difference, one], one.type)
        rest = create("stablehlo.subtract", [difference, half], one.type)
        bias = f.integer(f.format.bias)
        for part in (half, rest):
            x = x * self._power(create("stablehlo.add", [part, bias], one.type))
        return x

    def _half(self, more: int) -> ir.Value:
        f = self._frame
        total = create("stablehlo.add", [self._biased, f.integer(more)], self._biased.type)
        return create("stablehlo.shift_right_logical", [total, f.integer(1)], total.type)

    def _power(self, biased: ir.Value) -> Real:
        f = self._frame
        places = f.integer(f.format.fraction)
        return f.from_bits(create("stablehlo.shift_left", [biased, places], biased.type))


def scale_of(x: Real, *, even: bool = False) -> Scale:
    """The power of two at or below |x|, with an even exponent if asked for.

    Zero and denormals have the least exponent, infinity and NaN the largest.
    """
    f = x.frame
    form = f.format
    exponent = create(
        "stablehlo.shift_right_logical", [f.bits_of(abs(x)), f.integer(form.fraction)],
        f.shaped(f.integers),
    )  # fmt: skip
    if even:  # the bias is odd
        exponent = create("stablehlo.or", [exponent, f.integer(1)], exponent.type)
    ends = [f.integer(1), f.integer(2 * form.bias - 1)]
    low = create("stablehlo.maximum", [exponent, ends[0]], exponent.type)
    return Scale(f, create("stablehlo.minimum", [low, ends[1]], exponent.type))


def absolute(x: Real, y: Real) -> Real:
    """sqrt(x² + y²); infinite where x or y is, whatever the other one is.

    Error: below 1.5 ULP.
    """
    large = abs(x).maximum(abs(y))
    scale = scale_of(large)
    a, b = x * scale.inverse, y * scale.inverse
    return either(x, y).choose(math.inf, (a * a + b * b).sqrt() * scale.factor)


def log_absolute(x: Real, y: Real) -> Real:
    """log(sqrt(x² + y²)), accurate near the unit circle, too.

    Near it the rounding errors of x² + y² - 1 would matter. It is computed in f64 for f32 numbers,
    and as a sum of two numbers for f64.
    """
    if x.frame.is_single:
        f = wide(x.frame)
        return log_absolute_of_singles(x.converted(f), y.converted(f)).converted(x.frame)
    large, small = abs(x).maximum(abs(y)), abs(x).minimum(abs(y))
    # For magnitudes in [1/2, 2], d = large - 1 is exact.
    d = large - 1
    near = _compensated_sum(d + d, _square(d), _square(small))
    scale = scale_of(large)
    a, b = x * scale.inverse, y * scale.inverse
    far = (a * a + b * b).log() * 0.5 + scale.exponent * math.log(2)
    is_near = (large >= 0.5) & (large <= 2)
    return either(x, y).choose(math.inf, is_near.choose(near.log1p() * 0.5, far))


def log_absolute_of_singles(x: Real, y: Real) -> Real:
    """`log_absolute` of f32 numbers in f64."""
    large, small = abs(x).maximum(abs(y)), abs(x).minimum(abs(y))
    near = (large - 1) * (large + 1) + small * small
    return either(x, y).choose(math.inf, _half_log(near, x * x + y * y))


def log_absolute_of_next(x: Real, y: Real) -> Real:
    """log(sqrt((1 + x)² + y²)), accurate for small x and y."""
    if x.frame.is_single:
        f = wide(x.frame)
        a, b = x.converted(f), y.converted(f)
        next_ = a + 1
        near = (a + a) + b * b + a * a
        value = _half_log(near, next_ * next_ + b * b).converted(x.frame)
        return either(x, y).choose(math.inf, value)
    near = _compensated_sum(x + x, _square(x), _square(y))
    is_near = (abs(x) <= 1) & (abs(y) <= 1) & (abs(near) <= 0.5)
    return is_near.choose(near.log1p() * 0.5, log_absolute(x + 1, y))


def _half_log(near: Real, far: Real) -> Real:
    """log(1 + near) / 2, which is log(far) / 2, by the more accurate one of the two.

    Source: Kahan's log1p, log(u) + (near - (u - 1)) / u with u = 1 + near rounded.
    """
    is_near = (near > -0.5) & (near < 1)
    one_more = near + 1
    u = is_near.choose(one_more, far)
    rest = is_near.choose((near - (one_more - 1)) / one_more, 0.0)
    return (u.log() + rest) * 0.5


# --- sums of two numbers --------------------------------------------------------------------------

_SPLITTER = float(2**27 + 1)
"""Dekker's, of 53 bits."""

Pair = tuple[Real, Real]
"""An unevaluated sum: a number and what its rounding lost."""


def _square(x: Real) -> Pair:
    """x² exactly, of |x| < 2**995. Source: Dekker, "A floating-point technique" (1971)."""
    big = x * _SPLITTER
    high = big - (big - x)
    low = x - high
    product = x * x
    return product, ((high * high - product) + 2 * (high * low)) + low * low


def _two_sum(a: Real, b: Real) -> Pair:
    """A + b exactly. Source: Knuth, TAOCP 2, section 4.2.2, theorem B."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _compensated_sum(exact: Real, *pairs: Pair) -> Real:
    """The sum of an exact number and pairs, rounded about once."""
    total, lost = exact, None
    for high, low in pairs:
        total, error = _two_sum(total, high)
        error = error + low
        lost = error if lost is None else lost + error
    return total if lost is None else total + lost
