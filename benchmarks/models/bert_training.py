"""A training step of a 2-layer BERT: loss, gradient and update as one function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.bert import model
from benchmarks.models.layers import Params

SHAPES = ((2, 16), (1, 128), (4, 64))
"""(batch, length)."""


def init(seed: int = 0) -> Params:
    """Random weights."""
    return dict(model.init(seed, layers=2))


def inputs(batch: int, length: int, seed: int = 0) -> tuple[jax.Array, ...]:
    """(ids [B, T], mask [B, T]), int32."""
    return tuple(jnp.asarray(x) for x in model.batch(batch, length, seed))


def function(p: Params, ids: jax.Array, mask: jax.Array) -> Any:
    """(loss, new parameters)."""

    def loss(p: Params) -> jax.Array:
        logits = model.bert(p, ids, mask) @ p["tokens"][:1000].T
        return -jax.nn.log_softmax(logits)[..., 0].mean()

    value, gradient = jax.value_and_grad(loss)(p)
    return value, jax.tree.map(lambda a, b: a - 1e-3 * b, p, gradient)
