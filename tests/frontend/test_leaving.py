"""Callbacks in branches: compiled without them; a call that takes such a branch runs by JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import shlo_disc
from shlo_disc.frontend.leaving import CallbackError
from tests.refused import unchanged

REAL = True


def hundredfold(x):
    return jax.pure_callback(lambda v: np.asarray(v) * 100, jax.typeof(x), x)


def everywhere(x):
    """Callbacks in a branch, in branches of a scan and of a loop that only they would end."""

    def row(carry, values):
        total = values.sum()
        carry = jax.lax.cond(total < -100, lambda: hundredfold(carry), lambda: carry + total)
        return carry, values * 2

    y = jax.lax.cond(x.sum() < 0, hundredfold, lambda x: x * 2, x)
    total, rows = jax.lax.scan(row, jnp.float32(0), x)
    z = jax.lax.while_loop(
        lambda z: z != 100,
        lambda z: jax.lax.cond(z > 8, lambda: hundredfold(z / z), lambda: z + 1),
        jnp.where(total > 5, 100, total),
    )
    return {"y": jax.checkpoint(jnp.sin)(y), "total": total, "rows": rows, "z": z}


def test_branches_with_callbacks_that_are_taken_and_not(caplog):
    f, g = shlo_disc.jit(everywhere), jax.jit(everywhere)
    ones = np.ones((4, 3), np.float32)
    only_in_scan = ones * np.float32([[1], [-50], [100], [1]])
    only_in_loop = ones[:1]
    for x in (ones, ones[:3]):
        jax.tree.map(np.testing.assert_allclose, f(x), g(x))
    assert not caplog.messages
    for x in (only_in_loop, only_in_scan, -ones, ones):
        jax.tree.map(np.testing.assert_allclose, f(x), g(x))
        assert len(caplog.messages) == 1
    assert f.cache_info().misses == 1
    assert "took a branch that calls back into Python" in caplog.text
    assert "took a branch" in f.explain()
    assert "compiled without its callbacks" in f.explain()


def checked(x):
    def refuse(x):
        raise ValueError("a negative number")

    return jax.lax.cond(
        (x < 0).any(), lambda x: jax.pure_callback(refuse, jax.typeof(x), x), lambda x: x, x
    )


def test_an_error_of_a_callback_is_raised():
    f = shlo_disc.jit(lambda x: checked(x) * 2)
    for n in (4, 6):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), x * 2)
        with pytest.raises(jax.errors.JaxRuntimeError, match="a negative number"):
            jax.block_until_ready(f(x - 2))
    assert f.cache_info().misses == 1
    f.cache_clear()
    f.warmup((jax.ShapeDtypeStruct((5,), np.float32),))
    assert f.cache_info().misses == 1
    np.testing.assert_array_equal(f(x), x * 2)
    assert f.cache_info().misses == 1


def test_a_part_of_another_program():
    f = shlo_disc.jit(lambda x: checked(x) * 2)
    outer = shlo_disc.jit(lambda x: f(x).sum() + x)
    for n in (4, 6):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(outer(x), 2 * x.sum() + x)
        np.testing.assert_array_equal(jax.jit(lambda x: f(x) + 1)(x), 2 * x + 1)
    assert outer.cache_info().misses == 1
    assert "part of the program around it" in f.explain()


@pytest.mark.parametrize("options", [{}, {"donate_argnums": 0}])
def test_what_is_not_compiled_without_its_callback(options):
    """A callback that every call makes; donated memory, which a second attempt would not find."""
    program = checked if options else hundredfold
    with pytest.raises(shlo_disc.UnsupportedError, match="calls back into Python"):
        shlo_disc.jit(program, **options)(jnp.ones(3))
    f = shlo_disc.jit(program, on_unsupported="xla", **options)
    np.testing.assert_array_equal(f(jnp.ones(3)), np.ones(3) * (1 if options else 100))
    assert f.statistics()["by_xla"]


def test_a_callback_that_only_lowering_shows():
    """A primitive whose implementation calls back, as `lineax.linear_solve` does for its errors."""
    hidden = Primitive("hidden")

    def implementation(x):
        found = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda x: np.asarray(x) * 3, found, x)

    hidden.def_impl(implementation)
    hidden.def_abstract_eval(lambda x: x)
    mlir.register_lowering(hidden, mlir.lower_fun(implementation, multiple_results=False))

    def program(x):
        return jnp.tanh(hidden.bind(x * 2)) + x.shape[0]

    for size in (3, 5):
        x = jnp.linspace(-1, 1, size)
        with pytest.raises(CallbackError, match=r"here pure_callback.*on_unsupported='xla'"):
            shlo_disc.jit(program)(x)
    f = shlo_disc.jit(program, on_unsupported="xla")
    for size in (3, 5):
        x = jnp.linspace(-1, 1, size)
        np.testing.assert_allclose(f(x), np.tanh(x * 6) + size, rtol=1e-5)
    assert f.cache_info().misses == 1
    (told,) = [line for line in f.explain().splitlines() if "hidden" in line]
    assert "it calls back into Python" in told


def test_what_else_is_not_compiled_is_told():
    def program(x):
        return jnp.abs(unchanged(jnp.eye(3) + 0 * checked(x).sum()))

    x = np.arange(4, dtype=np.float32)
    with pytest.raises(shlo_disc.UnsupportedError, match="rng"):
        shlo_disc.jit(program)(x)
    f = shlo_disc.jit(program, on_unsupported="xla")
    for _ in range(2):
        np.testing.assert_allclose(f(x), program(x), rtol=1e-5)
    assert f.statistics()["by_xla"]
    assert "rng" in f.explain()
