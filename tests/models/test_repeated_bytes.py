"""Bytes that are repeated and computed with: code that once kept LLVM busy for ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def repeated(x):
    found = {}
    for count in (2, 3):
        for name, work in {
            "sum": lambda v: v + v,
            "shift": lambda v: v << 1,
            "product": lambda v: v * 7,
            "bits": lambda v: v & 3,
            "least": lambda v: jnp.minimum(v, 5),
            "moved": lambda v: 9 - v,
        }.items():
            found[f"{name} {count}"] = jnp.stack([work(x)] * count, -1)
            found[f"{name} of {count}"] = work(jnp.repeat(x, count, -1))
    return found


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_repeated_bytes(dtype):
    f = shlo_disc.jit(repeated)
    for shape in ((5, 40), (3, 7)):
        x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
        jax.tree.map(np.testing.assert_array_equal, f(x), jax.jit(repeated)(x))
