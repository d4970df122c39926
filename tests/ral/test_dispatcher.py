"""The dispatcher: which calls it runs, and that the slow way sees the others."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def scaled(p, x):
    return {"y": p["w"] * x, "n": x.sum()}


def entries(f):
    return [entry.native.calls for entry in f._entries.values() if entry.native is not None]


def test_calls_seen_before_run_without_python():
    f = shlo_disc.jit(scaled)
    p, x = {"w": jnp.arange(6.0)}, jnp.ones(6)
    for _ in range(4):
        out = f(p, x)
    assert entries(f) == [3]
    np.testing.assert_array_equal(out["y"], np.arange(6))
    assert f.cache_info() == (3, 1, None, 1)
    f(p, x=x)  # another structure
    f(p, x=x)
    assert sorted(entries(f)) == [1, 3]


def test_numpy_and_numbers_go_the_other_way():
    f = shlo_disc.jit(lambda x: x * 2)
    for x in (np.ones(3, np.float32), 2.0, jnp.ones(3), jnp.ones(3)):
        f(x)
    assert entries(f) == [1]
    assert f.cache_info().hits == 2  # the shape with jax.Array, again


def test_shapes_dtypes_and_weak_types_are_told_apart():
    f = shlo_disc.jit(lambda x: x * 2)
    arrays = [jnp.ones(3), jnp.ones(4), jnp.ones((3, 1)), jnp.ones(3, jnp.int32), jnp.asarray(2.0)]
    for _ in range(3):
        for x in arrays:
            out = f(x)
            assert (out.shape, out.dtype) == (x.shape, x.dtype)
    assert entries(f) == [2] * 5
    assert f(arrays[4]).weak_type == (arrays[4] * 2).weak_type


def test_configuration_and_disable_jit_are_respected():
    seen = []

    def f(x):
        seen.append(x)
        return x + 1

    g, x = shlo_disc.jit(f), jnp.ones(3)
    g(x)
    g(x)
    traced = len(seen)
    with jax.disable_jit():
        g(x)
    assert len(seen) == traced + 1
    assert isinstance(seen[-1], jax.Array)
    before = g.cache_info().misses
    with jax.default_matmul_precision("highest"):
        g(x)
    assert g.cache_info().misses >= before
    assert entries(g)[0] == 1


def test_errors_are_explained_as_ever():
    f = shlo_disc.jit(lambda x, y: x + y, shapes=("b, t", "b, t"))
    a = jnp.ones((2, 3))
    f(a, a)
    f(a, a)
    b = jnp.ones((2, 3))
    b.delete()
    with pytest.raises(TypeError, match=r"argument 1.*deleted"):
        f(a, b)
    with pytest.raises(shlo_disc.ShapeMismatchError, match=r"t = 3 was read from"):
        f(a, jnp.ones((2, 4)))
    np.testing.assert_array_equal(f(a, a), 2 * np.ones((2, 3)))


def test_inside_a_transformation_it_is_traced():
    f = shlo_disc.jit(lambda x: x * x)
    x = jnp.arange(3.0)
    f(x)
    assert jax.grad(lambda x: f(x).sum())(x)[2] == 4
    assert jax.vmap(f)(x[:, None]).shape == (3, 1)


def test_a_function_that_is_gone_takes_its_programs_along():
    f = shlo_disc.jit(lambda x: x + 3)
    f(jnp.ones(2))
    f(jnp.ones(2))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_clearing_forgets():
    f = shlo_disc.jit(lambda x: x - 1)
    x = jnp.ones(2)
    f(x)
    f(x)
    f.cache_clear()
    assert f.cache_info() == (0, 0, None, 0)
    assert entries(f) == []
    f(x)
    assert f.cache_info().misses == 1
