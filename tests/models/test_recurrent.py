"""Recurrent networks by lax.scan and loops by lax.while_loop and fori_loop."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.harness import check, check_bits, normal, rng_of

FEATURES, HIDDEN = 12, 24
SHAPES = ((5, 3), (1, 1), (17, 2), (32, 16))  # (length, batch)


def lstm_parameters():
    rng = rng_of(FEATURES, HIDDEN)
    return {
        "input": normal(rng, FEATURES, 4 * HIDDEN, scale=FEATURES**-0.5),
        "hidden": normal(rng, HIDDEN, 4 * HIDDEN, scale=HIDDEN**-0.5),
        "bias": normal(rng, 4 * HIDDEN, scale=0.1),
    }


def lstm(params, xs):
    """xs [T, B, F] -> (last hidden state [B, H], all hidden states [T, B, H])."""

    def step(carry, x):
        h, c = carry
        gates = x @ params["input"] + h @ params["hidden"] + params["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], HIDDEN), xs.dtype)
    (h, _), hs = jax.lax.scan(step, (zeros, zeros), xs)
    return h, hs


def test_lstm_of_any_length_and_batch():
    params = lstm_parameters()
    check(lstm, [(params, normal(rng_of(t, b), t, b, FEATURES)) for t, b in SHAPES])


def test_gradient_through_an_lstm():
    def loss(params, xs):
        return jnp.sum(lstm(params, xs)[0] ** 2)

    params = lstm_parameters()
    cases = [(params, normal(rng_of(t, b), t, b, FEATURES)) for t, b in ((5, 3), (1, 1), (9, 4))]
    check(jax.grad(loss), cases)


def test_scan_in_reverse_with_stacked_inputs():
    def decay(x, y):
        def step(carry, item):
            a, b = item
            carry = 0.5 * carry + a * b
            return carry, carry

        return jax.lax.scan(step, jnp.zeros(x.shape[1:], x.dtype), (x, y), reverse=True)

    cases = []
    for t, n in ((6, 4), (1, 1), (31, 9)):
        rng = rng_of(t, n)
        cases.append((normal(rng, t, n), normal(rng, t, n)))
    check(decay, cases)


def test_while_loop_with_a_data_dependent_number_of_steps():
    def halve(x, limit):
        def running(state):
            return jnp.abs(state[0]).max() > limit

        return jax.lax.while_loop(running, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))

    cases = [(normal(rng_of(n), n, scale=10.0), np.float32(0.7)) for n in (5, 1, 64)]
    check(halve, [*cases, (np.zeros(7, np.float32), np.float32(1.0))])


def test_collatz_in_integers():
    def collatz(n):
        def step(state):
            value, count = state
            return jnp.where(value % 2 == 0, value // 2, 3 * value + 1), count + (value != 1)

        return jax.lax.while_loop(lambda s: (s[0] != 1).any(), step, (n, jnp.zeros_like(n)))

    # The count of a finished element must not go on: the loop ends when all have met 1 together,
    # so powers of two that reach the cycle 1 4 2 in step with each other are used.
    check_bits(collatz, [(np.full(n, 8, np.int32),) for n in (3, 1, 17)])


def test_power_iteration_by_fori_loop():
    def largest(a):
        def step(_, v):
            w = a @ v
            return w / jnp.linalg.norm(w)

        v = jax.lax.fori_loop(0, 8, step, jnp.ones((a.shape[0],), a.dtype))
        return v @ (a @ v)

    cases = []
    for n in (5, 1, 32):
        a = normal(rng_of(n), n, n)
        cases.append((a @ a.T + np.eye(n, dtype=np.float32),))
    check(largest, cases)


def test_loop_of_a_bound_that_is_a_size():
    def triangle(x):
        return jax.lax.fori_loop(0, x.shape[0], lambda i, s: s + i * x[i], jnp.zeros((), x.dtype))

    check(triangle, [(normal(rng_of(n), n),) for n in (6, 1, 97)])
