"""Arguments with known elements become constants, which share the memory of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arguments import argument_attributes, erase_arguments
from shlo_disc.ir.builders import create
from shlo_disc.ir.dialect import complex_arguments
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.weights import weight_attribute

_BEHIND = 1 << 20
"""Numbers of these constants are behind those of other weights of the module."""


def fix_arguments(main: Any, arrays: Mapping[int, npt.NDArray[Any]]) -> None:
    """Every argument of `main` that has an array becomes a constant, and is no argument any more.

    Raises UnsupportedError for a complex one, and for one whose sizes vary.
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
        elements = np.ascontiguousarray(array)

        def constant(
            elements: npt.NDArray[Any] = elements, kind: ir.Type = kind, number: int = index
        ) -> ir.Value:
            value = weight_attribute(elements, kind, _BEHIND + number)
            return create("stablehlo.constant", [], kind, value=value)

        makers[index] = constant
    erase_arguments(main, makers)
