"""Ops whose operands have another type or rank than torch-mlir takes, as ops that it takes.

%y = aten.erf(%n: i64)    ==>    %x = aten.to(%n, f32), %y = aten.erf(%x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.torch.type_rewrites import widened

aten, prims = torch.ops.aten, torch.ops.prims


def promotion_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What an op of each whole number by itself is traced from whose results are floats.

    PyTorch converts the operand first. None for other ops.
    """
    found = node.meta.get("val")
    if not isinstance(found, Tensor) or not found.is_floating_point():
        return None
    op = node.target
    tensors = [a for a in op._schema.arguments if "Tensor" in str(a.type)]
    if torch.Tag.pointwise not in op.tags or len(tensors) != 1 or not node.args:
        return None
    operand = node.args[0]
    value = operand.meta["val"] if isinstance(operand, torch.fx.Node) else None
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex():
        return None
    return lambda x, *args, **kwargs: op(x.to(found.dtype), *args, **kwargs)


def _operand_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Ops of a scalar that are of vectors elsewhere, and norms of complex numbers."""
    operands = [n.meta["val"] for n in node.all_input_nodes]
    tensors = [value for value in operands if isinstance(value, Tensor)]
    if node.target in _ALONG:
        return None if all(x.dim() for x in tensors) else _along_one(node.target)
    if node.target is aten.index_select.default:
        return None if all(x.dim() for x in tensors) else _index_select
    if tensors[0].is_complex():
        return _complex_norm
    return None if tensors[0].dim() else _scalar_norm


_ALONG = frozenset({
    aten.gather.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default,
})  # fmt: skip
"""Ops along a dimension, which take a scalar for a vector of one element."""

OF_VECTORS = dict.fromkeys(
    (*_ALONG, aten.index_select.default, aten.linalg_vector_norm.default), _operand_rule
)
"""Overload -> what says for which nodes it is rewritten."""


def _along_one(op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    def rewritten(x: Tensor, dim: int, index: Tensor, *more: Any) -> Tensor:
        given = [
            a.reshape([1]) if isinstance(a, Tensor) and a.dim() == 0 else a
            for a in (x, index, *more)
        ]
        found: Tensor = op(given[0], 0, *given[1:])
        return found.reshape((index if op is aten.gather.default else x).shape)

    return rewritten


def _complex_norm(
    x: Tensor, ord: float = 2, dim: int | Sequence[int] | None = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    size = (x if dtype is None else x.to(dtype)).abs()
    if size.dim() == 0:
        return _scalar_norm(size, ord)
    return torch.linalg.vector_norm(size, ord, dim, keepdim)


def _scalar_norm(x: Tensor, ord: float = 2, *_: Any, dtype: Any = None) -> Tensor:
    size = (x if dtype is None else x.to(dtype)).abs()
    return (size != 0).to(size.dtype) if ord == 0 else size


def _rrelu(
    x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if training:
        raise UnsupportedError("is random; call the model in eval mode")
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise.clone()


def _rrelu_backward(
    grad: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool,
    self_is_result: bool,
) -> Tensor:  # fmt: skip
    """torch-mlir has another slope of negative numbers."""
    if training and upper - lower > 1e-6:
        return grad * noise
    return torch.where(x > 0, grad, grad * ((lower + upper) / 2))


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Each total by itself, from the largest of its own terms, so that no small one is lost."""
    if x.dim() == 0:
        return x.clone()
    axis = dim % x.dim()
    terms = widened(x).movedim(axis, -1)
    count = torch.arange(terms.shape[-1])
    is_behind = count > count.unsqueeze(-1)
    kept = torch.where(is_behind, -torch.inf, terms.unsqueeze(-2))
    return kept.logsumexp(-1).movedim(-1, axis).to(x.dtype)


def _renormed(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """`weight` with the rows at `indices` that are too long made as long as `max_norm`.

    Source: `embedding_renorm_cpu_` in ATen/native/Embedding.cpp.
    """
    places = indices.flatten()
    times = torch.zeros(weight.shape[0], dtype=torch.int64)
    times = times.index_put([places], torch.ones_like(places, dtype=torch.int64), True)
    length = torch.linalg.vector_norm(widened(weight), norm_type, 1, True)
    is_long = (length > max_norm) & (times > 0).unsqueeze(1)
    return torch.where(is_long, weight * (max_norm / (length + 1e-7)), weight).to(weight.dtype)


def _index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Of a scalar, a vector of one element."""
    if x.dim() == 0:
        return x.clone()
    return x.index_select(dim, index.reshape(1) if index.dim() == 0 else index)


def _reduction(one: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A reduction of `prims` as one dimension after the other; it keeps the type."""

    def rewritten(
        x: Tensor, dims: Sequence[int] | None, *_: Any, output_dtype: Any = None
    ) -> Tensor:
        found = x if output_dtype is None else x.to(output_dtype)
        axes = range(x.dim()) if dims is None else dims
        for axis in sorted(axes, reverse=True):
            found = one(found, axis).to(found.dtype)
        return found

    return rewritten


SCALARS: dict[Any, Callable[..., Any]] = {
    aten.embedding_renorm.default: _renormed,
    aten.isinf.default: torch._refs.isinf,
    aten.logcumsumexp.default: _logcumsumexp,
    aten.rrelu_with_noise.default: lambda *args, **kwargs: _rrelu(*args, **kwargs)[0],
    aten.rrelu_with_noise_functional.default: _rrelu,
    aten.rrelu_with_noise_backward.default: _rrelu_backward,
    prims.amax.default: _reduction(torch.amax),
    prims.amin.default: _reduction(torch.amin),
    prims.prod.default: _reduction(torch.prod),
    prims.sum.default: _reduction(torch.sum),
}
"""Overload -> what it is traced from."""
