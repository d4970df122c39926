"""Normalisations, softmax and losses: chains of row reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.harness import check, normal, rng_of

SHAPES = ((3, 10), (1, 1), (2, 127), (16, 64), (5, 769))


def rows(b: int, n: int, scale: float = 2.0):
    return normal(rng_of(b, n), b, n, scale=scale)


def test_layer_norm():
    def layer_norm(x, scale, bias):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    cases = []
    for b, n in SHAPES:
        rng = rng_of(n)
        cases.append((rows(b, n), normal(rng, n), normal(rng, n)))
    check(layer_norm, cases)


def test_layer_norm_of_a_large_offset():
    cases = [(rows(b, n) + np.float32(100.0),) for b, n in ((16, 10), (31, 127), (64, 64))]
    check(lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3), cases)


def test_rms_norm():
    def rms_norm(x, scale):
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale

    check(rms_norm, [(rows(b, n), normal(rng_of(n), n)) for b, n in SHAPES])


def test_batch_norm_reduces_the_leading_axes():
    def batch_norm(x):
        mean = x.mean((0, 1))
        return (x - mean) / jnp.sqrt(x.var((0, 1)) + 1e-5), mean

    cases = [(normal(rng_of(b, t), b, t, 24),) for b, t in ((3, 10), (1, 1), (2, 61))]
    check(batch_norm, cases)


def test_group_norm():
    def group_norm(x):
        b, n = x.shape
        g = x.reshape(b, 4, n // 4)
        g = (g - g.mean(-1, keepdims=True)) * jax.lax.rsqrt(g.var(-1, keepdims=True) + 1e-5)
        return g.reshape(b, n)

    check(group_norm, [(rows(b, n),) for b, n in ((3, 12), (1, 4), (2, 64))])


def test_softmax_over_the_last_and_the_first_axis():
    def both(x):
        return jax.nn.softmax(x, -1), jax.nn.softmax(x, 0)

    check(both, [(rows(*s),) for s in SHAPES])


def test_softmax_of_large_and_infinite_values():
    x = np.array([[1e4, -1e4, 0.0], [-np.inf, 0.0, 1.0], [88.0, 88.5, -200.0]], np.float32)
    check(lambda x: jax.nn.softmax(x, -1), [(x,), (x[:2],), (x[2:],)])


def test_log_softmax_and_cross_entropy():
    def cross_entropy(logits, labels):
        log_p = jax.nn.log_softmax(logits, -1)
        picked = jnp.take_along_axis(log_p, labels[:, None], -1)[:, 0]
        return -picked.mean(), log_p

    cases = [(rows(b, n), rng_of(b).integers(0, n, b, np.int32)) for b, n in SHAPES]
    check(cross_entropy, cases)


def test_gradient_of_cross_entropy_with_masked_labels():
    def loss(logits, labels):
        valid = labels >= 0
        log_p = jax.nn.log_softmax(logits, -1)
        hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
        return -jnp.sum(jnp.where(valid, (log_p * hot).sum(-1), 0.0)) / jnp.maximum(valid.sum(), 1)

    cases = [(rows(b, n), rng_of(b).integers(-1, n, b, np.int32)) for b, n in SHAPES]
    check(jax.grad(loss), cases)


def test_logsumexp_mean_variance_and_extremes():
    def summary(x):
        return jax.nn.logsumexp(x, -1), x.mean(), x.var(), x.max(0), x.min(), x.sum(0), x.prod(-1)

    check(summary, [(rows(b, n, 0.9),) for b, n in SHAPES[:4]])


def test_masked_mean():
    def masked_mean(x, mask):
        count = jnp.maximum(mask.sum(-1, keepdims=True), 1).astype(x.dtype)
        return jnp.where(mask, x, 0.0).sum(-1, keepdims=True) / count

    cases = [(rows(b, n), rng_of(b, n).random((b, n)) < 0.5) for b, n in SHAPES]
    check(masked_mean, cases)
