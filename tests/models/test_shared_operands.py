"""Products one computed value goes into twice, and rows behind a product that do not read it.

Planner and emitter have to agree on which operand a kernel computes and which it reads.
"""

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


def test_views_of_what_every_kernel_computes_itself():
    """Slices of masks, broadcasts, counters and constants are in nobody's memory."""

    def function(x, w):
        t, d = x.shape
        mask = (jnp.arange(t)[:, None] >= jnp.arange(t)).astype(x.dtype)
        rows = jnp.broadcast_to(w[0], (5, d))
        count = jnp.arange(t * 4).astype(x.dtype)
        return (
            mask[1:] @ x,
            (mask * 2.0)[1:].T @ x[1:],
            x.T @ (mask + 1.0)[:, 1:],
            rows[1:] @ w,
            x @ (rows * 2.0)[1:].T,
            jnp.einsum("kbi,bio->kbo", jnp.broadcast_to(x, (3, t, d))[1:], jnp.stack([w] * 2)[:1]
                       * jnp.ones((t, 1, 1))),
            count.reshape(4, -1)[1:] @ x,
            count.reshape(-1, 4)[1:].T @ x[1:],
            jnp.full((4, t), 2.0)[1:] @ x,
            jnp.tril(jnp.ones((t, t)))[1:] @ x,
            jax.nn.one_hot(jnp.arange(t) % 3, d)[1:] @ w,
        )  # fmt: skip

    check(function, [(normal(rng_of(t), t, 8), normal(rng_of(8), 8, 8)) for t in (5, 9)])


def test_a_slice_of_what_the_work_behind_the_product_computes_again():
    def function(x, w):
        v = x * 2.0 + 1.0
        u = x * 3.0 - 1.0
        y = x * 0.5 + 2.0
        return (
            v[:, :4] @ w[:4] + v,
            (u[1:] @ w) * u[:-1],
            jax.nn.softmax(y[:, :4] @ w[:4] + y),
        )

    check(function, [(normal(rng_of(t), t, 8), normal(rng_of(8), 8, 8)) for t in (5, 9)])


def test_attention_over_keys_that_every_kernel_computes_itself():
    def function(q, w):
        b, h, t, d = q.shape
        places = jnp.broadcast_to(
            jnp.cos(jnp.arange(t * d, dtype=q.dtype)).reshape(t, d), (b, t, d)
        )
        keys = jnp.repeat(places[:, None], h, 1)
        values = jnp.broadcast_to(w[:, None], (b, h, t, d))
        return jax.nn.softmax(jnp.einsum("bhtd,bhsd->bhts", q, keys)) @ values

    cases = [(normal(rng_of(b, t), b, 3, t, 4), normal(rng_of(t, b), b, t, 4))
             for b, t in ((2, 5), (3, 9))]  # fmt: skip
    check(function, cases)
