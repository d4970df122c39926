"""CRNN (Shi et al., 2015): a convolutional net over a line of text, then a bidirectional LSTM."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models.layers import Params, Weights, conv, lstm, lstm_init, max_pool

SHAPES = ((1, 100), (1, 257), (4, 160))
"""(batch, width of the line in pixels)."""

HEIGHT, HIDDEN, OUTPUTS = 32, 256, 80


def init(seed: int = 0) -> Params:
    """Random weights."""
    w = Weights(seed)
    sizes = ((1, 64), (64, 128), (128, 256), (256, 256))
    return {
        "conv": [w(3, 3, a, b) for a, b in sizes],
        "bias": [w(1, b)[0] for _, b in sizes],
        "forward": lstm_init(w, 256, HIDDEN),
        "backward": lstm_init(w, 256, HIDDEN),
        "output": w(2 * HIDDEN, OUTPUTS),
    }


def inputs(batch: int, width: int, seed: int = 0) -> tuple[jax.Array, ...]:
    """(image [B, 32, W, 1],)."""
    rng = np.random.default_rng(seed)
    return (jnp.asarray(rng.standard_normal((batch, HEIGHT, width, 1), np.float32)),)


def function(p: Params, image: jax.Array) -> jax.Array:
    """Log-probabilities [W / 4, B, 80]."""
    x = image
    for w, b, pool in zip(p["conv"], p["bias"], ((2, 2), (2, 2), None, (2, 1)), strict=True):
        x = jax.nn.relu(conv(x, w) + b)
        x = max_pool(x, *pool) if pool else x
    x = jnp.swapaxes(x.mean(1), 0, 1)
    x = jnp.concatenate([lstm(p["forward"], x), lstm(p["backward"], x, reverse=True)], -1)
    return jax.nn.log_softmax(x @ p["output"])
