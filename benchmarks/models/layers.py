"""Layers the models share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]


class Weights:
    """Random float32 arrays, scaled by their inputs."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> jax.Array:
        """A weight whose last axis is its outputs."""
        scale = 1 / np.sqrt(np.prod(shape[:-1]))
        return jnp.asarray(self._rng.standard_normal(shape, np.float32) * scale)


def layer_norm(x: jax.Array) -> jax.Array:
    """The last axis to mean 0 and variance 1."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)


def conv(x: jax.Array, w: jax.Array, strides: tuple[int, int] = (1, 1)) -> jax.Array:
    """x [B, H, W, C] with w [KH, KW, C, D], padded to keep H and W: [B, H, W, D]."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers)


def max_pool(x: jax.Array, height: int, width: int) -> jax.Array:
    """The largest of every window: [B, H, W, C] -> [B, H / height, W / width, C]."""
    window = (1, height, width, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def lstm_init(weight: Weights, inputs: int, hidden: int) -> Params:
    """Parameters of :func:`lstm`."""
    return {
        "x": weight(inputs, 4 * hidden),
        "h": weight(hidden, 4 * hidden),
        "bias": jnp.zeros(4 * hidden),
    }


def lstm(p: Params, xs: jax.Array, reverse: bool = False) -> jax.Array:
    """A recurrent layer over time: xs [T, B, C] -> [T, B, H]."""

    def step(carry: tuple[jax.Array, jax.Array], x: jax.Array) -> Any:
        h, cell = carry
        gates = x @ p["x"] + h @ p["h"] + p["bias"]
        i, f, o, u = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (h, cell), h

    zero = jnp.zeros((xs.shape[1], p["h"].shape[0]))
    return jax.lax.scan(step, (zero, zero), xs, reverse=reverse)[1]


def attention(p: Params, x: jax.Array, heads: int) -> jax.Array:
    """Self-attention: x [B, T, H] -> [B, T, H]."""
    b, t, h = x.shape
    q, k, v = ((x @ p[name]).reshape(b, t, heads, h // heads) for name in ("q", "k", "v"))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(h // heads)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
    return mixed.reshape(b, t, h) @ p["o"]
