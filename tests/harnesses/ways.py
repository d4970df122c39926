"""The ways in which a harness is called: by itself, and under three transformations of JAX.

A way takes a function that is already under `jax.jit` or `shlo_disc.jit`. Its results are a list
of arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.harnesses.cases import arguments

Call = Callable[[Callable[..., Any], Sequence[Any]], list[Any]]
"""`call(function, arguments)` -> results."""


class NothingToDoError(Exception):
    """A transformation has nothing to transform: no argument, or none of floating point."""


def _jit(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    return jax.tree.leaves(function(*args))


def _grad(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    places = _inexact(args)

    def scalar(floats: Sequence[Any]) -> Any:
        results = jax.tree.leaves(function(*_put(args, places, floats)))
        smooth = [x for x in results if jnp.issubdtype(x.dtype, jnp.inexact)]
        if not smooth:
            raise NothingToDoError("no result of floating point")
        return sum(_weighted_sum(x) for x in smooth)

    return jax.tree.leaves(jax.grad(scalar)([args[k] for k in places]))


def _weighted_sum(x: Any) -> Any:
    # Weights that differ: a gradient of a plain sum does not tell one element from another.
    weights = jnp.asarray(1 + np.arange(x.size) % 7 / 8, x.dtype).reshape(x.shape)
    total = (x * weights).sum()
    return total.real.astype(jnp.float32)


def _jvp(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    places = _inexact(args)
    rng = np.random.default_rng(len(args))
    tangents = [
        np.asarray(rng.uniform(0.5, 1.5, args[k].shape)).astype(args[k].dtype) for k in places
    ]
    primals = [args[k] for k in places]
    results, slopes = jax.jvp(
        lambda *floats: jax.tree.leaves(function(*_put(args, places, floats))), primals, tangents
    )
    return [*results, *(x for x in slopes if x.dtype != jax.dtypes.float0)]


def _inexact(args: Sequence[Any]) -> list[int]:
    places = [k for k, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.inexact)]
    if not places:
        raise NothingToDoError("no argument of floating point")
    return places


def _put(args: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    put = dict(zip(places, values, strict=True))
    return [put.get(k, x) for k, x in enumerate(args)]


WAYS: dict[str, Call] = {
    "jit": _jit,
    "grad": _grad,
    "vmap": lambda function, args: jax.tree.leaves(function(*args)),
    "jvp": _jvp,
}
"""Name -> how the function is called; `call_of` makes the batches of vmap."""


def call_of(name: str, way: str) -> tuple[Call, list[Any]]:
    """How a harness is called this way, and with what.

    Batches have 2 or 3 elements. Of several arguments some have no batch.
    """
    args = arguments(name)
    if way != "vmap":
        return WAYS[way], args
    if not args:
        raise NothingToDoError("no argument")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    size = int(rng.integers(2, 4))
    axes = [None if rng.uniform() < 0.25 else 0 for _ in args]
    if all(axis is None for axis in axes):
        axes[0] = 0
    draws = [arguments(name, draw) for draw in range(size)]
    batched = [
        x if axis is None else np.stack([draw[k] for draw in draws])
        for k, (x, axis) in enumerate(zip(args, axes, strict=True))
    ]

    def call(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        return jax.tree.leaves(jax.vmap(function, in_axes=tuple(axes))(*args))

    return call, batched
