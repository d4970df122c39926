"""What kernels do with elements: their types, and the steps between storage and arithmetic.

`ElementType` says how an element lies in memory and in registers. Narrow floats are widened to f32
where they are computed with. Moving data thus never changes a NaN, and no code generator needs
16-bit arithmetic. The upper bits of integers of 2 and 4 bits are undefined, as for `ml_dtypes`:
what computes with them extends them first (`wrap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.element_types import ELEMENT_TYPES, ElementType, known_element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.narrow_floats import narrowed, widened
from shlo_disc.lower.values.text import TextBuilder
from shlo_disc.lower.values.typed import Register

Op: TypeAlias = ir.Operation


def unsupported(op: ir.Operation, what: str, advice: str) -> NoReturn:
    """Raise UnsupportedError with the operation, its source line and what to do."""
    raise UnsupportedError(f"{op.name} at {source_line(op)}: {what}; {advice}")


def element_of(value: ir.Value) -> ElementType:
    """The element type of a tensor value; raises UnsupportedError for one we do not compile."""
    kind = ir.ShapedType(value.type).element_type
    if (row := known_element_type(kind)) is None:
        owner = value.owner
        if isinstance(owner, ir.Block):  # name the first op that reads the operand
            owner = next((use.owner for use in value.uses), owner.owner)
        known = ", ".join(sorted(ELEMENT_TYPES))
        unsupported(
            owner.operation, f"element type {kind} is not compiled", f"convert to one of {known}"
        )
    return row


def to_compute(b: TextBuilder, value: Register, element: ElementType) -> Register:
    """`value` widened to the type it is computed in (exact)."""
    if not element.is_narrow:
        return wrap(b, value, element)
    if element.bits < 16:
        return widened(b, value, element.format, element.bits)
    if element.name == "f16":
        return b.cast("arith.extf", b.bitcast(value, value.like("f16")), "f32")
    return b.bf16_to_f32(value)


def from_compute(
    b: TextBuilder, value: Register, element: ElementType, *, any_nan: bool = False
) -> Register:
    """`value` rounded (to nearest even) from the type it was computed in.

    It was computed of values of `element`, so bits that `element` lacks are 0 in a NaN; with
    `any_nan` they are not.
    """
    if not element.is_narrow:
        return value
    if element.bits < 16:
        return narrowed(b, value, element.format, element.bits)
    if element.name == "f16":
        half = b.cast("arith.truncf", value, "f16")
        return b.bitcast(half, half.like("i16"))
    if b.rounds_to_bf16:
        half = b.cast("arith.truncf", value, "bf16")
        return b.bitcast(half, half.like("i16"))
    # Integer rounding, not vcvtneps2bf16: that instruction flushes denormals.
    type_ = value.like("i32")
    bits = b.bitcast(value, type_)
    high = bits >> b.constant(16, type_)
    even = high & b.constant(1, type_)
    bias = even + b.constant(0x7FFF, type_)
    rounded = bits + bias >> b.constant(16, type_)
    if any_nan:
        rounded = b.select(value.is_nan(), high | b.constant(0x40, type_), rounded)
    return b.cast("arith.trunci", rounded, "i16")


def half_op(
    b: TextBuilder, name: str, operands: Sequence[Register], element: ElementType
) -> Register | None:
    """`arith.NAME` of floats of 16 bits, given and returned as i16, without a detour through f32.

    None where that is no instruction, or has other results than f32 arithmetic rounded once. f32 is
    wide enough for sums [1]. It holds products of 2^-134 or more exactly; smaller ones are 0.

    [1] S. Figueroa, "When is double rounding innocuous?" (1995).
    """
    if name not in _HALF_OPS or element.name not in b.halves:
        return None
    halves = [b.bitcast(value, value.like(element.name)) for value in operands]
    result = b.op(name, *halves)
    return b.bitcast(result, result.like("i16"))


_HALF_OPS = ("arith.addf", "arith.maximumf", "arith.minimumf", "arith.mulf", "arith.subf")


def wrap(b: TextBuilder, value: Register, element: ElementType) -> Register:
    """An integer of 2 or 4 bits with the upper bits of its register defined; others as they are."""
    if element.is_float or element.kind == "b" or element.bits == element.width:
        return value
    type_ = value.type
    if not element.is_signed:
        return value & b.constant((1 << element.bits) - 1, type_)
    unused = b.constant(element.width - element.bits, type_)
    return (value << unused).sar(unused)


def round_odd(b: TextBuilder, value: Register) -> Register:
    """f64 -> f32 rounded to odd, so that a second rounding to 16 bits is the only one.

    Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    single = b.cast("arith.truncf", value, "f32")
    back = b.cast("arith.extf", single, "f64")
    type_ = single.like("i32")
    bits = b.bitcast(single, type_)
    size = value.abs()
    above = back.abs() > size
    below = bits - b.constant(1, type_)
    toward_zero = b.select(above, below, bits)
    odd = toward_zero | b.constant(1, type_)
    inexact = b.cmpf("one", back, value)
    return b.bitcast(b.select(inexact, odd, bits), single.type)
