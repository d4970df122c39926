"""Arrays of 2 and 4 bits: XLA packs them, programs have a byte an element; beside `jax.jit`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shlo_disc

NAMES = ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")
SHAPES = ((0, 3), (1, 1), (3, 3), (5, 7), (64, 3))


def values(name: str, shape: tuple[int, ...], seed: int = 0) -> jax.Array:
    raw = np.random.default_rng(seed).integers(0, 4, shape)
    return jnp.asarray(raw.astype(getattr(ml_dtypes, name)))


def equal(ours, theirs) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a, "f4"), np.asarray(b, "f4"))


def program(x, y):
    """As it comes, moved, computed; XLA aborts where it concatenates arrays of 2 bits."""
    wide = x.astype("float32") @ y.astype("float32")
    return x, x[::-1], x + x, wide, wide.astype(x.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_results(name):
    ours, theirs = shlo_disc.jit(program), jax.jit(program)
    for rows, columns in SHAPES:
        x, y = values(name, (rows, columns)), values(name, (columns, 5), seed=1)
        want = theirs(x, y)
        got = ours(x, y)
        equal(got, want)
        equal(ours(x, y), want)  # arrays that come again have a record
        equal(ours(np.asarray(x), np.asarray(y)), want)  # NumPy's have a byte an element
        equal(ours(got[1], y), theirs(want[1], y))  # a result of ours
    assert ours.cache_info().misses <= 2


@pytest.mark.parametrize("name", NAMES)
def test_inside_programs_of_jax(name):
    """XLA passes packed memory to the custom call of a program."""
    ours = shlo_disc.jit(program)

    def outer(call, x, y):
        x = x[::-1]
        return [z[:3] if z.ndim else z for z in call(x, y)], call(x, y)[0].astype("float32") * 2

    for rows, columns in SHAPES:
        x, y = values(name, (rows, columns)), values(name, (columns, 5), seed=1)
        got, want = (
            jax.jit(outer, static_argnums=0)(call, x, y) for call in (ours, jax.jit(program))
        )
        equal(got, want)
    batch = jnp.stack([values(name, (3, 5), seed=k) for k in range(4)])
    y = values(name, (5, 5))
    equal(jax.vmap(ours, (0, None))(batch, y), jax.vmap(jax.jit(program), (0, None))(batch, y))


def test_a_donated_array_is_deleted_and_its_memory_not_written():
    """A result of 35 bytes does not fit where 18 were."""
    f = shlo_disc.jit(lambda x: x + x, donate_argnums=0)
    x = values("int4", (5, 7))
    want = np.asarray(x + x)
    np.testing.assert_array_equal(np.asarray(f(x)), want)
    assert x.is_deleted()
    y = f(values("int4", (5, 7)))
    np.testing.assert_array_equal(np.asarray(f(y)), np.asarray(jnp.asarray(want) * 2))
