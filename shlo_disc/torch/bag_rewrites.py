"""Bags of embeddings and distances between rows, with their gradients, as other ATen ops.

    %y = aten._embedding_bag(%w, %i, %o)
==>
    %bag = aten.cumsum(aten.scatter_add(zeros, 0, %o, ones)) - 1     the bag of each index
    %y = aten.index_put(zeros, [%bag], aten.index_select(%w, 0, %i), accumulate)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from shlo_disc.torch.indexed_rewrites import row_pairs

aten = torch.ops.aten

_SUM, _MEAN, _MAX = 0, 1, 2
"""Values of `mode`."""


def _embedding_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Rows without flags of the gradient, which torch-mlir refuses."""
    flags = [*node.args[3:], *(node.kwargs.get(k) for k in ("scale_grad_by_freq", "sparse"))]
    return (lambda w, i, *_, **__: aten.embedding(w, i)) if any(flags) else None


ROWS = {aten.embedding.default: _embedding_rule}
"""Overload -> what says for which nodes it is rewritten."""


def _bags(offsets: Tensor, count: Any) -> Tensor:
    """The bag of each of `count` indices: the number of other bags that have begun there.

    An offset behind the last index, which a scatter drops, starts an empty bag.
    """
    others = offsets[1:]
    ones = torch.ones_like(others, dtype=torch.int32)
    starts = torch.zeros([count], dtype=torch.int32).scatter_add(0, others.long(), ones)
    return starts.cumsum(0, dtype=torch.int32)


def _wide(places: Tensor, like: Tensor) -> Tensor:
    """One place for each row of `like`, at each of its columns."""
    return places.long().unsqueeze(-1).expand(like.shape)


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = _SUM, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Rows joined at the bags that they are in: by their sum, mean or maximum.

    PyTorch saves the other results for the gradient. They are the bag of each index, the numbers
    of rows, and the row of each maximum. For sums the latter two are 0, for means both are numbers
    of rows.
    """
    count = indices.shape[0]
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    bag = _bags(offsets, count)
    rows = weight.index_select(0, indices)
    counted = torch.ones_like(indices, dtype=torch.int64)
    is_row = torch.ones_like(indices, dtype=torch.bool)
    if padding_idx >= 0:
        is_row = indices != padding_idx
        counted = is_row.long()
    sizes = torch.zeros([bags], dtype=torch.int64)
    if mode != _SUM:  # PyTorch does not count the rows of a sum
        sizes = sizes.scatter_add(0, bag.long(), counted)
    found = torch.zeros_like(sizes)
    if mode == _MAX:
        total, found = _largest(rows, indices, bag, is_row, sizes)
    else:
        if padding_idx >= 0:
            rows = torch.where(is_row.unsqueeze(-1), rows, 0)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.unsqueeze(-1)
        zeros = torch.zeros([bags, weight.shape[1]], dtype=weight.dtype)
        total = zeros.scatter_add(0, _wide(bag, rows), rows)
        if mode == _MEAN:
            total, found = total / sizes.clamp(min=1).unsqueeze(-1), sizes
    if _is_fast(weight, per_sample_weights, mode, padding_idx):
        bag = torch.zeros([0], dtype=torch.int64)  # PyTorch saves none
    kind = offsets.dtype
    return total, bag.to(kind), sizes.to(kind), found.to(kind)


def _is_fast(weight: Tensor, factors: Tensor | None, mode: int, padding_idx: int) -> bool:
    """True where PyTorch's kernel does not compute the bag of each index."""
    is_plain = weight.dtype in (torch.float32, torch.float16) and padding_idx < 0
    strided = [weight.stride(1), *([] if factors is None else [factors.stride(0)])]
    is_dense = all(statically_known_true(step == 1) for step in strided)
    return mode == _SUM and is_plain and is_dense


def _largest(
    rows: Tensor, indices: Tensor, bag: Tensor, is_row: Tensor, sizes: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest element of each column of a bag, 0 without rows, and the index of its row."""
    count, shape = indices.shape[0], [sizes.shape[0], rows.shape[1]]
    rows = torch.where(is_row.unsqueeze(-1), rows, float("-inf"))
    low = torch.full(shape, float("-inf"), dtype=rows.dtype)
    total = low.scatter_reduce(0, _wide(bag, rows), rows, "amax")
    is_first = (rows == total.index_select(0, bag)) & is_row.unsqueeze(-1)
    number = torch.arange(count).unsqueeze(-1).expand(rows.shape)
    number = torch.where(is_first, number, count)
    behind = torch.zeros(shape, dtype=torch.int64) + count
    first = behind.scatter_reduce(0, _wide(bag, rows), number, "amin")
    known = torch.cat([indices.long(), torch.zeros([1], dtype=torch.int64)])
    found = known.index_select(0, first.flatten()).reshape(shape)
    return torch.where(sizes.unsqueeze(-1) > 0, total, 0), found


def _embedding_bag_dense_backward(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor,
    num_weights: int, scale_grad_by_freq: bool, mode: int, per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """The gradient of each row: the sum of those of the bags that it is in."""
    zeros = torch.zeros([num_weights, grad.shape[1]], dtype=grad.dtype)
    if mode == _MAX:
        grad = torch.where(bag_size.unsqueeze(-1) > 0, grad, 0)
        return zeros.scatter_add(0, maximum_indices.long(), grad)
    bag = offset2bag.long()
    rows = grad.index_select(0, bag)
    if mode == _MEAN:
        rows = rows / bag_size.index_select(0, bag).clamp(min=1).unsqueeze(-1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if scale_grad_by_freq:
        ones = torch.ones_like(indices, dtype=torch.int64)
        times = torch.zeros([num_weights], dtype=torch.int64).scatter_add(0, indices.long(), ones)
        rows = rows / times.index_select(0, indices).unsqueeze(-1)
    if padding_idx >= 0:
        rows = torch.where((indices != padding_idx).unsqueeze(-1), rows, 0)
    return zeros.index_put([indices.long()], rows, accumulate=True)


def _embedding_bag_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, *given: Any
) -> Tensor:
    """`given` is as for :func:`_embedding_bag_dense_backward`, with `sparse` behind `mode`."""
    bag = _bags(offsets, indices.shape[0])
    return _embedding_bag_dense_backward(grad, indices, bag, *given[:5], *given[6:])


def _factors_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int,
    padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """The gradient of each factor: the product of its row and the gradient of its bag."""
    bag = _bags(offsets, indices.shape[0])
    found = (grad.index_select(0, bag) * weight.index_select(0, indices)).sum(-1)
    return found if padding_idx < 0 else torch.where(indices != padding_idx, found, 0)


# -- distances -----------------------------------------------------------------------------------


def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of the rows of `x1`; of equal rows it is 0."""
    off = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    grad, distance = grad.unsqueeze(-1), cdist.unsqueeze(-1)
    is_apart = distance != 0
    if p == 0:
        return torch.zeros_like(x1)
    if p == 1:
        parts = off.sign() * grad
    elif math.isinf(p):
        parts = off.sign() * (off.abs() == distance) * grad
    else:
        safe = torch.where(is_apart, distance, 1)
        if p == 2:
            parts = off * (grad / safe)
        else:
            size = off.abs() if p >= 1 else torch.where(off == 0, 1, off.abs())
            parts = off.sign() * size.pow(p - 1) * (grad / safe.pow(p - 1))
        parts = torch.where(is_apart, parts, 0)
    return parts.sum(-2)


def _pdist_backward(grad: Tensor, x: Tensor, p: float, pdist: Tensor) -> Tensor:
    """The gradient of distances between the rows of `x`, each from both sides."""
    first, second = row_pairs(x.shape[0])

    def both(pairs: Tensor) -> Tensor:
        zeros = torch.zeros([x.shape[0], x.shape[0]], dtype=pairs.dtype)
        found = zeros.index_put([first, second], pairs)
        return found + found.t()

    return _cdist_backward(both(grad), x, x, p, both(pdist))


BAGS: dict[Any, Callable[..., Any]] = {
    aten._cdist_backward.default: _cdist_backward,
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_backward.default: _embedding_bag_backward,
    aten._embedding_bag_dense_backward.default: _embedding_bag_dense_backward,
    aten._embedding_bag_forward_only.default: _embedding_bag,
    aten._embedding_bag_per_sample_weights_backward.default: _factors_backward,
    aten._pdist_backward.default: _pdist_backward,
}
"""Overload -> what it is traced from."""
