"""`jax.lax.approx_max_k` and its kin are exact, as XLA computes them on CPUs."""

import jax
import numpy as np
import pytest
from jax import lax

import shlo_disc

CASES = {
    "greatest": lambda x: lax.approx_max_k(x, 3),
    "least": lambda x: lax.approx_min_k(x, 2),
    "first dimension": lambda x: lax.approx_max_k(x, 2, reduction_dimension=0),
    "gradient": jax.grad(lambda x: (lax.approx_max_k(x, 3)[0] ** 2).sum()),
}


@pytest.mark.parametrize("name", CASES)
def test_selections_are_those_of_xla(name):
    ours, theirs = shlo_disc.jit(CASES[name]), jax.jit(CASES[name])
    for shape in ((4, 16), (2, 5), (7, 131)):
        x = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype("f4")
        x[0, :2] = 0.0, -np.inf
        for got, want in zip(jax.tree.leaves(ours(x)), jax.tree.leaves(theirs(x)), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(got, want)


def test_a_number_of_results_that_is_a_size():
    def program(x, y):
        return lax.approx_max_k(x, y.shape[0])

    ours = shlo_disc.jit(program)
    for n, k in ((16, 3), (9, 9), (20, 5)):
        x = np.random.default_rng(n).permutation(3 * n).reshape(3, n).astype("f4")
        values, places = ours(x, np.zeros(k, "f4"))
        np.testing.assert_array_equal(places, np.argsort(-x, -1, kind="stable")[:, :k])
        np.testing.assert_array_equal(values, np.take_along_axis(x, np.asarray(places), -1))
    assert ours.cache_info().misses == 1
