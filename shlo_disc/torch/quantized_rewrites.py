"""Decompositions of `quantized_decomposed`, the ops of models that PyTorch quantizes.

    %y = quantized_decomposed.quantize_per_tensor(%x, 0.1, 3, -128, 127, i8)
        ==>    %y = clamp(round(%x * 10) + 3, -128, 127) as i8

PyTorch defines each of them by ATen ops, in a Python function of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["quantized_rule"]


def quantized_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What an op of quantized models is traced from; None for another node."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "quantized_decomposed":
        return None
    module = sys.modules.get("torch.ao.quantization.fx._decomposed")  # which defines the ops
    packet, overload = op.overloadpacket.__name__, op._overloadname
    name = packet if overload == "default" else f"{packet}_{overload}"
    found: Callable[..., Any] | None = getattr(module, name, None)
    return found
