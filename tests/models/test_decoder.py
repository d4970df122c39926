"""A causal decoder: the whole prompt at once, and one token at a time over a KV cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.harness import assert_compiled, check, check_with, compiled, normal, rng_of

VOCABULARY, HIDDEN, HEADS = 101, 32, 4
HEAD = HIDDEN // HEADS


def parameters(layers: int = 2):
    rng = rng_of(VOCABULARY, HIDDEN)
    h = HIDDEN
    return {
        "tokens": normal(rng, VOCABULARY, h),
        "layers": [
            {
                "qkv": normal(rng, h, 3 * h, scale=h**-0.5),
                "out": normal(rng, h, h, scale=h**-0.5),
                "gate": normal(rng, h, 3 * h, scale=h**-0.5),
                "up": normal(rng, h, 3 * h, scale=h**-0.5),
                "down": normal(rng, 3 * h, h, scale=(3 * h) ** -0.5),
                "scale": 1 + normal(rng, h, scale=0.1),
            }
            for _ in range(layers)
        ],
    }


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def rotate(x, positions):
    """Rotary position embedding: x [B, T, N, D], positions [T] -> [B, T, N, D]."""
    half = x.shape[-1] // 2
    frequency = 100.0 ** (-jnp.arange(half, dtype=x.dtype) / half)
    angle = positions.astype(x.dtype)[:, None, None] * frequency
    a, b = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def mlp(p, x):
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def prefill(params, ids):
    """Logits of every position: ids [B, T] -> [B, T, V]."""
    b, t = ids.shape
    x = params["tokens"][ids]
    causal = jnp.tril(jnp.ones((t, t), bool))
    positions = jnp.arange(t)
    for p in params["layers"]:
        qkv = (rms_norm(x, p["scale"]) @ p["qkv"]).reshape(b, t, 3, HEADS, HEAD)
        q, k, v = rotate(qkv[:, :, 0], positions), rotate(qkv[:, :, 1], positions), qkv[:, :, 2]
        scores = jnp.einsum("btnd,bsnd->bnts", q, k) * HEAD**-0.5
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1)
        x = x + jnp.einsum("bnts,bsnd->btnd", weights, v).reshape(b, t, HIDDEN) @ p["out"]
        x = x + mlp(p, rms_norm(x, p["scale"]))
    return x @ params["tokens"].T


def decode(params, ids, cache, position):
    """One token per sequence: ids [B], cache [L, 2, B, S, N, D], position [] -> logits, cache."""
    b = ids.shape[0]
    size = cache.shape[3]
    x = params["tokens"][ids][:, None, :]
    seen = jnp.arange(size) <= position
    for i, p in enumerate(params["layers"]):
        qkv = (rms_norm(x, p["scale"]) @ p["qkv"]).reshape(b, 1, 3, HEADS, HEAD)
        q, k = (rotate(qkv[:, :, j], position[None]) for j in range(2))
        update = jnp.stack([k, qkv[:, :, 2]])[None]
        start = [jnp.int32(0)] * 6
        start[0], start[3] = jnp.int32(i), position
        cache = jax.lax.dynamic_update_slice(cache, update, start)
        scores = jnp.einsum("btnd,bsnd->bnts", q, cache[i, 0]) * HEAD**-0.5
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1)
        x = x + jnp.einsum("bnts,bsnd->btnd", weights, cache[i, 1]).reshape(b, 1, HIDDEN) @ p["out"]
        x = x + mlp(p, rms_norm(x, p["scale"]))
    return (x @ params["tokens"].T)[:, 0], cache


def tokens(b: int, *t: int):
    return rng_of(b, *t).integers(0, VOCABULARY, (b, *t), np.int32)


def test_prefill_and_decode_steps_at_every_size():
    """Prompts of any length, steps at any place of any cache, and step by step the whole prompt."""
    params = parameters()
    whole, step = compiled(prefill), compiled(decode)
    check_with(
        whole, prefill, [(params, tokens(b, t)) for b, t in ((3, 10), (1, 1), (2, 37), (1, 64))]
    )
    cases = []
    for b, size, position in ((3, 10, 4), (1, 1, 0), (2, 64, 63), (5, 17, 16)):
        cache = normal(rng_of(b, size), 2, 2, b, size, HEADS, HEAD)
        cases.append((params, tokens(b), cache, np.int32(position)))
    check_with(step, decode, cases)
    ids = tokens(2, 12)
    expected = np.asarray(whole(params, ids))
    cache = jnp.zeros((2, 2, 2, 12, HEADS, HEAD), jnp.float32)
    for t in range(12):
        logits, cache = step(params, ids[:, t], cache, np.int32(t))
        np.testing.assert_allclose(np.asarray(logits), expected[:, t], rtol=2e-4, atol=2e-4)
    assert_compiled(whole, 1)
    assert_compiled(step, 1)


def test_update_position_past_the_end_is_clamped():
    def update(cache, new, position):
        return jax.lax.dynamic_update_slice(cache, new, (position, jnp.int32(0)))

    cases = []
    for size, position in ((9, 100), (9, -3), (17, 16), (4, 3)):
        cases.append((normal(rng_of(size), size, 6), np.ones((3, 6), "f4"), np.int32(position)))
    check(update, cases)


def test_caller_keeps_the_old_cache():
    step = compiled(lambda c, x, i: jax.lax.dynamic_update_slice(c, x, (i, jnp.int32(0))))
    cache = jnp.zeros((8, 4), jnp.float32)
    new = step(cache, jnp.ones((1, 4), jnp.float32), np.int32(2))
    assert np.asarray(cache).sum() == 0
    assert np.asarray(new).sum() == 4
