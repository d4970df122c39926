"""Complex products with few and with many rows, which are computed in two ways."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc.ingest.complex_numbers.products import MANY_ROWS

ROWS = (0, 1, 2, MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 1, 131)
DEPTHS_AND_COLUMNS = ((1, 1), (7, 3), (16, 1), (33, 8), (3, 40), (0, 2), (5, 0))


def numbers(rng, *shape, dtype="c8"):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_any_number_of_rows(batch):
    """One compilation has both; sums are within a few ULP of those in complex128."""
    dims = (((len(batch) + 1,), (len(batch),)), (tuple(range(len(batch))),) * 2)
    f = shlo_disc.jit(lambda x, y: (lax.dot_general(x, y, dims), (x * 2).real))
    rng = np.random.default_rng(0)
    for rows in ROWS:
        for k, n in DEPTHS_AND_COLUMNS:
            x, y = numbers(rng, *batch, rows, k), numbers(rng, *batch, k, n)
            got, twice = f(x, y)
            want = x.astype("c16") @ y.astype("c16")
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=2e-7 * (k + 1))
            np.testing.assert_array_equal(twice, x.real * 2)
    assert f.cache_info().misses == 6  # each pattern of empty dimensions is a version of its own


def test_rows_that_are_known_and_operands_that_were_computed():
    """A known number of rows gets one product; planes and pairs are both read."""

    def f(x, y):
        many = jnp.concatenate([x[:1]] * MANY_ROWS) @ jnp.conj(y)
        few = jnp.exp(x[:1]) @ y
        unknown = jnp.sin(x) @ (y + 1j)
        return many, few, unknown

    compiled = shlo_disc.jit(f)
    rng = np.random.default_rng(1)
    for rows in (3, MANY_ROWS, 100):
        x, y = numbers(rng, rows, 9), numbers(rng, 9, 4)
        exact = f(x.astype("c16"), y.astype("c16"))
        for got, want in zip(compiled(x, y), exact, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    kernels = [
        line.split()[:4] for line in str(compiled.explain()).splitlines() if " in if " in line
    ]
    assert sorted(kind for _, kind, *_ in kernels) == ["dense", "dense", "loop", "loop"], kernels
    assert len({line for *_, line in kernels}) == 1, kernels
    assert compiled.cache_info().misses == 1


def test_infinities_and_nan():
    """Every product of parts is a term of the sum, as in StableHLO's complex arithmetic."""
    f = shlo_disc.jit(lambda x, y: x @ y)
    for value in (np.inf, -np.inf, np.nan, complex(0, np.inf)):
        for rows in (2, MANY_ROWS):
            x, y = np.ones((rows, 3), "c8"), np.ones((3, 2), "c8")
            x[0, 1] = value
            got = np.asarray(f(x, y))
            assert np.isnan(got[0]).all()  # an infinite part times 0 is NaN
            np.testing.assert_array_equal(got[1:], np.full((rows - 1, 2), 3))
