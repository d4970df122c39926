"""Sizes that a rule of `custom_vjp` keeps for its other half: symbols in both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.frontend.test_questions import F


@jax.custom_vjp
def total(x):
    return x.sum(0)


total.defvjp(
    lambda x: (total(x), x.shape),
    lambda shape, g: (jnp.broadcast_to(g, shape) * shape[0],),
)


@jax.custom_vjp
def doubled(x):
    return x * 2


def _backward(kept, g):
    half, more = kept["half"], kept["of"]
    return ((g * 10 if more.shape[0] > 6 else g).at[:half].set(more.shape[0]),)


doubled.defvjp(
    lambda x: (doubled(x), {"half": x.shape[0] // 2, "of": x, "none": None, "one": 1}), _backward
)


def first(x, count):
    return x[:count]


first = jax.custom_vjp(first, nondiff_argnums=(1,))
first.defvjp(
    lambda x, count: (x[:count], (x.shape, count)),
    lambda _, kept, g: (jnp.zeros(kept[0]).at[: kept[1]].set(g * 3),),
)

PROGRAMS = {  # and how many versions the sizes below need
    "shape": (jax.grad(lambda x: total(x).sum()), 1),
    "half": (jax.grad(lambda x: doubled(x).sum()), 2),
    "static": (jax.grad(lambda x: first(x, x.shape[0] // 2).sum()), 1),
    "batch": (jax.vmap(jax.grad(lambda x: total(x * jnp.ones((2, 1))).sum())), 1),
    "loop": (lambda x: lax.map(jax.grad(lambda u: total(u * x).sum()), x), 1),
    "checkpoint": (jax.grad(lambda x: jax.checkpoint(total)(x).sum()), 1),
    "result": (total, 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kept_sizes_stay_symbols(name):
    program, versions = PROGRAMS[name]
    f = shlo_disc.jit(program)
    for n in (4, 7, 1, 9):
        x = F(n, 2) if name == "batch" else F(n)
        np.testing.assert_allclose(f(x), jax.jit(program)(x), rtol=1e-5)
    assert f.cache_info().misses == versions, f.guards()


def test_a_derivative_of_a_compiled_function_knows_kept_sizes():
    f = shlo_disc.jit(lambda x: total(x).sum())
    for n in (4, 7):
        np.testing.assert_allclose(jax.grad(f)(F(n)), np.full(n, n), rtol=1e-6)
