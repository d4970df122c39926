"""Remainders, which are exact, common divisors and multiples, and shifts.

torch-mlir subtracts a rounded quotient from the dividend, and shifts numbers of static shapes only.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import Array, loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, aligned


def fmod(call: BodyCall) -> list[Array]:
    """`aten.fmod` of two tensors, or of a tensor and a number: with the sign of the dividend."""
    x, y = aligned(call, "self", "other")
    return [x % y]


def remainder(call: BodyCall) -> list[Array]:
    """`aten.remainder` of two tensors, or of a tensor and a number: with that of the divisor."""
    x, y = aligned(call, "self", "other")
    rest = x % y
    other_sign = rest.differs(0) & ((rest < 0) ^ (y < 0))
    return [other_sign.where(rest + y, rest)]


def gcd(call: BodyCall) -> list[Array]:
    """`aten.gcd`: not negative; of 0 and `x` it is `|x|`."""
    return [_common_divisor(*map(_magnitude, aligned(call, "self", "other")))]


def lcm(call: BodyCall) -> list[Array]:
    """`aten.lcm`: not negative; 0 where one of both is."""
    x, y = aligned(call, "self", "other")
    return [_magnitude(x / _or_one(_common_divisor(_magnitude(x), _magnitude(y))) * y)]


def _is_unsigned(x: Array) -> bool:
    return bool(ir.IntegerType(x.element).is_unsigned)


def _magnitude(x: Array) -> Array:
    return x if _is_unsigned(x) else x.apply("abs")


def _or_one(x: Array) -> Array:
    """`x`, with 1 for 0: a divisor."""
    return x.equals(0).where(1, x)


def _common_divisor(x: Array, y: Array) -> Array:
    """Euclid's algorithm on all elements, until none has a remainder."""

    def has_rest(_: Array, rest: Array) -> Array:
        is_left = rest.differs(0)
        return is_left.reduce("or", range(rest.rank)) if rest.rank else is_left

    def divided(a: Array, b: Array) -> list[Array]:
        done = b.equals(0)
        return [done.where(a, b), done.where(b, a % _or_one(b))]

    return loop([x, y], has_rest, divided)[0]


def shift_left(call: BodyCall) -> list[Array]:
    """`aten.bitwise_left_shift`, and `<<` with a number."""
    x, y = aligned(call, "self", "other")
    return [x.apply("shift_left", y)]


def shift_right(call: BodyCall) -> list[Array]:
    """`aten.bitwise_right_shift`, and `>>` with a number: signed numbers keep their sign."""
    x, y = aligned(call, "self", "other")
    return [x.apply(f"shift_right_{'logical' if _is_unsigned(x) else 'arithmetic'}", y)]
