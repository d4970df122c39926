"""Padding by sizes; torch-mlir takes numbers only.

%y = aten.constant_pad_nd(%x, [0, %n], 0.0)    ==>    %y = dynamic_pad %x, 0.0, [0], [%n], [0]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from shlo_disc.builders import create, scalar
from shlo_disc.ingest.size_values import vector
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, element_of

__all__ = ["has_sizes", "pad"]


def has_sizes(arguments: Mapping[str, Any]) -> bool:
    """True if a width is a size, no number."""
    return any(isinstance(width, torch.fx.Node) for width in arguments["pad"])


def pad(call: BodyCall) -> list[ir.Value]:
    """`aten.constant_pad_nd(self, pad, value)`: the last dimension's two widths come first."""
    x, widths = call["self"], call["pad"]
    rank, element = ir.RankedTensorType(x.type).rank, element_of(x)
    value = call["value"]
    if isinstance(element, ir.ComplexType):
        value = scalar(value, element)
    elif not isinstance(value, ir.Value):
        value = constant(value, [], element)
    pairs = [(0, 0)] * (rank - len(widths) // 2)
    pairs += reversed(list(zip(widths[::2], widths[1::2], strict=True)))
    low, high = (vector([_width(pair[side]) for pair in pairs]) for side in (0, 1))
    none = vector([constant(0, [], "i64")] * rank)
    return [create("stablehlo.dynamic_pad", [x, value, low, high, none], _type(call, x))]


def _width(given: Any) -> ir.Value:
    return constant(given, [], "i64") if isinstance(given, int) else given


def _type(call: BodyCall, x: ir.Value) -> ir.Type:
    kind = ir.RankedTensorType(call.results[0])
    return ir.RankedTensorType.get(kind.shape, element_of(x))
