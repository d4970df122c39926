"""Decompositions of `quantized_decomposed`, the ops of models that PyTorch quantizes.

    %y = quantized_decomposed.quantize_per_tensor(%x, 0.1, 3, -128, 127, i8)
        ==>    %y = clamp(round(%x * 10) + 3, -128, 127) as i8

PyTorch defines each of them by ATen ops, in a Python function of the same name. But for numbers
that are chosen from a tensor: that function looks at its elements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _choose_qparams(*, symmetric: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """A scale and a zero point, each of one element, for all elements of a tensor."""

    def rewritten(
        x: Tensor, qmin: int, qmax: int, eps: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        low, high = torch.aminmax(x)
        low, high = low.clamp(max=0).reshape([1]), high.clamp(min=0).reshape([1])
        least = torch.full([1], eps)
        if symmetric:
            scale = torch.maximum(torch.maximum(-low, high) / ((qmax - qmin) / 2), least)
            zero = torch.full([1], 128 if dtype == torch.uint8 else 0)
        else:
            scale = torch.maximum((high - low) / float(qmax - qmin), least)
            zero = (qmin - torch.round(low / scale).to(torch.int32)).clamp(qmin, qmax)
        return scale.to(torch.float64), zero.to(torch.int64)

    return rewritten


_CHOSEN = {
    "choose_qparams.tensor": _choose_qparams(symmetric=False),
    "choose_qparams_symmetric.tensor": _choose_qparams(symmetric=True),
}


def quantized_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What an op of quantized models is traced from; None for another node."""
    op = node.target
    if op.namespace != "quantized_decomposed":
        return None
    if (chosen := _CHOSEN.get(f"{op.overloadpacket.__name__}.{op._overloadname}")) is not None:
        return chosen
    module = sys.modules.get("torch.ao.quantization.fx._decomposed")  # which defines the ops
    packet, overload = op.overloadpacket.__name__, op._overloadname
    name = packet if overload == "default" else f"{packet}_{overload}"
    found: Callable[..., Any] | None = getattr(module, name, None)
    return found
