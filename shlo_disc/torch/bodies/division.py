"""Remainders, which are exact, and shifts.

torch-mlir subtracts a rounded quotient from the dividend, and shifts numbers of static shapes only.
"""

from __future__ import annotations

from shlo_disc.builders import compare, create
from shlo_disc.ingest.size_values import binary
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, aligned, constant, element_of, spread, typed

__all__ = ["fmod", "remainder", "shift_left", "shift_right"]


def fmod(call: BodyCall) -> list[ir.Value]:
    """`aten.fmod` of two tensors, or of a tensor and a number: with the sign of the dividend."""
    return [binary("remainder", *aligned(call, "self", "other"))]


def remainder(call: BodyCall) -> list[ir.Value]:
    """`aten.remainder` of two tensors, or of a tensor and a number: with that of the divisor."""
    x, y = aligned(call, "self", "other")
    rest = binary("remainder", x, y)
    truths = typed(rest, ir.IntegerType.get_signless(1))
    zero = spread(constant(0, [], element_of(rest)), [], rest)
    is_less = [compare("LT", v, zero, truths) for v in (rest, y)]
    other_sign = binary("and", compare("NE", rest, zero, truths), binary("xor", *is_less))
    return [create("stablehlo.select", [other_sign, binary("add", rest, y), rest], rest.type)]


def shift_left(call: BodyCall) -> list[ir.Value]:
    """`aten.bitwise_left_shift`, and `<<` with a number."""
    return [binary("shift_left", *aligned(call, "self", "other"))]


def shift_right(call: BodyCall) -> list[ir.Value]:
    """`aten.bitwise_right_shift`, and `>>` with a number: signed numbers keep their sign."""
    x, y = aligned(call, "self", "other")
    is_unsigned = ir.IntegerType(element_of(x)).is_unsigned
    return [binary("shift_right_logical" if is_unsigned else "shift_right_arithmetic", x, y)]
