"""Adaptive pools as reads of windows, for all sizes of input and output; places in sorted rows.

    window i of n sizes in m: from floor(i n / m) to ceil((i + 1) n / m)
    %places = [m, L], L = n / m + 2, those behind a window's end are left out

Two numbers overlap in the same windows from both sides: the gradient of a mean is a sum of windows
with both sizes exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shlo_disc.torch.gradient_rewrites import scattered
from shlo_disc.torch.type_rewrites import widened

aten = torch.ops.aten


def _windows(size: Any, count: Any) -> tuple[Tensor, Tensor]:
    """[count, L]: the places of each of `count` windows of `size` elements; which are inside."""
    number = torch.arange(count).unsqueeze(-1)
    first = torch.div(number * size, count, rounding_mode="floor")
    last = torch.div((number + 1) * size + (count - 1), count, rounding_mode="floor")
    places = first + torch.arange(size // count + 2)
    is_inside = places < last
    return torch.where(is_inside, places, first), is_inside


def _taken(x: Tensor, axis: int, places: Tensor) -> Tensor:
    """`x` with the places of windows, [m, L], in the stead of dimension `axis`."""
    flat = x.index_select(axis, places.reshape([-1]))
    return flat.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def _sums(x: Tensor, axis: int, count: Any) -> tuple[Tensor, Tensor]:
    """The sums of `count` windows along `axis`, and the numbers of their elements: [count]."""
    places, is_inside = _windows(x.shape[axis], count)
    behind = [1] * (x.dim() - 1 - axis)
    shape = [*places.shape, *behind]
    found = torch.where(is_inside.reshape(shape), _taken(x, axis, places), 0).sum(axis + 1)
    return found, is_inside.sum(-1)


def _along(lengths: Tensor, axis: int, rank: int) -> Tensor:
    return lengths.reshape([-1, *[1] * (rank - 1 - axis)])


def _is_whole(sizes: Sequence[Any]) -> bool:
    """True if there is one window."""
    return all(isinstance(n, int) and n == 1 for n in sizes)


def _mean(x: Tensor, output_size: Sequence[Any]) -> Tensor:
    """The mean of each window; its last dimensions are those of `output_size`."""
    rank, axes = x.dim(), len(output_size)
    if _is_whole(output_size):
        return x.mean(list(range(rank - axes, rank)), keepdim=True)
    if axes == 2 and (kernel := _even(x, output_size)):
        return aten.avg_pool2d(x, kernel, kernel)
    wide = widened(x)
    for axis, count in zip(range(rank - axes, rank), output_size, strict=True):
        wide, lengths = _sums(wide, axis, count)
        wide = wide / _along(lengths, axis, rank).to(wide.dtype)
    return wide.to(x.dtype)


def _even(x: Tensor, output_size: Sequence[Any]) -> list[int]:
    """The size of the windows if it is one number; else none."""
    found = []
    for have, want in zip(x.shape[-2:], output_size, strict=True):
        if not (isinstance(have, int) and isinstance(want, int)) or have % want:
            return []
        found.append(have // want)
    return found


def _mean_backward(grad: Tensor, x: Tensor, axes: int) -> Tensor:
    rank = x.dim()
    sizes = grad.shape[rank - axes :]
    if _is_whole(sizes):
        return (grad / math.prod(x.shape[rank - axes :])).expand(x.shape).clone()
    wide = widened(grad)
    for axis in range(rank - axes, rank):
        _, is_inside = _windows(x.shape[axis], wide.shape[axis])
        wide = wide / _along(is_inside.sum(-1), axis, rank).to(wide.dtype)
        wide, _ = _sums(wide, axis, x.shape[axis])
    return wide.to(grad.dtype)


def _max(x: Tensor, output_size: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its place in the flat picture."""
    rank, axes = x.dim(), len(output_size)
    before = rank - axes
    values = x
    inside: Any = None
    places: Any = torch.zeros([1] * 2 * axes, dtype=torch.int64)
    for k, count in enumerate(output_size):
        axis = before + k
        own, is_inside = _windows(x.shape[axis], count)
        shape = [*own.shape, *[1] * 2 * (axes - 1 - k)]
        values = _taken(values, before + 2 * k, own)
        inside = is_inside.reshape(shape) if inside is None else inside & is_inside.reshape(shape)
        places = places * x.shape[axis] + own.reshape(shape)
    values = torch.where(inside, values, float("-inf"))
    # [..., m0, L0, m1, L1] to [..., m0, m1, L0 L1]
    order = [before + 2 * k for k in range(axes)] + [before + 2 * k + 1 for k in range(axes)]
    window = math.prod(x.shape[before + k] // output_size[k] + 2 for k in range(axes))
    lead = list(range(before))
    values = values.permute([*lead, *order])
    flat = values.reshape([*values.shape[: before + axes], window])
    # Equal elements: the first one, which is inside: the others of -inf are behind it.
    largest, number = flat.max(-1)
    full = places.permute([n - before for n in order]).reshape(flat.shape[before:])
    found = full.expand(flat.shape).gather(-1, number.unsqueeze(-1)).squeeze(-1)
    return largest, found


# -- places in sorted rows -----------------------------------------------------------------------


def _searched(
    sorted_sequence: Tensor, x: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many elements of its row are before each one of `x`; all for a NaN."""
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if not isinstance(x, Tensor):
        x = torch.scalar_tensor(x, dtype=torch.result_type(sorted_sequence, x))
    kind = torch.result_type(sorted_sequence, x)
    rows, x = sorted_sequence.to(kind), x.to(kind)
    if rows.dim() > 1:
        rows = rows.unsqueeze(-2)
    x = x.unsqueeze(-1)
    is_behind = rows > x if right or side == "right" else rows >= x
    found = is_behind.logical_not().sum(-1)
    return found.to(torch.int32) if out_int32 else found


def _bucketized(
    x: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return _searched(boundaries, x, out_int32=out_int32, right=right)


POOLS: dict[Any, Callable[..., Any]] = {
    aten._adaptive_avg_pool2d.default: _mean,
    aten._adaptive_avg_pool2d_backward.default: lambda grad, x: _mean_backward(grad, x, 2),
    aten._adaptive_avg_pool3d.default: _mean,
    aten._adaptive_avg_pool3d_backward.default: lambda grad, x: _mean_backward(grad, x, 3),
    aten.adaptive_avg_pool1d.default: _mean,
    aten.adaptive_max_pool2d.default: _max,
    aten.adaptive_max_pool2d_backward.default: scattered(2),
    aten.adaptive_max_pool3d.default: _max,
    aten.adaptive_max_pool3d_backward.default: scattered(3),
    aten.bucketize.Scalar: _bucketized,
    aten.bucketize.Tensor: _bucketized,
    aten.searchsorted.Scalar: _searched,
    aten.searchsorted.Tensor: _searched,
}
"""Overload -> what it is traced from."""
