"""Reductions of dimensions in front of kept ones, chained: against float64 and XLA, every size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.cases import all_but
from tests.models.harness import kernels, kernels_of

SIZES = [(0, 5), (1, 1), (3, 7), (17, 33), (100, 130), (2100, 70), (9000, 9)]


def batch_norm(x, axes):
    mean = x.mean(axes, keepdims=True)
    variance = jnp.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5), mean, variance


def first(x):
    return batch_norm(x, 0)


def pixels_first(x):
    return batch_norm(jnp.stack([x, x + 1])[:, :, None], (0, 1, 2))


def channels_first(x):
    return batch_norm(jnp.stack([x, x + 1, x * 2], 1), (0, 2))


def groups(x):
    return batch_norm(jnp.stack([jnp.stack([x, x + 1], 1)] * 3), (1, 3))


def middle(x):
    return jax.nn.softmax(jnp.stack([x, x * 2, -x]), axis=1)


def weighed(x):
    """A chain no rule covers."""
    weights = 1 / (1 + jnp.abs(x - x.max(0)))
    share = weights / weights.sum(0)
    return share, (share * x).sum(0)


FUNCTIONS = {
    "arg-max": lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 0)),
    "batch-norm": first,
    "batch-norm of channels": channels_first,
    "batch-norm of pixels": pixels_first,
    "group-norm": groups,
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=0),
    "products": lambda x: (jnp.cos(x).prod(0), (x * 0.1).sum(0), x.min(0)),
    "softmax": lambda x: jax.nn.softmax(x, axis=0),
    "softmax in the middle": middle,
    "standardize": lambda x: jax.nn.standardize(x, axis=0),
    "variance": lambda x: x.var(0),
    "weighed": weighed,
}


ODD = ("batch-norm", "batch-norm of channels", "softmax", "variance", "weighed")
CHAINS = ("batch-norm", "softmax", "variance", "standardize")
LIKE_OTHERS = FUNCTIONS.keys() - {*ODD, *CHAINS, "arg-max", "products"}


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, FUNCTIONS))
def test_agrees_with_float64(name: str) -> None:
    """One compilation is also given what is no number (`ODD`), and is one kernel (`CHAINS`)."""
    function = FUNCTIONS[name]
    ours = shlo_disc.jit(function)
    check_sizes(name, function, ours)
    if name in ODD:
        for shape in [(20, 9), (2100, 9), (2100, 70)]:
            check_what_is_no_number(function, ours, shape)
    if name in CHAINS:
        assert kernels_of(ours, jnp.ones((5, 6))) == ["column"]
    assert ours.cache_info().misses <= 2  # one more for a size of 0


def check_sizes(name, function, ours) -> None:
    for shape in SIZES:
        if name in ("arg-max", "products", "weighed") and not shape[0]:
            continue
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3 + 1
        with jax.enable_x64(True):
            want = jax.tree.leaves(jax.jit(function)(jnp.asarray(x, jnp.float64)))
        for got, exact in zip(jax.tree.leaves(ours(jnp.asarray(x))), want, strict=True):
            np.testing.assert_allclose(got, exact, rtol=3e-5, atol=3e-6, err_msg=str(shape))


def check_what_is_no_number(function, ours, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x[:, 1], x[0, 2], x[-1, 3] = -np.inf, np.inf, np.nan
    x[5, 4], x[:9, 5], x[7, 6] = -np.inf, 1e38, -0.0
    ours, xla = ours(jnp.asarray(x)), jax.jit(function)(jnp.asarray(x))
    for got, want in zip(jax.tree.leaves(ours), jax.tree.leaves(xla), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "dtype",
    [
        jnp.bfloat16,
        pytest.param(jnp.float16, marks=pytest.mark.slow),
        pytest.param(jnp.float32, marks=pytest.mark.slow),
        jnp.int32,
        pytest.param(jnp.bool_, marks=pytest.mark.slow),
    ],
)
def test_every_type(dtype) -> None:
    def function(x):
        return x.max(0), x == x.max(0), x.any(0), x.min((0,))

    ours = shlo_disc.jit(function)
    for shape in [(1, 1), (50, 30), (2100, 65), (8200, 3)]:
        x = np.random.default_rng(2).integers(-9, 9, shape).astype(dtype)
        for got, want in zip(ours(jnp.asarray(x)), jax.jit(function)(x), strict=True):
            np.testing.assert_array_equal(got, want)


def test_two_reductions_in_order() -> None:
    """A body that is not commutative takes rows, and parts of rows, in order."""

    def last(x, dims):
        return jax.lax.reduce(x, np.float32(0), lambda a, b: jnp.where(b > 0, b, a), dims)

    for dims in ((0,), (0, 2)):
        ours = shlo_disc.jit(lambda x, dims=dims: last(x, dims))
        for shape in [(3, 5, 4), (40, 3, 70), (2100, 2, 33)]:
            x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
            rows = x if dims == (0,) else np.moveaxis(x, 1, 2).reshape(-1, shape[1])
            want = np.zeros(rows.shape[1:], np.float32)
            for row in rows:
                want = np.where(row > 0, row, want)
            np.testing.assert_array_equal(ours(jnp.asarray(x)), want)


def test_a_large_mean_does_not_spoil_the_variance() -> None:
    x = np.random.default_rng(1).standard_normal((30000, 70)).astype(np.float32) + 4096
    x[:512] -= 100  # pieces of different means
    got = shlo_disc.jit(lambda x: x.var(0))(jnp.asarray(x))
    np.testing.assert_allclose(got, x.astype(np.float64).var(0), rtol=1e-4)
    parts = x[:3000].reshape(1000, 3, 70)
    got = shlo_disc.jit(lambda x: x.var((0, 2)))(jnp.asarray(parts))
    np.testing.assert_allclose(got, parts.astype(np.float64).var((0, 2)), rtol=1e-4)


def test_channels_in_front_of_pixels_are_rows() -> None:
    def function(x):
        return batch_norm(x, (0, 2, 3))

    assert kernels(function, jnp.ones((5, 6, 7, 8))) == ["row"]


def test_sums_of_the_same_gradient_are_one_kernel() -> None:
    def function(g, x):
        return (g * x).sum(0), g.sum(0)

    assert kernels(function, jnp.ones((5, 6)), jnp.ones((5, 6))) == ["column"]


def group_norm(x, gain, bias):
    """Of [batch, channels, height, width], two groups."""
    batch, channels, height, width = x.shape
    groups = x.reshape(batch, 2, channels // 2 * height * width)
    centred = groups - groups.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled.reshape(x.shape) * gain[:, None, None] + bias[:, None, None]


def image_norm(x, gain, bias):
    """Over height and width, with a gain for every column."""
    centred = x - x.mean((-2, -1), keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.square(centred).mean((-2, -1), keepdims=True) + 1e-5)
    return scaled * gain + bias[:, None, None]


@pytest.mark.parametrize("function", [group_norm, image_norm])
def test_what_reads_along_some_columns_is_in_the_kernel_of_its_rows(function) -> None:
    compiled = {
        "group_norm": shlo_disc.jit(group_norm, shapes=("b, 2*c, h, w", "2*c", "2*c")),
        "image_norm": shlo_disc.jit(image_norm),
    }[function.__name__]
    for shape in [(1, 2, 1, 1), (2, 4, 3, 5), (3, 6, 7, 16), (2, 8, 20, 33), (1, 2, 300, 250)]:
        rng = np.random.default_rng(4)
        gains = shape[-1:] if function is image_norm else shape[1:2]
        x, gain, bias = (
            rng.standard_normal(s).astype(np.float32) for s in (shape, gains, shape[1:2])
        )
        with jax.enable_x64(True):
            want = jax.jit(function)(*(jnp.asarray(v, jnp.float64) for v in (x, gain, bias)))
        np.testing.assert_allclose(compiled(x, gain, bias), want, rtol=3e-5, atol=3e-6)
    text = str(compiled.explain())
    assert "1 kernels" in text, text


def test_sizes_that_are_likely_to_be_one() -> None:
    def function(x):
        return (*batch_norm(x, (0, 2)), *batch_norm(x, 0), *batch_norm(x, 1))

    ours = shlo_disc.jit(function, shapes=("n, c, p",), likely={"n": 1, "c": 1, "p": 1})
    for shape in [(1, 5, 6), (4, 1, 6), (4, 5, 1), (1, 1, 6), (1, 1, 1), (3, 4, 5)]:
        x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
        with jax.enable_x64(True):
            want = jax.jit(function)(jnp.asarray(x, jnp.float64))
        for got, exact in zip(ours(x), want, strict=True):
            np.testing.assert_allclose(got, exact, rtol=3e-5, atol=3e-6, err_msg=str(shape))
