"""Padding whose amounts are sizes, such as the gradient of `x[:, :n // 2]`.

    %y = aten.constant_pad_nd(%x, [0, %n], 0.0)    ==>    %y = dynamic_pad %x, 0.0, [0, 0], [0, %n]

Negative amounts remove elements, as PyTorch has them. torch-mlir takes numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from shlo_disc.ingest.arrays import Array
from shlo_disc.ingest.size_arithmetic import value_of
from shlo_disc.ir.builders import pad
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall


def pads_by_sizes(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of a `constant_pad_nd` with an amount that is computed in calls."""
    given = (*arguments["pad"], arguments["value"])
    return any(isinstance(amount, torch.fx.Node) for amount in given)


def constant_pad(call: BodyCall) -> list[ir.Value]:
    """`aten.constant_pad_nd.default(self, pad, value)`; `pad` begins with the last dimension."""
    x, value, given = call["self"], call["value"], call["pad"]
    amounts = [value_of(a) for a in (*given, *[0] * (2 * x.rank - len(given)))]
    is_number = not isinstance(value, Array)
    filled = Array.constant(value, x.element) if is_number else value.to(x.element)
    low, high = (list(reversed(amounts[first::2])) for first in (0, 1))
    return [pad(x, filled, low, high, [value_of(0)] * x.rank)]
