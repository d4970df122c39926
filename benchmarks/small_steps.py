"""Programs whose pieces of work are a few nanoseconds: loops of small steps, small matrices, short
axes, many small arrays; beside `jax.jit`, which compiles them for the very sizes.
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


def matrix_vector(a: jax.Array, v: jax.Array) -> jax.Array:
    """Points, each turned by a matrix of its own."""
    return jnp.einsum("nij,nj->ni", a, v)


def quaternions(a: jax.Array, b: jax.Array) -> jax.Array:
    """Hamilton's products."""
    w, x, y, z = (a[:, k] for k in range(4))
    s, t, u, v = (b[:, k] for k in range(4))
    return jnp.stack(
        [
            w * s - x * t - y * u - z * v,
            w * t + x * s + y * v - z * u,
            w * u - x * v + y * s + z * t,
            w * v + x * u - y * t + z * s,
        ],
        -1,
    )


def normals(points: jax.Array, corners: jax.Array) -> jax.Array:
    """Of the triangles of a mesh."""
    a, b, c = jnp.moveaxis(points[corners], 1, 0)
    n = jnp.cross(b - a, c - a)
    return n / (jnp.linalg.norm(n, axis=-1, keepdims=True) + 1e-9)


def overlaps(a: jax.Array, b: jax.Array) -> jax.Array:
    """Of all pairs of boxes, by their union."""
    low, high = jnp.maximum(a[:, None, :2], b[:, :2]), jnp.minimum(a[:, None, 2:], b[:, 2:])
    both = jnp.prod(jnp.clip(high - low, 0), -1)
    areas = [jnp.prod(x[:, 2:] - x[:, :2], -1) for x in (a, b)]
    return both / (areas[0][:, None] + areas[1] - both)


def corners(boxes: jax.Array) -> jax.Array:
    """Of boxes that are given by middles and sizes."""
    middle, size = boxes[:, :2], boxes[:, 2:]
    return jnp.concatenate([middle - size / 2, middle + size / 2], -1)


def best(x: jax.Array) -> Any:
    """Where the largest of each row is, and the scores of the row."""
    return jnp.argmax(x, -1), jax.nn.softmax(x, -1)


def matrix_loop(c: jax.Array, v: jax.Array) -> jax.Array:
    """A matrix times a vector in every step."""
    return _loop(lambda c: jnp.tanh(v @ c))(c)


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
    "3 x 3 times 100000 vectors": (matrix_vector, ((100000, 3, 3), (100000, 3))),
    "products of 100000 quaternions": (quaternions, ((100000, 4),) * 2),
    "normals of 100000 triangles": (normals, ((50000, 3), (100000, 3))),
    "overlaps of 300 x 300 boxes": (overlaps, ((300, 4),) * 2),
    "corners of 100000 boxes": (corners, ((100000, 4),)),
    "argmax, softmax of 100000 x 4": (best, ((100000, 4),)),
    "running totals of 100000 x 3": (lambda x: jnp.cumsum(x, -1), ((100000, 3),)),
    "colours of 300 x 300, scaled": (lambda x: (x - jnp.arange(3.0)) * 2, ((300, 300, 3),)),
    "tanh(v @ c), 4 x 4 and 4": (matrix_loop, ((4,), (4, 4))),
    "8 arrays side by side": (joined, ((1000, 100),) * 8),
    "8 columns side by side": (joined, ((20000, 1),) * 8),
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
            if function is normals:
                x[1] = jnp.asarray(rng.integers(0, shapes[0][0], shapes[1]), jnp.int32)
            ours, theirs = shlo_disc.jit(function), jax.jit(function)
            calls: dict[str, Any] = {
                "ours": lambda f=ours, x=x: f(*x),
                "jax.jit": lambda f=theirs, x=x: f(*x),
            }
            yield Case(name, calls, settle=SETTLE, inputs=tuple(x))

    compare(console, "small_steps", "small steps", cases(), seconds=0.3 if quick else 1.5)
