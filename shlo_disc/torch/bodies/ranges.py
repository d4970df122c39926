"""Ranges of integers, whose length is a size; torch-mlir computes it in f64."""

from __future__ import annotations

from typing import Any

from shlo_disc.builders import create
from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.size_values import binary, vector
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, converted, element_of, spread

__all__ = ["arange"]


def arange(call: BodyCall) -> list[ir.Value]:
    """`aten.arange` of whole numbers, in its three forms; elements of any type."""
    kind = ir.RankedTensorType(call.results[0])
    names = {argument.name for argument in call.node.target._schema.arguments}
    start = _whole(call, "start", names, 0)
    step = call["step"] if "step" in names else 1
    if isinstance(step, int | float) and (step == 0 or not float(step).is_integer()):
        raise UnsupportedError(f"the step must be a whole number other than 0, got {step}")
    step = int(step) if isinstance(step, float) else step
    end = _whole(call, "end", names, 0)
    i64 = ir.IntegerType.get_signless(64)
    axis = ir.IntegerAttr.get(i64, 0)
    if kind.has_static_shape:
        index = create(
            "stablehlo.iota", [], ir.RankedTensorType.get(kind.shape, i64), iota_dimension=axis
        )
    else:
        length = _length(start, end, step)
        index = create(
            "stablehlo.dynamic_iota",
            [vector([length])],
            ir.RankedTensorType.get(kind.shape, i64),
            iota_dimension=axis,
        )
    if not isinstance(step, int):  # a size
        index = binary("multiply", index, spread(step, [], index))
    elif step != 1:
        index = binary("multiply", index, spread(constant(step, [], i64), [], index))
    index = binary("add", index, spread(start, [], index))
    return [converted(index, kind.element_type)]


def _length(start: ir.Value, end: ir.Value, step: int | ir.Value) -> ir.Value:
    """Of a range that is not empty, or not by more than its step: PyTorch refuses the others.

    A step that is a size is at least 1.
    """
    if not isinstance(step, int):
        distance = binary("subtract", end, start)
        rest = binary("subtract", step, constant(1, [], "i64"))
        return binary("divide", binary("add", distance, rest), step)
    distance = binary("subtract", *((end, start) if step > 0 else (start, end)))
    if abs(step) == 1:
        return distance
    width = constant(abs(step), [], "i64")
    rest = constant(abs(step) - 1, [], "i64")
    return binary("divide", binary("add", distance, rest), width)


def _whole(call: BodyCall, name: str, names: set[str], default: int) -> ir.Value:
    value: Any = call[name] if name in names else default
    if isinstance(value, float):
        if not value.is_integer():
            raise UnsupportedError(f"{name} must be a whole number, got {value}")
        value = int(value)
    if isinstance(value, int):
        return constant(value, [], "i64")
    if not isinstance(element_of(value), ir.IntegerType):
        raise UnsupportedError(f"{name} must be a whole number")
    return value
