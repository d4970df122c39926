"""Programs whose pieces of work are a few nanoseconds: loops of small steps, small matrices, many
small arrays; beside `jax.jit`, which compiles them for the very sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console

import shlo_disc
from benchmarks.harness import SETTLE, Case, compare

__all__ = ["PROGRAMS", "small_steps"]

STEPS = 20000


def _loop(step: Callable[[Any], Any], count: int = STEPS) -> Callable[[Any], Any]:
    return lambda c: lax.scan(lambda c, _: (step(c), None), c, None, length=count)[0]


def sums(c: jax.Array, v: jax.Array) -> jax.Array:
    """A short vector in every step."""
    return _loop(lambda c: jnp.tanh(c + v))(c)


def sums_gradient(c: jax.Array, v: jax.Array) -> Any:
    """Its gradient, whose steps are stacked."""
    return jax.grad(lambda c, v: sums(c, v).sum(), (0, 1))(c, v)


def products(c: jax.Array, v: jax.Array) -> jax.Array:
    """A small matrix in every step."""
    return _loop(lambda c: jnp.tanh(c @ v))(c)


def branches(x: jax.Array) -> jax.Array:
    """A scalar that is compared in every step."""
    return _loop(lambda c: lax.cond(c > 0, lambda: c - 1.5, lambda: c + 1.0), 50000)(x)


def nested(x: jax.Array) -> jax.Array:
    """A loop of scalars in a loop."""
    return _loop(_loop(lambda b: b * 0.999 + 1.0, 300), 300)(x)


def edit_distance(a: jax.Array, b: jax.Array) -> jax.Array:
    """Levenshtein's, cell by cell."""

    def row(above: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        def cell(carry: Any, at: Any) -> Any:
            left, corner = carry
            up, y = at
            here = jnp.minimum(jnp.minimum(left, up) + 1, corner + (x != y))
            return (here, up), here

        first = above[0] + 1
        _, rest = lax.scan(cell, (first, above[0]), (above[1:], b))
        return jnp.concatenate([first[None], rest]), None

    return lax.scan(row, jnp.arange(b.shape[0] + 1), a)[0][-1]


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """A product of each pair of a batch."""
    return a @ b


def joined(*arrays: jax.Array) -> jax.Array:
    """Arrays side by side."""
    return jnp.concatenate(arrays, 1)


def added(*arrays: jax.Array) -> jax.Array:
    """Many arguments."""
    return sum(arrays[1:], start=arrays[0])


def split(x: jax.Array) -> list[jax.Array]:
    """Many results."""
    return [x + k for k in range(60)]


Shapes = tuple[tuple[int, ...], ...]

PROGRAMS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "tanh(c + v), 8 floats": (sums, ((8,), (8,))),
    "tanh(c + v), 8 floats, gradient": (sums_gradient, ((8,), (8,))),
    "tanh(c @ v), 3 x 3": (products, ((3, 3), (3, 3))),
    "branch on a scalar": (branches, ((),)),
    "loop of 300 in a loop": (nested, ((),)),
    "edit distance, 300 x 300": (edit_distance, ((300,), (300,))),
    "products of 100000 x 3 x 3": (matmul, ((100000, 3, 3),) * 2),
    "determinants of 20000 x 2 x 2": (jnp.linalg.det, ((20000, 2, 2),)),
    "determinants of 20000 x 3 x 3": (jnp.linalg.det, ((20000, 3, 3),)),
    "8 arrays side by side": (joined, ((1000, 100),) * 8),
    "60 arguments": (added, ((4,),) * 60),
    "60 results": (split, ((4,),)),
}
"""Functions, and the shapes of their arguments."""


def small_steps(console: Console, quick: bool) -> None:
    """Every program of `PROGRAMS`."""

    def cases() -> Iterator[Case]:
        rng = np.random.default_rng(0)
        for name, (function, shapes) in PROGRAMS.items():
            x = [jnp.asarray(rng.standard_normal(shape, np.float32)) for shape in shapes]
            if function is edit_distance:
                x = [jnp.asarray(rng.integers(0, 4, shape), jnp.int32) for shape in shapes]
            ours, theirs = shlo_disc.jit(function), jax.jit(function)
            calls: dict[str, Any] = {
                "ours": lambda f=ours, x=x: f(*x),
                "jax.jit": lambda f=theirs, x=x: f(*x),
            }
            yield Case(name, calls, settle=SETTLE, inputs=tuple(x))

    compare(console, "small_steps", "small steps", cases(), seconds=0.3 if quick else 1.5)
