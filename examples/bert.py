"""A BERT-base encoder in plain JAX, compiled once for every batch size and sequence length.

python examples/bert.py
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc

LAYERS, HIDDEN, HEADS, VOCABULARY, POSITIONS = 12, 768, 12, 30522, 512

Params = dict[str, Any]


def init(seed: int = 0, layers: int = LAYERS) -> Params:
    """Random float32 weights as jax.Arrays, scaled like a trained model's."""
    rng = np.random.default_rng(seed)

    def weight(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32) * 0.02)

    def layer() -> Params:
        h = HIDDEN
        return {
            "query": weight(h, h), "query_bias": weight(h),
            "key": weight(h, h), "key_bias": weight(h),
            "value": weight(h, h), "value_bias": weight(h),
            "out": weight(h, h), "out_bias": weight(h),
            "norm1_scale": 1 + weight(h), "norm1_bias": weight(h),
            "up": weight(h, 4 * h), "up_bias": weight(4 * h),
            "down": weight(4 * h, h), "down_bias": weight(h),
            "norm2_scale": 1 + weight(h), "norm2_bias": weight(h),
        }  # fmt: skip

    return {
        "tokens": weight(VOCABULARY, HIDDEN),
        "positions": weight(POSITIONS, HIDDEN),
        "norm_scale": 1 + weight(HIDDEN),
        "norm_bias": weight(HIDDEN),
        "layers": [layer() for _ in range(layers)],
    }


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Normalise the last axis: x [..., H] -> [..., H]."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-12) * scale + bias


def attention(p: Params, x: jax.Array, bias: jax.Array) -> jax.Array:
    """Self-attention: x [B, T, H], bias [B, 1, 1, T] -> [B, T, H]."""
    batch, length, hidden = x.shape

    def heads(name: str) -> jax.Array:
        return (x @ p[name] + p[name + "_bias"]).reshape(batch, length, HEADS, hidden // HEADS)

    scores = jnp.einsum("bthd,bshd->bhts", heads("query"), heads("key"))
    weights = jax.nn.softmax(scores / (hidden // HEADS) ** 0.5 + bias, axis=-1)
    mixed = jnp.einsum("bhts,bshd->bthd", weights, heads("value"))
    return mixed.reshape(batch, length, hidden) @ p["out"] + p["out_bias"]


def bert(params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """The encoder: ids and mask int32 [B, T] -> last hidden state float32 [B, T, H]."""
    x = params["tokens"][ids] + params["positions"][: ids.shape[1]]
    x = layer_norm(x, params["norm_scale"], params["norm_bias"])
    bias = (1.0 - mask[:, None, None, :].astype(x.dtype)) * -1e9
    for p in params["layers"]:
        x = layer_norm(x + attention(p, x, bias), p["norm1_scale"], p["norm1_bias"])
        h = jax.nn.gelu(x @ p["up"] + p["up_bias"], approximate=False)
        x = layer_norm(x + h @ p["down"] + p["down_bias"], p["norm2_scale"], p["norm2_bias"])
    return x


def batch(size: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random token ids and a mask of random lengths >= 1: int32 [size, length] each."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, VOCABULARY, (size, length), np.int32)
    lengths = rng.integers(max(1, length // 2), length + 1, (size, 1))
    return ids, (np.arange(length) < lengths).astype(np.int32)


def requests(count: int = 20, seed: int = 0) -> list[tuple[int, int]]:
    """Different shapes as online requests have: batch 1 to 4, length 4 to 128, log-uniform."""
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, int]] = []
    while len(shapes) < count:
        size, length = np.exp(rng.uniform(np.log([1, 4]), np.log([5, 129]))).astype(int)
        if (size, length) not in shapes:
            shapes.append((int(size), int(length)))
    return shapes


def main() -> None:
    """Run the encoder at a few shapes and show that there was one compilation."""
    params = init()
    encoder = shlo_disc.jit(bert)
    for size, length in ((1, 16), (1, 7), (3, 64), (8, 128)):
        hidden = encoder(params, *batch(size, length))
        print(f"{size} x {length}: {hidden.shape} {hidden.dtype}, {encoder.cache_info()}")


if __name__ == "__main__":
    main()
