"""Gradients that PyTorch has kernels for and no decomposition: pools, paddings, weight norms.

    x: [..., L0, L1, ...]    y = pool(x): [..., M0, M1, ...]    grad: of y

A pool's window m of an axis holds the places `m * stride - padding + k * dilation` of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


# -- pools ---------------------------------------------------------------------------------------


def _numbers(given: int | Sequence[int], count: int) -> list[int]:
    numbers = [given] if isinstance(given, int) else list(given)
    return numbers * count if len(numbers) == 1 else numbers


def _along(x: Tensor, axis: int, rank: int) -> Tensor:
    """A vector as a tensor of `rank` whose dimension `axis` it is."""
    return x.reshape([-1 if k == axis else 1 for k in range(rank)])


def _avg_pool_backward(count: int) -> Callable[..., Tensor]:
    def backward(
        grad: Tensor, x: Tensor, kernel_size: Sequence[int], stride: Sequence[int],
        padding: Sequence[int], ceil_mode: bool, count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:  # fmt: skip
        """A sum of shares: the transposed convolution of one channel with ones."""
        kernel = _numbers(kernel_size, count)
        strides = _numbers(stride, count) if stride else kernel
        pads = _numbers(padding, count)
        rank, first = x.dim(), x.dim() - count
        if divisor_override is not None:
            shares = grad / divisor_override
        elif not ceil_mode and (count_include_pad or not any(pads)):
            shares = grad / math.prod(kernel)
        else:
            shares = grad
            for k in range(count):
                size = x.shape[first + k]
                start = torch.arange(grad.shape[first + k]) * strides[k] - pads[k]
                end = (start + kernel[k]).clamp(max=size + pads[k])
                if not count_include_pad:
                    start, end = start.clamp(min=0), end.clamp(max=size)
                shares = shares / _along((end - start).to(grad.dtype), first + k, rank)
        pictures = math.prod(x.shape[:first])
        made = aten.convolution_backward(
            shares.reshape([pictures, 1, *grad.shape[first:]]),
            x.reshape([pictures, 1, *x.shape[first:]]),
            torch.ones([1, 1, *kernel], dtype=x.dtype), None, strides, pads, [1] * count, False,
            [0] * count, 1, [True, False, False],
        )[0]  # fmt: skip
        return made.reshape(x.shape)

    return backward


def scattered(count: int) -> Callable[..., Tensor]:
    """The gradient of a pool of maxima, whose last argument is the indices of its results."""

    def backward(grad: Tensor, x: Tensor, *more: Any) -> Tensor:
        """Each element of `grad` at its place of the flat picture: the last `count` axes of `x`."""
        lead = list(x.shape[: x.dim() - count])

        def flat(t: Tensor) -> Tensor:
            return t.reshape([*lead, math.prod(t.shape[len(lead) :])])

        zeros = torch.zeros_like(flat(x), dtype=grad.dtype)
        return zeros.scatter_add(-1, flat(more[-1]), flat(grad)).reshape(x.shape)

    return backward


# -- paddings ------------------------------------------------------------------------------------


def _replication_pad_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """What lies in front of the first element adds to it, what lies behind the last to that.

    A negative padding has cut elements, whose gradient is zero.
    """
    for k in range(len(padding) // 2):
        axis = x.dim() - 1 - k
        low, high = padding[2 * k], padding[2 * k + 1]
        size = x.shape[axis]
        inner = aten.constant_pad_nd(grad, [*[0, 0] * k, -low, -high])
        places = _along(torch.arange(size), axis, x.dim())
        if low > 0:
            before = grad.narrow(axis, 0, low).sum(axis, keepdim=True)
            inner = inner + torch.where(places == 0, before, 0.0)
        if high > 0:
            behind = grad.narrow(axis, grad.shape[axis] - high, high).sum(axis, keepdim=True)
            inner = inner + torch.where(places == size - 1, behind, 0.0)
        grad = inner
    return grad


# -- weight norms --------------------------------------------------------------------------------


def _weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Of `w = g * v / norms`, where `norms` is the 2-norm of `v` over all dimensions but `dim`.

    Source: `weight_norm_backward` in ATen/native/WeightNorm.cpp.
    """
    dims = [k for k in range(v.dim()) if dim == -1 or k != dim % v.dim()]
    products = (grad * v).sum(dims, keepdim=True)
    of_v = (g / norms) * (grad - v * (products / (norms * norms)))
    return of_v, (products / norms).reshape(g.shape)


GRADIENTS: dict[Any, Callable[..., Any]] = {
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.avg_pool2d_backward.default: _avg_pool_backward(2),
    aten.avg_pool3d_backward.default: _avg_pool_backward(3),
    aten.max_pool2d_with_indices_backward.default: scattered(2),
    aten.max_pool3d_with_indices_backward.default: scattered(3),
    aten.replication_pad1d_backward.default: _replication_pad_backward,
    aten.replication_pad2d_backward.default: _replication_pad_backward,
    aten.replication_pad3d_backward.default: _replication_pad_backward,
}
"""Overload -> what it is traced from."""
