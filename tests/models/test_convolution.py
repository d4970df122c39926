"""Convolutions and window reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.cases import crossed
from tests.models.harness import check, kernels, normal, rng_of

IMAGES = ((2, 12), (1, 8), (3, 17), (1, 28))  # (batch, height); the width is height + 3


def image(b: int, h: int, channels: int = 3):
    return normal(rng_of(b, h), b, h, h + 3, channels)


def conv(x, kernel, stride=1, padding="SAME", **options):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
    )


def pool(x, kind="max"):
    window, strides = (1, 2, 2, 1), (1, 2, 2, 1)
    if kind == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "VALID")
    return lax.reduce_window(x, 0.0, lax.add, window, strides, "VALID") / 4.0


def network(params, x):
    x = pool(jax.nn.relu(conv(x, params["conv1"])))
    x = pool(jax.nn.relu(conv(x, params["conv2"])), "mean")
    return x.mean((1, 2)) @ params["dense"]


def parameters():
    rng = rng_of(3, 8, 16)
    return {
        "conv1": normal(rng, 3, 3, 3, 8, scale=27**-0.5),
        "conv2": normal(rng, 3, 3, 8, 16, scale=72**-0.5),
        "dense": normal(rng, 16, 10, scale=0.25),
    }


def test_network_at_every_batch_and_image_size():
    params = parameters()
    check(network, [(params, image(b, h)) for b, h in IMAGES])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_strided_convolution(padding):
    kernel = normal(rng_of(5), 3, 3, 3, 4, scale=0.2)
    check(lambda x, k: conv(x, k, 2, padding), [(image(b, h), kernel) for b, h in IMAGES])


def test_dilated_convolution():
    kernel = normal(rng_of(5), 3, 3, 3, 4, scale=0.2)
    cases = [(image(b, h), kernel) for b, h in IMAGES]
    check(lambda x, k: conv(x, k, rhs_dilation=(2, 2)), cases)


def test_depthwise_convolution():
    kernel = normal(rng_of(7), 3, 3, 1, 3, scale=0.3)
    cases = [(image(b, h), kernel) for b, h in IMAGES]
    check(lambda x, k: conv(x, k, feature_group_count=3), cases)


@pytest.mark.parametrize(
    ("stride", "sizes"), crossed([1, 2], [(6, 6, 6), (20, 20, 20), (6, 18, 6), (12, 9, 3)])
)
def test_what_follows_a_convolution_in_groups_is_in_its_kernel(stride, sizes):
    channels, out, groups = sizes
    kernel = normal(rng_of(5), 3, 3, channels // groups, out, scale=0.2)
    bias, scale = normal(rng_of(6), out), normal(rng_of(7), out)

    def block(x, kernel, bias, scale):
        y = conv(x, kernel, stride, feature_group_count=groups)
        return jax.nn.silu(y * scale + bias) + y

    cases = [(image(b, h, channels), kernel, bias, scale) for b, h in IMAGES]
    check(block, cases)
    assert kernels(block, *cases[0]) == ["loop", "conv"]  # the padding is a copy


def test_a_residual_behind_a_depthwise_convolution_of_channels_first():
    kernel = normal(rng_of(5), 5, 1, 3, 3, scale=0.2)

    def block(x, kernel):
        y = lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"),
            feature_group_count=5,
        )  # fmt: skip
        return jnp.maximum(y, 0.0) + x

    cases = [(normal(rng_of(b, h), b, 5, h, h + 3), kernel) for b, h in IMAGES]
    check(block, cases)
    assert kernels(block, *cases[0]) == ["loop", "conv"]  # the padding is a copy


def test_one_dimensional_convolution():
    def causal(x, k):
        return lax.conv_general_dilated(
            x, k, (1,), [(4, 0)], dimension_numbers=("NCH", "OIH", "NCH")
        )

    kernel = normal(rng_of(11), 6, 4, 5, scale=0.2)
    check(causal, [(normal(rng_of(b, t), b, 4, t), kernel) for b, t in ((2, 9), (1, 1), (3, 64))])


def test_average_pooling_with_padding():
    def average(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9.0

    check(average, [(image(b, h),) for b, h in IMAGES])


def test_gradient_of_the_network():
    params = parameters()

    def loss(params, x):
        x = jax.nn.relu(conv(x, params["conv1"], padding="VALID"))
        return jnp.mean(conv(x, params["conv2"], padding="VALID") ** 2)

    params = {k: v for k, v in params.items() if k != "dense"}
    check(jax.grad(loss), [(params, image(b, h)) for b, h in ((2, 12), (1, 9), (3, 17))])


@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(3, 2, "SAME"), *(pytest.param(*of, marks=pytest.mark.slow)
                       for of in ((1, 2, "SAME"), (2, 3, "VALID"), (4, 2, "VALID")))],
)  # fmt: skip
def test_gradient_of_a_strided_convolution(size, stride, padding):
    """Its padding depends on the sizes of the image."""

    def loss(x, w):
        return (conv(x, w, stride, padding) ** 2).sum()

    w = normal(rng_of(size), size, size, 3, 4, scale=0.3)
    check(jax.grad(loss, argnums=(0, 1)), [(image(b, h), w) for b, h in ((2, 8), (1, 5), (3, 9))])
