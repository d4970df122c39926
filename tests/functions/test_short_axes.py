"""Programs over short axes, as graphics and robotics have them: kernels for the axes of the first
call, the same values at every other call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def extremes(x):
    wins = jnp.argmax(x, -1), jnp.argmin(x, -1), jnp.nanargmax(jnp.nan_to_num(x), -1)
    return *wins, x.max(-1), x.min(-1), jnp.any(x > 1, -1), jnp.all(x < 1, -1), jnp.sort(x, -1)


def sums(x):
    scores = jax.nn.softmax(x, -1), jax.nn.logsumexp(x, -1), jnp.linalg.norm(x, axis=-1)
    return *scores, jnp.prod(x, -1), jnp.cumsum(x, -1), x.mean(-1), x.sum((-1, -2))


def moves(x):
    weights = jnp.arange(x.shape[-1])
    joined = jnp.concatenate([x, x[..., :1], x.sum(-1, keepdims=True)], -1)
    stacked = jnp.stack([x[..., 0], -x[..., 1], 0 * x[..., 0], x[..., 1]], -1)
    turned = x[..., ::-1], jnp.roll(x, 1, -1), x[..., jnp.array([1, 0])]
    return *turned, jnp.diff(x), (x - weights) * 3, joined, stacked, jnp.swapaxes(x, -1, -2) + 1


def products(x):
    y = jnp.swapaxes(x, -1, -2)
    matrices = jax.nn.relu(x @ y + 1), y @ x
    return *matrices, jnp.einsum("...ij,...j->...i", x, x[..., 0, :]), x @ x[..., 0, :, None]


def loops(x):
    v, w = x[0, 0], x[0].T @ x[0]

    def step(c, row):
        c = jnp.tanh(w @ c * 0.1 + row + v)
        return c, (c[::-1] @ w, jnp.cumsum(c) / jnp.linalg.norm(c), c[:, None] @ c[None] @ w)

    last, (rows, sums, squares) = jax.lax.scan(step, v, x[:, 0])
    return last, rows, sums, squares


SPECIAL = np.array([0.0, -0.0, np.nan, 2.5, 2.5, -np.inf, np.inf, 1.0], np.float32)


def data(shape: tuple[int, ...], special: bool) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    if special:
        return rng.choice(SPECIAL, shape)
    return rng.standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("function", "special"),
    [(extremes, True), (sums, False), (moves, True), (products, False), (loops, False)],
)
@pytest.mark.parametrize("shape", [(67, 2, 3), (40, 3, 2)])
def test_short_axes_have_kernels_of_their_own(
    function: Callable[..., Any], special: bool, shape: tuple[int, ...]
) -> None:
    f = shlo_disc.jit(function)
    _, rows, columns = shape
    for sizes in (shape, (1, rows, columns), (1031, rows, columns), (5, 4, 9), (9, 3, 17)):
        x = data(sizes, special)
        for got, want in zip(f(x), jax.jit(function)(x), strict=True):
            if special:
                np.testing.assert_array_equal(got, want)
                if function is moves:  # the sign of the larger of 0.0 and -0.0 is XLA's order
                    zeros = np.asarray(want) == 0
                    np.testing.assert_array_equal(np.signbit(got)[zeros], np.signbit(want)[zeros])
            else:
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
    assert f.cache_info().misses == 1
    assert f"== {columns}: as in the first call" in f.explain()


def test_long_axes_have_no_kernels_of_their_own() -> None:
    f = shlo_disc.jit(extremes)
    f(data((8, 9, 17), special=False))
    assert "as in the first call" not in f.explain()
