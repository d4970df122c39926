"""`lax.associative_scan`, and `lax.map` in batches, along a dimension whose size is a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shlo_disc.jax.sizes.marks import is_marking, marked
from shlo_disc.jax.sizes.symbolic import is_size
from shlo_disc.jax_private.sizes import max_size

_BLOCK = 16
"""Rows that a scan combines one after the other, in all blocks at once."""

_MAX_LEVELS = 31 - 4
"""Doublings up to the largest number of blocks that 32-bit indices reach."""


def _associative_scan(
    original: Callable[..., Any],
    fn: Callable[..., Any],
    elems: Any,
    reverse: bool = False,
    axis: int = 0,
) -> Any:
    """Rows are combined in blocks, the blocks by doubling steps.

    Work 2 n + n log n / 16, where JAX's recursion for constant sizes takes 2 n.
    """
    leaves, tree = jax.tree.flatten(elems)
    symbolic = bool(leaves) and is_size(np.shape(leaves[0])[axis])
    if not symbolic and not is_marking():
        return original(fn, elems, reverse=reverse, axis=axis)

    def scan(*arrays: Any) -> Any:
        values = jax.tree.unflatten(tree, arrays)
        if not symbolic:
            if np.shape(arrays[0])[axis] < 2:
                fn(values, values)  # for the comparison: JAX needs nothing of it
            return original(fn, values, reverse=reverse, axis=axis)
        return _prefixes(fn, values, reverse, axis)

    return marked("associative_scan", scan, *leaves)


def _prefixes(fn: Callable[..., Any], elems: Any, reverse: bool, axis: int) -> Any:
    leaves = jax.tree.leaves(elems)
    axis = axis % np.ndim(leaves[0])
    count = leaves[0].shape[axis]
    for leaf in leaves[1:]:
        if leaf.shape[axis] != count:
            raise ValueError(
                "Array inputs to associative_scan must have the same first dimension. "
                f"(saw: {[leaf.shape for leaf in leaves]})"
            )
    if reverse:
        elems = jax.tree.map(lambda x: lax.rev(x, (axis,)), elems)
    elems = _Prefixes(fn, axis, count)(elems)
    return jax.tree.map(lambda x: lax.rev(x, (axis,)), elems) if reverse else elems


class _Prefixes:
    """The prefixes of `count` rows along `axis`: in blocks, of the blocks, and both combined.

    Copies of the last row fill the last block.
    """

    def __init__(self, fn: Callable[..., Any], axis: int, count: Any) -> None:
        self._fn, self._axis, self._count = fn, axis, count
        # There is a block where there is no row: its first row, of zeros, is read.
        may_be_empty = max_size(count, 1) is not count
        self._blocks = (count + _BLOCK - (0 if may_be_empty else 1)) // _BLOCK

    def __call__(self, elems: Any) -> Any:
        sums, within = self._in_blocks(jax.tree.map(self._by_blocks, elems))
        before = self._earlier(self._of_blocks(sums), 1)
        return jax.tree.map(self._by_rows, self._after(before, within))

    def _by_blocks(self, x: Any) -> Any:
        """[..., count, ...] as [block, ..., blocks, ...]."""
        if getattr(jax.typeof(x), "weak_type", False):  # JAX's recursion drops it
            x = lax.convert_element_type(x, x.dtype)
        padding = [(0, 0, 0)] * x.ndim
        padding[self._axis] = (0, self._blocks * _BLOCK - self._count, 0)
        padded = lax.pad(x, lax.full_like(x, 0, shape=()), padding)
        last = lax.dynamic_slice_in_dim(padded, jnp.maximum(self._count - 1, 0), 1, axis=self._axis)
        last = lax.stop_gradient(last)
        padded = jnp.where(self._along(padded, self._place(padded) < self._count), padded, last)
        shape = list(x.shape)
        shape[self._axis : self._axis + 1] = [self._blocks, _BLOCK]
        return jnp.moveaxis(padded.reshape(shape), self._axis + 1, 0)

    def _by_rows(self, x: Any) -> Any:
        """[block, ..., blocks, ...] as [..., count, ...]."""
        shape = list(x.shape[1:])
        shape[self._axis] *= _BLOCK
        rows = jnp.moveaxis(x, 0, self._axis + 1).reshape(shape)
        return lax.slice_in_dim(rows, 0, self._count, axis=self._axis)

    def _in_blocks(self, elems: Any) -> tuple[Any, Any]:
        """The last prefix of every block, and all of them."""
        first, rest = (
            jax.tree.map(lambda x: lax.index_in_dim(x, 0, keepdims=False), elems),
            jax.tree.map(lambda x: lax.slice_in_dim(x, 1, _BLOCK), elems),
        )
        starts = self._place(jax.tree.leaves(first)[0]) * _BLOCK

        def step(before: Any, given: Any) -> tuple[Any, Any]:
            row, now = given
            now = self._combined(before, now, starts + row < self._count)
            return now, now

        sums, later = lax.scan(step, first, (jnp.arange(1, _BLOCK), rest))
        return sums, jax.tree.map(
            lambda start, rest: lax.concatenate([start[None], rest], 0), first, later
        )

    def _after(self, before: Any, within: Any) -> Any:
        """`within`, the prefixes of blocks, with what is `before` each block but the first one."""
        place = self._place(jax.tree.leaves(before)[0])

        def step(_: None, given: Any) -> tuple[None, Any]:
            row, now = given
            exists = (place > 0) & (place * _BLOCK + row < self._count)
            both = self._combined(before, now, exists)
            return None, jax.tree.map(
                lambda new, old: jnp.where(self._along(old, exists), new, old), both, now
            )

        return lax.scan(step, None, (jnp.arange(_BLOCK), within))[1]

    def _of_blocks(self, elems: Any) -> Any:
        """The prefixes of rows by doubling: step k combines with the row 2**k before.

        Source: Hillis and Steele, "Data parallel algorithms", 1986.
        """
        place = self._place(jax.tree.leaves(elems)[0])
        whole = (place + 1) * _BLOCK <= self._count

        def step(values: Any, level: Any) -> tuple[Any, None]:
            shift = jnp.left_shift(1, level)

            def combined(now: Any) -> Any:
                both = self._combined(self._earlier(now, shift), now, whole & (place >= shift))

                def kept(new: Any, old: Any) -> Any:
                    return jnp.where(self._along(old, place >= shift), new, old)

                return jax.tree.map(kept, both, now)

            return lax.cond(shift < place.shape[0], combined, lambda now: now, values), None

        return lax.scan(step, elems, jnp.arange(_MAX_LEVELS))[0]

    def _earlier(self, values: Any, shift: Any) -> Any:
        """The rows `shift` before, and the first row in place of those that do not exist."""

        def taken(x: Any) -> Any:
            before = jnp.maximum(self._place(x) - shift, 0)
            return jnp.take(x, before, axis=self._axis, mode="clip")

        return jax.tree.map(taken, values)

    def _combined(self, before: Any, now: Any, exists: Any) -> Any:
        """The function of two rows; a pair that does not exist has no part in derivatives.

        Otherwise its derivative, which may be infinite, times 0 would be NaN.
        """

        def cut(x: Any) -> Any:
            if not jnp.issubdtype(x.dtype, np.inexact):
                return x
            return jnp.where(self._along(x, exists), x, lax.stop_gradient(x))

        return self._fn(jax.tree.map(cut, before), jax.tree.map(cut, now))

    def _place(self, x: Any) -> Any:
        return jnp.arange(x.shape[self._axis])

    def _along(self, x: Any, rows: Any) -> Any:
        return lax.broadcast_in_dim(rows, x.shape, (self._axis,))


def _map(
    original: Callable[..., Any],
    f: Callable[..., Any],
    xs: Any,
    *,
    batch_size: Any = None,
) -> Any:
    """`lax.map` in batches: a last one of the remaining rows follows, of none if none remain."""
    leaves, tree = jax.tree.flatten(xs)
    lengths = [np.shape(leaf)[0] for leaf in leaves if np.ndim(leaf)]
    if batch_size is None or not (any(map(is_size, [batch_size, *lengths])) or is_marking()):
        return original(f, xs, batch_size=batch_size)
    # Asked of whole lengths. JAX compares parts, and leaves out what is longer than the first.
    all(length == lengths[0] for length in lengths)

    def in_batches(*arrays: Any) -> Any:
        return original(f, jax.tree.unflatten(tree, arrays), batch_size=batch_size)

    return marked("map", in_batches, *leaves)


REPLACED: dict[str, Callable[..., Any]] = {"associative_scan": _associative_scan, "map": _map}
"""The replacement of every function, by the function's name in JAX."""
