"""Host programs on a device whose memory the host cannot reach: all goes through HostMemory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lower.device import Stream, StreamMemory, emitted, reached
from tests.lower.test_host import CASE, LOOP

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def scanned(x, w):
    def step(state, row):
        state = jnp.tanh(state @ w + row)
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(x[0]), x)


def normalized(x, w):
    y = x @ w
    y = y - y.mean(-1, keepdims=True)
    return y / jnp.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)


def branches(n, x):
    def body(state):
        i, y = state
        y = jax.lax.cond(i % 2 == 0, lambda y: y + x, lambda y: jnp.sort(y)[::-1] * 0.5, y)
        return i + 1, y

    return jax.lax.while_loop(lambda state: state[0] < n, body, (jnp.int32(0), x))


PROGRAMS = {
    "scan": (scanned, (floats(6, 40, 16), floats(16, 16))),
    "row work": (normalized, (floats(200, 64), floats(64, 96))),
    "branches": (branches, (np.int32(5), floats(33))),
    "given back": (lambda x: (x, x, 2 * x), (floats(7),)),
}
USES = {
    "scan": {"launch", "by value", "copy"},
    "row work": {"launch", "zero", "pack"},
    "branches": {"launch", "read", "write"},
    "given back": {"launch", "copy"},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_on_a_device_the_host_cannot_reach(name):
    function, arguments = PROGRAMS[name]
    made = emitted(jax.jit(function).lower(*arguments).as_text(), StreamMemory())
    stream = Stream()
    got = stream.run(made, [np.asarray(a) for a in arguments])
    for mine, want in zip(got, jax.tree.leaves(function(*arguments)), strict=True):
        np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)
    assert set(stream.done) >= USES[name]


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_carried_values_change_places_on_a_device(trips):
    a, b = floats(50), floats(50)
    i, p, q = Stream().run(emitted(LOOP, StreamMemory()), [np.array(trips, np.int32), a, b])
    for _ in range(trips):
        a, b = b, a + b
    assert i == trips
    np.testing.assert_array_equal(p, a)
    np.testing.assert_array_equal(q, b)


@pytest.mark.parametrize(("index", "factors"), [(0, (2, 2)), (1, (-1, 1)), (-1, (1, 1))])
def test_a_branch_is_chosen_by_a_value_on_the_device(index, factors):
    x = floats(9)
    got, product = Stream().run(emitted(CASE, StreamMemory()), [np.array(index, np.int32), x])
    np.testing.assert_array_equal(got, factors[0] * x)
    np.testing.assert_array_equal(product, factors[1] * x * x)


@pytest.mark.parametrize("text", [LOOP, CASE])
def test_the_host_reaches_memory_of_a_cpu(text):
    # What the tests above forbid is seen where it is allowed.
    assert reached(emitted(text).host.text) != []
