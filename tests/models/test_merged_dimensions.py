"""Layers that merge batch and length for their products, as PyTorch does: fused like others."""

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc
from tests.models.harness import kernels_of, normal


def perceptron(x, w, c, v):
    """Matrices of rank 2 within, arrays of rank 3 around."""
    b, t, n = x.shape
    hidden = jax.nn.gelu((x.reshape(b * t, n) @ w + c).reshape(b, t, 24), approximate=False)
    return (hidden.reshape(b * t, 24) @ v).reshape(b, t, n) + x


def queries_and_keys(x, w, c, v):
    """Both are cut from one product, scaled and turned before they are multiplied."""
    b, t, n = x.shape
    cut = jnp.transpose((x.reshape(b * t, n) @ w + c).reshape(b, t, 2, 3, 4), (2, 0, 3, 1, 4))
    q, k = cut[0] * 0.5, cut[1] * 0.25
    scores = q.reshape(b * 3, t, 4) @ jnp.swapaxes(k, 2, 3).reshape(b * 3, 4, t)
    return scores.reshape(b, 3, t, t)


def stacked(x, w, c, v):
    """One matrix for a batch, spread over it; what is read twice stays where it is."""
    b, t, _ = x.shape
    y = jnp.matmul(x, jnp.broadcast_to(w, (b, *w.shape))) + c
    rows = y.reshape(b * t, 24)
    return rows / jnp.abs(rows).sum(-1, keepdims=True), y


SIZES = [(2, 5), (1, 1), (3, 1), (1, 17), (0, 4), (4, 0), (7, 33)]


def test_results_and_kernels():
    rng = np.random.default_rng(0)
    w, c, v = normal(rng, 8, 24), normal(rng, 24), normal(rng, 24, 8)
    for layer, kinds in (
        (perceptron, ["dense", "dense"]),
        (queries_and_keys, ["dense", "loop", "loop", "dense"]),
        (stacked, ["dense", "row"]),
    ):
        compiled = shlo_disc.jit(layer)
        x = normal(rng, 2, 5, 8)
        assert sorted(kernels_of(compiled, x, w, c, v)) == sorted(kinds), layer.__name__
        for b, t in SIZES:
            x = normal(rng, b, t, 8)
            got = jax.tree.leaves(compiled(x, w, c, v))
            with jax.enable_x64(True):
                exact = jax.jit(layer)(*(jnp.asarray(a, jnp.float64) for a in (x, w, c, v)))
            for result, want in zip(got, jax.tree.leaves(exact), strict=True):
                assert result.shape == want.shape
                np.testing.assert_allclose(result, want, rtol=2e-5, atol=2e-5)
        assert compiled.cache_info().misses <= 3  # an empty dimension may be a version of its own
