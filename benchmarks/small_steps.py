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


def suppressed(points: jax.Array) -> jax.Array:
    """Which points stay, if each removes those near it that follow."""
    count = points.shape[0]

    def body(i: Any, kept: jax.Array) -> jax.Array:
        near = jnp.sum((points - points[i]) ** 2, -1) < 0.01
        return kept & ~(near & (jnp.arange(count) > i) & kept[i])

    return lax.fori_loop(0, count, body, jnp.ones(count, bool))


def runge_kutta(field: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """The classical method of order 4."""

    def step(y: Any, _: None) -> Any:
        h = 0.01
        k1 = field(y)
        k2 = field(y + h / 2 * k1)
        k3 = field(y + h / 2 * k2)
        k4 = field(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return lambda y: lax.scan(step, y, None, length=count)


def lorenz(y: jax.Array) -> jax.Array:
    """Lorenz's field."""
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def heat(u: jax.Array) -> jax.Array:
    """Of a rod whose ends stay as they are."""
    return jnp.concatenate([jnp.zeros(1), u[2:] - 2 * u[1:-1] + u[:-2], jnp.zeros(1)])


def filtered(x: jax.Array, taps: jax.Array) -> jax.Array:
    """A window of the signal moves by one element a step."""

    def step(window: jax.Array, sample: jax.Array) -> tuple[jax.Array, jax.Array]:
        window = jnp.concatenate([sample[None], window[:-1]])
        return window, window @ taps

    return lax.scan(step, jnp.zeros_like(taps), x)[1]


def recursive(x: jax.Array, b: jax.Array, a: jax.Array) -> jax.Array:
    """A filter that reads what it gave."""

    def step(carry: Any, sample: jax.Array) -> Any:
        xs, ys = carry
        xs = jnp.concatenate([sample[None], xs[:-1]])
        y = xs @ b - ys @ a
        return (xs, jnp.concatenate([y[None], ys[:-1]])), y

    return lax.scan(step, (jnp.zeros_like(b), jnp.zeros_like(a)), x)[1]


def kalman(z: jax.Array) -> Any:
    """Positions are observed; velocities are not."""
    move, see = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])

    def step(carry: Any, observed: jax.Array) -> Any:
        x, p = carry
        x, p = move @ x, move @ p @ move.T + 0.01 * jnp.eye(2)
        s = see @ p @ see.T + 1.0
        gain = p @ see.T / s
        x = x + gain @ (observed[None] - see @ x)
        return (x, p - gain @ see @ p), x

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), z)[1]


def cached(x: jax.Array, q: jax.Array) -> jax.Array:
    """Rows are written to a cache, all of which is attended to; the gradient."""

    def total(x: jax.Array, q: jax.Array) -> jax.Array:
        def step(cache: jax.Array, at: Any) -> Any:
            i, row = at
            cache = lax.dynamic_update_slice(cache, row[None], (i, 0))
            return cache, (jax.nn.softmax(cache @ q) @ cache).sum()

        return lax.scan(step, jnp.zeros_like(x), (jnp.arange(x.shape[0]), x))[1].sum()

    return jax.grad(total)(x, q)


def orientations(rates: jax.Array) -> jax.Array:
    """A gyroscope's rates, integrated to quaternions."""

    def step(q: jax.Array, r: jax.Array) -> Any:
        w, x, y, z = q
        a, b, c = r
        turn = jnp.stack([-x * a - y * b - z * c, w * a + y * c - z * b,
                          w * b - x * c + z * a, w * c + x * b - y * a])  # fmt: skip
        q = q + 0.005 * turn
        q = q / jnp.linalg.norm(q)
        return q, q

    return lax.scan(step, jnp.array([1.0, 0.0, 0.0, 0.0]), rates)[1]


def leapfrog(state: jax.Array) -> Any:
    """A body around another; the force has a power of the distance."""

    def step(carry: Any, _: None) -> Any:
        q, p = carry
        p = p - 0.01 * q / jnp.sum(q * q) ** 1.5
        q = q + 0.01 * p
        return (q, p), q

    return lax.scan(step, (state, state[::-1]), None, length=5000)


def pendulum(y: jax.Array) -> Any:
    """A sine in every step."""

    def step(carry: Any, _: None) -> Any:
        angle, speed = carry
        speed = speed - 0.01 * jnp.sin(angle)
        angle = angle + 0.01 * speed
        return (angle, speed), angle

    return lax.scan(step, (jnp.tanh(y), y * 0.1), None, length=20000)


def double_pendulum(y: jax.Array) -> Any:
    """Sines of several angles in every step."""

    def field(y: jax.Array) -> jax.Array:
        a, b, v, w = y
        d = a - b
        below = 3 - jnp.cos(2 * d)
        turn = 2 * jnp.sin(d)
        pull = 3 * jnp.sin(a) + jnp.sin(a - 2 * b)
        first = (-9.8 * pull - turn * (w * w + v * v * jnp.cos(d))) / below
        second = turn * (2 * v * v + 19.6 * jnp.cos(a) + w * w * jnp.cos(d)) / below
        return jnp.stack([v, w, first, second])

    return runge_kutta(field, 1000)(jnp.tanh(y))


def rolled(x: jax.Array, taps: jax.Array) -> jax.Array:
    """A window that is rolled, and its first element set."""

    def step(window: jax.Array, sample: jax.Array) -> tuple[jax.Array, jax.Array]:
        window = jnp.roll(window, 1).at[0].set(sample)
        return window, window @ taps

    return lax.scan(step, jnp.zeros_like(taps), x)[1]


def wrapped(x: jax.Array) -> Any:
    """A remainder by a number and a quotient rounded down in every step."""

    def step(c: jax.Array, _: None) -> Any:
        c = (c * 1.7 + 0.3) % 0.77
        return c, (c % 1.0) // 0.25

    return lax.scan(step, x, None, length=20000)


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
    "suppression, 1000 points": (suppressed, ((1000, 2),)),
    "Runge-Kutta, Lorenz": (runge_kutta(lorenz, 1000), ((3,),)),
    "Runge-Kutta, rod of 100": (runge_kutta(heat, 2000), ((100,),)),
    "filter of 16 taps": (filtered, ((10000,), (16,))),
    "filter of 16 taps, gradient": (
        jax.grad(lambda x, taps: (filtered(x, taps) ** 2).sum(), (0, 1)),
        ((10000,), (16,)),
    ),
    "recursive filter, 3 and 2 taps": (recursive, ((10000,), (3,), (2,))),
    "Kalman filter, 2 states": (kalman, ((10000,),)),
    "cache of 256 rows, gradient": (cached, ((256, 16), (16,))),
    "gyroscope": (orientations, ((10000, 3),)),
    "leapfrog": (leapfrog, ((2,),)),
    "pendulum": (pendulum, ((),)),
    "Runge-Kutta, double pendulum": (double_pendulum, ((4,),)),
    "Runge-Kutta, 7 x Lorenz": (jax.vmap(runge_kutta(lorenz, 500)), ((7, 3),)),
    "Runge-Kutta, 1000 x Lorenz": (jax.vmap(runge_kutta(lorenz, 500)), ((1000, 3),)),
    "filter of 16 taps, by roll": (rolled, ((10000,), (16,))),
    "float remainders": (wrapped, ((),)),
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
