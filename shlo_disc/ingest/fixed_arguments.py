"""Arguments with known elements become constants, which share the memory of their arrays."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arguments import argument_attributes, erase_arguments
from shlo_disc.ir.builders import create, zero
from shlo_disc.ir.dialect import complex_arguments
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.weights import weight_attribute

_LARGE_BYTES = 1 << 16
"""Of arrays that are left out of MLIR; passes compute with elements of smaller ones."""
_BEHIND = 1 << 20
"""Numbers of these constants are behind those of other weights of the module."""


def fix_arguments(main: Any, arrays: Mapping[int, npt.NDArray[Any]]) -> None:
    """Every argument of `main` that has an array becomes a constant, and is no argument any more.

    An array may also be the bytes of one. Raises UnsupportedError for a complex one, and for one
    whose sizes vary. Raises ValueError for an array of other bytes than the argument has.
    """
    complex_ones = complex_arguments(main.operation)
    makers: dict[int, Callable[[], ir.Value]] = {}
    for index, array in sorted(arrays.items()):
        kind = ir.RankedTensorType(main.arguments[index].type)
        known = argument_attributes(main, index).get("disc.name")
        name = f"argument {index}" if known is None else repr(ir.StringAttr(known).value)
        if index in complex_ones or not kind.has_static_shape:
            what = "complex numbers" if index in complex_ones else "sizes that vary"
            raise UnsupportedError(f"{name} cannot be a constant: it has {what}")
        size = math.prod(kind.shape) * element_type(kind.element_type).bytes
        if array.nbytes != size:
            raise ValueError(f"{name} has {size} bytes, got {array.nbytes}")
        makers[index] = partial(_constant, np.ascontiguousarray(array), kind, _BEHIND + index)
    erase_arguments(main, makers)


def _constant(elements: npt.NDArray[Any], kind: ir.Type, number: int) -> ir.Value:
    element = ir.RankedTensorType(kind).element_type
    if elements.nbytes == 0:
        return create("stablehlo.broadcast_in_dim", [zero(element)], kind, broadcast_dimensions=())
    value = (
        _written(elements, kind)
        if elements.nbytes < _LARGE_BYTES
        else weight_attribute(elements, kind, number)
    )
    return create("stablehlo.constant", [], kind, value=value)


def _written(elements: npt.NDArray[Any], kind: ir.Type) -> ir.Attribute:
    """A value of type `kind` with its elements in MLIR, where passes read it."""
    tensor = ir.RankedTensorType(kind)
    if element_type(tensor.element_type).name == "i1":
        rows = elements.reshape(-1).view(np.bool_).reshape(tensor.shape).tolist()
        return ir.Attribute.parse(f"dense<{json.dumps(rows)}> : {kind}")
    return ir.Attribute.parse(f'dense<"0x{elements.tobytes().hex()}"> : {kind}')
