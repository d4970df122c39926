"""Rows too long for a cache, cut into pieces: against float64 and XLA, with what is no number."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import layer_norm

SHAPES = [(1, 65536), (2, 70001), (1, 200000)]


def weighed(x):
    """A chain no rule covers: every level is a launch of its own."""
    weights = 1 / (1 + jnp.abs(x - x.max(-1, keepdims=True)))
    share = weights / weights.sum(-1, keepdims=True)
    return share, (share * x).sum(-1)


FUNCTIONS = {
    "layer_norm": layer_norm,
    "log_softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "plain logsumexp": lambda x: jnp.log(jnp.exp(x - x.max(-1, keepdims=True)).sum(-1)) + x.max(-1),
    "softmax": jax.nn.softmax,
    "softmax of squares": lambda x: jax.nn.softmax(x * x, axis=-1),
    "standardize": jax.nn.standardize,
    "variance": lambda x: x.var(-1),
    "squares about the maximum": lambda x: (
        jnp.square(x - x.max(-1, keepdims=True)).sum(-1) + x.sum(-1)
    ),
    "weighed": weighed,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_float64(name: str) -> None:
    function = FUNCTIONS[name]
    ours = shlo_disc.jit(function)
    for shape in [*SHAPES, (63, 65537)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3 + 1
        with jax.enable_x64(True):
            want = jax.tree.leaves(function(jnp.asarray(x, jnp.float64)))
        for got, exact in zip(jax.tree.leaves(ours(jnp.asarray(x))), want, strict=True):
            np.testing.assert_allclose(got, exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["logsumexp", "plain logsumexp", "softmax", "log_softmax"])
@pytest.mark.parametrize(
    ("first", "others", "spot"),
    [
        (-np.inf, 0.0, None),
        (-np.inf, -1000.0, None),  # exp(1000) times nothing
        (1000.0, -1000.0, None),
        (-np.inf, -np.inf, None),
        (0.0, 0.0, np.inf),
        (-np.inf, -1000.0, np.inf),
        (0.0, 0.0, np.nan),
        (-np.inf, -np.inf, np.nan),
        (-3.4e38, 3.4e38, None),
    ],
)
def test_what_is_no_number_is_as_in_xla(name: str, first: float, others: float, spot) -> None:
    """A whole piece of `first`, then `others`, and one `spot` in the last piece."""
    x = np.full((2, 70001), others, np.float32)
    x[:, :20000] = first
    if spot is not None:
        x[1, -1] = spot
    function = FUNCTIONS[name]
    got, want = shlo_disc.jit(function)(jnp.asarray(x)), jax.jit(function)(jnp.asarray(x))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30)


def test_a_large_mean_does_not_spoil_the_variance() -> None:
    x = np.random.default_rng(1).standard_normal((1, 300000)).astype(np.float32) + 4096
    x[:, :16384] -= 100  # pieces of different means
    exact = x.astype(np.float64).var(-1)
    got = shlo_disc.jit(lambda x: x.var(-1))(jnp.asarray(x))
    np.testing.assert_allclose(got, exact, rtol=3e-5)


@pytest.mark.parametrize("spot", [np.inf, -np.inf, np.nan])
def test_a_variance_of_what_is_no_number_is_nan(spot: float) -> None:
    x = np.ones((2, 70001), np.float32)
    x[1, 50000] = spot
    got = shlo_disc.jit(lambda x: x.var(-1))(jnp.asarray(x))
    np.testing.assert_array_equal(got, [0.0, np.nan])


def test_a_variance_whose_sum_overflows_is_infinite() -> None:
    x = np.zeros((1, 70001), np.float32)
    x[0, 20000:20009] = 1e38
    np.testing.assert_array_equal(shlo_disc.jit(lambda x: x.var(-1))(jnp.asarray(x)), [np.inf])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_an_arg_max_takes_the_first_of_equals(dtype) -> None:
    ours = shlo_disc.jit(lambda x: (jnp.argmax(x, -1), jnp.argmin(x, -1), x.max(-1)))
    for shape in SHAPES:
        x = np.random.default_rng(2).integers(-50, 50, shape).astype(dtype)
        for at in (0, 20000, 40000, shape[1] - 1):
            x[:, at] = 99
            first, least, greatest = ours(jnp.asarray(x))
            np.testing.assert_array_equal(first, np.argmax(x, -1))
            np.testing.assert_array_equal(least, np.argmin(x, -1))
            np.testing.assert_array_equal(greatest, np.full(shape[0], 99, dtype))
            x[:, at] = -50


@pytest.mark.parametrize("columns", [1, 7, 100, 70001])
def test_an_arg_max_takes_the_first_nan(columns: int) -> None:
    ours = shlo_disc.jit(lambda x: (jnp.argmax(x, -1), jnp.argmin(x, -1)))
    rng = np.random.default_rng(columns)
    for _ in range(20):
        x = rng.standard_normal((3, columns)).astype(np.float32)
        x[0, rng.integers(columns, size=2)] = np.nan
        x[1, rng.integers(columns, size=5)] = [np.inf, -np.inf, np.nan, np.nan, np.inf]
        x[2] = rng.choice([-np.inf, np.inf])
        for got, want in zip(
            ours(jnp.asarray(x)), (np.argmax(x, -1), np.argmin(x, -1)), strict=True
        ):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8, jnp.bool_])
def test_an_arg_max_of_what_is_no_float(dtype) -> None:
    ours = shlo_disc.jit(lambda x: (jnp.argmax(x, -1), jnp.argmin(x, -1)))
    for columns in (1, 50, 70001):
        x = np.random.default_rng(columns).integers(0, 200, (2, columns)).astype(dtype)
        for got, want in zip(
            ours(jnp.asarray(x)), (np.argmax(x, -1), np.argmin(x, -1)), strict=True
        ):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision(dtype) -> None:
    for function in (jax.nn.softmax, lambda x: x - x.max(-1, keepdims=True)):
        x = np.random.default_rng(3).standard_normal((2, 70001)).astype(dtype)
        got = shlo_disc.jit(function)(jnp.asarray(x)).astype(np.float32)
        want = function(jnp.asarray(x, jnp.float32))
        tolerance = float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(got, want, rtol=4 * tolerance, atol=tolerance * 1e-4)


def test_a_row_alone() -> None:
    x = np.random.default_rng(4).standard_normal(100003).astype(np.float32)
    got = shlo_disc.jit(jax.nn.softmax)(jnp.asarray(x))
    exact = np.exp(x.astype(np.float64) - x.max())
    np.testing.assert_allclose(got, exact / exact.sum(), rtol=1e-5)


def test_one_program_for_short_and_long_rows() -> None:
    ours = shlo_disc.jit(jax.nn.softmax, shapes=("n, m",))
    for shape in [(4, 1000), (4, 65535), (4, 65536), (100, 65536), (1, 65536)]:
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        exact = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        np.testing.assert_allclose(
            ours(jnp.asarray(x)), exact / exact.sum(-1, keepdims=True), rtol=1e-5
        )
    assert ours.cache_info().misses == 1
