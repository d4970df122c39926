"""Ops that torch-mlir lowers for other element types than PyTorch's kernels compute in.

    %y = aten.mean(%x: f16)    ==>    %y = aten._to_copy(aten.mean(aten._to_copy(%x, f32)), f16)

A sum in f16 is infinite from 65520 on, and so is a count or a number beside a tensor. A maximum of
u8 would start at 128, a minimum at 127; a truth value would be -1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten

Rule = Callable[[torch.fx.Node], Callable[..., Any] | None]
"""What a node of some op is traced from; None for a node that stays as it is."""

_HALF = frozenset({torch.float16, torch.bfloat16})

_WIDER = {
    torch.bool: torch.int32, torch.uint8: torch.int32, torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}  # fmt: skip
"""Element type -> a signed one that has all its numbers."""

NARROW = frozenset(_WIDER)
"""Types that torch-mlir takes for signed ones."""

_ANY = frozenset({aten.any.default, aten.any.dim})
_COMPARISONS = frozenset({
    aten.eq.Scalar, aten.ge.Scalar, aten.gt.Scalar, aten.le.Scalar, aten.lt.Scalar, aten.ne.Scalar,
})  # fmt: skip
_MEANS = frozenset({aten.mean.default, aten.mean.dim})
_MOVES = frozenset({aten.transpose.int, aten.transpose_copy.int})
_OF_ONE_ELEMENT = frozenset({
    aten.amax.default, aten.amin.default, aten.mean.dim, aten.prod.dim_int, aten.sum.dim_IntList,
})  # fmt: skip
_SOFTMAX = frozenset({aten._softmax.default, aten.softmax.int})
_LOG_SOFTMAX = frozenset({aten._log_softmax.default, aten.log_softmax.int})
_WITH_NUMBERS = frozenset({aten.div.Scalar, aten.div.Tensor, aten.mul.Scalar, aten.mul.Tensor})
"""Numbers and scalars beside a tensor are f32 numbers. Those of sums and differences are not."""


def widened(x: Tensor) -> Tensor:
    """`x` in the type that PyTorch adds up in: f32 for half types."""
    return x.to(torch.float32) if x.dtype in _HALF else x


def _retyped(node: torch.fx.Node, wide: Callable[[Any], Any]) -> Callable[..., Any]:
    """The op of `node` of what `wide` makes of arguments; its results have the types they had."""
    kinds = [value.dtype for value in pytree.tree_leaves(node.meta["val"])]

    def rewritten(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(wide, (args, kwargs))
        results, structure = pytree.tree_flatten(node.target(*args, **kwargs))
        own = (x.to(kind) for x, kind in zip(results, kinds, strict=True))
        return pytree.tree_unflatten(own, structure)

    return rewritten


def _half_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """PyTorch adds up in f32 and rounds the result once."""
    found = pytree.tree_leaves(node.meta["val"])[0]
    is_plain = node.target in _WITH_NUMBERS and not _has_number(node, found)
    return None if found.dtype not in _HALF or is_plain else _retyped(node, _in_f32)


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


def _in_f32(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.to(torch.float32)
    return torch.float32 if isinstance(x, torch.dtype) and x in _HALF else x


def _narrow_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Of a truth value and a number, the number is made a truth value, too."""
    dtype = node.all_input_nodes[0].meta["val"].dtype
    if dtype not in _WIDER or (node.target in _COMPARISONS and dtype is not torch.bool):
        return None
    wide = _WIDER[dtype]
    return _retyped(node, lambda x: x.to(wide) if getattr(x, "dtype", None) is dtype else x)


def _any_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Of u8 PyTorch gives 0 or 1 as u8."""
    if node.all_input_nodes[0].meta["val"].dtype is not torch.uint8:
        return None
    return lambda x, *args: node.target(x.to(torch.bool), *args).to(torch.uint8)


def _comparison_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """A comparison with a number of another kind.

    Of constants, torch-mlir compares the bits of a float with a whole number, and ends the process
    on whole numbers beside a float.
    """
    x, number = node.args[0].meta["val"], node.args[1]
    if x.is_floating_point() and isinstance(number, int):
        return lambda x, n: node.target(x, float(n))
    if not x.is_floating_point() and not x.is_complex() and isinstance(number, float):
        return lambda x, n: node.target(x.to(torch.get_default_dtype()), n)
    return None


def _dtype_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """A softmax or mean whose operand gets another type first."""
    is_softmax = node.target not in _MEANS
    dtypes = (*(node.args[2:] if is_softmax else ()), *node.kwargs.values())
    dtype = next((d for d in dtypes if isinstance(d, torch.dtype)), None)
    if dtype in (None, node.args[0].meta["val"].dtype):
        return None
    if is_softmax:
        return lambda x, dim, *args, **kwargs: node.target(x.to(dtype), dim)
    return lambda x, *args, **kwargs: node.target(x.to(dtype), *args)


def _scalar_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """A reduction of a scalar along a dimension is the scalar.

    torch-mlir's passes end the process on some of these.
    """
    if node.all_input_nodes[0].meta["val"].dim():
        return None
    dtype, kind = node.meta["val"].dtype, node.target
    if kind in _SOFTMAX:
        return lambda x, *args, **kwargs: torch.exp(x - x).to(dtype)
    if kind in _LOG_SOFTMAX:
        return lambda x, *args, **kwargs: (x - x).to(dtype)
    return lambda x, *args, **kwargs: x.to(dtype) + 0


TYPES: tuple[tuple[frozenset[Any], Rule], ...] = (
    (_OF_ONE_ELEMENT | _MOVES | _SOFTMAX | _LOG_SOFTMAX, _scalar_rule),
    (_MEANS | _WITH_NUMBERS | {
        aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default,
        aten.batch_norm.default, aten.linalg_vector_norm.default, aten.native_batch_norm.default,
     }, _half_rule),
    (_MEANS | {aten.log_softmax.int, aten.softmax.int}, _dtype_rule),
    (_COMPARISONS, _comparison_rule),
    (_ANY, _any_rule),
    (_COMPARISONS | {
        aten.abs.default, aten.amax.default, aten.amin.default, aten.argmax.default,
        aten.argmin.default, aten.cummax.default, aten.cummin.default, aten.max.default,
        aten.max.dim, aten.min.default, aten.min.dim,
     }, _narrow_rule),
)  # fmt: skip
"""Overloads, and what says for which of their nodes they are rewritten."""
