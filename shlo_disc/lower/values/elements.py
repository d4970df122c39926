"""Element types: how a StableHLO element lies in memory and in registers.

`ui32` becomes the signless `i32` (operations carry the sign), `i1` is a byte in memory. Floats of
16 bits and fewer are carried as their bits (`i16`, `i8`) and widened to f32 where they are computed
with. Moving data thus never changes a NaN, and no code generator needs 16-bit arithmetic. Integers
of 2 and 4 bits lie in a byte each, in memory and in registers. Its upper bits are undefined, as for
`ml_dtypes`: what computes with them extends them first (`wrap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from shlo_disc.element_types import ELEMENT_TYPES, FLOATS, FloatFormat, known_element_type
from shlo_disc.errors import UnsupportedError
from shlo_disc.locations import source_line
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.narrow_floats import narrowed, widened
from shlo_disc.lower.values.typed import Register
from shlo_disc.mlir import ir

__all__ = [
    "ELEMENTS",
    "Element",
    "element_of",
    "from_compute",
    "round_odd",
    "to_compute",
    "unsupported",
    "wrap",
]


@dataclass(frozen=True)
class Element:
    """One StableHLO element type."""

    name: str
    kind: str
    """f(loat), i(nt), u(nsigned) or b(ool)."""
    bits: int

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return max(1, self.bits // 8)

    @property
    def storage(self) -> str:
        """The type of an element of a memref."""
        return "i8" if self.kind == "b" else self.register

    @property
    def register(self) -> str:
        """The type values are carried in."""
        if self.kind == "f":
            return self.name if self.bits > 16 else "i16" if self.bits == 16 else "i8"
        return "i1" if self.kind == "b" else f"i{self.width}"

    @property
    def compute(self) -> str:
        """The type arithmetic is done in."""
        return "f32" if self.is_narrow else self.register

    @property
    def is_float(self) -> bool:
        """A floating-point type."""
        return self.kind == "f"

    @property
    def is_narrow(self) -> bool:
        """A float that is carried as its bits: of 16 bits or fewer."""
        return self.kind == "f" and self.bits <= 16

    @property
    def width(self) -> int:
        """Bits of the register of an integer or a narrow float: at least 8."""
        return max(8, self.bits)

    @property
    def format(self) -> FloatFormat:
        """Of a float; KeyError for other types."""
        return FLOATS[self.name]

    @property
    def is_signed(self) -> bool:
        """Signed integer."""
        return self.kind == "i"


ELEMENTS = {name: Element(name, row.kind, row.bits) for name, row in ELEMENT_TYPES.items()}
"""The element types that kernels compute with, by name."""


def unsupported(op: ir.Operation, what: str, advice: str) -> NoReturn:
    """Raise UnsupportedError with the operation, its source line and what to do."""
    raise UnsupportedError(f"{op.name} at {source_line(op)}: {what}; {advice}")


def element_of(value: ir.Value) -> Element:
    """The element type of a tensor value; raises UnsupportedError for one we do not compile."""
    kind = ir.ShapedType(value.type).element_type
    if (row := known_element_type(kind)) is None:
        owner = value.owner
        if isinstance(owner, ir.Block):  # name the first op that reads the operand
            owner = next((use.owner for use in value.uses), owner.owner)
        known = ", ".join(sorted(ELEMENTS))
        unsupported(
            owner.operation, f"element type {kind} is not compiled", f"convert to one of {known}"
        )
    return ELEMENTS[row.name]


def to_compute(b: KernelBuilder, value: Register, element: Element) -> Register:
    """`value` widened to the type it is computed in (exact)."""
    if not element.is_narrow:
        return wrap(b, value, element)
    if element.bits < 16:
        return widened(b, value, element.format, element.bits)
    if element.name == "f16":
        return b.cast("arith.extf", b.bitcast(value, value.like("f16")), "f32")
    wide = b.cast("arith.extui", value, "i32")
    bits = wide << 16
    return b.bitcast(bits, bits.like("f32"))


def from_compute(b: KernelBuilder, value: Register, element: Element) -> Register:
    """`value` rounded (to nearest even) from the type it was computed in."""
    if not element.is_narrow:
        return value
    if element.bits < 16:
        return narrowed(b, value, element.format, element.bits)
    if element.name == "f16":
        half = b.cast("arith.truncf", value, "f16")
        return b.bitcast(half, half.like("i16"))
    # Integer rounding, not vcvtneps2bf16: that instruction flushes denormals.
    type_ = value.like("i32")
    bits = b.bitcast(value, type_)
    high = bits >> b.constant(16, type_)
    even = high & b.constant(1, type_)
    bias = even + b.constant(0x7FFF, type_)
    rounded = bits + bias >> b.constant(16, type_)
    quiet = high | b.constant(0x40, type_)
    nan = value.is_nan()
    return b.cast("arith.trunci", b.select(nan, quiet, rounded), "i16")


def wrap(b: KernelBuilder, value: Register, element: Element) -> Register:
    """An integer of 2 or 4 bits with the upper bits of its register defined; others as they are."""
    if element.is_float or element.kind == "b" or element.bits == element.width:
        return value
    type_ = value.type
    if not element.is_signed:
        return value & b.constant((1 << element.bits) - 1, type_)
    unused = b.constant(element.width - element.bits, type_)
    return (value << unused).sar(unused)


def round_odd(b: KernelBuilder, value: Register) -> Register:
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
