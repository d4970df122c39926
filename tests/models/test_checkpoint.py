"""`jax.checkpoint`: less memory, the same gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc


def F(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def chain(w, x, again):
    def block(h, v):
        return jnp.tanh(jnp.exp(jnp.sin(h @ v)))

    step = jax.checkpoint(block) if again else block
    for k in range(6):
        x = step(x, w[k])
    return x.sum()


def recurrent(w, x, again):
    def step(h, row):
        h = jnp.tanh(h @ w[0] + jnp.sin(row @ w[1]))
        return h, (h**2).sum()

    step = jax.checkpoint(step) if again else step
    return lax.scan(step, jnp.zeros(x.shape[1:]), x)[1].sum()


CASES = {
    "chain": (chain, lambda n: (F(6, 16, 16) / 4, F(n, 16)), (512, 3)),
    "recurrent": (recurrent, lambda n: (F(2, 16, 16) / 4, F(n, 4, 16)), (64, 5)),
}


@pytest.mark.parametrize("name", [pytest.param("chain", marks=pytest.mark.slow), "recurrent"])
def test_less_memory_and_the_same_gradients(name):
    loss, make, sizes = CASES[name]
    temporary = []
    for again in (False, True):
        f = shlo_disc.jit(jax.grad(functools.partial(loss, again=again), (0, 1)))
        for n in sizes:
            expected = jax.jit(jax.grad(functools.partial(loss, again=False), (0, 1)))(*make(n))
            for a, b in zip(f(*make(n)), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        assert f.cache_info().misses == 1
        memory = f.lower(*make(sizes[0])).compile().memory_analysis()
        temporary.append(memory["temp_size_in_bytes"])
    assert temporary[1] <= 0.75 * temporary[0], temporary


def test_a_derived_program_saves_memory_too():
    sizes = {}
    for again in (False, True):
        f = shlo_disc.jit(functools.partial(chain, again=again))
        w, x = F(6, 16, 16) / 4, F(256, 16)
        kept = jax.linearize(f, w, x)[1]
        sizes[again] = sum(leaf.nbytes for leaf in jax.tree.leaves(kept))
    assert sizes[True] < 0.5 * sizes[False]
