"""Ops of unsigned numbers and truth values that torch-mlir takes for signed ones.

    %y = aten.amax(%x: u8, [1])    ==>    %y = aten._to_copy(aten.amax(%x: i32, [1]), dtype=u8)

A maximum of u8 would start at 128, a minimum at 127, and a truth value would be -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten

_WIDER = {
    torch.bool: torch.int32,
    torch.uint8: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
"""Element type -> a signed one that has all its numbers."""

NARROW = frozenset(_WIDER)
"""Types that torch-mlir takes for signed ones."""

_WIDENED = frozenset({
    aten.abs.default, aten.amax.default, aten.amin.default, aten.argmax.default,
    aten.argmin.default, aten.cummax.default, aten.cummin.default, aten.max.default,
    aten.max.dim, aten.min.default, aten.min.dim,
})  # fmt: skip

_COMPARISONS = frozenset({
    aten.eq.Scalar, aten.ge.Scalar, aten.gt.Scalar, aten.le.Scalar, aten.lt.Scalar, aten.ne.Scalar,
})  # fmt: skip
"""Of a tensor and a number; of truth values the number is made one, too."""

_ANY = frozenset({aten.any.default, aten.any.dim})


def narrow_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What `node` is traced from; None for a node that torch-mlir understands."""
    if node.op != "call_function" or not node.all_input_nodes:
        return None
    value = node.all_input_nodes[0].meta.get("val")
    dtype = value.dtype if isinstance(value, Tensor) else None
    if dtype not in _WIDER:
        return None
    if node.target in _ANY and dtype is torch.uint8:
        return _any(node.target)
    if node.target in _WIDENED or (node.target in _COMPARISONS and dtype is torch.bool):
        return _widened(node.target, dtype)
    return None


def comparison_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What a comparison with a number of another kind is traced from; None for another node.

    Of constants, torch-mlir compares the bits of a float with a whole number, and ends the process
    on whole numbers beside a float.
    """
    if node.op != "call_function" or node.target not in _COMPARISONS:
        return None
    x, number = node.args[0].meta["val"], node.args[1]
    if x.is_floating_point() and isinstance(number, int):
        return lambda x, n: node.target(x, float(n))
    if not x.is_floating_point() and not x.is_complex() and isinstance(number, float):
        return lambda x, n: node.target(x.to(torch.get_default_dtype()), n)
    return None


def _any(op: Callable[..., Any]) -> Callable[..., Any]:
    """Of u8 PyTorch gives 0 or 1 as u8."""
    return lambda x, *args: op(x.to(torch.bool), *args).to(torch.uint8)


def _widened(op: Callable[..., Any], narrow: torch.dtype) -> Callable[..., Any]:
    """`op` on wider numbers; results that have the wider type get the narrow one."""
    wide = _WIDER[narrow]

    def converted(value: Any, have: torch.dtype, want: torch.dtype) -> Any:
        is_one = isinstance(value, Tensor) and value.dtype is have
        return value.to(want) if is_one else value

    def rewritten(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(lambda x: converted(x, narrow, wide), (args, kwargs))
        results = op(*args, **kwargs)
        return pytree.tree_map(lambda x: converted(x, wide, narrow), results)

    return rewritten


_OF_ONE_ELEMENT = frozenset({
    aten.amax.default, aten.amin.default, aten.mean.dim, aten.prod.dim_int, aten.sum.dim_IntList,
})  # fmt: skip
_MOVES = frozenset({aten.transpose.int, aten.transpose_copy.int})
_SOFTMAX = frozenset({aten._softmax.default, aten.softmax.int})
_LOG_SOFTMAX = frozenset({aten._log_softmax.default, aten.log_softmax.int})


def dtype_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What a softmax or mean whose operand gets another type first is traced from.

    None for another node.
    """
    if node.op != "call_function" or node.target not in _CONVERTING:
        return None
    is_softmax = node.target not in _MEANS
    dtypes = (*(node.args[2:] if is_softmax else ()), *node.kwargs.values())
    dtype = next((d for d in dtypes if isinstance(d, torch.dtype)), None)
    if dtype in (None, node.args[0].meta["val"].dtype):
        return None
    if is_softmax:
        return lambda x, dim, *args, **kwargs: node.target(x.to(dtype), dim)
    return lambda x, *args, **kwargs: node.target(x.to(dtype), *args)


_MEANS = frozenset({aten.mean.default, aten.mean.dim})
_CONVERTING = _MEANS | {aten.log_softmax.int, aten.softmax.int}


def scalar_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What a reduction of a scalar along a dimension is traced from: the scalar.

    torch-mlir's passes end the process on some of these. None for another node.
    """
    if node.op != "call_function" or not node.all_input_nodes:
        return None
    value = node.all_input_nodes[0].meta.get("val")
    if not isinstance(value, Tensor) or value.dim():
        return None
    found, kind = node.meta.get("val"), node.target
    if kind in _OF_ONE_ELEMENT:
        return lambda x, *args, **kwargs: x.to(found.dtype) + 0
    if kind in _MOVES:
        return lambda x, *args: x + 0
    if kind in _SOFTMAX:
        return lambda x, *args, **kwargs: torch.exp(x - x).to(found.dtype)
    if kind in _LOG_SOFTMAX:
        return lambda x, *args, **kwargs: (x - x).to(found.dtype)
    return None
