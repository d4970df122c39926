"""Functions of `jax.numpy` whose results have as many elements as the data says.

Inside :func:`shlo_disc.jit` the size of such a result is a symbol like any other: what follows is
compiled once. Under `jax.jit`, `jax.vmap` and in bodies of loops there is no number for the size;
there `size=` gives a bound, as in `jax.numpy`, and the result is filled up to the bound.

    @shlo_disc.jit
    def loss(params, tokens, mask):
        place = shlo_disc.numpy.flatnonzero(mask)
        return jnp.mean(errors(params, tokens.ravel()[place]))
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from shlo_disc.jax.sizes.fresh import read_size

__all__ = [
    "argwhere",
    "compress",
    "extract",
    "flatnonzero",
    "nonzero",
    "repeat",
    "unique",
]


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> jax.Array:
    """The indices of the nonzero elements of `a.ravel()`, ascending, as int32[count].

    With `size`: `jnp.flatnonzero(a, size=size, fill_value=fill_value)`. Raises UnsupportedError
    where the count has no number (see the module).
    """
    if size is not None:
        return jnp.flatnonzero(a, size=size, fill_value=fill_value)
    mask = jnp.ravel(jnp.asarray(a) != 0)
    ends = jnp.cumsum(mask.astype(jnp.int32))
    places = read_size(ends[-1] if mask.shape[0] else np.int32(0))
    everywhere = jnp.arange(mask.shape[0], dtype=jnp.int32)
    targets = jnp.where(mask, ends - 1, places.shape[0])  # every place is written once
    return places.at[targets].set(everywhere, mode="drop", wrap_negative_indices=False)


def nonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: Any = None
) -> tuple[jax.Array, ...]:
    """The indices of the nonzero elements of `a`, in row-major order: int32[count] for each axis.

    With `size`: `jnp.nonzero(a, size=size, fill_value=fill_value)`. Raises ValueError for a scalar,
    UnsupportedError where the count has no number (see the module).
    """
    if size is not None:
        return jnp.nonzero(a, size=size, fill_value=fill_value)
    array = jnp.asarray(a)
    if array.ndim == 0:
        raise ValueError("nonzero of a scalar; use shlo_disc.numpy.nonzero(jnp.atleast_1d(a))")
    return jnp.unravel_index(flatnonzero(array), array.shape)


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> jax.Array:
    """The indices of the nonzero elements of `a`, as int32[count, a.ndim].

    With `size`: `jnp.argwhere(a, size=size, fill_value=fill_value)`.
    """
    if size is not None:
        return jnp.argwhere(a, size=size, fill_value=fill_value)
    return jnp.stack(nonzero(a), axis=1)


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
) -> jax.Array:
    """The slices of `a` along `axis` (the elements of `a.ravel()` for None) whose `condition` is
    true.

    `condition`: [n], where n is at most the size of the axis. With `size`: `jnp.compress`. Raises
    ValueError for a condition that is not one-dimensional.
    """
    if size is not None:
        return jnp.compress(condition, a, axis, size=size, fill_value=fill_value)
    mask, array = jnp.asarray(condition), jnp.asarray(a)
    if mask.ndim != 1:
        raise ValueError(f"compress: condition must have one dimension, not {mask.ndim}")
    if axis is None:
        axis, array = 0, jnp.ravel(array)
    return jnp.take(array, flatnonzero(mask), axis=axis, mode="clip")


def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: Any = 0
) -> jax.Array:
    """The elements of `arr.ravel()` at which `condition.ravel()` is true: [count].

    With `size`: `jnp.extract`.
    """
    return compress(jnp.ravel(condition), arr, size=size, fill_value=fill_value)


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The distinct elements of `ar`, ascending: [count]; with `return_...` a tuple.

    Then follow, as in NumPy: the index in `ar.ravel()` of the first of each (int32[count]), the
    number of each element of `ar` among them (int32, the shape of `ar`), and how often each comes
    (int32[count]). NaNs are one element, the last one, unless `equal_nan` is false. With `size`:
    `jnp.unique`.
    """
    if size is not None:
        return jnp.unique(
            ar,
            return_index,
            return_inverse,
            return_counts,
            equal_nan=equal_nan,
            size=size,
            fill_value=fill_value,
        )
    array = jnp.asarray(ar)
    flat = jnp.ravel(array)
    order = jnp.argsort(flat, stable=True).astype(jnp.int32)
    ordered = flat[order]
    differs = ordered[1:] != ordered[:-1]
    if equal_nan and jnp.issubdtype(flat.dtype, jnp.inexact):
        differs &= ~(jnp.isnan(ordered[1:]) & jnp.isnan(ordered[:-1]))
    begins = jnp.concatenate([jnp.ones((min(1, flat.shape[0]),), bool), differs])
    places = flatnonzero(begins)
    results = [ordered[places]]
    if return_index:
        results.append(order[places])
    number = jnp.cumsum(begins.astype(jnp.int32)) - 1
    if return_inverse:
        inverse = jnp.zeros_like(order).at[order].set(number, unique_indices=True)
        results.append(inverse.reshape(array.shape))
    if return_counts:
        results.append(jnp.zeros_like(places).at[number].add(1))
    return results[0] if len(results) == 1 else tuple(results)


def repeat(
    a: ArrayLike,
    repeats: ArrayLike,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
) -> jax.Array:
    """Every slice of `a` along `axis` as often as `repeats` says, which may be computed from data.

    `repeats`: an integer, or [n] for an axis of n elements (1 is broadcast). `axis` None: the
    elements of `a.ravel()`. With `total_repeat_length`: `jnp.repeat`. Counts below 0 are an error
    in NumPy; here they count as 0.
    """
    if total_repeat_length is not None or not isinstance(repeats, (jax.Array, np.ndarray)):
        return jnp.repeat(a, repeats, axis, total_repeat_length=total_repeat_length)
    array = jnp.asarray(a)
    if axis is None:
        axis, array = 0, jnp.ravel(array)
    counts = jnp.broadcast_to(
        jnp.maximum(jnp.asarray(repeats).astype(jnp.int32), 0), (array.shape[axis],)
    )
    ends = jnp.cumsum(counts)
    places = read_size(ends[-1] if array.shape[axis] else np.int32(0))
    # Result number k is the slice in whose run k lies: as many runs end at or before k.
    starts = jnp.zeros_like(places).at[ends].add(1, mode="drop", wrap_negative_indices=False)
    return jnp.take(array, jnp.cumsum(starts), axis=axis, mode="clip")
