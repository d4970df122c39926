"""More arrays than one launch takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


@pytest.mark.parametrize("count", [20, 64, pytest.param(200, marks=pytest.mark.slow)])
def test_many_small_arrays_one_by_one(count):
    f = shlo_disc.jit(lambda p: jax.tree.map(lambda x: x + 1.0, p))
    arrays = {f"w{k}": jnp.full((4, 3), float(k)) for k in range(count)}
    out = f(arrays)
    for k in range(count):
        np.testing.assert_array_equal(out[f"w{k}"], np.full((4, 3), k + 1.0))


@pytest.mark.parametrize("shape", [(4, 3), (300, 500)])
def test_many_arrays_from_and_into_one(shape):
    def f(xs):
        total = sum(xs)
        return total, [total * x for x in xs]

    xs = [jnp.full(shape, float(k)) for k in range(70)]
    total, products = shlo_disc.jit(f)(xs)
    np.testing.assert_array_equal(total, np.full(shape, 69 * 70 / 2.0))
    np.testing.assert_array_equal(products[3], np.full(shape, 3 * 69 * 70 / 2.0))
