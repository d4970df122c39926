"""`lax.associative_scan` over sizes that are symbols: blocks, rests of blocks, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.cases import all_but, slow

SIZES = (37, 16, 17, 15, 2, 32, 33, 256, 257, 300, 1)
"""Around whole blocks of 16 rows, and more than 16 blocks; 1 compiles no other program."""

SOME = (37, 16, 2, 257, 1)
"""One of each kind; `jax.jit` compiles at every size."""


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def linear(a, b):
    """Of x -> m * x + c, first a, then b."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def segmented(a, b):
    """Sums that begin anew at every flag."""
    return jnp.where(b[1], b[0], a[0] + b[0]), a[1] | b[1]


def rotations(n):
    angle = normal(n)
    sine, cosine = np.sin(angle), np.cos(angle)
    return np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)], -2)


CASES = {
    "sum": (lambda x: lax.associative_scan(jnp.add, x), normal),
    "from the end": (lambda x: lax.associative_scan(jnp.maximum, x, reverse=True), normal),
    "inner axis": (
        lambda x: lax.associative_scan(jnp.add, x, axis=1), lambda n: normal(3, n, 2)
    ),
    "last axis": (
        lambda x: lax.associative_scan(jnp.minimum, x, axis=-1), lambda n: normal(2, n)
    ),
    "bits": (
        lambda x: lax.associative_scan(jnp.bitwise_xor, x),
        lambda n: (normal(n) * 1e6).astype(np.int32),
    ),
    "flags": (lambda x: lax.associative_scan(jnp.logical_or, x > 2), normal),
    "weak types": (
        lambda x: lax.associative_scan(jnp.add, jnp.full((x.shape[0] + 1,), 2)), normal
    ),
    "matrices": (lambda x: lax.associative_scan(jnp.matmul, x), rotations),
    "pairs": (
        lambda x: lax.associative_scan(linear, (jnp.cos(x), x)), lambda n: normal(n, 3)
    ),
    "segments": (lambda x: lax.associative_scan(segmented, (x, x > 0.5)), normal),
    "complex": (
        lambda x: lax.associative_scan(jnp.multiply, jnp.exp(1j * x).astype(np.complex64)), normal
    ),
    "bfloat16": (
        lambda x: lax.associative_scan(jnp.maximum, x.astype(jnp.bfloat16)), normal
    ),
}  # fmt: skip


LIKE_OTHERS = ("last axis", "flags", "bfloat16", "bits")


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, CASES))
def test_prefixes_are_those_of_jax(name):
    function, inputs = CASES[name]
    f, reference = shlo_disc.jit(function), jax.jit(function)
    for n in SIZES if name in ("sum", "pairs") else SOME:
        want, got = (jax.tree.leaves(call(inputs(n))) for call in (reference, f))
        for a, b in zip(got, want, strict=True):
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
            a, b = (np.asarray(x, np.complex128) for x in (a, b))
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert f.cache_info().misses == 1, f.guards()


@pytest.mark.parametrize("name", [*slow(["product"]), "pairs"])
def test_rows_that_do_not_exist_have_no_part_in_derivatives(name):
    """The rows that fill a block overflow; their derivative times 0 is not a number."""
    scans = {
        "product": lambda x: lax.associative_scan(jnp.multiply, x),
        "pairs": lambda x: lax.associative_scan(linear, (x, x))[0],
    }

    def loss(x):
        return (scans[name](x) * 1e-30).sum()

    f, reference = shlo_disc.jit(jax.grad(loss)), jax.jit(jax.grad(loss))
    for x in (normal(7) + 2, *(np.full(n, 10.0 ** (38 / n), np.float32) for n in (2, 5, 18, 35))):
        want = reference(x)
        assert np.isfinite(want).all()
        np.testing.assert_allclose(f(x), want, rtol=2e-4)
    assert f.cache_info().misses == 1, f.guards()


def test_scans_of_a_batch_and_in_a_loop():
    def function(x):
        def step(carry, row):
            return carry + lax.associative_scan(jnp.add, row), carry.sum()

        batch = jax.vmap(lambda row: lax.associative_scan(jnp.multiply, jnp.cos(row)))(x)
        return batch, lax.scan(step, jnp.zeros(x.shape[1]), x)

    f, reference = shlo_disc.jit(function), jax.jit(function)
    for shape in ((3, 20), (5, 4), (2, 33)):
        x = normal(*shape)
        for a, b in zip(jax.tree.leaves(f(x)), jax.tree.leaves(reference(x)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert f.cache_info().misses == 1, f.guards()


def test_arrays_of_different_lengths_are_refused_as_by_jax():
    def function(x, y):
        return lax.associative_scan(linear, (x, y))

    with pytest.raises(ValueError, match="must have the same first dimension"):
        shlo_disc.jit(function)(normal(4), normal(5))
