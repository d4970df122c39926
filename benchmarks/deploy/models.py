"""The models that are deployed: functions of JAX, and the same in `benchmarks/peers/cases.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchmarks.models.layers import Weights
from examples import bert as example

Params = Any
Array = jax.Array


def mlp(params: Params, x: Array) -> Array:
    """Layers with GELU between them: x [B, N] -> [B, M]."""
    *hidden, last = params
    for p in hidden:
        x = jax.nn.gelu(x @ p["w"] + p["b"], approximate=False)
    return x @ last["w"] + last["b"]


def mlp_params(quick: bool) -> Params:
    """784 to three times 1024 to 10."""
    weight, widths = Weights(0), (784, 1024, *(() if quick else (1024, 1024)), 10)
    pairs = itertools.pairwise(widths)
    return [{"w": weight(n, m), "b": weight(1, m)[0]} for n, m in pairs]


def _conv(p: Params, x: Array, stride: int = 1) -> Array:
    """x [B, C, H, W] by a filter [D, C, K, K], padded by K // 2."""
    pad = p["w"].shape[-1] // 2
    numbers = ("NCHW", "OIHW", "NCHW")
    y = jax.lax.conv_general_dilated(
        x, p["w"], (stride, stride), ((pad, pad), (pad, pad)), dimension_numbers=numbers
    )
    return y + p["b"][:, None, None]


def resnet(params: Params, x: Array) -> Array:
    """ResNet-18, its batch norms folded into biases: images [B, 3, 224, 224] -> [B, 1000]."""
    relu = jax.nn.relu
    x = relu(_conv(params["stem"], x, 2))
    window, strides, pads = (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
    x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, pads)
    for p in params["blocks"]:
        stride = 2 if "skip" in p else 1
        skip = _conv(p["skip"], x, 2) if "skip" in p else x
        x = relu(skip + _conv(p["second"], relu(_conv(p["first"], x, stride))))
    head = params["head"]
    return x.mean((2, 3)) @ head["w"] + head["b"]


def resnet_params(quick: bool) -> Params:
    """Stages of 64 to 512 channels, two blocks each."""
    rng = np.random.default_rng(0)
    stages = (64, 128) if quick else (64, 128, 256, 512)

    def conv(inputs: int, outputs: int, size: int) -> Params:
        w = rng.standard_normal((outputs, inputs, size, size), np.float32)
        b = rng.standard_normal(outputs, np.float32) * np.float32(0.1)
        return {"w": w * np.float32((inputs * size * size) ** -0.5), "b": b}

    blocks, inputs = [], 64
    for stage in stages:
        for k in range(2):
            block = {"first": conv(inputs, stage, 3), "second": conv(stage, stage, 3)}
            if k == 0 and stage != 64:
                block["skip"] = conv(inputs, stage, 1)
            blocks.append(block)
            inputs = stage
    weight = Weights(1)
    head = {"w": weight(inputs, 1000), "b": weight(1, 1000)[0]}
    return {"stem": conv(3, 64, 7), "blocks": blocks, "head": head}


@dataclass(frozen=True)
class Model:
    """A function `f(params, *arguments)`, compiled for every size of its leading dimensions."""

    name: str
    """As in `peers/cases.py`."""
    function: Callable[..., Array]
    params: Callable[[bool], Params]
    """Of the whole model, or of a small one."""
    sizes: tuple[tuple[int, ...], ...]
    """Of the leading dimensions, which vary; the last ones are all above one."""
    arguments: Callable[..., tuple[np.ndarray, ...]]
    """Of some sizes."""


def _normal(*shape: int) -> tuple[np.ndarray, ...]:
    return (np.random.default_rng(0).standard_normal(shape, np.float32),)


BERT = Model(
    "bert", example.bert, lambda quick: example.init(layers=1 if quick else 12),
    ((1, 16), (1, 128), (8, 128)), example.batch,
)  # fmt: skip
MLP = Model("mlp", mlp, mlp_params, ((1,), (16,), (256,)), lambda b: _normal(b, 784))
RESNET = Model(
    "resnet", resnet, resnet_params, ((1,), (4,), (16,)), lambda b: _normal(b, 3, 224, 224)
)
MODELS = (BERT, MLP, RESNET)
