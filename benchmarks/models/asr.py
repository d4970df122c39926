"""A speech encoder: convolutions that halve time twice, then Conformer blocks.

Source: Gulati et al., "Conformer" (2020).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models.layers import Params, Weights, attention, conv, layer_norm

SHAPES = ((1, 100), (1, 401), (4, 300))
"""(batch, frames)."""

BANDS, HIDDEN, HEADS, BLOCKS, OUTPUTS = 80, 256, 4, 4, 1000


def init(seed: int = 0) -> Params:
    """Random weights."""
    w, h = Weights(seed), HIDDEN

    def block() -> Params:
        return {
            "up1": w(h, 4 * h), "down1": w(4 * h, h), "up2": w(h, 4 * h), "down2": w(4 * h, h),
            "attention": {name: w(h, h) for name in "qkvo"},
            "gate": w(h, 2 * h), "depthwise": w(31, 1, h), "point": w(h, h),
        }  # fmt: skip

    return {
        "conv1": w(3, 3, 1, 64), "conv2": w(3, 3, 64, 64), "input": w(BANDS // 4 * 64, h),
        "blocks": [block() for _ in range(BLOCKS)], "output": w(h, OUTPUTS),
    }  # fmt: skip


def inputs(batch: int, frames: int, seed: int = 0) -> tuple[jax.Array, ...]:
    """(features [B, T, 80],)."""
    rng = np.random.default_rng(seed)
    return (jnp.asarray(rng.standard_normal((batch, frames, BANDS), np.float32)),)


def function(p: Params, features: jax.Array) -> jax.Array:
    """Log-probabilities [B, T / 4, 1000]."""
    x = jax.nn.relu(conv(features[..., None], p["conv1"], (2, 2)))
    x = jax.nn.relu(conv(x, p["conv2"], (2, 2)))
    b, t, bands, channels = x.shape
    x = x.reshape(b, t, bands * channels) @ p["input"]
    for block in p["blocks"]:
        x = x + 0.5 * (jax.nn.silu(layer_norm(x) @ block["up1"]) @ block["down1"])
        x = x + attention(block["attention"], layer_norm(x), HEADS)
        left, right = jnp.split(layer_norm(x) @ block["gate"], 2, axis=-1)
        y = jax.lax.conv_general_dilated(
            left * jax.nn.sigmoid(right), block["depthwise"], (1,), "SAME",
            dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=HIDDEN,
        )  # fmt: skip
        x = x + jax.nn.silu(y) @ block["point"]
        x = x + 0.5 * (jax.nn.silu(layer_norm(x) @ block["up2"]) @ block["down2"])
    return jax.nn.log_softmax(layer_norm(x) @ p["output"])
