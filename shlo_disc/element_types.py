"""The element types of StableHLO: one row each, for every stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["ELEMENT_TYPES", "FLOATS", "ElementType"]


@dataclass(frozen=True)
class ElementType:
    """One element type that programs may have and kernels compute with."""

    name: str
    """As MLIR prints the type: "f32", "ui8"."""
    kind: str
    """f(loat), i(nteger), u(nsigned integer) or b(oolean)."""
    bits: int
    dtype: np.dtype[Any]
    """The NumPy type with this layout in memory."""

    @property
    def bytes(self) -> int:
        """Of one element in memory."""
        return self.dtype.itemsize


@dataclass(frozen=True)
class FloatFormat:
    """What a binary floating-point type can represent."""

    precision: int
    """Bits of the significand, the implicit one included."""
    smallest: int
    """Exponent of the smallest normal number."""
    largest: int
    """Exponent of the largest number."""


def _row(name: str, kind: str, bits: int, dtype: Any) -> ElementType:
    return ElementType(name, kind, bits, np.dtype(dtype))


ELEMENT_TYPES: dict[str, ElementType] = {
    row.name: row
    for row in (
        _row("bf16", "f", 16, ml_dtypes.bfloat16),
        _row("f16", "f", 16, np.float16),
        _row("f32", "f", 32, np.float32),
        _row("f64", "f", 64, np.float64),
        _row("i1", "b", 1, np.bool_),
        *(_row(f"i{n}", "i", n, f"int{n}") for n in (8, 16, 32, 64)),
        *(_row(f"ui{n}", "u", n, f"uint{n}") for n in (8, 16, 32, 64)),
    )
}
"""By name."""

FLOATS: dict[str, FloatFormat] = {
    "bf16": FloatFormat(8, -126, 127),
    "f16": FloatFormat(11, -14, 15),
    "f32": FloatFormat(24, -126, 127),
    "f64": FloatFormat(53, -1022, 1023),
}
"""By name of the element type."""
