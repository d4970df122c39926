"""Decompositions of ATen ops that need elements in order: medians, distinct elements, places.

%v, %i = aten.kthvalue(%x, 3, 1)    ==>    %s, %p = aten.sort(%x, 1)
%v, %i = element 2 of each row of %s and of %p
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten

_OPS = torch.library.Library("shlo_disc", "FRAGMENT")
_OPS.define("order_of_rows(Tensor columns, Tensor places) -> Tensor")
_OPS.impl("order_of_rows", lambda columns, places: torch.empty_like(places), "Meta")
ORDER_OF_ROWS: Any = torch.ops.shlo_disc.order_of_rows.default
"""[m, n] columns of n rows, and `arange(n)`, to the lexicographic order of rows."""

_Pair = tuple[Tensor, Tensor]


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> _Pair:
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = torch.sort(x, dim=dim, stable=True)
    # Not `narrow`: of a size as `k`, the size 1 of its result is not known.
    found = (one.select(dim, k - 1) for one in (values, places))
    first, second = (one.unsqueeze(dim) if keepdim else one for one in found)
    return first, second


def _median_dim(*, counts_nan: bool) -> Callable[..., _Pair]:
    """The lower one of two middle elements; where a NaN counts, it is the median."""

    def rewritten(x: Tensor, dim: int, keepdim: bool = False) -> _Pair:
        if x.dim() == 0:
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        values, places = torch.sort(x, dim=dim, stable=True)
        numbers = (
            x.isnan().logical_not().to(torch.int64).sum(dim, keepdim=True)
        )  # NaN is behind them all
        middle = ((numbers - 1) // 2).clamp(min=0)
        if counts_nan:
            middle = torch.where(numbers < x.shape[dim], numbers, middle)
        found = [torch.gather(one, dim, middle) for one in (values, places)]
        first, second = found if keepdim else (one.squeeze(dim) for one in found)
        return first, second

    return rewritten


def _median(*, counts_nan: bool) -> Callable[..., Tensor]:
    def rewritten(x: Tensor) -> Tensor:
        flat = x.flatten()
        if not x.is_floating_point():
            return _median_dim(counts_nan=False)(flat, 0)[0]
        values = torch.sort(flat, dim=0, stable=True)[0]
        values = torch.cat([values, values.new_full([1], float("nan"))])  # of no elements
        numbers = flat.isnan().logical_not().to(torch.int64).sum(0, keepdim=True)
        middle = torch.where(numbers > 0, (numbers - 1) // 2, values.shape[0] - 1)
        if counts_nan:
            middle = torch.where(numbers < flat.shape[0], numbers, middle)
        return values.index_select(0, middle).squeeze(0)

    return rewritten


def _is_new(ordered: Tensor) -> Tensor:
    """True for elements along the last dimension that differ from the one before."""
    places = torch.arange(ordered.shape[-1])
    before = ordered.index_select(-1, (places - 1).clamp(min=0))
    return (places == 0) | (ordered != before)


def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> _Pair:
    """The smallest of the most frequent elements, and the last place that has it."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, order = torch.sort(x.movedim(dim, -1), dim=-1, stable=True)
    places = torch.arange(values.shape[-1])
    starts = torch.cummax(torch.where(_is_new(values), places, 0), -1)[0]
    best = torch.argmax(places - starts, -1, keepdim=True)
    found = [torch.gather(one, -1, best) for one in (values, order)]
    first, second = (one.movedim(-1, dim) if keepdim else one.squeeze(-1) for one in found)
    return first, second


_Distinct = tuple[Tensor, Tensor, Tensor]


def _distinct(is_new: Tensor, *, has_counts: bool) -> _Distinct:
    """Of rows in a row: the places of new ones, the number of each among them, their counts."""
    starts = aten.nonzero(is_new).squeeze(1)
    inverse = is_new.to(torch.int64).cumsum(0) - 1
    counts = torch.zeros([0], dtype=torch.int64)
    if has_counts:
        ends = torch.cat([starts, torch.full([1], is_new.shape[0])])
        counts = ends.narrow(0, 1, starts.shape[0]) - starts
    return starts, inverse, counts


def _rows(x: Tensor, dim: int) -> Tensor:
    """The slices along a dimension, each as a row."""
    x = x.movedim(dim, 0)
    return x.reshape([x.shape[0], math.prod(x.shape[1:])])


def _are_new(rows: Tensor) -> Tensor:
    """True for rows that differ from the one before."""
    places = torch.arange(rows.shape[0])
    before = rows.index_select(0, (places - 1).clamp(min=0))
    return (places == 0) | (rows != before).any(1)


def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> _Distinct:
    flat = x.flatten() if dim is None else x
    is_new = _is_new(flat) if dim is None else _are_new(_rows(x, dim))
    starts, inverse, counts = _distinct(is_new, has_counts=return_counts)
    if not return_inverse:
        inverse = torch.zeros([0], dtype=torch.int64)
    elif dim is None:
        inverse = inverse.reshape(x.shape)
    return flat.index_select(dim or 0, starts), inverse, counts


def _unique_dim(
    x: Tensor, dim: int, is_sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> _Distinct:  # fmt: skip
    """Slices in lexicographic order."""
    rows = _rows(x, dim)
    order = ORDER_OF_ROWS(rows.t(), torch.arange(rows.shape[0]))
    starts, places, counts = _distinct(
        _are_new(rows.index_select(0, order)), has_counts=return_counts
    )
    inverse = torch.zeros_like(places).scatter(0, order, places)
    return x.index_select(dim, order.index_select(0, starts)), inverse, counts


def _unique(
    x: Tensor, is_sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> _Distinct:
    ordered, order = torch.sort(x.flatten(), dim=0, stable=True)
    starts, places, counts = _distinct(_is_new(ordered), has_counts=return_counts)
    values = ordered.index_select(0, starts)
    if not return_inverse:
        return values, torch.zeros([0], dtype=torch.int64), counts
    inverse = torch.zeros_like(places).scatter(0, order, places)
    return values, inverse.reshape(x.shape), counts


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` places of elements that are not 0; `fill_value` behind the last one."""
    if x.dim() == 0:
        return torch.zeros([size, 0], dtype=torch.int64)
    is_found = (x != 0).flatten()
    places = is_found.to(torch.int64).cumsum(0) - 1
    places = torch.where(is_found & (places < size), places, size)  # a row that is dropped
    columns = []
    for axis in range(x.dim()):
        shape = [x.shape[axis] if k == axis else 1 for k in range(x.dim())]
        index = torch.arange(x.shape[axis]).reshape(shape).expand(x.shape).flatten()
        rows = torch.full([size + 1], fill_value, dtype=torch.int64)
        columns.append(rows.scatter(0, places, index).narrow(0, 0, size))
    return torch.stack(columns, 1)


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if x.dim() == 0:
        return _index_reduce(
            x.reshape([1]), 0, index.reshape([1]), source.reshape([1]), reduce,
            include_self=include_self,
        ).reshape([])  # fmt: skip
    shape = [-1 if k == dim % x.dim() else 1 for k in range(x.dim())]
    wide = [index.shape[0] if n == -1 else source.shape[k] for k, n in enumerate(shape)]
    places = index.reshape(shape).expand(wide)
    return aten.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def _scatter_reduced(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    if not isinstance(source, Tensor):
        source = torch.scalar_tensor(source, dtype=x.dtype).expand(index.shape)
    return aten.scatter_reduce(x, dim, index, source, _REDUCTIONS[reduce])


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of `bins` equal parts of `min` to `max`."""
    flat = x.flatten()
    low, high = (torch.scalar_tensor(n, dtype=x.dtype) for n in (min, max))
    if min == max:
        if not statically_known_true(flat.shape[0] == 0):
            low, high = flat.amin(), flat.amax()
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    places = ((flat - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
    is_inside = (flat >= low) & (flat <= high)
    return torch.zeros([bins], dtype=x.dtype).index_add(0, places, is_inside.to(x.dtype))


ORDERED: dict[Any, Callable[..., Any]] = {
    aten._unique2.default: _unique,
    aten.histc.default: _histc,
    aten.index_reduce.default: _index_reduce,
    aten.kthvalue.default: _kthvalue,
    aten.median.default: _median(counts_nan=True),
    aten.median.dim: _median_dim(counts_nan=True),
    aten.mode.default: _mode,
    aten.nanmedian.default: _median(counts_nan=False),
    aten.nanmedian.dim: _median_dim(counts_nan=False),
    aten.nonzero_static.default: _nonzero_static,
    aten.scatter.reduce: _scatter_reduced,
    aten.scatter.value_reduce: _scatter_reduced,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.unique_dim.default: _unique_dim,
}
"""Overload -> what it is traced from."""
