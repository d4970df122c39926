"""Products whose columns are read in bands, the gates of recurrent layers: one kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.harness import check, kernels, normal, rng_of

SHAPES = ((3, 24), (1, 256), (128, 96), (7, 1), (5, 33), (0, 8), (13, 700))  # (rows, width)


def lstm(h, c, w, x):
    i, f, o, u = jnp.split(h @ w + x, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def lstm_case(rows, n, dtype=np.float32):
    r = rng_of(rows, n)
    sizes = ((rows, n), (rows, n), (n, 4 * n), (rows, 4 * n))
    return tuple(normal(r, *s, scale=s[0] ** -0.5 if s[0] else 1.0).astype(dtype) for s in sizes)


def test_gates_of_an_lstm():
    assert kernels(lstm, *lstm_case(3, 24)) == ["dense"]
    check(lstm, [lstm_case(*s) for s in SHAPES], misses=2)  # no rows are a program of their own


@pytest.mark.parametrize("dtype", [np.float64, np.float16, jnp.bfloat16])
def test_gates_of_other_types(dtype):
    with jax.enable_x64(dtype is np.float64):
        check(lstm, [lstm_case(*s, dtype) for s in SHAPES[:3]])


def gru(h, w, x, v):
    r, z = jnp.split(jax.nn.sigmoid(h @ w + x), 2, -1)
    return (1 - z) * h + z * jnp.tanh((r * h) @ v)


def test_a_band_that_another_kernel_reads():
    def case(rows, n):
        r = rng_of(rows, n)
        w, v = normal(r, n, 2 * n, scale=n**-0.5), normal(r, n, n, scale=n**-0.5)
        return normal(r, rows, n), w, normal(r, rows, 2 * n), v

    assert kernels(gru, *case(3, 24)) == ["dense", "dense"]
    check(gru, [case(*s) for s in SHAPES], misses=2)


def test_weights_by_rows():
    """As PyTorch keeps them; computed here, so that nothing is kept packed."""

    def function(h, w):
        a, b = jnp.split(h @ jnp.sin(w).T, 2, -1)
        return a * jax.nn.sigmoid(b)

    cases = [(normal(rng_of(m, k), m, k, scale=0.2), normal(rng_of(n, k), 2 * n, k)) for m, k, n in
             ((3, 20, 17), (1, 64, 64), (40, 0, 5), (150, 900, 70))]  # fmt: skip
    check(function, cases, misses=2)
    assert kernels(function, *cases[0]).count("dense") == 1
    assert "dense" not in kernels(function, *cases[0])[:-1]


def test_weights_of_a_batch():
    def function(h, w):
        a, b, c = jnp.split(jnp.einsum("bmk,bkn->bmn", h, w), 3, -1)
        return a * b - c, jax.nn.relu(c)

    cases = [
        (normal(rng_of(b, m, k), b, m, k), normal(rng_of(b, k, n), b, k, 3 * n))
        for b, m, k, n in ((2, 3, 8, 9), (1, 1, 32, 32), (3, 50, 16, 40), (2, 0, 4, 4))
    ]
    assert kernels(function, *cases[0]) == ["dense"]
    check(function, cases, misses=2)


def test_the_whole_is_a_result_too():
    def function(h, w):
        y = h @ w
        a, b = jnp.split(y, 2, -1)
        return y, a * jnp.exp(-b)

    cases = [(normal(rng_of(m, k), m, k), normal(rng_of(k, n), k, 2 * n, scale=0.1))
             for m, k, n in ((3, 8, 9), (1, 700, 32), (130, 16, 40))]  # fmt: skip
    assert kernels(function, *cases[0]) == ["dense"]
    check(function, cases)


def test_parts_of_other_widths_are_kernels_of_their_own():
    def function(h, w):
        y = h @ w
        return y[:, :2] * y[:, 2:4], y[:, 4:] + 1

    check(function, [(normal(rng_of(5, 4), 5, 4), normal(rng_of(4, 7), 4, 7))])


def test_a_gated_feed_forward_layer():
    """One projection for both halves, as large models have it."""

    def function(x, w, v):
        up, gate = jnp.split(x @ w, 2, axis=-1)
        return (up * jax.nn.silu(gate)) @ v

    def case(b, t, d):
        r = rng_of(b, t, d)
        return normal(r, b, t, d), normal(r, d, 8 * d, scale=d**-0.5), normal(r, 4 * d, d)

    assert kernels(function, *case(2, 3, 8)) == ["dense", "dense"]
    check(function, [case(2, 3, 8), case(1, 1, 64), case(2, 100, 48)])


def test_gradient_through_gates():
    check(jax.grad(lambda *a: jnp.sum(lstm(*a)[0] ** 2), (0, 2)), [lstm_case(5, 12)])
