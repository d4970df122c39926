"""Loops, totals and batches of no rows: sizes that are computed, and are 0 in some calls.

The oracle is `jax.jit`. A version for no rows beside the one for others would be right, too, so
the versions are counted.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.cases import slow


def _fold(x):
    def step(c, v):
        return jax.nn.logsumexp(c[:, None] + v, 0), c

    return lax.scan(step, x[0], x[1:])


def _linear(x):
    pairs = (jnp.cos(x[1:]), x[1:])
    return lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), pairs, reverse=True)


def _table(x):
    return lax.fori_loop(1, x.shape[0], lambda i, t: t.at[i].set(t[i - 1] * 0.5 + x[i]), 0 * x)


def _solved(v):
    return jnp.linalg.solve(jnp.outer(v, v) + 2 * jnp.eye(3), v)


FUNCTIONS = {
    "scan": _fold,
    "gradient of scan": jax.grad(lambda x: _fold(x)[0].sum()),
    "map": lambda x: lax.map(lambda v: v.sum() * 2, x[: x.shape[0] // 2]),
    "map in batches": lambda x: lax.map(jnp.sin, x, batch_size=4),
    "map in no batch": lambda x: lax.map(jnp.sin, x[1:], batch_size=9),
    "loop in a loop": lambda x: lax.map(
        lambda v: lax.scan(lambda c, w: (c + v @ w, c), 0.0, x[1:])[0], x[1:]
    ),
    "table": _table,
    "path": lambda x: lax.scan(lambda s, p: (p[s], s), 0, jnp.argsort(x[1:], 1), reverse=True),
    "associative_scan": _linear,
    "gradient of associative_scan": jax.grad(lambda x: (_linear(x)[1] ** 2).sum()),
    "cumsum": lambda x: jnp.cumsum(x[1:], 0),
    "gradient of cumprod": jax.grad(lambda x: jnp.cumprod(x[1:], 0).sum()),
    "isin": lambda x: jnp.isin(x[1:], x[:-1]),
    "take_along_axis": lambda x: jnp.take_along_axis(x[:-1], jnp.argsort(x[1:], 1), 1),
    "reversed": lambda x: x[1:][::-1],
    "batch of solve": lambda x: jax.vmap(_solved)(x[1:]),
    "count": lambda x: jnp.where(x[1:] > 0, 1, 0).sum(),
}
FEW = ("scan", "map in batches", "table", "cumsum", "isin", "take_along_axis", "reversed", "count")


@pytest.mark.parametrize("calls", [(1, 5), *slow([((5, 1, 18),)])])
@pytest.mark.parametrize("names", [FEW, *slow(((name,),) for name in FUNCTIONS)])
def test_no_rows_are_as_other_numbers_of_rows(names, calls):
    def function(x):
        return {name: FUNCTIONS[name](x) for name in names}

    compiled = shlo_disc.jit(function)
    for n in calls:
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        found, want = compiled(x), jax.jit(function)(x)
        for name in names:
            for a, b in zip(*map(jax.tree.leaves, (found[name], want[name])), strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype), name
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
    assert compiled.cache_info().misses == 1, compiled.guards()


def test_a_place_in_a_dimension_that_may_be_empty():
    f = shlo_disc.jit(lambda x: x[: x.shape[0] // 2].at[0].set(7.0))
    np.testing.assert_array_equal(f(np.arange(4.0, dtype=np.float32)), [7, 1])
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
        f(np.float32([3]))


def test_a_difference_at_other_sizes_is_found_though_a_first_call_has_no_rows():
    def function(x):
        n = x.shape[0]
        return x.sum() + (jnp.sin if type(n) is int else jnp.cos)(x[1:]).sum()

    f = shlo_disc.jit(function)
    for n in (1, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_allclose(f(x), x.sum() + np.sin(x[1:]).sum(), rtol=1e-5)
