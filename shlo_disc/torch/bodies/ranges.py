"""Ranges, whose length is a size; torch-mlir computes it in f64.

arange(0, n)             ==>    iota [n]
arange(0.5, n, 1.5)      ==>    iota [(2*n - 1 + 2) // 3] * 1.5 + 0.5
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array
from shlo_disc.ingest.size_values import vector
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall

_LARGEST_DENOMINATOR = 1 << 10
"""Of the fractions in a range whose length is a size, so that the length is exact."""


def arange(call: BodyCall) -> list[Array]:
    """`aten.arange` in its three forms; elements of any type.

    Raises UnsupportedError for a length that depends on a fraction with a large denominator, or
    on a float that is no constant.
    """
    start, end, step = (_bound(call, *pair) for pair in (("start", 0), ("end", 0), ("step", 1)))
    if step == 0:
        raise UnsupportedError("the step must be a number other than 0")
    are_whole = _is_whole(start) and _is_whole(step)
    if not are_whole and isinstance(call.element, ir.IntegerType):
        raise UnsupportedError("a range of whole numbers with a fraction as start or step")
    i64 = ir.IntegerType.get_signless(64)
    kind = ir.RankedTensorType.get(ir.RankedTensorType(call.results[0]).shape, i64)
    if kind.has_static_shape:
        index = Array(create("stablehlo.iota", [], kind, iota_dimension=0))
    else:
        size = vector([_length(start, end, step)])
        index = Array(create("stablehlo.dynamic_iota", [size], kind, iota_dimension=0))
    element = i64 if are_whole else ir.F64Type.get()
    index = index.to(element)
    if step != 1:
        index = index * _number(step, element)
    return [(index + _number(start, element)).to(call.element)]


def _is_whole(bound: Any) -> bool:
    return not isinstance(bound, Fraction) or bound.denominator == 1


def _number(value: Any, element: ir.Type) -> Array:
    """A bound as a scalar of this type."""
    return value.to(element) if isinstance(value, Array) else Array.constant(value, element)


def _length(start: Any, end: Any, step: Any) -> Array:
    """Of a range that is not empty, or not by more than its step: PyTorch refuses the others.

    A step that is a size is at least 1.
    """
    is_up = not isinstance(step, Fraction) or step > 0
    fractions = [bound for bound in (start, end, step) if isinstance(bound, Fraction)]
    scale = math.lcm(*(bound.denominator for bound in fractions))
    if scale > _LARGEST_DENOMINATOR:
        raise UnsupportedError(
            f"the length depends on {float(max(fractions, key=lambda f: f.denominator))}, which "
            "sizes cannot be computed with; compute the range outside the compiled function"
        )
    first, last = (_scaled(each, scale) for each in ((start, end) if is_up else (end, start)))
    width = _scaled(abs(step) if isinstance(step, Fraction) else step, scale)
    length: Array = (last - first + (width - 1)) / width
    return length


def _scaled(bound: Any, scale: int) -> Any:
    """`bound * scale`, which is whole."""
    scaled = bound * scale
    return int(scaled) if isinstance(scaled, Fraction) else scaled


def _bound(call: BodyCall, name: str, default: int) -> Any:
    value: Any = call.get(name, default)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise UnsupportedError(f"{name} must be finite, got {value}")
        return Fraction(value)
    if not isinstance(value.element, ir.IntegerType):
        raise UnsupportedError(f"{name} must be a whole number or a constant")
    return value
