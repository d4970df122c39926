"""DIEN (Zhou et al., 2019): a user's history through a GRU, attention and an attentional GRU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models.layers import Params, Weights

SHAPES = ((1, 20), (16, 50), (128, 100))
"""(batch, length of the history)."""

ITEMS, KINDS, WIDTH = 50_000, 1_000, 64


def init(seed: int = 0) -> Params:
    """Random weights."""
    w, h = Weights(seed), 2 * WIDTH
    return {
        "items": w(ITEMS, WIDTH), "kinds": w(KINDS, WIDTH),
        "interest": {"x": w(h, 3 * h), "h": w(h, 3 * h)},
        "evolution": {"x": w(h, 3 * h), "h": w(h, 3 * h)},
        "attention": w(h, h),
        "tower": [w(3 * h, 200), w(200, 80), w(80, 1)],
    }  # fmt: skip


def inputs(batch: int, length: int, seed: int = 0) -> tuple[jax.Array, ...]:
    """(history [B, T, 2], target [B, 2], mask [B, T]), int32."""
    rng = np.random.default_rng(seed)
    history = rng.integers(0, KINDS, (batch, length, 2), np.int32)
    target = rng.integers(0, KINDS, (batch, 2), np.int32)
    lengths = rng.integers(1, length + 1, (batch, 1))
    mask = (np.arange(length) < lengths).astype(np.int32)
    return tuple(jnp.asarray(x) for x in (history, target, mask))


def _gru(p: Params, xs: jax.Array, update: jax.Array | None = None) -> Any:
    """(last state [B, H], all states [T, B, H]); `update` [T, B] scales the update gate."""
    h = p["h"].shape[0]

    def step(state: jax.Array, x: Any) -> Any:
        x, scale = x if update is not None else (x, None)
        gates = jax.nn.sigmoid(x @ p["x"][:, : 2 * h] + state @ p["h"][:, : 2 * h])
        z, r = jnp.split(gates, 2, axis=-1)
        z = z if scale is None else z * scale[:, None]
        new = jnp.tanh(x @ p["x"][:, 2 * h :] + (r * state) @ p["h"][:, 2 * h :])
        state = (1 - z) * state + z * new
        return state, state

    zero = jnp.zeros((xs.shape[1], h))
    return jax.lax.scan(step, zero, xs if update is None else (xs, update))


def function(p: Params, history: jax.Array, target: jax.Array, mask: jax.Array) -> jax.Array:
    """The probability of a click: [B, 1]."""

    def embed(ids: jax.Array) -> jax.Array:
        return jnp.concatenate([p["items"][ids[..., 0]], p["kinds"][ids[..., 1]]], -1)

    past, item = embed(history), embed(target)
    _, states = _gru(p["interest"], jnp.swapaxes(past, 0, 1))
    scores = jnp.einsum("tbh,hk,bk->bt", states, p["attention"], item)
    weights = jax.nn.softmax(jnp.where(mask > 0, scores, -1e9))
    last, _ = _gru(p["evolution"], states, jnp.swapaxes(weights, 0, 1))
    x = jnp.concatenate([last, item, past.sum(1)], -1)
    first, second, final = p["tower"]
    x = jax.nn.relu(jax.nn.relu(x @ first) @ second)
    return jax.nn.sigmoid(x @ final)
