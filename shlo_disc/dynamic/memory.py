"""Bytes of values as they lie in memory."""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.mlir import ir


def element_bytes(element: ir.Type) -> int:
    """Bytes of one element in memory; raises UnsupportedError for types without a layout."""
    known = known_element_type(element)
    if known is not None:
        return known.bytes
    raise UnsupportedError(
        f"element type {element} is not supported; convert to f32, f64, bf16, f16, i1 or an 8 to "
        "64 bit integer first"
    )


def value_bytes(value: ir.Value, shapes: ShapeAnalysis) -> Expr:
    """Bytes of a dense array; raises UnsupportedError for types without a layout."""
    element = ir.RankedTensorType(value.type).element_type
    return Expr.product(shapes.shape(value)) * element_bytes(element)
