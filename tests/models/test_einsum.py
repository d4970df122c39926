"""Contractions in many batch and contracting layouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.harness import check, normal, rng_of

SIZES = (
    {"b": 3, "h": 2, "i": 5, "j": 7, "k": 4, "l": 6},
    {"b": 1, "h": 1, "i": 1, "j": 1, "k": 1, "l": 1},
    {"b": 2, "h": 4, "i": 17, "j": 8, "k": 33, "l": 16},
    {"b": 5, "h": 3, "i": 64, "j": 2, "k": 61, "l": 1},
)

SPECS = (
    "ij,jk->ik",
    "ji,jk->ik",
    "ij,kj->ik",
    "ji,kj->ki",
    "i,i->",
    "i,j->ij",
    "ij,j->i",
    "ij,i->j",
    "bij,bjk->bik",
    "bij,bkj->bik",
    "bij,jk->bik",
    "bhik,bhjk->bhij",
    "bihk,bjhk->bhij",
    "bhij,bjhk->bihk",
    "bij,bij->b",
    "ijk,ljk->il",
    "ijk,kjl->il",
    "bij,ij->b",
    "ij,ij->ij",
    "bi,bj->bij",
    "bijk,bkl,bl->bij",
)


DEFAULT_SPECS = (
    "ij,jk->ik",
    "ji,kj->ki",
    "i,j->ij",
    "ij,i->j",
    "bij,bkj->bik",
    "bihk,bjhk->bhij",
    "bij,ij->b",
)


@pytest.mark.parametrize(
    "spec", [s if s in DEFAULT_SPECS else pytest.param(s, marks=pytest.mark.slow) for s in SPECS]
)
def test_einsum(spec):
    inputs = spec.split("->")[0].split(",")
    cases = []
    for sizes in SIZES:
        rng = rng_of(*sizes.values())
        cases.append(tuple(normal(rng, *(sizes[axis] for axis in axes)) for axes in inputs))
    check(lambda *args: jnp.einsum(spec, *args), cases)


def test_integer_matrix_product_is_exact():
    from tests.models.harness import check_bits

    cases = []
    for m, k, n in ((3, 10, 4), (1, 1, 1), (17, 61, 9)):
        rng = rng_of(m, k, n)
        cases.append((rng.integers(-9, 9, (m, k), np.int32), rng.integers(-9, 9, (k, n), np.int32)))
    check_bits(lambda a, b: a @ b, cases)


def test_int8_product_accumulates_in_int32():
    from tests.models.harness import check_bits

    def product(a, b):
        return jax.lax.dot(a, b, preferred_element_type=jnp.int32)

    cases = []
    for m, k, n in ((3, 10, 4), (1, 1, 1), (17, 200, 9)):
        rng = rng_of(m, k, n)
        a, b = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
        cases.append((a.astype(np.int8), b.astype(np.int8)))
    check_bits(product, cases)


def test_product_with_its_epilogue_and_a_shared_operand():
    def gram(x, bias):
        g = x @ x.T
        return jnp.tanh(g / 8.0 + bias) * 2.0, g.sum(-1)

    cases = [(normal(rng_of(n, d), n, d), np.float32(0.5)) for n, d in ((5, 12), (1, 1), (65, 33))]
    check(gram, cases)


def test_batched_vector_products_by_vmap():
    def score(w, x, y):
        return jax.vmap(lambda a, b: a @ w @ b)(x, y)

    w = normal(rng_of(6, 9), 6, 9)
    cases = []
    for b in (3, 1, 40):
        rng = rng_of(b)
        cases.append((w, normal(rng, b, 6), normal(rng, b, 9)))
    check(score, cases)
