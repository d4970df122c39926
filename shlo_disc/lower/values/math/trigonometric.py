"""sin, cos, tan, atan2.

x = n pi/2 + r with |r| <= pi/4. Up to a bound pi/2 is subtracted in three parts with fma; the first
part has so few bits that its subtraction is exact. Beyond the bound, lane by lane, the product with
2/pi is formed exactly in integers: M. Payne and R. Hanek, "Radian reduction for trigonometric
functions" (1983).
"""

from __future__ import annotations

import math
from itertools import pairwise

from shlo_disc.lower.values.math.formulas import fma, horner, select, squared
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Mask, Register

__all__ = ["atan2", "cos", "sin", "tan"]

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
_MAGIC = {"f32": (1.5 * 2.0**23, 0x4B400000), "f64": (1.5 * 2.0**52, 0x4338000000000000)}
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


def _reduce(x: Register) -> tuple[Register, Register]:
    """(r, n modulo 4 or more, as integers)."""
    dtype = x.element
    magic, magic_bits = _MAGIC[dtype]
    shifted = fma(x, 2 / math.pi, magic)
    n = shifted - magic
    r = x
    for part in _PARTS[dtype]:
        r = fma(n, -part, r)
    quadrant = shifted.bits() - magic_bits
    size = x.abs()
    large = (size > _BOUND[dtype]) & (size < float("inf"))
    with x.b.if_(large.any()) as branch:
        branch.yield_(*_reduce_lanes(x, large, r, quadrant))
        with branch.otherwise():
            branch.yield_(r, quadrant)
    return branch.results[0], branch.results[1]


def _reduce_lanes(
    x: Register, large: Mask, r: Register, quadrant: Register
) -> tuple[Register, Register]:
    """R and quadrant with the lanes in `large` replaced."""
    b = x.b
    if not x.lanes:
        return _reduce_large(x)
    with b.loop(0, x.lanes, 1, [r, quadrant], hint="lane") as lanes:
        with b.if_(b.extract(large, lanes.index)) as branch:
            new = _reduce_large(b.extract(x, lanes.index))
            pairs = zip(new, lanes.args, strict=True)
            branch.yield_(*(b.insert(value, whole, lanes.index) for value, whole in pairs))
            with branch.otherwise():
                branch.yield_(*lanes.args)
        lanes.yield_(*branch.results)
    return lanes.results[0], lanes.results[1]


def _reduce_large(x: Register) -> tuple[Register, Register]:
    """The r and quadrant of one large finite number.

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
    high = (size >> 128).cast("arith.trunci", "i64").cast("arith.uitofp", "f64")
    low = (size >> 64).cast("arith.trunci", "i64").cast("arith.uitofp", "f64")
    whole = fma(high, 2.0**64, low)
    part = fma(high, 2.0**64, -whole) + low
    top, bottom = _HALF_PI["f64"]
    r = whole * top
    r = (r + (fma(whole, top, -r) + fma(whole, bottom, part * top))) * 2.0**-126
    flip = negative ^ (wide < 0.0)
    r = select(flip, -r, r)
    quadrant = n.cast("arith.trunci", "i64")
    quadrant = select(wide < 0.0, -quadrant, quadrant)
    if x.is_double:
        return r, quadrant
    return r.cast("arith.truncf", "f32"), quadrant.cast("arith.trunci", "i32")


def _sin_cos(r: Register) -> tuple[Register, Register]:
    z = squared(r)
    sine = fma(z * horner(z, TABLES["sin", r.element]), r, r).copysign(r)  # -0 stays
    half = 0.5 * z
    high = 1.0 - half
    cosine = high + fma(z * z, horner(z, TABLES["cos", r.element]), (1.0 - high) - half)
    return sine, cosine


def _turned(r: Register, quadrant: Register) -> Register:
    """sin(r + quadrant pi/2)."""
    sine, cosine = _sin_cos(r)
    chosen = select((quadrant & 1).differs(0), cosine, sine)
    return (chosen.bits() ^ ((quadrant & 2) << (62 if r.is_double else 30))).floats()


@function(ulp=(2.0, 2.0))
def sin(x: Register) -> Register:
    """The sine."""
    return _turned(*_reduce(x))


@function(ulp=(2.0, 2.0))
def cos(x: Register) -> Register:
    """The cosine."""
    r, quadrant = _reduce(x)
    return _turned(r, quadrant + 1)


@function(ulp=(4.0, 4.0))
def tan(x: Register) -> Register:
    """The tangent: sin / cos, or -cos / sin in odd quadrants."""
    r, quadrant = _reduce(x)
    sine, cosine = _sin_cos(r)
    odd = (quadrant & 1).differs(0)
    return select(odd, -cosine, sine) / select(odd, sine, cosine)


_HALF_PI = {
    "f32": (float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25")),
    "f64": (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54")),
}


@function(ulp=(2.0, 2.0))
def atan2(y: Register, x: Register) -> Register:
    """The angle of (x, y), with C99's special cases: atan of a ratio in [0, 1], then reflected."""
    high, low = _HALF_PI[x.element]
    ax, ay = x.abs(), y.abs()
    steep = ay > ax
    big, small = select(steep, ay, ax), select(steep, ax, ay)
    ratio = small / select(big.equals(0.0), 1.0, big)
    ratio = select(small.equals(float("inf")), 1.0, ratio)  # both are
    z = squared(ratio)
    angle = fma(z * horner(z, TABLES["atan", x.element]), ratio, ratio)
    angle = select(steep, (high - angle) + low, angle)
    # The sign bit, not x < 0: atan2(0, -0) is pi.
    angle = select(x.bits() < 0, (2 * high - angle) + 2 * low, angle)
    angle = angle.copysign(y)
    return select(x.is_nan() | y.is_nan(), x + y, angle)
