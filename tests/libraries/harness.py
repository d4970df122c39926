"""How a program of a library is checked: four random shapes beside `jax.jit`, one compilation.

The programs are ordinary ones, as the documentation of the libraries writes them. Only `jax.jit` is
replaced. The versions are those of the extra `libraries`.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc
from tests import alarms

REASON = "needs the extra: pip install '.[libraries]'"

Args = tuple[Any, ...]


def shapes(name: str, count: int = 4, most: int = 9) -> list[tuple[int, int]]:
    """Different (batch, length) pairs, which depend on the name only."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    found: list[tuple[int, int]] = []
    while len(found) < count:
        shape = int(rng.integers(1, most + 1)), int(rng.integers(2, most + 1))
        if shape not in found:
            found.append(shape)
    return found


def check(
    function: Callable[..., Any],
    arguments: Callable[[int, int, np.random.Generator], Args],
    *,
    tolerance: float = 1e-4,
    most: int = 9,
    count: int = 4,
    **options: Any,
) -> Any:
    """`function`, compiled once, agrees with `jax.jit` at `count` shapes.

    `arguments` makes the arguments of a call from (batch, length, generator). A difference is
    measured against the largest number of its array, or a hundredth of the largest number of all:
    gradients that are zero but for rounding have no scale of their own.
    """
    name = inspect.stack()[1].function
    chosen = shapes(name, count, most)
    if alarms.tracing.active:
        calls = [arguments(b, t, np.random.default_rng([b, t])) for b, t in chosen]
        alarms.tracing.traced(function, calls, options)
    f, g = shlo_disc.jit(function, **options), jax.jit(function, **options)
    for batch, length in chosen:
        args = arguments(batch, length, np.random.default_rng([batch, length]))
        close(f(*args), g(*args), f"{name}, {batch} x {length}", tolerance)
    assert f.cache_info().misses == 1, f.explain()
    assert not alarms.pinned(f)
    return f


def close(got: Any, want: Any, where: str, tolerance: float = 1e-4) -> None:
    """Equal structures, shapes and types; integers equal; floats within `tolerance`."""
    assert jax.tree.structure(got) == jax.tree.structure(want), where
    pairs = [(_numbers(a), _numbers(b)) for a, b in _pairs(got, want)]
    floats = [b for _, b in pairs if np.issubdtype(b.dtype, np.inexact) and b.size]
    largest = max((float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) for b in floats), default=0.0)
    for place, ((path, _), (a, b)) in enumerate(
        zip(jax.tree.leaves_with_path(want), pairs, strict=True)
    ):
        told = f"{where}, result {place} {jax.tree_util.keystr(path)}"
        assert (a.shape, a.dtype) == (b.shape, b.dtype), told
        if not np.issubdtype(b.dtype, np.inexact):
            np.testing.assert_array_equal(a, b, told)
            continue
        scale = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), 1e-2 * largest)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=told)


def _pairs(got: Any, want: Any) -> Iterator[tuple[Any, Any]]:
    return zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)


def _numbers(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == jnp.bfloat16 else array
