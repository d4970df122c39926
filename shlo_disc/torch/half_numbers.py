"""Ops of half types that PyTorch computes in f32, and torch-mlir in the half type itself.

    %y = aten.mean(%x: f16)    ==>    %y = aten._to_copy(aten.mean(aten._to_copy(%x, f32)), f16)

A sum in f16 is infinite from 65520 on, and so is a count or a number beside a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten

_HALF = frozenset({torch.float16, torch.bfloat16})

_SUMS = frozenset({
    aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default,
    aten.batch_norm.default, aten.linalg_vector_norm.default, aten.mean.default, aten.mean.dim,
    aten.native_batch_norm.default,
})  # fmt: skip
"""PyTorch adds up in f32 and rounds the result once."""

_WITH_NUMBERS = frozenset({
    aten.div.Scalar, aten.div.Tensor, aten.mul.Scalar, aten.mul.Tensor,
})  # fmt: skip
"""Numbers and scalars beside a tensor are f32 numbers. Those of sums and differences are not."""


def widened(x: Tensor) -> Tensor:
    """`x` in the type that PyTorch adds up in: f32 for half types."""
    return x.to(torch.float32) if x.dtype in _HALF else x


def half_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What `node` is traced from: the op in f32; None for a node whose type makes no difference."""
    if node.op != "call_function":
        return None
    found = pytree.tree_leaves(node.meta.get("val"))
    if not found or not isinstance(found[0], Tensor) or found[0].dtype not in _HALF:
        return None
    if node.target in _SUMS or (node.target in _WITH_NUMBERS and _has_number(node, found[0])):
        return _in_f32(node.target, node.meta["val"])
    return None


def _has_number(node: torch.fx.Node, result: Tensor) -> bool:
    """True with an operand that the type of the result may not have."""
    for operand in (*node.args, *node.kwargs.values()):
        value = operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand
        if isinstance(value, Tensor):
            if not value.dim() and value.dtype is not result.dtype:
                return True
        elif not isinstance(value, int | float) or not _has(result.dtype, value):
            return True
    return False


def _has(dtype: torch.dtype, number: float) -> bool:
    """True if `number` is one of `dtype`; what is infinite or NaN in each type is."""
    rounded = float(torch.tensor(float(number), dtype=torch.float64).to(dtype))
    return rounded == number or math.isnan(number)


def _in_f32(op: Callable[..., Any], like: Any) -> Callable[..., Any]:
    """`op` of f32 numbers; results get the types of `like`."""

    def wide(x: Any) -> Any:
        if isinstance(x, Tensor):
            return x.to(torch.float32)
        return torch.float32 if isinstance(x, torch.dtype) and x in _HALF else x

    def rewritten(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(wide, (args, kwargs))
        results = op(*args, **kwargs)
        return pytree.tree_map(lambda x, own: x.to(own.dtype), results, like)

    return rewritten
