"""Large constants of a function: arrays it closes over are read where they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
import shlo_disc.numpy as dnp

SIZE = 160
RANDOM = np.random.default_rng(0)


def array(*shape: int, dtype=np.float32, seed: int = 0) -> jax.Array:
    numbers = np.random.default_rng(seed).integers(-9, 9, shape)
    return jnp.asarray(numbers / 8 if np.dtype(dtype).kind not in "bi" else numbers, dtype)


W, V = array(SIZE, SIZE), array(SIZE, SIZE, seed=1)
TYPES = ("float32", "bfloat16", "float16", "int32", "int8", "uint16", "bool")


def _nested(x):
    inner = jax.jit(lambda y: y @ W)
    return inner(x) + inner(2 * x)


def _scanned(x):
    return lax.scan(lambda c, row: (jnp.tanh(c @ W * 0.01 + row), c.sum()), jnp.zeros(SIZE), x)


def _branch(x):
    return lax.cond(x.sum() > 0, lambda x: x @ W, lambda x: x @ V, x)


def _loop(x):
    return lax.fori_loop(0, 3, lambda k, y: (y @ W) * 0.01 + V[k], x)


def _read_rows(x):
    return W[jnp.argmax(x, 1)] + x


PROGRAMS = {
    "product": lambda x: x @ W,
    "transposed": lambda x: x @ W.T + (V * 2).sum(0),
    "twice": lambda x: (x @ W) @ W,
    "two": lambda x: (x @ W) @ V,
    "nested": _nested,
    "scan": _scanned,
    "branch": _branch,
    "loop": _loop,
    "rows": _read_rows,
    "gradient": jax.grad(lambda x: jnp.sin(x @ W).sum()),
    "batch": jax.vmap(lambda row: row @ W + V[0]),
    "reduced": lambda x: x + W.max(0) + jnp.sort(W, axis=0)[3],
    "one number": lambda x: x @ jnp.full((SIZE, SIZE), 0.25),
    "of NumPy": lambda x: x @ np.asarray(W) + np.asarray(V)[0],
    "image": lambda x: lax.conv_general_dilated(
        x[:, :, None], array(3, SIZE, 64), (1,), "SAME", dimension_numbers=("NCH", "HIO", "NCH")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_jax_jit(name):
    function = PROGRAMS[name]
    compiled = shlo_disc.jit(function)
    for rows in (5, 1, 33):
        x = array(rows, SIZE, seed=rows)
        for ours, theirs in zip(
            jax.tree.leaves(compiled(x)), jax.tree.leaves(jax.jit(function)(x)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-4)
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype):
    table = array(500, 200, dtype=dtype)
    compiled = shlo_disc.jit(lambda k: table[k] == table[0])
    k = jnp.arange(7) * 70
    np.testing.assert_array_equal(compiled(k), np.asarray(table)[k] == np.asarray(table)[0])


def executable_of(compiled, *arguments):
    return compiled.lower(*arguments).compile().executable


def test_an_array_of_jax_is_not_copied():
    compiled = shlo_disc.jit(lambda x: x @ W)
    constants = executable_of(compiled, array(5, SIZE)).host.constants
    assert any(np.shares_memory(np.asarray(W), constant) for constant in constants)


def test_equal_programs_have_one_name_for_xla():
    other = array(SIZE, SIZE, seed=1)
    made = [
        executable_of(shlo_disc.jit(lambda x, table=table: x @ table), array(5, SIZE))
        for table in (W, jnp.array(W, copy=True), other)
    ]
    assert made[0].as_text("disc") == made[1].as_text("disc")
    first, second, third = (executable.fingerprint for executable in made)
    assert first == second != third


def test_an_array_of_numpy_may_change():
    table = np.array(W)
    compiled = shlo_disc.jit(lambda x: x @ table)
    x = array(4, SIZE)
    before = np.asarray(compiled(x))
    table[:] = 0
    np.testing.assert_array_equal(compiled(x), before)
    np.testing.assert_array_equal(compiled(array(9, SIZE))[:4].shape, before.shape)


def test_an_array_may_be_deleted_or_given_away():
    table, given = W + 1, W + 2
    expected = np.asarray(table), np.asarray(given)
    compiled = shlo_disc.jit(lambda x: (x @ table, x @ given))
    x = array(4, SIZE)
    jax.block_until_ready(compiled(x))
    table.delete()
    jax.block_until_ready(jax.jit(lambda t: t * 0, donate_argnums=0)(given))
    for result, weights in zip(compiled(x), expected, strict=True):
        np.testing.assert_allclose(result, np.asarray(x) @ weights, rtol=1e-5, atol=1e-4)


def test_programs_of_other_weights_are_others():
    x = array(4, SIZE)
    for seed in range(3):
        table = array(SIZE, SIZE, seed=seed)
        compiled = shlo_disc.jit(lambda x, table=table: x @ table)
        np.testing.assert_allclose(compiled(x), x @ table, rtol=1e-5, atol=1e-4)


def test_programs_in_turn():
    compiled = shlo_disc.jit(lambda x: W[dnp.nonzero(x[0])[0]].sum(0) + x @ V)
    for rows in (3, 8):
        x = array(rows, SIZE, seed=rows)
        expected = np.asarray(W)[np.nonzero(np.asarray(x[0]))[0]].sum(0) + np.asarray(x @ V)
        np.testing.assert_allclose(compiled(x), expected, rtol=1e-5, atol=1e-4)


def test_the_module_for_others_has_its_constants():
    lowered = shlo_disc.jit(lambda x: x @ W).lower(array(4, SIZE))
    text = str(lowered.compiler_ir())
    assert "shlo_disc.weight" not in text
    assert "stablehlo.constant" in text
