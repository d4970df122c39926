"""Random numbers: the bits must be JAX's own, at every shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.harness import check, check_bits, compiled

SHAPES = ((3, 10), (1, 1), (2, 61), (16, 8), (1, 257))


def like(*sizes: int):
    return np.zeros(sizes, np.float32)


def test_uniform_bits_are_those_of_jax():
    def draw(key, x):
        return jax.random.uniform(key, x.shape), jax.random.bits(key, x.shape)

    check_bits(draw, [(jax.random.PRNGKey(7), like(*s)) for s in SHAPES])


def test_typed_keys_split_and_fold():
    def draw(key, x):
        a, b = jax.random.split(key)
        c = jax.random.fold_in(b, 5)
        return jax.random.bits(a, x.shape), jax.random.uniform(c, x.shape[:1])

    check_bits(draw, [(jax.random.key(3), like(*s)) for s in SHAPES])


def test_uniform_of_another_range_within_the_rounding_of_one_product_and_sum():
    """XLA may contract the product and the sum into one rounding, and we may not."""
    f = compiled(lambda key, x: jax.random.uniform(key, x.shape, minval=-2.0, maxval=3.0))
    for shape in SHAPES:
        got = np.asarray(f(jax.random.key(3), like(*shape)))
        want = np.asarray(jax.random.uniform(jax.random.key(3), shape, minval=-2.0, maxval=3.0))
        assert np.abs(got - want).max() <= 4 * np.finfo(np.float32).eps


def test_randint_and_bernoulli():
    def draw(key, x):
        return jax.random.randint(key, x.shape, -5, 17), jax.random.bernoulli(key, 0.3, x.shape)

    check_bits(draw, [(jax.random.PRNGKey(11), like(*s)) for s in SHAPES])


def test_normal_within_the_rounding_of_its_inverse_error_function():
    """The bits underneath are equal; the float32 polynomial on top may differ by rounding."""

    def draw(key, x):
        return jax.random.normal(key, x.shape)

    def truth(key, x):
        from scipy.special import erfinv

        u = np.asarray(jax.random.uniform(key, x.shape, minval=np.nextafter(-1.0, 0.0, dtype="f4")))
        return np.sqrt(2.0) * erfinv(u.astype(np.float64))

    check(draw, [(jax.random.PRNGKey(5), like(*s)) for s in SHAPES], truth=truth)


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_dropout_keeps_the_same_elements(rate):
    def dropout(key, x):
        kept = jax.random.bernoulli(key, 1 - rate, x.shape)
        return jnp.where(kept, x / (1 - rate), 0.0)

    check_bits(dropout, [(jax.random.PRNGKey(1), like(*s) + 1) for s in SHAPES])


def test_categorical_sampling():
    def draw(key, logits):
        return jax.random.categorical(key, logits)

    cases = [
        (jax.random.PRNGKey(2), np.cos(np.arange(b * n, dtype="f4")).reshape(b, n))
        for b, n in SHAPES
    ]
    check_bits(draw, cases)
