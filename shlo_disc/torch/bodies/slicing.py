"""Slices whose end is a size: torch-mlir takes an end that is 0 in a call for the last element.

    %y = aten.slice(%x, 0, 1, %n)    ==>    %e = maximum 1, (minimum %n, size of %x)
                                            %y = real_dynamic_slice %x, 1, %e

Bounds are from 0 to the size, the end not before the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array
from shlo_disc.ingest.size_arithmetic import shape_vector
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall
from shlo_disc.torch.sizes import expression


def ends_at_a_size(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of an `aten.slice` whose end is computed in calls."""
    end, x = arguments["end"], arguments["self"].meta["val"]
    if isinstance(end, torch.fx.Node):
        return True
    return end is not None and end < 0 and not isinstance(x.shape[arguments["dim"]], int)


def slice_(call: BodyCall) -> list[ir.Value]:
    """`aten.slice.Tensor(self, dim, start, end, step)`."""
    x, step = call["self"], call["step"]
    if not isinstance(step, int):
        raise UnsupportedError("the step must be a number, not a size")
    axis = call["dim"] % x.rank
    size, have = x.extent(axis), expression(call.shape("self")[axis])
    start, end = Array.constant(0, "i64"), _bound(call, "end", size, have)
    if _stated(call, "start") not in (None, 0):
        start = _bound(call, "start", size, have)
        end = start.maximum(end)
    starts = [start if k == axis else 0 for k in range(x.rank)]
    ends = [end if k == axis else x.extent(k) for k in range(x.rank)]
    steps = [step if k == axis else 1 for k in range(x.rank)]
    shape = x.shape
    shape[axis] = ir.ShapedType.get_dynamic_size()
    result = ir.RankedTensorType.get(shape, x.element)
    operands = [x, *map(shape_vector, (starts, ends, steps))]
    return [create("stablehlo.real_dynamic_slice", operands, result)]


def _is_nonnegative(size: Any) -> bool:
    """True if an expression is at least 0 for all sizes from 0 on.

    PyTorch's own answers are for sizes from 2 on.
    """
    terms = sympy.expand(expression(size)).as_coefficients_dict().items()
    return all(
        coefficient >= 0 and all(factor.is_nonnegative for factor in term.as_powers_dict())
        for term, coefficient in terms
    )


def _stated(call: BodyCall, name: str) -> Any:
    """A bound as PyTorch has it: None, or an expression of sizes."""
    given = call.given(name)
    value = given.meta["val"] if isinstance(given, torch.fx.Node) else given
    return None if value is None else expression(value)


def _bound(call: BodyCall, name: str, size: Array, have: Any) -> Array:
    """The start or the end, from 0 to `size`; negative ones count from behind."""
    stated, value = _stated(call, name), call.size(name)
    if _is_nonnegative(-1 - stated):
        return (value + size).maximum(0)
    if not _is_nonnegative(stated):
        value = (value < 0).where((value + size).maximum(0), value)
    return value if _is_nonnegative(have - stated) else value.minimum(size)
