"""A training step of an encoder-decoder Transformer: loss, gradient and update as one function.

Source: Vaswani et al., "Attention Is All You Need" (2017), 2 + 2 layers, pre-norm.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models.layers import Params, Weights, layer_norm

SHAPES = ((2, 12, 10), (4, 33, 29), (8, 48, 40))
"""(batch, source length, target length)."""

HIDDEN, HEADS, LAYERS, VOCABULARY, POSITIONS = 256, 4, 2, 4000, 128


def init(seed: int = 0) -> Params:
    """Random weights."""
    w, h = Weights(seed), HIDDEN

    def attention() -> Params:
        return {name: w(h, h) for name in "qkvo"}

    def feed_forward() -> Params:
        return {"up": w(h, 4 * h), "down": w(4 * h, h)}

    return {
        "tokens": w(VOCABULARY, h),
        "positions": w(POSITIONS, h),
        "encoder": [{"self": attention(), **feed_forward()} for _ in range(LAYERS)],
        "decoder": [
            {"self": attention(), "cross": attention(), **feed_forward()} for _ in range(LAYERS)
        ],
    }


def inputs(batch: int, source: int, target: int, seed: int = 0) -> tuple[jax.Array, ...]:
    """(source ids [B, S], target ids [B, T]), int32."""
    rng = np.random.default_rng(seed)
    return tuple(
        jnp.asarray(rng.integers(0, VOCABULARY, (batch, n), np.int32)) for n in (source, target)
    )


def _attend(p: Params, x: jax.Array, memory: jax.Array, causal: bool) -> jax.Array:
    def heads(y: jax.Array, name: str) -> jax.Array:
        return (y @ p[name]).reshape(*y.shape[:2], HEADS, HIDDEN // HEADS)

    q, k, v = heads(x, "q"), heads(memory, "k"), heads(memory, "v")
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(HIDDEN // HEADS)
    if causal:
        t = jnp.arange(x.shape[1])
        scores = jnp.where(t[:, None] >= t[None, :], scores, -1e9)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
    return mixed.reshape(x.shape) @ p["o"]


def _layer(p: Params, x: jax.Array, memory: jax.Array | None) -> jax.Array:
    y = layer_norm(x)
    x = x + _attend(p["self"], y, y, causal=memory is not None)
    if memory is not None:
        x = x + _attend(p["cross"], layer_norm(x), memory, causal=False)
    return x + jax.nn.gelu(layer_norm(x) @ p["up"]) @ p["down"]


def _embed(p: Params, ids: jax.Array) -> jax.Array:
    return p["tokens"][ids] * np.sqrt(HIDDEN) + p["positions"][: ids.shape[1]]


def function(p: Params, source: jax.Array, target: jax.Array) -> Any:
    """(loss, new parameters)."""

    def loss(p: Params) -> jax.Array:
        memory = _embed(p, source)
        for layer in p["encoder"]:
            memory = _layer(layer, memory, None)
        x = _embed(p, target)
        for layer in p["decoder"]:
            x = _layer(layer, x, layer_norm(memory))
        logits = layer_norm(x)[:, :-1] @ p["tokens"].T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), target[:, 1:, None], -1)
        return -chosen.mean()

    value, gradient = jax.value_and_grad(loss)(p)
    return value, jax.tree.map(lambda a, b: a - 1e-3 * b, p, gradient)
