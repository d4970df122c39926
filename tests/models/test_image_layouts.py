"""Images with their features in front: between convolutions they are turned, every value stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.models.harness import check, compiled, kernels, normal, rng_of

SHAPES = ((2, 16, 6, 8), (1, 16, 5, 5), (3, 16, 9, 4))
R = np.random.default_rng(0)
SQUARE, DEEP, LONG, BLOCK = (
    (R.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    for shape in ((16, 16, 3, 3), (16, 1, 3, 3), (16, 16, 3), (8, 16, 1, 2, 2))
)


def conv(x, w, stride=1, padding="SAME", groups=1, **named):
    space = "DHW"[5 - x.ndim :]
    return lax.conv_general_dilated(
        x,
        jnp.asarray(w, x.dtype),  # the truth is computed in f64
        (stride,) * (x.ndim - 2),
        padding,
        dimension_numbers=(f"NC{space}", f"OI{space}", f"NC{space}"),
        feature_group_count=groups,
        **named,
    )


def around(between, behind=lambda y: y):
    """Something between two convolutions, and behind them."""
    return lambda x: behind(conv(between(conv(x, SQUARE)), SQUARE))


def pooled(reduce, start, window, strides, padding):
    return lambda y: lax.reduce_window(y, start, reduce, (1, 1, *window), (1, 1, *strides), padding)


BETWEEN = {
    "a residual": lambda y: jax.nn.relu(y + conv(y, SQUARE)) + y,
    "pools": lambda y: (
        pooled(lax.max, -jnp.inf, (3, 3), (2, 2), "SAME")(y)
        + pooled(lax.add, 0.0, (2, 2), (2, 2), ((0, 0), (0, 0), (0, 1), (1, 0)))(
            jnp.pad(y, [(0, 0)] * 2 + [(0, 1)] * 2)
        )[:, :, : (y.shape[2] + 1) // 2, : (y.shape[3] + 1) // 2]
    ),
    "pads and slices": lambda y: jnp.concatenate(
        [
            lax.pad(y, 1.0, ((0, 0, 0), (0, 0, 0), (0, 2, 0), (-1, 1, 1)))[:, :, 2:],
            y[:, :, :, ::-1],
        ],
        3,
    ),
    "broadcasts": lambda y: (
        y * jnp.arange(16.0)[:, None, None]
        + y[0]
        + y[:, :, :1, :1]
        + y.sum(1, keepdims=True)
        + jnp.arange(y.shape[0]).astype(y.dtype)[:, None, None, None]
    ),
    "iotas": lambda y: (
        y + lax.broadcasted_iota(y.dtype, y.shape, 1) + lax.broadcasted_iota(y.dtype, y.shape, 3)
    ),
    "a group each": lambda y: jax.nn.silu(conv(y, DEEP, groups=16)),
    "choices": lambda y: jnp.where(y > 0, y, y * 0.1) + jnp.clip(y, -1, 1),
    "normalized": lambda y: (
        (y - y.mean((0, 2, 3), keepdims=True)) * lax.rsqrt(y.var((0, 2, 3), keepdims=True) + 1)
    ),
    "probabilities": lambda y: jax.nn.softmax(y, 1),
    "totals": lambda y: jnp.cumsum(y, 2) + lax.cummax(y, axis=1),
    "dilated": lambda y: conv(y, SQUARE, 1, ((2, 2), (2, 2)), rhs_dilation=(2, 2)),
    "transposed": lambda y: lax.conv_transpose(
        y,
        jnp.asarray(SQUARE.transpose(2, 3, 1, 0), y.dtype),
        (2, 2),
        "SAME",
        dimension_numbers=("NCHW", "HWIO", "NCHW"),
    ),
    "a loop": lambda y: lax.fori_loop(0, 2, lambda _, z: jnp.tanh(conv(z, SQUARE)) + y, y),
}
BEHIND = {
    "reductions": lambda y: [
        y.mean((2, 3)), y.sum(0), y.max(1), y.sum((0, 2, 3)), y.sum(), y.mean((0, 3)), y.argmax(1),
    ],
    "reshapes": lambda y: [y.reshape(y.shape[0], -1), y.reshape(*y.shape[:2], -1).swapaxes(1, 2)],
    "products": lambda y: jnp.einsum("bchw,bdhw->bcd", y, y),
    "the image": lambda y: [y, y * 2],
}  # fmt: skip


def images(seed=0):
    return [(normal(rng_of(*shape, seed), *shape),) for shape in SHAPES]


@pytest.mark.parametrize("half", [0, 1])
def test_what_is_between_convolutions(half):
    chosen = dict(list(BETWEEN.items())[half::2])

    def function(x):
        return {name: around(between)(x) for name, between in chosen.items()}

    check(function, images(), misses=1)


def test_what_is_behind_convolutions():
    def function(x):
        y = conv(jax.nn.relu(conv(x, SQUARE)), SQUARE)
        return {name: behind(y) for name, behind in BEHIND.items()}

    check(function, images(), misses=1)


def test_gradients():
    def loss(x, w):
        y = jax.nn.relu(conv(jnp.tanh(conv(x, w)), w, 2))
        return (pooled(lax.max, -jnp.inf, (2, 2), (1, 1), "SAME")(y) ** 2).sum()

    def function(x):
        return jax.grad(loss, (0, 1))(x, SQUARE)

    check(function, images(), misses=1)


def test_lines_and_volumes():
    def lines(x):
        return jax.nn.gelu(conv(jax.nn.gelu(conv(x[:, :, 0], LONG)), LONG, 2)).swapaxes(1, 2)

    def volumes(x):
        deep = x[:, :, None] + jnp.zeros((1, 1, 3, 1, 1))
        y = jax.nn.relu(conv(deep, BLOCK))
        return conv(y, BLOCK[:, :8]).mean(2)

    check(lambda x: (lines(x), volumes(x)), images(), misses=1)


def test_a_block_has_a_transpose_at_its_end_only():
    """And none where features are summed over the places: two convolutions, each with its work."""

    def block(x):
        y = jax.nn.relu(conv(x, SQUARE) * jnp.arange(16.0)[:, None, None])
        return jax.nn.relu(conv(y, SQUARE) + x).mean((2, 3))

    (x,) = images()[0]
    assert kernels(block, x) == ["loop", "conv", "conv", "column"]
    assert compiled(block)(x).shape == (2, 16)
