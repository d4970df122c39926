"""Kernels for sizes that are likely to be 1: dimensions vanish, but every op keeps its part."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import normal, rng_of


def attention(q, k, v):
    return jax.nn.softmax(jnp.einsum("bhmd,bhnd->bhmn", q, k) * 0.3 + 1.0) @ v


def dequantised(x, w):
    return x @ (w * 0.5 + 1.0)


def gates(x, w):
    a, b = jnp.split(x @ w, 2, -1)
    return jnp.tanh(a) * b


def softmax_of_product(x, w, y):
    return jax.nn.softmax(x @ w + y)


def layer_norm_of_product(x, w, y):
    z = x @ w + y
    return z * jax.lax.rsqrt((z * z).mean(-1, keepdims=True) + 1.0), z


CASES = [
    (attention, ("b,h,m,d", "b,h,n,d", "b,h,n,d"), "mn"),
    (dequantised, ("b,k", "k,n"), "n"),
    (gates, ("b,k", "k,2*n"), "bn"),
    (softmax_of_product, ("b,k", "k,n", "b,n"), "bn"),
    (layer_norm_of_product, ("b,k", "k,n", "b,n"), "bn"),
]
"""A function that is one fusion, the sizes of its arguments, and which may be 1."""


@pytest.mark.parametrize("row", CASES, ids=lambda row: row[0].__name__)
def test_likely_sizes_of_one(row):
    function, shapes, ones = row
    f = shlo_disc.jit(function, shapes=shapes, likely=dict.fromkeys(ones, 1))
    for given in itertools.product((1, 5), repeat=len(ones)):
        sizes = dict.fromkeys("bhmn", 3) | {"d": 8, "k": 9} | dict(zip(ones, given, strict=True))
        arguments = [
            normal(rng_of(*given, number), *(eval(size, sizes) for size in text.split(",")))
            for number, text in enumerate(shapes)
        ]
        expected = jax.jit(function)(*arguments)
        for a, b in zip(*map(jax.tree.leaves, (f(*arguments), expected)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    assert f.cache_info().misses == 1
    (kernel,) = f.lower(*arguments).compile().executable.describe()["kernels"]
    assert kernel["kind"] in ("attention", "dense")


ROWS = {
    "argmin of columns": lambda m: jnp.argmin(m, 0),
    "argmin of rows": lambda m: jnp.argmin(m, 1),
    "argmax in the middle": lambda m: jnp.argmax(m[None], 1),
    "softmax of columns": lambda m: jax.nn.softmax(m, 0),
    "softmax of rows": lambda m: jax.nn.softmax(m, 1),
    "both": lambda m: m - m.std(0) * m.mean(1),
    "sum behind it": lambda m: jnp.cumsum(m, 0) + m.max(0),
    "outer and inner": lambda m: (m[:, None] * m).var((0, 2)) + m.sum(0),
    "logsumexp": lambda m: jax.nn.logsumexp(m, 0) * m.sum(1),
    "norm": lambda m: m / jnp.linalg.norm(m, axis=0),
}


@pytest.mark.parametrize("name", ROWS)
def test_sizes_that_a_constraint_makes_one(name):
    """Results of one element a row are as large as those of one an element."""
    function, half = ROWS[name], "floordiv(n + 1, 2)"
    traced = shlo_disc.jit(lambda _, m: function(m), shapes=["n", f"{half}, {half}"])
    text = traced.lower(np.ones(7, np.float32), np.ones((4, 4), np.float32)).as_text()
    compiled = shlo_disc.compile(text, constraints=[f"{half} == 1"])
    assert not compiled.unfused
    m = np.full((1, 1), 2.5, np.float32)
    for n in (1, 2):
        (found,) = compiled(np.ones(n, np.float32), m)
        np.testing.assert_allclose(found, function(m), rtol=1e-6)
