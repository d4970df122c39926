"""The element types of StableHLO: one row each, for every stage."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass

if TYPE_CHECKING:  # MLIR is loaded when first needed
    from shlo_disc.ir.mlir import ir


@dataclass(frozen=True)
class ElementType:
    """One element type that programs may have and kernels compute with.

    In kernels `ui32` is the signless `i32`, as operations carry the sign; `i1` is a byte in memory.
    Floats of 16 bits and fewer are carried as their bits (`i16`, `i8`). Integers of 2 and 4 bits
    lie in a byte each, in memory and in registers.
    """

    name: str
    """As MLIR prints the type: "f32", "ui8"."""
    kind: str
    """f(loat), i(nteger), u(nsigned integer) or b(oolean)."""
    bits: int
    dtype: np.dtype[Any]
    """The NumPy type with this layout in memory: of 2, 4 and 6 bits an element has a byte."""

    @property
    def is_known_to_jax(self) -> bool:
        """Whether a `jax.Array` can have this type."""
        return self.bits != 6

    @property
    def is_packed_by_jax(self) -> bool:
        """True if several elements of a `jax.Array` share a byte, which DLPack cannot say."""
        return self.bits in (2, 4)

    @property
    def bytes(self) -> int:
        """Of one element in memory."""
        return self.dtype.itemsize

    @property
    def format(self) -> FloatFormat:
        """Of a float; KeyError for other types."""
        return FLOATS[self.name]

    @property
    def is_float(self) -> bool:
        """A floating-point type."""
        return self.kind == "f"

    @property
    def is_narrow(self) -> bool:
        """A float that is carried as its bits: of 16 bits or fewer."""
        return self.kind == "f" and self.bits <= 16

    @property
    def is_signed(self) -> bool:
        """Signed integer."""
        return self.kind == "i"

    @property
    def width(self) -> int:
        """Bits of the register of an integer or a narrow float: at least 8."""
        return max(8, self.bits)

    @property
    def storage(self) -> str:
        """The type of an element of a memref."""
        return "i8" if self.kind == "b" else self.register

    @property
    def register(self) -> str:
        """The type that kernels carry values in."""
        if self.kind == "f":
            return f"i{self.width}" if self.is_narrow else self.name
        return "i1" if self.kind == "b" else f"i{self.width}"

    @property
    def compute(self) -> str:
        """The type that kernels do arithmetic in."""
        return "f32" if self.is_narrow else self.register


class Special(Enum):
    """What a floating-point format has besides finite numbers, and where."""

    IEEE = "ieee"
    """Infinities and NaNs in the largest exponent."""
    FN = "fn"
    """No infinity; NaN has all bits of exponent and significand set."""
    FINITE = "finite"
    """Neither; conversions saturate, and NaN becomes a zero."""
    FNUZ = "fnuz"
    """No infinity, no negative zero: its bits are the only NaN."""
    SCALE = "scale"
    """Powers of two without sign and zero; all bits set is NaN."""


@dataclass(frozen=True)
class FloatFormat:
    """What a binary floating-point type can represent, and how its bits lie.

    The bits are sign, exponent, fraction, from the highest on. Source: the names of LLVM's
    APFloat formats; `ml_dtypes` converts as this project does.
    """

    precision: int
    """Bits of the significand, the implicit one included."""
    smallest: int
    """Exponent of the smallest normal number."""
    largest: int
    """Exponent of the largest number."""
    special: Special = Special.IEEE

    @property
    def fraction(self) -> int:
        """Bits of the significand that are stored."""
        return self.precision - 1

    @property
    def infinity(self) -> int:
        """The bits of positive infinity in an IEEE format."""
        return (self.largest - self.smallest + 2) << self.fraction

    @property
    def quiet_nan(self) -> int:
        """The bits of a quiet NaN in an IEEE format."""
        return self.infinity | 1 << (self.fraction - 1)

    @property
    def bias(self) -> int:
        """What is added to an exponent before it is stored."""
        return 1 - self.smallest if self.special is not Special.SCALE else -self.smallest


def _row(name: str, kind: str, bits: int, dtype: Any) -> ElementType:
    return ElementType(name, kind, bits, np.dtype(dtype))


ELEMENT_TYPES: dict[str, ElementType] = {
    row.name: row
    for row in (
        _row("bf16", "f", 16, ml_dtypes.bfloat16),
        _row("f16", "f", 16, np.float16),
        _row("f32", "f", 32, np.float32),
        _row("f64", "f", 64, np.float64),
        _row("f4E2M1FN", "f", 4, ml_dtypes.float4_e2m1fn),
        _row("f6E2M3FN", "f", 6, ml_dtypes.float6_e2m3fn),
        _row("f6E3M2FN", "f", 6, ml_dtypes.float6_e3m2fn),
        _row("f8E3M4", "f", 8, ml_dtypes.float8_e3m4),
        _row("f8E4M3", "f", 8, ml_dtypes.float8_e4m3),
        _row("f8E4M3B11FNUZ", "f", 8, ml_dtypes.float8_e4m3b11fnuz),
        _row("f8E4M3FN", "f", 8, ml_dtypes.float8_e4m3fn),
        _row("f8E4M3FNUZ", "f", 8, ml_dtypes.float8_e4m3fnuz),
        _row("f8E5M2", "f", 8, ml_dtypes.float8_e5m2),
        _row("f8E5M2FNUZ", "f", 8, ml_dtypes.float8_e5m2fnuz),
        _row("f8E8M0FNU", "f", 8, ml_dtypes.float8_e8m0fnu),
        _row("i1", "b", 1, np.bool_),
        *(_row(f"i{n}", "i", n, getattr(ml_dtypes, f"int{n}")) for n in (2, 4)),
        *(_row(f"ui{n}", "u", n, getattr(ml_dtypes, f"uint{n}")) for n in (2, 4)),
        *(_row(f"i{n}", "i", n, f"int{n}") for n in (8, 16, 32, 64)),
        *(_row(f"ui{n}", "u", n, f"uint{n}") for n in (8, 16, 32, 64)),
    )
}
"""By name."""

COMPLEX_TYPES: dict[str, np.dtype[Any]] = {
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}
"""Of arguments and results; kernels see pairs of real numbers (`ingest/complex_numbers`)."""

FLOATS: dict[str, FloatFormat] = {
    "bf16": FloatFormat(8, -126, 127),
    "f16": FloatFormat(11, -14, 15),
    "f32": FloatFormat(24, -126, 127),
    "f64": FloatFormat(53, -1022, 1023),
    "f4E2M1FN": FloatFormat(2, 0, 2, Special.FINITE),
    "f6E2M3FN": FloatFormat(4, 0, 2, Special.FINITE),
    "f6E3M2FN": FloatFormat(3, -2, 4, Special.FINITE),
    "f8E3M4": FloatFormat(5, -2, 3),
    "f8E4M3": FloatFormat(4, -6, 7),
    "f8E4M3B11FNUZ": FloatFormat(4, -10, 4, Special.FNUZ),
    "f8E4M3FN": FloatFormat(4, -6, 8, Special.FN),
    "f8E4M3FNUZ": FloatFormat(4, -7, 7, Special.FNUZ),
    "f8E5M2": FloatFormat(3, -14, 15),
    "f8E5M2FNUZ": FloatFormat(3, -15, 15, Special.FNUZ),
    "f8E8M0FNU": FloatFormat(1, -127, 127, Special.SCALE),
}
"""By name of the element type."""


def known_element_type(element: ir.Type) -> ElementType | None:
    """The row of the element type of an array; None for one without a row."""
    return ELEMENT_TYPES.get(str(element))


def element_type(element: ir.Type) -> ElementType:
    """The row of the element type of an array.

    Raises UnsupportedError for a type without a row; `ingest` lets none of these through.
    """
    row = known_element_type(element)
    if row is None:
        raise UnsupportedError(
            f"element type {element} is not compiled (these are: {', '.join(ELEMENT_TYPES)})"
        )
    return row
