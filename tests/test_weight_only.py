"""Products with quantised weights, which are dequantised where they are multiplied."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

import shlo_disc

GROUP = 16
ROWS = (1, 2, 3, 4, 6, 7, 13)
"""In one register tile, on its borders, and in several."""


def by_columns(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.astype(x.dtype) * scale[0].astype(x.dtype))


def by_groups(x: Any, w: Any, scale: Any) -> Any:
    k, n = w.shape
    wide = w.astype(x.dtype).reshape(k // GROUP, GROUP, n) * scale[:, None].astype(x.dtype)
    return x @ wide.reshape(k, n)


def with_zeros(x: Any, w: Any, scale: Any) -> Any:
    """Weights with a zero point for each group, which is computed from the scale."""
    k, n = w.shape
    wide = w.reshape(k // GROUP, GROUP, n).astype(x.dtype)
    wide = (wide - jnp.floor(scale)[:, None].astype(x.dtype)) * scale[:, None].astype(x.dtype)
    return x @ wide.reshape(k, n)


def in_halves_of_bytes(x: Any, w: Any, scale: Any) -> Any:
    """Two rows of weights in each row of bytes."""
    k, n = w.shape
    halves = jnp.stack([(w & 15).astype(jnp.int8) - 8, (w >> 4 & 15).astype(jnp.int8) - 8], 1)
    wide = halves.reshape(-1, 2 * GROUP, n).astype(x.dtype) * scale[:, None].astype(x.dtype)
    return x @ wide.reshape(2 * k, n)


def by_rows(x: Any, w: Any, scale: Any) -> Any:
    """Weights of `torch.nn.Linear`: a row for each result."""
    return x @ (w.astype(x.dtype) * scale[:, :1].astype(x.dtype)).T


def by_groups_of_rows(x: Any, w: Any, scale: Any) -> Any:
    n, k = w.shape
    wide = w.astype(x.dtype).reshape(n, k // GROUP, GROUP) - 3
    return x @ (wide * scale[:, :, None].astype(x.dtype)).reshape(n, k).T


TRANSPOSED = (by_rows, by_groups_of_rows)
PROGRAMS = (by_columns, by_groups, with_zeros, in_halves_of_bytes, *TRANSPOSED)


def arrays(k: int, n: int, dtype: str, program: Any = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    low, high = {"int4": (-8, 8), "uint8": (0, 256), "int8": (-128, 128)}[dtype]
    w = jnp.asarray(rng.integers(low, high, (k, n)), dtype)
    scale = jnp.asarray(rng.uniform(0.5, 2, (k // GROUP, n)), jnp.float32)
    return (w.T, scale.T) if program in TRANSPOSED else (w, scale)


def expected(program: Any, x: Any, w: Any, scale: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """In float64, with the weights rounded as in the program; and the sums of magnitudes."""
    weights = np.asarray(program(jnp.eye(x.shape[1], dtype=x.dtype), w, scale), np.float64)
    left = np.asarray(x, np.float64)
    return left @ weights, abs(left) @ abs(weights)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("dtype", "of_x"), [("int8", "float32"), ("uint8", "bfloat16"), ("int4", "float32")]
)
def test_every_number_of_rows(program, dtype, of_x):
    f = shlo_disc.jit(program)
    for k, n in ((64, 40), (400, 33), (32, 7)):
        w, scale = arrays(k, n, dtype, program)
        for rows in ROWS:
            depth = 2 * k if program is in_halves_of_bytes else k
            x = jnp.asarray(np.random.default_rng(rows).normal(size=(rows, depth)), of_x)
            want, magnitude = expected(program, x, w, scale)
            got = np.asarray(f(x, w, scale), np.float64)
            error = (depth + 2) * 2.0**-24 * magnitude
            if of_x == "bfloat16":
                error += 2.0**-8 * abs(want)
            assert (abs(got - want) <= error + 1e-30).all(), (k, n, rows)


@pytest.mark.parametrize("program", PROGRAMS)
def test_wide_weights_are_not_stored(program):
    k, n = 128, 96
    w, scale = arrays(k, n, "int8", program)
    x = jnp.ones((2, 2 * k if program is in_halves_of_bytes else k), jnp.float32)
    found = shlo_disc.jit(program).lower(x, w, scale).compile()
    kinds = [kernel["kind"] for kernel in found.executable.describe()["kernels"]]
    assert kinds.count("dense") == 1
    assert found.memory_analysis()["temp_size_in_bytes"] < k * n


def test_special_values_of_scales():
    w, scale = arrays(32, 24, "int8")
    w = w.at[:, 3].set(1)
    scale = scale.at[0, 3].set(jnp.inf).at[1, 5].set(jnp.nan).at[0, 7].set(0).at[1, 9].set(1e-40)
    x = jnp.ones((3, 32), jnp.float32)
    wide = np.asarray(w, np.float64).reshape(2, GROUP, 24) * np.asarray(scale, np.float64)[:, None]
    want = wide.reshape(32, 24).sum(0)
    assert np.isinf(want[3])
    assert np.isnan(want[5])
    for row in np.asarray(shlo_disc.jit(by_groups)(x, w, scale)):
        np.testing.assert_allclose(row, want, rtol=1e-5)


@pytest.mark.parametrize(("rows", "k", "n"), [(0, 32, 8), (2, 32, 0), (2, 0, 8)])
def test_empty_operands(rows, k, n):
    w, scale = arrays(k, n, "int8")
    got = shlo_disc.jit(by_groups)(jnp.ones((rows, k), jnp.float32), w, scale)
    np.testing.assert_array_equal(got, np.zeros((rows, n), np.float32))


@pytest.mark.parametrize("is_outside", [True, False])
@pytest.mark.parametrize("program", [by_groups, in_halves_of_bytes])
def test_weights_of_a_product_in_a_loop(program, is_outside):
    """Also where the last reshape, or all of the wide weights, are made in front of the loop."""

    def steps(x, w, scale):
        wide = program(jnp.eye(x.shape[1], dtype=x.dtype), w, scale)

        def body(_, h):
            return jnp.tanh(
                h @ wide.reshape(x.shape[1], -1) if is_outside else program(h, w, scale)
            )

        return jax.lax.fori_loop(0, 3, body, x)

    f = shlo_disc.jit(steps)
    n = 32 if program is by_groups else 64
    w, scale = arrays(32, n, "int8")
    for rows in (1, 4, 9):
        x = jnp.asarray(np.random.default_rng(rows).normal(size=(rows, n)), jnp.float32)
        np.testing.assert_allclose(f(x, w, scale), steps(x, w, scale), rtol=1e-4, atol=1e-4)


def test_a_reshape_in_front_of_a_loop():
    def steps(x, w):
        wide = w.astype(x.dtype).reshape(4, -1).reshape(16, 16)
        return jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ wide), x)

    w, _ = arrays(16, 16, "int8")
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 16)), jnp.float32)
    np.testing.assert_allclose(shlo_disc.jit(steps)(x, w), steps(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [17, 37, 605, 1501])
def test_tails_along_sums(k):
    """Rows of weights that are no whole number of vectors, in one block of K and in several."""
    f = shlo_disc.jit(by_rows)
    w, scale = arrays(k, 21, "int8", by_rows)
    for rows in (1, 3, 9):
        x = jnp.asarray(np.random.default_rng(rows).normal(size=(rows, k)), jnp.float32)
        want, magnitude = expected(by_rows, x, w, scale)
        got = np.asarray(f(x, w, scale), np.float64)
        assert (abs(got - want) <= (k + 2) * 2.0**-24 * magnitude).all(), rows
