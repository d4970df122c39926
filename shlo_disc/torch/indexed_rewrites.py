"""Decompositions of ATen ops that read or write elements at computed places.

    %y = aten.masked_scatter(%x, %mask, %source)
==>
    %n = aten.cumsum(%mask)
    %y = aten.where(%mask, aten.index_select(%source, %n - 1), %x)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.torch.places import where
from shlo_disc.torch.results import memory_order

aten = torch.ops.aten


def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Every (columns + 1)-th element of the flattened matrices."""
    first, second = dim1 % x.dim(), dim2 % x.dim()
    rest = [k for k in range(x.dim()) if k not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    flat = x.permute([*rest, first, second]).reshape([*(x.shape[k] for k in rest), rows * columns])
    if offset >= 0:
        length, start = torch.sym_min(rows, columns - offset), offset
    else:
        length, start = torch.sym_min(rows + offset, columns), -offset * columns
    places = torch.arange(torch.sym_max(length, 0)) * (columns + 1) + start
    return flat.index_select(-1, places)


_STRIDED = frozenset({aten.as_strided.default, aten.as_strided_copy.default})


def read_storages(module: torch.fx.GraphModule) -> None:
    """Let strided views in `module` be of the tensor that owns the storage, not of a view of it.

        %v = aten.slice(%x, 0, 1, 9)    ==>    %y = aten.as_strided(%x, [2], [1], 1)
        %y = aten.as_strided(%v, [2], [1])

    Views become tensors of their own when they are decomposed. Raises UnsupportedError where the
    place of a view in its storage depends on sizes, or the view is empty.
    """
    for node in module.graph.nodes:
        if node.target not in _STRIDED:
            continue
        view, size, stride, *rest = node.args
        owner = _owner(view)
        if owner is view:
            continue
        offset: Any = rest[0] if rest else node.kwargs.get("storage_offset")
        if offset is None:
            offset = view.meta["val"].storage_offset()
            if not isinstance(offset, int) or 0 in view.meta["val"].shape:
                raise UnsupportedError(
                    f"{where(node)}: of a view whose place in its storage is not known; state "
                    "storage_offset"
                )
        node.args, node.kwargs = (owner, size, stride, offset), {}


def _owner(view: Any) -> Any:
    """The node whose result has the storage that `view` is a view of."""
    while view.op == "call_function":
        op = view.args[0] if view.target is operator.getitem else view
        if not _shares(op):
            break
        view = op.all_input_nodes[0]
    return view


def _shares(node: Any) -> bool:
    """True if results of `node` share the memory of its first operand."""
    op = node.target
    is_op = isinstance(op, torch._ops.OpOverload)
    if not is_op or not (op.is_view or op is aten._unsafe_view.default):
        return False
    own = node.all_input_nodes[0].meta["val"]
    found: list[Tensor] = pytree.tree_leaves(node.meta["val"])
    if any(x.dtype is not own.dtype for x in found):
        return False
    if op.overloadpacket in _CONVERSIONS:
        return bool(found[0].stride() == own.stride())
    return op.overloadpacket not in _RESHAPES or bool(own.is_contiguous())


_CONVERSIONS = frozenset({aten.contiguous, aten.to})
_RESHAPES = frozenset({aten.flatten, aten.ravel, aten.reshape, aten.reshape_as})
"""They share memory if strides stay, and if the elements of the operand are in order."""


def _as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Elements of `x` in the order of its memory, at places that sizes and strides give.

    The places must be inside `x`: that is a condition of calls where it depends on sizes.
    """
    order = memory_order(x)
    dense: Any = 1
    for axis in reversed(order):
        is_free = statically_known_true(x.shape[axis] == 1)
        if not is_free and not statically_known_true(x.stride(axis) == dense):
            raise UnsupportedError("of a tensor with gaps or repeated elements in its memory")
        dense = dense * x.shape[axis]
    if not statically_known_true(x.storage_offset() == 0):
        raise UnsupportedError("of a view that does not start at its storage")
    last = storage_offset or 0
    for n, step in zip(size, stride, strict=True):
        last = last + (n - 1) * step
    if last >= x.numel():
        raise UnsupportedError("reads elements of the storage that its operand does not have")
    places: Any = torch.scalar_tensor(storage_offset or 0, dtype=torch.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        rest = [1] * (len(size) - 1 - axis)
        places = places + (torch.arange(n) * step).reshape([n, *rest])
    flat = x.permute(order).reshape([dense])
    return flat.index_select(0, places.reshape([-1])).reshape(size)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The n-th place where `mask` is true has element n of `source`.

    PyTorch raises where `source` is too short. Here its last element is repeated.
    """
    mask, x = torch.broadcast_tensors(mask, x)
    places = mask.to(torch.int64).flatten().cumsum(0) - 1
    # One more element: an empty `source` is legal where the mask is false.
    values = torch.cat([source.flatten(), torch.zeros([1], dtype=source.dtype)])
    last = torch.sym_max(source.numel() - 1, 0)
    return torch.where(mask, values.index_select(0, places.clamp(0, last)).reshape(x.shape), x)


def _masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The elements of `grad` where `mask` is true, in order, then zeros: as many as `sizes` has."""
    count: Any = math.prod(sizes)
    mask = mask.expand(grad.shape).flatten()
    places = mask.to(torch.int64).cumsum(0) - 1
    # Elements that the source does not have, and those that were not read, go behind it.
    places = torch.where(mask & (places < count), places, count)
    zeros = torch.zeros([count + 1], dtype=grad.dtype)
    return zeros.index_put([places], grad.flatten(), True).narrow(0, 0, count).reshape(sizes)


def _distance(off: Tensor, p: float) -> Tensor:
    """The norm of order `p` of the last dimension."""
    if p == 0:
        return (off != 0).to(off.dtype).sum(-1)
    if p == 1:
        return off.abs().sum(-1)
    if p == 2:
        return (off * off).sum(-1).sqrt()
    if math.isinf(p):
        return off.abs().amax(-1).clamp(min=0)  # of no elements the maximum is -inf
    return off.abs().pow(p).sum(-1).pow(1 / p)


def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Distances of each row of `x` from each row of `y`, from the differences.

    PyTorch may take a matrix product instead, which is less exact.
    """
    return _distance(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _pdist(x: Tensor, p: float = 2) -> Tensor:
    """Distances of each row from the rows behind it."""
    first, second = row_pairs(x.shape[0])
    return _distance(x.index_select(0, first) - x.index_select(0, second), p)


def row_pairs(rows: Any) -> tuple[Tensor, Tensor]:
    """The numbers of every two of `rows`, in order."""
    count = rows * (rows - 1) // 2
    behind = rows - 1 - torch.arange(rows)
    first = aten.repeat_interleave.Tensor(behind, output_size=count)
    starts = behind.cumsum(0) - behind  # of the pairs of each row
    return first, torch.arange(count) - starts.index_select(0, first) + first + 1


def _nearest(
    x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float | None] | None
) -> Tensor:
    """Pixel i of the result is pixel floor(i * scale) of `x`, computed in f32 as PyTorch does.

    Factors give the sizes of the result where these are not given.
    """
    factors: Sequence[float | None] = scale_factors or [None] * (x.dim() - 2)
    for axis, factor in enumerate(factors, 2):
        have = x.shape[axis]
        if output_size is not None:
            want = output_size[axis - 2]
        elif factor is not None:
            want = torch.sym_int(have * factor)
        else:
            raise UnsupportedError("needs the size of its result, or a factor")
        if factor is not None and factor >= 1 and float(factor).is_integer():
            times = int(factor)
            if output_size is None or statically_known_true(want == have * times):
                wide = x.unsqueeze(axis + 1)
                wide = wide.expand([*x.shape[: axis + 1], times, *x.shape[axis + 1 :]])
                x = wide.reshape([*x.shape[:axis], have * times, *x.shape[axis + 1 :]])
                continue
        scale = _pixel_step(have, want, factor)
        places = (torch.arange(want).to(torch.float32) * scale).to(torch.int64)
        x = x.index_select(axis, places.clamp(max=have - 1))
    return x


def _pixel_step(have: int, want: int, factor: float | None) -> float | Tensor:
    """How far neighbours of the result are apart in one of `have` pixels.

    PyTorch takes the factor, but for as many pixels and for twice as many.
    Source: `nearest_idx` in ATen/native/UpSample.h.
    """
    sizes = [torch.scalar_tensor(n, dtype=torch.float32) for n in (have, want)]
    if factor is None:
        return sizes[0] / sizes[1]
    is_plain = (sizes[1] == sizes[0]) | (sizes[1] == 2 * sizes[0])
    return torch.where(is_plain, sizes[0] / sizes[1], 1 / factor)


def _nearest2d(
    x: Tensor, output_size: Sequence[int], scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:  # fmt: skip
    return _nearest(x, output_size, [scales_h, scales_w])


def _empty_slice_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """A slice without elements: torch-mlir takes an end at 0 for the last one."""

    def empty(x: Tensor, dim: int = 0, *bounds: Any) -> Tensor:
        axis = dim % x.dim()
        return x.new_zeros([0 if k == axis else n for k, n in enumerate(x.shape)])

    size = node.meta["val"].shape[(node.args[1:2] or (0,))[0]]
    return empty if isinstance(size, int) and size == 0 else None


def _mask_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Truth values as indices: torch-mlir takes them for numbers."""
    dtypes = [i.meta["val"].dtype for i in node.args[1] if i is not None]
    if not any(dtype in _TRUTHS for dtype in dtypes):
        return None

    def of_places(x: Tensor, indices: Sequence[Any], *rest: Any) -> Tensor:
        if rest and not any(rest[1:]) and rest[0].dim() == 0 and len(dtypes) == 1:
            return _masked(x, indices, rest[0])
        places: list[Any] = []
        for index in indices:
            is_mask = index is not None and index.dtype in _TRUTHS
            places += aten.nonzero(index).unbind(1) if is_mask else [index]
        return node.target(x, places, *rest)

    return of_places


MASKED = {
    aten.slice.Tensor: _empty_slice_rule,
    **dict.fromkeys(
        (aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default,
         aten._unsafe_index_put.default),
        _mask_rule,
    ),
}  # fmt: skip
"""Overload -> what says for which nodes it is rewritten."""

_TRUTHS = (torch.bool, torch.uint8)


def _masked(x: Tensor, indices: Sequence[Any], value: Tensor) -> Tensor:
    """`x` with `value` where the one mask among `indices` is true."""
    place = next(k for k, index in enumerate(indices) if index is not None)
    mask = indices[place].to(torch.bool)
    behind = [1] * (x.dim() - place - mask.dim())
    return torch.where(mask.reshape([*mask.shape, *behind]), value.to(x.dtype), x)


def _masked_select(x: Tensor, mask: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    return aten.index.Tensor(x, [mask])


def _where(condition: Tensor) -> list[Tensor]:
    return list(aten.nonzero(condition).unbind(1))


INDEXED: dict[Any, Callable[..., Any]] = {
    aten.as_strided.default: _as_strided,
    aten.as_strided_copy.default: _as_strided,
    aten._cdist_forward.default: _cdist,
    aten._pdist_forward.default: _pdist,
    aten.diagonal.default: _diagonal,
    aten.masked_scatter.default: _masked_scatter,
    aten.masked_scatter_backward.default: _masked_scatter_backward,
    aten.masked_select.default: _masked_select,
    aten.upsample_nearest2d.default: _nearest2d,
    aten.upsample_nearest2d.vec: _nearest,
    aten.where.default: _where,
}
"""Overload -> what it is traced from."""
