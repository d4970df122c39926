"""Products one computed value goes into twice, and rows behind a product that do not read it.

Planner and emitter have to agree on which operand a kernel computes and which it reads.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.harness import check, kernels, normal, rng_of

SHAPES = ((5, 7), (9, 3), (1, 6), (33, 20))

WORK = {
    "arithmetic": lambda x: x * 2.0 + 1.0,
    "a choice": lambda x: jnp.where(x > 0, x, 0.5),
    "a loop's state": lambda x: jnp.where(
        x > 0, jax.lax.fori_loop(0, 3, lambda _, c: c * 0.5 + 1, x), 1.0
    ),
}

PRODUCTS = {
    "transposed left": lambda v: v.T @ v,
    "transposed right": lambda v: v @ v.T,
    "of all": lambda v: jnp.vdot(v, v),
    "of rows": lambda v: jnp.einsum("ij,ij->i", v, v),
    "of columns": lambda v: jnp.einsum("ij,ij->j", v, v),
    "outer": lambda v: jnp.einsum("ij,kl->ikjl", v, v),
    "without sum": lambda v: jnp.einsum("ij,ik->ijk", v, v),
    "reshaped": lambda v: jnp.einsum("ij,ik->jk", v.reshape(v.shape[0], -1), v),
}


@pytest.mark.parametrize("work", WORK)
def test_one_computed_value_on_both_sides(work):
    """All products in one program, each of a value of its own."""

    def function(x):
        return [f(WORK[work](x * k)) for k, f in enumerate(PRODUCTS.values(), 1)]

    check(function, [(normal(rng_of(*s), *s),) for s in SHAPES])


def test_weights_of_an_attention_that_are_its_values():
    mixes = "bij,bkj->bik", "bij,bkj->bki", "bij,bij->bi", "bij,bji->bi"

    def function(q, k):
        scores = [jnp.einsum("bid,bjd->bij", q * n, k) for n in range(len(mixes))]
        weights = [jax.nn.softmax(x) for x in scores]
        mixed = [jnp.einsum(mix, w, w) for mix, w in zip(mixes, weights, strict=True)]
        other = jax.nn.softmax(jnp.einsum("bid,bjd->bij", q + 1.0, k))
        return mixed, jnp.einsum("bij,bkj->bik", other, other * 2.0 + 1.0)

    check(function, [(normal(rng_of(t), 2, t, 6), normal(rng_of(t, 1), 2, t, 6)) for t in (5, 9)])


def density(w, x, y):
    """Of the weights and labels of a logistic regression, and its gradient."""

    def value(w):
        logits = x @ w
        prior = jnp.where(jnp.isfinite(w), -0.5 * w * w, -jnp.inf).sum()
        return prior + (y * logits - jnp.logaddexp(0.0, logits)).sum()

    return jax.value_and_grad(value)(w)


def test_a_row_of_one_value_that_does_not_read_the_product():
    """A sum over parameters and the gradient of it share rows with the product X^T r."""

    def case(n, d):
        x = normal(rng_of(n, d), n, d)
        return normal(rng_of(d), d), x, (x[:, 0] > 0).astype(np.float32)

    check(density, [case(*s) for s in ((5, 3), (9, 4), (1, 1), (40, 17))])


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_rows_of_which_some_results_do_not_read_the_product(order):
    def function(x, w, residual):
        largest = jnp.abs(residual).max(-1, keepdims=True)
        scaled = largest * residual
        results = scaled.sum(-1), jax.nn.softmax(x @ w + scaled, -1), scaled
        return [results[k] for k in order]

    def case(m, k, n):
        r = rng_of(m, k, n)
        return normal(r, m, k), normal(r, k, n), normal(r, m, n)

    cases = [case(*s) for s in ((5, 3, 8), (9, 16, 33), (1, 1, 2))]
    assert kernels(function, *cases[0]) == ["dense"]
    check(function, cases)
