"""Decompositions of ATen ops that cut tensors in parts, or copy views of them.

    %a, %b = aten.chunk(%x, 2)    ==>    %a = aten.slice(%x, 0, 0, %n)
                                         %b = aten.slice(%x, 0, %n, %m)

PyTorch has the sizes of the parts, for all sizes of `%x` that the graph is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from shlo_disc.torch.sizes import require, size_in

aten = torch.ops.aten

_EQUAL = {
    aten.chunk.default: True, aten.split.Tensor: False, aten.split_copy.Tensor: False,
    aten.unsafe_chunk.default: True, aten.unsafe_split.Tensor: False,
}  # fmt: skip
"""Ops of parts of one size but for the last: True if they take the number of parts."""

_UNEQUAL = frozenset({aten.tensor_split.indices, aten.tensor_split.sections})
"""Ops of parts of other sizes."""


def parts_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What an op of parts is traced from; None for another node.

    The number of results is that of the node: it holds for all sizes that the graph is for.
    """
    if node.target not in _UNEQUAL | _EQUAL.keys():
        return None
    wanted = [part.shape for part in node.meta["val"]]
    takes_count = _EQUAL.get(node.target)

    def parts(x: Tensor, given: Any, dim: int = 0) -> list[Tensor]:
        whole = x.shape[dim]
        size = (whole + given - 1) // given if takes_count else given
        found, start = [], 0
        for number, shape in enumerate(wanted):
            if takes_count is None or isinstance(shape[dim], int):
                size = size_in(shape[dim], x)
            elif number == len(wanted) - 1:
                size = whole - start
            found.append(x.narrow(dim, start, size))
            start = start + size
        return found

    return parts


def _squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Without the dimensions of one element. The program requires more of those that it keeps."""
    given = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    ones = set()
    for axis in {d % x.dim() for d in given} if x.dim() else ():
        if guard_or_false(x.shape[axis] == 1):
            ones.add(axis)
        else:
            require(x.shape[axis] != 1)
    return torch.ops.prims.squeeze(x, sorted(ones)) if ones else aten.alias(x)


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of a dimension, their elements in a new last one."""
    if x.dim() == 0:
        return x.reshape([1])[:size]
    axis = dimension % x.dim()
    count = (x.shape[axis] - size) // step + 1
    places = torch.arange(count).unsqueeze(1) * step + torch.arange(size)
    found = x.index_select(axis, places.reshape([-1]))
    found = found.reshape([*x.shape[:axis], count, size, *x.shape[axis + 1 :]])
    return found.movedim(axis + 1, -1)


def _diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """`x` with `src` at the places of a diagonal."""
    numbers = torch.arange(x.numel()).reshape(x.shape)
    return torch.put(x, numbers.diagonal(offset, dim1, dim2), src)


def _as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:  # fmt: skip
    """`x` with `src` at the places of a strided view."""
    places = aten.as_strided(torch.arange(x.numel()).reshape(x.shape), size, stride, storage_offset)
    return torch.put(x, places, src)


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """The last elements first: two slices where they are known to be there, else a gather."""
    if not dims:
        return _roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        axis, size = dim % max(x.dim(), 1), x.shape[dim]
        if isinstance(size, int) and size == 0:
            continue  # torch-mlir drops parts without elements, here all
        step = shift % size if isinstance(shift, int) and isinstance(size, int) and size else shift
        # PyTorch takes a size to be 2 or more, so a number may be known not to exceed it.
        is_of_kind = isinstance(step, int) == isinstance(size, int)
        if is_of_kind and statically_known_true(step >= 0) and statically_known_true(step <= size):
            x = torch.cat([x.narrow(axis, size - step, step), x.narrow(axis, 0, size - step)], axis)
        else:
            x = x.index_select(axis, torch.remainder(torch.arange(size) - step, size))
    return x.clone()


_BY_PYTORCH = (
    aten._batch_norm_no_update.default, aten._batch_norm_with_update_functional.default,
    aten.addmv.default, aten.batch_norm_backward.default, aten.dist.default,
    aten.fft_hfft.default, aten.lift.default, aten.lift_fresh.default,
)  # fmt: skip
"""Ops with a decomposition that PyTorch does not count among those into core ops."""

_VIEWS = (
    ("detach", "default"), ("narrow", "default"), ("permute", "default"), ("select", "int"),
    ("split_with_sizes", "default"), ("t", "default"), ("transpose", "int"), ("unbind", "int"),
    ("unsqueeze", "default"), ("view", "default"), ("view", "dtype"),
)  # fmt: skip

VIEWS: dict[Any, Callable[..., Any]] = {
    **{op: decomposition_table[op] for op in _BY_PYTORCH},
    **{
        getattr(getattr(aten, f"{name}_copy"), overload): getattr(getattr(aten, name), overload)
        for name, overload in _VIEWS
    },
    **{
        getattr(packet, overload): _squeeze
        for packet in (aten.squeeze, aten.squeeze_copy)
        for overload in ("default", "dim", "dims")
    },
    aten.as_strided_scatter.default: _as_strided_scatter,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.empty_permuted.default: lambda size, _, **kwargs: aten.empty.memory_format(size, **kwargs),
    aten.lift_fresh_copy.default: aten.clone,
    aten.roll.default: _roll,
    aten.unfold.default: _unfold,
    aten.unfold_copy.default: _unfold,
}
"""Overload -> what it is traced from; a copy of a view is one where nothing is written."""
