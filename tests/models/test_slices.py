"""Products that read parts of matrices: in place, at every size, against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import check, check_bits, kernels_of, normal, rng_of


def gates(x, w):
    n = w.shape[1] // 3
    return x @ w[:, :n], x @ w[:, n : 2 * n], x @ w[:, 2 * n :]


def first_row(x, w):
    return x[0] @ w, x[-1] @ w


def turned(x, w):
    return w[:, 1:].T @ x[:, : w.shape[0]].T


def both(x, w):
    return x[1:] @ w, x[:-1] @ w


@pytest.mark.parametrize("function", [gates, first_row, turned, both])
def test_in_place(function):
    rng = np.random.default_rng(0)
    compiled = shlo_disc.jit(function)
    for m, k, n in [(5, 8, 12), (2, 1, 3), (130, 70, 66), (17, 129, 99)]:
        x = rng.standard_normal((m, k)).astype(np.float32)
        w = rng.standard_normal((k, n)).astype(np.float32)
        assert set(kernels_of(compiled, x, w)) == {"dense"}
        with jax.enable_x64(True):
            want = jax.jit(function)(jnp.asarray(x, jnp.float64), jnp.asarray(w, jnp.float64))
        for _ in range(2):  # panels of a part of a weight are kept from the first call on
            got = compiled(jnp.asarray(x), jnp.asarray(w))
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


def test_a_loop_reads_a_part_of_a_weight():
    """The gates of a GRU are slices of one matrix: no kernel of their own, panels that stay."""

    def gru(w, x):
        h = w.shape[0]

        def step(state, x):
            z, r = jnp.split(jax.nn.sigmoid(x @ w[:, : 2 * h] + state @ w[:, : 2 * h]), 2, -1)
            new = jnp.tanh(x @ w[:, 2 * h :] + (r * state) @ w[:, 2 * h :])
            return (1 - z) * state + z * new, None

        return jax.lax.scan(step, x[0], x)[0]

    rng = np.random.default_rng(1)
    compiled = shlo_disc.jit(gru)
    for t, b, h in [(3, 2, 5), (9, 33, 24)]:
        w = rng.standard_normal((h, 3 * h)).astype(np.float32) / 4
        x = rng.standard_normal((t, b, h)).astype(np.float32)
        assert kernels_of(compiled, w, x).count("loop") <= 2  # x[0], r * state
        with jax.enable_x64(True):
            want = jax.jit(gru)(jnp.asarray(w, jnp.float64), jnp.asarray(x, jnp.float64))
        np.testing.assert_allclose(
            np.asarray(compiled(jnp.asarray(w), jnp.asarray(x))), want, rtol=1e-4, atol=1e-5
        )


def test_starts_computed_from_sizes_by_any_operation():
    """What the analysis of sizes cannot express is data, whatever it is computed from."""
    starts = (
        lambda n: jnp.array(n) - 3,
        lambda n: jnp.array(n) ^ 3,
        lambda n: jnp.where(jnp.array(n) > 4, 1, 0),
        lambda n: jnp.sqrt(jnp.array(n, jnp.float32)).astype(jnp.int32),
        lambda n: jnp.max(jnp.ones((n, 3), jnp.int32)),
        lambda n: jnp.argmax(jnp.arange(n) % 3),
        lambda n: jnp.sort(jnp.array([n, 2]))[0],
        lambda n: jnp.cumsum(jnp.array([n, 2]))[0],
    )

    def cut(x):
        n, m = x.shape
        return [jax.lax.dynamic_slice_in_dim(x, start(n), m - 1, 1) for start in starts]

    check_bits(cut, [(normal(rng_of(*s), *s),) for s in ((5, 7), (3, 4), (9, 2))])


def test_operations_that_differ_in_a_constant_operand_only():
    """Starts and paddings are operands: equal fusions with other constants have other kernels."""

    def cut(x):
        return [jax.lax.slice_in_dim(x, start, 4, stride=4) for start in (1, 2, 3)]

    def padded(x, w):
        def one(low, high):
            return jax.lax.conv_general_dilated(x, w, (1,), [(low, high)])

        n = x.shape[2]
        return one(0, 2), one(1, 1), one(2, 0), one(n, 2), one(2, n)

    check_bits(cut, [(normal(rng_of(*s), *s),) for s in ((5, 7), (4, 3), (6, 1))])
    w = normal(rng_of(3), 4, 2, 3)
    check(padded, [(normal(rng_of(*s), *s), w) for s in ((1, 2, 7), (3, 2, 9), (2, 2, 6))])


def test_products_of_slices_in_a_chain():
    def chain(x):
        return (x[0:2:2] @ x[1:3:2]) @ x[2:3:2]

    cases = [(normal(rng_of(n), 3, n, n),) for n in (4, 7, 2)]
    check(chain, cases, shapes=("3, n, n",))
