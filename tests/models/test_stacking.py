"""Results that loops write slice by slice, each computed at its place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.cases import slow
from tests.models.harness import check, kernels, normal, rng_of

SHAPES = ((5, 3), (1, 1), (17, 2), (8, 33))  # (length, width)


def cases(*counts):
    return [tuple(normal(rng_of(t, n, k), t, n) for k in range(*counts)) for t, n in SHAPES]


def smooth(xs):
    """The state is the result; the last state is one of its own."""

    def step(h, x):
        h = jnp.tanh(0.5 * h + x)
        return h, h

    return lax.scan(step, jnp.zeros(xs.shape[1]), xs)


def test_a_state_that_is_a_result():
    check(smooth, cases(1))
    assert kernels(smooth, cases(1)[0][0]).count("loop") == 2  # the first state, and a step


@pytest.mark.parametrize("width", [0, 4])
def test_no_step_at_all(width):
    def function(xs):
        return lax.scan(lambda h, x: (h + x, h * x), jnp.ones(xs.shape[1:]), xs)

    check(function, [(np.zeros((0, width), np.float32),)])


def test_in_reverse():
    def function(xs):
        return lax.scan(lambda h, x: (jnp.sin(h) + x, h), jnp.ones(xs.shape[1]), xs, reverse=True)

    check(function, cases(1))


def test_states_that_change_places():
    def function(xs, ys):
        def step(carry, item):
            a, b = carry
            a, b = b * 0.5 + item[0], jnp.cos(a) - item[1]
            return (b, a), (a, b, a + b)

        start = jnp.zeros(xs.shape[1]), jnp.ones(xs.shape[1])
        return lax.scan(step, start, (xs, ys))

    check(function, cases(2))


def test_one_value_as_two_states():
    def function(xs):
        def step(carry, x):
            a, b = carry
            c = a * b + jnp.tanh(x)
            return (c, c), c

        return lax.scan(step, (jnp.ones(xs.shape[1]), xs[0]), xs)

    check(function, cases(1))


@pytest.mark.slow
def test_loops_in_loops():
    def function(xs):
        def outer(h, x):
            def inner(g, k):
                g = jnp.sin(g + k * x)
                return g, g

            h, inside = lax.scan(inner, h, jnp.arange(3.0))
            return h, (h, inside)

        return lax.scan(outer, jnp.zeros(xs.shape[1]), xs)

    check(function, cases(1))


def test_gradient():
    check(jax.grad(lambda xs: jnp.sum(smooth(xs)[1] ** 2) + jnp.sum(smooth(xs)[0])), cases(1))


def test_products_as_states():
    w = normal(rng_of(24), 24, 24, scale=0.2)

    def function(xs):
        def step(h, x):
            h = jax.nn.relu(h @ w + x)
            return h, h

        return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)

    check(function, [(normal(rng_of(t, n), t, n, 24),) for t, n in SHAPES])


@pytest.mark.parametrize("first", [-3, *slow([0, 2]), 100])
def test_places_are_clamped(first):
    def function(xs, ys):
        def step(i, a):
            return lax.dynamic_update_slice(a, jnp.exp(ys[i])[None], (i + first, 0))

        return lax.fori_loop(0, xs.shape[0], step, jnp.sin(xs))

    check(function, cases(2))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int8, np.int32])
def test_places_of_any_integer(dtype):
    def function(xs, at):
        a = jnp.sin(xs)
        return lax.dynamic_update_slice(a, jnp.exp(a[:1] * 0.5), (at, jnp.zeros_like(at)))

    given = [(x, np.asarray(k, dtype)) for k, (x,) in zip((0, 1, 3, 100), cases(1), strict=True)]
    check(function, given)


def test_what_is_overwritten_is_read_first():
    def function(xs):
        def step(i, a):
            new = jnp.cos(a[i] + a[0])  # read before it is written, and after
            a = a.at[i].set(new)
            return a.at[0].set(new - a[i // 2])

        return lax.fori_loop(0, xs.shape[0], step, jnp.sin(xs))

    check(function, cases(1))


def test_a_value_that_outlives_its_place():
    def function(xs):
        a = jnp.sin(xs)
        new = jnp.cos(xs[0] * 2)
        a = a.at[0].set(new)
        a = a.at[0].set(jnp.exp(xs[-1]))
        return a, new + a[0]

    check(function, cases(1))


CHANGES = {
    "scatter": lambda row, i: row.at[i].max(3),
    "two scatters": lambda row, i: row.at[i].add(2).at[0].multiply(3),
    "slice": lambda row, i: lax.dynamic_update_slice(row, row[:1] * 0 + 5, (i,)),
    "reshape and scatter": lambda row, i: row.reshape(1, -1).at[0, i].min(1),
    "loop": lambda row, i: lax.fori_loop(0, 3, lambda k, r: r.at[k % i].add(k), row),
    "loop and scatter": lambda row, i: (
        lax.fori_loop(0, i, lambda k, r: lax.dynamic_update_slice(r, r[:1] + k, (k % 2,)), row)
        .at[0]
        .set(7)
    ),
}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_result_that_is_changed_in_place(reverse):
    """What makes a row may be computed where the row is stored, and is changed there."""

    def function(xs, i):
        def step(total, x):
            rows = [change(x * (2 + k), i) for k, change in enumerate(CHANGES.values())]
            looked_up = [change(lax.dynamic_index_in_dim(xs, i, keepdims=False) + k, i)
                         for k, change in enumerate(CHANGES.values())]  # fmt: skip
            return total + 1, (*rows, *looked_up)

        return lax.scan(step, jnp.zeros((), xs.dtype), xs, reverse=reverse)

    arrays = [rng_of(*shape).integers(0, 9, shape).astype(np.float32) for shape in ((4, 3), (3, 7))]
    check(function, [(x, np.int32(2)) for x in arrays])


def test_a_stacked_place_where_another_result_is_stored():
    """A start may be a result, too: both have a place, each its own."""

    def function(xs, places):
        def step(c, x):
            buffer, k = c
            place = lax.dynamic_index_in_dim(places, k, keepdims=False)
            row = jnp.tanh(x).reshape(1, -1)
            buffer = lax.dynamic_update_slice(buffer, row, (place, place * 0))
            return (buffer, k + 1), (place, place + 1)

        return lax.scan(step, (xs * 2, 0), xs)

    check(function, [(x, np.arange(len(x), dtype=np.int32)[::-1] * 2 % 3) for (x,) in cases(1)])
