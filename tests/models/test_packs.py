"""What is computed from one weight alone is packed beside that weight, once."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral


@pytest.fixture(autouse=True)
def no_packs():
    gc.collect()
    ral.pack_clear()
    yield
    gc.collect()


def filled():
    return ral.pack_stats()["filled"]


def check(f, fn, *args):
    got, want = f(*args), fn(*args)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


def weights(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def test_slices_of_a_weight_are_packed_once_each():
    def fn(x, w):
        half = w.shape[1] // 2
        return x @ w[:, :half] + jnp.tanh(x) @ w[:, half:]

    f, w = shlo_disc.jit(fn), weights(0, 32, 64)
    check(f, fn, weights(1, 40, 32), w)
    before = filled()
    for rows in (40, 50, 70):
        check(f, fn, weights(rows, rows, 32), w)
    assert filled() == before
    # Another weight of the same shape has slices of its own.
    other = weights(2, 32, 64)
    for rows in (40, 50, 70):
        check(f, fn, weights(rows, rows, 32), other)
    assert filled() > before


def test_two_slices_at_one_size_are_two_packs():
    first = shlo_disc.jit(lambda x, w: x @ w[:, 0:16])
    second = shlo_disc.jit(lambda x, w: x @ w[:, 16:32])
    x, w = weights(0, 40, 32), weights(1, 32, 32)
    for _ in range(3):
        check(first, lambda x, w: x @ w[:, 0:16], x, w)
        check(second, lambda x, w: x @ w[:, 16:32], x, w)


def test_equal_formulas_of_other_sizes_are_two_packs():
    # Rows n to 2n of a weight: n is half of its rows in one function, a third in the other.
    def half(x, w):
        n = w.shape[0] // 2
        return x @ w[n : 2 * n]

    def third(x, w):
        n = w.shape[0] // 3
        return x @ w[n : 2 * n]

    w = weights(0, 48, 100)
    first, second = shlo_disc.jit(half), shlo_disc.jit(third)
    for _ in range(3):
        check(first, half, weights(1, 40, 24), w)
        check(second, third, weights(2, 40, 16), w)


def test_what_depends_on_another_size_is_computed_at_every_call():
    # How much of the weight is used depends on the rows of x.
    def fn(x, w):
        return x @ w[:, : x.shape[0]]

    f, w = shlo_disc.jit(fn), weights(0, 8, 100)
    for rows in (40, 50, 40, 70, 50):
        check(f, fn, weights(rows, rows, 8), w)


def test_a_recurrent_weight_is_packed_over_all_steps():
    def fn(xs, w):
        def step(h, x):
            h = jnp.tanh(x + h @ w[:, : h.shape[1]].astype(jnp.float32))
            return h, h

        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    f, w = shlo_disc.jit(fn), weights(0, 16, 24) * 0.2
    for steps in (5, 9):
        check(f, fn, weights(steps, steps, 40, 16) * 0.1, w)
    before = filled()
    check(f, fn, weights(3, 7, 41, 16) * 0.1, w)
    assert filled() == before
