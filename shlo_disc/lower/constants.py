"""Bytes of `stablehlo.constant` values as generated code reads them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.dense_elements import elements_of
from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.weights import weight_bytes


def constant_bytes(op: ir.Operation) -> npt.NDArray[np.uint8]:
    """The value of a static-shape constant, dense and row-major; `i1` is one byte per element."""
    kind = ir.RankedTensorType(op.results[0].type)
    beside = weight_bytes(op.attributes["value"])
    if beside is not None:
        return beside
    array = array_of(op.attributes["value"], kind, op)
    if not array.flags.owndata:  # the attribute's memory
        array = array.copy()
    return array.reshape(-1).view(np.uint8)


def array_of(
    value: ir.Attribute, kind: ir.RankedTensorType, op: ir.Operation
) -> npt.NDArray[np.generic]:
    """The elements of a dense attribute of type `kind`, contiguous; `op` is named in errors."""
    element = known_element_type(kind.element_type)
    if element is None:
        raise UnsupportedError(
            f"{source_line(op)}: a constant of element type {kind.element_type} is not supported"
        )
    dtype, shape = element.dtype, tuple(kind.shape)
    if isinstance(value, ir.DenseElementsAttr) and value.is_splat:
        number = np.array(_scalar(value.get_splat_value(), dtype), dtype)
        return np.full(shape, number, dtype)  # small: see `passes/broadcast_splats.py`
    return np.ascontiguousarray(elements_of(value, element).reshape(shape))


def _scalar(attribute: ir.Attribute, dtype: np.dtype[np.generic]) -> object:
    if isinstance(attribute, ir.FloatAttr):
        return attribute.value
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    # A signless 64-bit splat of a ui64 tensor reads as a negative number.
    value = int(ir.IntegerAttr(attribute).value)
    return value % (1 << (8 * dtype.itemsize)) if dtype.kind == "u" else value
