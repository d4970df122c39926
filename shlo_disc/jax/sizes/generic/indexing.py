"""Indexing of arrays whose sizes are symbols, in the ops JAX takes for constant sizes.

`x[i, 1:]` of a traced scalar `i` is a `dynamic_slice` where sizes are constants and a `gather`
where one is a symbol. The two differ out of bounds: a slice of several elements counts negative
starts from the end, and unsigned or narrow places are 32-bit integers before they are compared
with sizes. Here symbolic sizes take the `dynamic_slice`, too.

A size that is a place (`x[n // 2]`, `x.at[n - 1]`) is a traced scalar, where a number would be a
constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from shlo_disc.jax.sizes.marks import has_symbols
from shlo_disc.jax.sizes.symbolic import is_size
from shlo_disc.jax_private.sizes import IndexSlice, canonicalize_slice, size_as_array


def check_fits(size: Any, dtype: Any) -> None:
    """Raise `OverflowError`, as JAX does for constants, if 8 or 16 bits cannot hold a symbol.

    The question becomes a guard. No array reaches the sizes that 32 bits cannot hold.
    """
    if not is_size(size) or not jnp.issubdtype(dtype, np.integer):
        return
    limits = np.iinfo(dtype)
    if limits.bits < 32 and not size <= limits.max:
        raise OverflowError(f"Python integer {size} out of bounds for {np.dtype(dtype).name}")


def _parse_indices(original: Callable[..., Any], indices: Any, shape: Any) -> Any:
    """JAX's parsed indices; sizes among them, which JAX refuses, become arrays."""
    return original(tuple(size_as_array(i) if is_size(i) else i for i in indices), shape)


def _as_dynamic_slice(part: Any, size: Any) -> Any:
    """The slice of a parsed index over an axis of `size` elements, by its first element."""
    start, step, count = canonicalize_slice(part.index, size)
    first = start if step == 1 else start - count + 1
    return part._replace(index=IndexSlice(first, count), typ=type(part.typ).DYNAMIC_SLICE)


def _to_dynamic_slice(original: Callable[..., Any], indexer: Any, **named: Any) -> Any:
    """JAX's method asks Python's slices for numbers; slices over symbolic axes become `jax.ds`."""
    kinds = {part.typ.name for part in indexer.indices}
    if not has_symbols(indexer.shape) or not kinds & {"ARRAY", "DYNAMIC_SLICE"}:
        return original(indexer, **named)
    indexer = indexer.expand_ellipses()
    parts = list(indexer.indices)
    reversed_axes = []
    for place, part in enumerate(parts):
        axis = part.consumed_axes[0] if part.typ.name == "SLICE" else None
        if axis is None or not is_size(indexer.shape[axis]) or part.index.step not in (None, 1, -1):
            continue
        if part.index.step == -1:
            reversed_axes.append(axis)
        parts[place] = _as_dynamic_slice(part, indexer.shape[axis])
    found = original(type(indexer)(indices=parts, shape=indexer.shape), **named)
    return found._replace(rev_axes=[*found.rev_axes, *reversed_axes])


def _to_static_slice(original: Callable[..., Any], indexer: Any, **named: Any) -> Any:
    """JAX's method refuses symbolic axes; here it takes those that are whole, perhaps reversed.

    A gather would have an array of places, which a derivative keeps for each step of a loop.
    """
    if not has_symbols(indexer.shape):
        return original(indexer, **named)
    indexer = indexer.expand_ellipses()
    parts, shape, reversed_axes = list(indexer.indices), list(indexer.shape), []
    for place, part in enumerate(parts):
        for axis in filter(lambda axis: is_size(indexer.shape[axis]), part.consumed_axes):
            if part.typ.name != "SLICE" or part.index not in _WHOLE:
                raise TypeError("a part of a symbolic axis")
            if part.index.step == -1:
                reversed_axes.append(axis)
            parts[place], shape[axis] = part._replace(index=slice(None)), 1
    found = original(type(indexer)(indices=parts, shape=tuple(shape)), **named)
    limits = [
        size if is_size(size) else limit
        for size, limit in zip(indexer.shape, found.limit_indices, strict=True)
    ]
    return found._replace(limit_indices=limits, rev_axes=[*found.rev_axes, *reversed_axes])


_WHOLE = tuple(slice(None, None, step) for step in (None, 1, -1))


def _check_negative(size: Any, index: Any) -> None:
    """:func:`check_fits` for the size that JAX adds to signed places below zero."""
    if not jnp.issubdtype(lax.dtype(index), np.unsignedinteger):
        check_fits(size, lax.dtype(index))


def _normalize_indices(original: Callable[..., Any], indexer: Any) -> Any:
    for part in indexer.indices:
        if part.typ.name == "ARRAY":
            _check_negative(indexer.shape[part.consumed_axes[0]], part.index)
    return original(indexer)


def _normalize_index(original: Callable[..., Any], index: Any, axis_size: Any) -> Any:
    _check_negative(axis_size, index)
    return original(index, axis_size)


def _dynamic_slice_indices(original: Callable[..., Any], *args: Any) -> list[Any]:
    """The first places of a slice; numbers have a type of their own, as for constant sizes."""
    return [
        lax.convert_element_type(place, lax.dtype(place)) if isinstance(place, int) else place
        for place in original(*args)
    ]


REPLACED: dict[str, Callable[..., Any]] = {
    "_dynamic_slice_indices": _dynamic_slice_indices,
    "NDIndexer.normalize_indices": _normalize_indices,
    "NDIndexer.to_dynamic_slice": _to_dynamic_slice,
    "NDIndexer.to_static_slice": _to_static_slice,
    "_normalize_index": _normalize_index,
    "_parse_indices": _parse_indices,
}
"""The replacement of every function and method, by its name in JAX."""
