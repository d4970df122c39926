"""Remainders, which are exact, common divisors and multiples, and shifts.

torch-mlir subtracts a rounded quotient from the dividend, and shifts numbers of static shapes only.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import constant
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import compare, create, element_of, reduced, select, while_loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, aligned, spread, typed


def fmod(call: BodyCall) -> list[ir.Value]:
    """`aten.fmod` of two tensors, or of a tensor and a number: with the sign of the dividend."""
    return [binary("remainder", *aligned(call, "self", "other"))]


def remainder(call: BodyCall) -> list[ir.Value]:
    """`aten.remainder` of two tensors, or of a tensor and a number: with that of the divisor."""
    x, y = aligned(call, "self", "other")
    rest = binary("remainder", x, y)
    zero = spread(constant(0, element_of(rest)), [], rest)
    is_less = [compare("LT", v, zero) for v in (rest, y)]
    other_sign = binary("and", compare("NE", rest, zero), binary("xor", *is_less))
    return [select(other_sign, binary("add", rest, y), rest)]


def gcd(call: BodyCall) -> list[ir.Value]:
    """`aten.gcd`: not negative; of 0 and `x` it is `|x|`."""
    return [_common_divisor(*map(_magnitude, aligned(call, "self", "other")))]


def lcm(call: BodyCall) -> list[ir.Value]:
    """`aten.lcm`: not negative; 0 where one of both is."""
    x, y = aligned(call, "self", "other")
    divisor = _common_divisor(_magnitude(x), _magnitude(y))
    share = binary("divide", x, _or_one(divisor))
    return [_magnitude(binary("multiply", share, y))]


def _magnitude(x: ir.Value) -> ir.Value:
    is_unsigned = ir.IntegerType(element_of(x)).is_unsigned
    return x if is_unsigned else create("stablehlo.abs", [x], x.type)


def _is_zero(x: ir.Value) -> ir.Value:
    zero = spread(constant(0, element_of(x)), [], x)
    return compare("EQ", x, zero)


def _or_one(x: ir.Value) -> ir.Value:
    """`x`, with 1 for 0: a divisor."""
    one = spread(constant(1, element_of(x)), [], x)
    return select(_is_zero(x), one, x)


def _common_divisor(x: ir.Value, y: ir.Value) -> ir.Value:
    """Euclid's algorithm on all elements, until none has a remainder."""
    truth = ir.IntegerType.get_signless(1)

    def has_rest(_: ir.Value, rest: ir.Value) -> ir.Value:
        is_left = create("stablehlo.not", [_is_zero(rest)], typed(rest, truth))
        dims = list(range(ir.RankedTensorType(rest.type).rank))
        return reduced(is_left, dims, "or", constant(0, truth)) if dims else is_left

    def divided(a: ir.Value, b: ir.Value) -> list[ir.Value]:
        done = _is_zero(b)
        after = select(done, a, b)
        rest = select(done, b, binary("remainder", a, _or_one(b)))
        return [after, rest]

    return while_loop([x, y], has_rest, divided)[0]


def shift_left(call: BodyCall) -> list[ir.Value]:
    """`aten.bitwise_left_shift`, and `<<` with a number."""
    return [binary("shift_left", *aligned(call, "self", "other"))]


def shift_right(call: BodyCall) -> list[ir.Value]:
    """`aten.bitwise_right_shift`, and `>>` with a number: signed numbers keep their sign."""
    x, y = aligned(call, "self", "other")
    is_unsigned = ir.IntegerType(element_of(x)).is_unsigned
    return [binary("shift_right_logical" if is_unsigned else "shift_right_arithmetic", x, y)]
