"""sin, cos, tan, atan2.

x = n pi/2 + r with |r| <= pi/4, r as an unevaluated sum. Up to a bound pi/2 is subtracted in three
parts with fma; the first part has so few bits that its subtraction is exact. Beyond the bound, lane
by lane, the product with 2/pi is formed exactly in integers: M. Payne and R. Hanek, "Radian
reduction for trigonometric functions" (1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from shlo_disc.lower.values.math.formulas import chain, fma, horner, select, squared, two_sum
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Mask, Register

_PARTS = {
    "f32": tuple(map(float.fromhex, ("0x1.921fb0p+0", "0x1.5110b4p-22", "0x1.846988p-48"))),
    "f64": tuple(
        map(
            float.fromhex,
            ("0x1.921fb54442d18p+0", "0x1.1a62633145c06p-54", "0x1.c1cd129024e09p-107"),
        )
    ),
}
"""pi/2 in parts, all positive (so that -0 stays -0)."""
_BOUND = {"f32": 1.0e5, "f64": 2.0**30}
_OWN = 0.785
"""A number below pi/4: the reduction of what is smaller changes no bit."""
_MAGIC = {"f32": (1.5 * 2.0**23, 0x4B400000), "f64": (1.5 * 2.0**52, 0x4338000000000000)}
_INFINITY = float("inf")
_PRODUCT = "i192"
_TWO_OVER_PI = int(
    "0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1"
    "921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE"
    "05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB1"
    "1F8D5D0856033046FC7B6BAB",
    16,
)
"""2/pi * 2^1216, rounded down."""
_WORDS = [
    0,
    *(
        (w ^ (1 << 63)) - (1 << 63)
        for w in (_TWO_OVER_PI >> (64 * k) & ((1 << 64) - 1) for k in range(18, -1, -1))
    ),
]
"""64 bits each, as signed numbers, with a word of zeros in front."""


_Reduced = tuple[Register, Register, Register]
"""(r, what r lacks, n modulo 4 or more as integers)."""


def _reduce(x: Register) -> _Reduced:
    return _reduce_far(x, *_reduce_near(x))


def _reduce_near(x: Register) -> _Reduced:
    """The reduction of numbers up to `_BOUND`."""
    dtype = x.element
    magic, magic_bits = _MAGIC[dtype]
    shifted = fma(x, 2 / math.pi, magic)
    n = shifted - magic
    first, second, third = _PARTS[dtype]
    rest = fma(n, -first, x)
    product = n * second
    r = rest - product
    # What the subtraction loses, exactly. Where the product is the larger of two of one sign it
    # loses nothing: `rest` is a multiple of the product's last place.
    lost = (rest - r) - product
    low = lost - fma(n, third, fma(n, second, -product))
    return r, low, shifted.bits() - magic_bits


def _reduce_far(x: Register, *near: Register) -> _Reduced:
    """`near` with what is beyond `_BOUND` replaced."""
    size = x.abs()
    large = (size > _BOUND[x.element]) & (size < float("inf"))
    r, low, quadrant = x.b.either(large.any(), lambda: _reduce_lanes(x, large, near), lambda: near)
    return r, low, quadrant


def _reduce_lanes(x: Register, large: Mask, near: Sequence[Register]) -> _Reduced:
    """`near` with the lanes in `large` replaced."""
    b = x.b
    if not x.lanes:
        return _reduce_large(x)
    with b.loop(0, x.lanes, 1, list(near), hint="lane") as lanes:

        def replaced() -> list[Register]:
            new = _reduce_large(b.extract(x, lanes.index))
            pairs = zip(new, lanes.args, strict=True)
            return [b.insert(value, whole, lanes.index) for value, whole in pairs]

        far = b.extract(large, lanes.index)
        lanes.yield_(*b.either(far, replaced, lambda: lanes.args))
    r, low, quadrant = lanes.results
    return r, low, quadrant


def _reduce_large(x: Register) -> _Reduced:
    """The same of one large finite number."""
    r, low, quadrant = x.b.outlined("reduced_angle", _reduce_exactly, x)
    return r, low, quadrant


def _reduce_exactly(x: Register) -> _Reduced:
    """The reduction by the digits of 2/pi.

    x = m 2^(e - 52); bits of 2/pi that stand for multiples of 4 in the product are dropped, the
    next 192 times m give x 2/pi modulo 4, scaled by 2^190.
    """
    b = x.b
    wide = x if x.is_double else x.cast("arith.extf", "f64")
    raw = wide.bits()
    e = ((raw >> 52) & 0x7FF) - 1023
    m = (raw & ((1 << 52) - 1)) | (1 << 52)
    start = e + (64 - 54)
    index = b.to_index("arith.index_cast", start >> 6)
    words = b.dense(_WORDS, "i64")

    shift = start & 63
    found = [b.extract(words, index + k) for k in range(4)]
    window = b.constant(0, _PRODUCT)
    for left, right in pairwise(found):
        # The lower word goes right by 64 - shift in two steps, as shift may be 0.
        piece = (left << shift) | ((right >> 1) >> (63 - shift))
        low = piece.cast("arith.extui", _PRODUCT)
        window = (window << 64) | low
    product = window * m.cast("arith.extui", _PRODUCT)
    n = (product + (1 << 189)) >> 190
    rest = product - (n << 190)
    negative = rest < 0
    size = select(negative, -rest, rest)
    top_bits = (size >> 128).cast("arith.trunci", "i64")  # up to 61, of which 51 are in `high`
    high, middle = ((top_bits & m).cast("arith.uitofp", "f64") for m in (-1 << 10, (1 << 10) - 1))
    low = (size >> 64).cast("arith.trunci", "i64").cast("arith.uitofp", "f64")
    lower = fma(middle, 2.0**64, low)
    whole = fma(high, 2.0**64, lower)
    part = (fma(high, 2.0**64, -whole) + lower) + (fma(middle, 2.0**64, -lower) + low)
    top, bottom = _HALF_PI["f64"]
    product = whole * top
    rest = fma(whole, top, -product) + fma(whole, bottom, part * top)
    flip = negative ^ (wide < 0.0)
    scale = select(flip, whole.constant(-(2.0**-126)), 2.0**-126)
    r = product + rest
    low = ((product - r) + rest) * scale
    r = r * scale
    quadrant = n.cast("arith.trunci", "i64")
    quadrant = select(wide < 0.0, -quadrant, quadrant)
    if x.is_double:
        return r, low, quadrant
    single = r.cast("arith.truncf", "f32")
    low = (r - single.cast("arith.extf", "f64")).cast("arith.truncf", "f32")
    return single, low, quadrant.cast("arith.trunci", "i32")


def _sin_cos(r: Register, low: Register) -> tuple[_Sum, _Sum]:
    """The sine and the cosine of r + low as unevaluated sums, first the larger part."""
    z, half, high = _parts_of(r)
    # sin(r + low) = sin(r) + low cos(r)
    sine = fma(r * z, horner(z, TABLES["sin", r.element]), low * high)
    cosine = fma(z * z, horner(z, TABLES["cos", r.element]), (1.0 - high) - half)
    return (r, sine), (high, fma(-r, low, cosine))


def _parts_of(r: Register) -> tuple[Register, Register, Register]:
    """r^2, its half, and 1 less the half."""
    z = squared(r)
    half = 0.5 * z
    return z, half, 1.0 - half


def _small_sine(r: Register) -> Register:
    """The sine of r, with the bits that `_sin_cos` gives."""
    z = squared(r)
    return (r + r * z * horner(z, TABLES["sin", r.element])).copysign(r)


def _small_cosine(r: Register) -> Register:
    """The cosine of r, with the bits that `_sin_cos` gives."""
    z, half, high = _parts_of(r)
    return high + fma(z * z, horner(z, TABLES["cos", r.element]), (1.0 - high) - half)


_Sum = tuple[Register, Register]


def sin_cos_of_pi(x: Register) -> tuple[Register, Register]:
    """sin(pi x) and cos(pi x), 0 <= x <= 1/2; exact at both ends."""
    swaps = x > 0.25
    high, low = _PI[x.element]
    y = select(swaps, 0.5 - x, x)
    r = y * high
    sine, cosine = (a + b for a, b in _sin_cos(r, fma(y, low, fma(y, high, -r))))
    return select(swaps, cosine, sine), select(swaps, sine, cosine)


def _turned(r: Register, low: Register, quadrant: Register) -> Register:
    """sin(r + low + quadrant pi/2)."""
    (sine, sine_low), (cosine, cosine_low) = _sin_cos(r, low)
    one = 0x3FF << 52 if r.is_double else 0x7F << 23
    turned = ((quadrant << (63 if r.is_double else 31)) | one).floats() < 0.0
    sine = (sine + sine_low).copysign(sine)  # -0 stays
    chosen = select(turned, cosine + cosine_low, sine)
    return (chosen.bits() ^ ((quadrant & 2) << (62 if r.is_double else 30))).floats()


def _sine(x: Register, quarters: int) -> Register:
    """sin(x + quarters pi/2), which is one of two polynomials where x is its own reduction.

    The next step of a loop may wait for a scalar.
    """

    def reduced() -> list[Register]:
        r, low, quadrant = _reduce(x)
        return [_turned(r, low, quadrant + quarters)]

    if x.lanes or not x.b.predicts_branches:
        return reduced()[0]
    small = _small_cosine if quarters else _small_sine
    return x.b.either(x.abs() < _OWN, lambda: [small(x)], reduced)[0]


def sines(x: Register, quarters: Sequence[int]) -> Register:
    """sin(x + quarters pi/2), with quarters for every lane."""
    r, low, quadrant = _reduce(x)
    return _turned(r, low, quadrant + x.b.dense(quarters, quadrant.element))


@function(ulp=(1.0, 1.0))
def sin(x: Register) -> Register:
    """The sine."""
    return _sine(x, 0)


@function(ulp=(1.0, 1.0))
def cos(x: Register) -> Register:
    """The cosine."""
    return _sine(x, 1)


@function(ulp=(1.0, 1.0))
def tan(x: Register) -> Register:
    """The tangent: sin / cos, or -cos / sin in odd quadrants; both as unevaluated sums."""
    r, low, quadrant = _reduce(x)
    sine, cosine = (two_sum(*parts) for parts in _sin_cos(r, low))
    odd = (quadrant & 1).differs(0)
    above, above_low = (select(odd, -c, s) for s, c in zip(sine, cosine, strict=True))
    under, under_low = (select(odd, s, c) for s, c in zip(sine, cosine, strict=True))
    inverse = 1.0 / under
    quotient = above * inverse
    rest = fma(-quotient, under, above) + fma(-quotient, under_low, above_low)
    tiny = x.abs() < (2.0**-13 if x.element == "f32" else 2.0**-28)
    return select(tiny, x, fma(rest, inverse, quotient))  # -0 and denormals stay


_PI = {
    "f32": (float.fromhex("0x1.921fb6p+1"), float.fromhex("-0x1.777a5cp-24")),
    "f64": (float.fromhex("0x1.921fb54442d18p+1"), float.fromhex("0x1.1a62633145c07p-53")),
}
_HALF_PI = {dtype: (high / 2, low / 2) for dtype, (high, low) in _PI.items()}
"""As unevaluated sums."""


@function(ulp=(1.0, 1.0))
def atan2(y: Register, x: Register) -> Register:
    """The angle of (x, y), with C99's special cases: atan of a ratio in [0, 1], then reflected."""
    (right, right_low), (half, half_low) = _HALF_PI[x.element], _PI[x.element]
    ax, ay = x.abs(), y.abs()
    steep = ay > ax
    big, small = select(steep, ay, ax), select(steep, ax, ay)
    divisor = select(big.equals(0.0), 1.0, big)
    ratio = small / divisor
    ratio = select(small.equals(_INFINITY), 1.0, ratio)  # both are
    rest = select(big < _INFINITY, fma(-ratio, divisor, small) / divisor, 0.0)
    z = squared(ratio)
    # atan(ratio + rest) = ratio + correction; a rest counts half where the ratio is 1.
    rest = fma(z * -0.5, rest, rest)
    correction = fma(z * ratio, chain(z, TABLES["atan", x.element]), rest)
    # The sign bit, not x < 0: atan2(0, -0) is pi.
    behind = x.bits() < 0
    start = select(steep, x.constant(right), select(behind, x.constant(half), 0.0))
    start_low = select(steep, x.constant(right_low), select(behind, x.constant(half_low), 0.0))
    backwards = steep ^ behind
    ratio = select(backwards, -ratio, ratio)
    correction = select(backwards, -correction, correction)
    angle = start + ratio
    angle = angle + (((start - angle) + ratio) + (correction + start_low))
    angle = angle.copysign(y)
    return select(x.is_nan() | y.is_nan(), x + y, angle)
