"""Floats of at most 8 bits: between their bits in the low bits of an i8, and f32.

Every format here is a subset of f32 in range and precision. Arithmetic in f32 that is rounded once
more is arithmetic of the format, as f32 has more than twice its precision and two bits.
Source: S. Figueroa, "When is double rounding innocuous?" (1995).
"""

from __future__ import annotations

from shlo_disc.ir.element_types import FloatFormat, Special
from shlo_disc.lower.values.text import TextBuilder
from shlo_disc.lower.values.typed import Register, like

_FRACTION, _BIAS = 23, 127
"""Of f32."""
_INFINITY, _NAN = 0x7F800000, 0x7FC00000


class _Bits:
    """Integer arithmetic on i32, scalar or in the lanes of a given register."""

    def __init__(self, b: TextBuilder, register: Register) -> None:
        self.b, self.type = b, register.like("i32")

    def const(self, value: int) -> Register:
        return self.b.constant(value - (1 << 32) if value >= 1 << 31 else value, self.type)

    def op(self, name: str, a: Register, value: Register | int) -> Register:
        """`arith.name` of `a` and a register or a constant."""
        return self.b.op(f"arith.{name}", a, self.const(value) if isinstance(value, int) else value)

    def when(
        self, predicate: str, a: Register, value: int, then: Register | int, other: Register
    ) -> Register:
        """`then` where `a predicate value`, else `other`."""
        chosen = self.const(then) if isinstance(then, int) else then
        return self.b.select(self.b.cmpi(predicate, a, self.const(value)), chosen, other)

    def float(self, register: Register) -> Register:
        """The f32 with these bits."""
        return self.b.bitcast(register, like(self.type, "f32"))


def _codes(f: FloatFormat, bits: int) -> tuple[int, int, int]:
    """(largest finite number, what is beyond it, NaN), each as bits without the sign."""
    magnitude = (1 << (bits - 1)) - 1
    if f.special is Special.IEEE:
        infinity = magnitude & ~((1 << f.fraction) - 1)
        return infinity - 1, infinity, infinity | 1 << (f.fraction - 1)
    if f.special is Special.FN:
        return magnitude - 1, magnitude, magnitude
    return magnitude, magnitude, 0


def widened(b: TextBuilder, value: Register, f: FloatFormat, bits: int) -> Register:
    """The f32 that is the float of format `f` with these bits (exact)."""
    i = _Bits(b, value)
    raw = b.cast("arith.extui", value, "i32")
    if f.special is Special.SCALE:
        number = i.op("shli", raw, _FRACTION)
        number = i.when("eq", raw, 0, 1 << (_FRACTION - 1), number)  # 2^-127 is denormal in f32
        return i.float(i.when("eq", raw, (1 << bits) - 1, _NAN, number))
    sign = i.op("shli", i.op("shrui", raw, bits - 1), 31)
    magnitude = i.op("andi", raw, (1 << (bits - 1)) - 1)
    # The bias of f32 is larger; a product with a power of two is exact, for denormals too.
    small = i.float(i.op("shli", magnitude, _FRACTION - f.fraction))
    scale = b.constant(2.0 ** (_BIAS - f.bias), like(i.type, "f32"))
    number = b.bitcast(small * scale, i.type)
    largest, beyond, _ = _codes(f, bits)
    if f.special is Special.IEEE:
        number = i.when("ugt", magnitude, largest, _INFINITY, number)
        number = i.when("ugt", magnitude, beyond, _NAN, number)
    elif f.special is Special.FN:
        number = i.when("eq", magnitude, beyond, _NAN, number)
    number = i.op("ori", number, sign)
    if f.special is Special.FNUZ:
        number = i.when("eq", raw, 1 << (bits - 1), _NAN, number)
    return i.float(number)


def narrowed(b: TextBuilder, value: Register, f: FloatFormat, bits: int) -> Register:
    """The bits, in an i8, of an f32 rounded to nearest even in format `f`.

    Numbers beyond the largest become infinity; where there is none NaN, where there is no NaN
    either the largest. A SCALE is the nearest power of two, the larger of two; zeros, negative
    numbers and infinities are NaN there.
    """
    i = _Bits(b, value)
    raw = b.bitcast(value, i.type)
    magnitude = i.op("andi", raw, (1 << 31) - 1)
    if f.special is Special.SCALE:
        return b.cast("arith.trunci", _scale(i, raw, magnitude), "i8")
    drop = _FRACTION - f.fraction
    odd = i.op("andi", i.op("shrui", magnitude, drop), 1)
    rounded = i.op("addi", i.op("addi", magnitude, (1 << (drop - 1)) - 1), odd)
    normal = i.op("subi", i.op("shrui", rounded, drop), (_BIAS - f.bias) << f.fraction)
    # Adding a number whose last bit is the smallest denormal rounds to multiples of that.
    anchor = 2.0 ** (f.smallest - f.fraction + _FRACTION)
    float_type = like(i.type, "f32")
    sum_ = i.float(magnitude) + b.constant(anchor, float_type)
    anchor_bits = (_BIAS + f.smallest - f.fraction + _FRACTION) << _FRACTION
    denormal = i.op("subi", b.bitcast(sum_, i.type), anchor_bits)
    first_normal = (_BIAS + f.smallest) << _FRACTION
    code = i.when("ult", magnitude, first_normal, denormal, normal)
    largest, beyond, nan = _codes(f, bits)
    code = b.op("arith.minui", code, i.const(beyond))
    sign = i.op("shli", i.op("shrui", raw, 31), bits - 1)
    if f.special is Special.FNUZ:
        code = i.when("eq", code, 0, code, i.op("ori", code, sign))
        # What would round beyond the largest is NaN: as bits, a negative zero.
        over = i.op("shrui", rounded, drop)
        most = largest + ((_BIAS - f.bias) << f.fraction)
        return b.cast("arith.trunci", i.when("ugt", over, most, 1 << (bits - 1), code), "i8")
    if f.special is Special.FINITE:
        sign = i.when("ugt", magnitude, _INFINITY, i.op("xori", sign, 1 << (bits - 1)), sign)
    code = i.when("ugt", magnitude, _INFINITY, nan, code)
    return b.cast("arith.trunci", i.op("ori", code, sign), "i8")


def _scale(i: _Bits, raw: Register, magnitude: Register) -> Register:
    half = 1 << (_FRACTION - 1)
    code = i.op("shrui", i.op("addi", magnitude, half), _FRACTION)
    # 2^-127 is denormal in f32: the midpoint of it and 2^-126 is three quarters of the latter.
    least = i.when("ult", magnitude, half + half // 2, 0, i.const(1))
    code = i.when("ult", magnitude, 2 * half, least, code)
    code = i.when("slt", raw, 1, 255, code)  # negative numbers, zeros
    return i.when("uge", magnitude, _INFINITY, 255, code)
