"""Ranges, whose length is a size; torch-mlir computes it in f64.

arange(0, n)             ==>    iota [n]
arange(0.5, n, 1.5)      ==>    iota [(2*n - 1 + 2) // 3] * 1.5 + 0.5
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import constant, converted
from shlo_disc.ingest.size_values import binary, vector
from shlo_disc.ir.builders import create, element_of
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread

_LARGEST_DENOMINATOR = 1 << 10
"""Of the fractions in a range whose length is a size, so that the length is exact."""


def arange(call: BodyCall) -> list[ir.Value]:
    """`aten.arange` in its three forms; elements of any type.

    Raises UnsupportedError for a length that depends on a fraction with a large denominator, or
    on a float that is no constant.
    """
    kind = ir.RankedTensorType(call.results[0])
    names = {argument.name for argument in call.node.target._schema.arguments}
    start, end = (_bound(call, name, names, 0) for name in ("start", "end"))
    step = _bound(call, "step", names, 1)
    if step == 0:
        raise UnsupportedError("the step must be a number other than 0")
    are_whole = _is_whole(start) and _is_whole(step)
    if not are_whole and isinstance(kind.element_type, ir.IntegerType):
        raise UnsupportedError("a range of whole numbers with a fraction as start or step")
    i64 = ir.IntegerType.get_signless(64)
    if kind.has_static_shape:
        index = create(
            "stablehlo.iota", [], ir.RankedTensorType.get(kind.shape, i64), iota_dimension=0
        )
    else:
        index = create(
            "stablehlo.dynamic_iota",
            [vector([_length(start, end, step)])],
            ir.RankedTensorType.get(kind.shape, i64),
            iota_dimension=0,
        )
    element = i64 if are_whole else ir.F64Type.get()
    index = converted(index, element)
    if step != 1:
        index = binary("multiply", index, spread(_number(step, element), [], index))
    index = binary("add", index, spread(_number(start, element), [], index))
    return [converted(index, kind.element_type)]


def _is_whole(bound: Any) -> bool:
    return not isinstance(bound, Fraction) or bound.denominator == 1


def _number(value: Any, element: ir.Type) -> ir.Value:
    """A bound as a scalar of this type."""
    if isinstance(value, ir.Value):
        return converted(value, element)
    is_whole = isinstance(element, ir.IntegerType)
    return constant(int(value) if is_whole else float(value), element)


def _length(start: Any, end: Any, step: Any) -> ir.Value:
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
    distance = binary("subtract", last, first)
    width = abs(step) if isinstance(step, Fraction) else step
    if width == 1 and scale == 1:
        return distance
    width = _scaled(width, scale)
    rest = binary("subtract", width, constant(1, "i64"))
    return binary("divide", binary("add", distance, rest), width)


def _scaled(bound: Any, scale: int) -> ir.Value:
    """`bound * scale`, which is whole."""
    if isinstance(bound, Fraction):
        return constant(int(bound * scale), "i64")
    return bound if scale == 1 else binary("multiply", bound, constant(scale, "i64"))


def _bound(call: BodyCall, name: str, names: set[str], default: int) -> Any:
    value: Any = call[name] if name in names else default
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise UnsupportedError(f"{name} must be finite, got {value}")
        return Fraction(value)
    if not isinstance(element_of(value), ir.IntegerType):
        raise UnsupportedError(f"{name} must be a whole number or a constant")
    return value
