"""Padding whose amounts are sizes, such as the gradient of `x[:, :n // 2]`.

    %y = aten.constant_pad_nd(%x, [0, %n], 0.0)    ==>    %y = dynamic_pad %x, 0.0, [0, 0], [0, %n]

Negative amounts remove elements, as PyTorch has them. torch-mlir takes numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from shlo_disc.ingest.arrays import constant, converted
from shlo_disc.ir.builders import element_of, pad
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall


def pads_by_sizes(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of a `constant_pad_nd` with an amount that is computed in calls."""
    given = (*arguments["pad"], arguments["value"])
    return any(isinstance(amount, torch.fx.Node) for amount in given)


def constant_pad(call: BodyCall) -> list[ir.Value]:
    """`aten.constant_pad_nd.default(self, pad, value)`; `pad` begins with the last dimension."""
    x, value = call["self"], call["value"]
    rank = ir.RankedTensorType(x.type).rank
    none = constant(0, "i64")
    amounts = [constant(a, "i64") if isinstance(a, int) else a for a in call["pad"]]
    amounts += [none] * (2 * rank - len(amounts))
    element = element_of(x)
    is_number = not isinstance(value, ir.Value)
    filled = constant(value, element) if is_number else converted(value, element)
    low, high = (list(reversed(amounts[first::2])) for first in (0, 1))
    return [pad(x, filled, low, high, [none] * rank)]
