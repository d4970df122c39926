"""In the steady state no call touches memory the process has not touched before."""

import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc

PAGES = 4 << 20 >> 12
"""Of one array of the tests."""


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def block(x, w, u):
    h = jax.nn.gelu(x @ w) @ u
    return jax.nn.softmax(h + x), (h * x).sum(0)


CASES = {
    "element-wise": (lambda x: x * x + 1.0, ((1024, 1024),)),
    "a result read later": (lambda x: (x + 1.0, jnp.sort(x, -1)), ((1024, 1024),)),
    "dense, row and column work": (block, ((1024, 1024), (1024, 512), (512, 1024))),
}


@pytest.mark.parametrize("name", CASES)
def test_no_page_faults_in_the_steady_state(name):
    function, shapes = CASES[name]
    f = shlo_disc.jit(function)
    rng = np.random.default_rng(0)
    x = [jnp.asarray(rng.standard_normal(shape, np.float32)) for shape in shapes]
    for _ in range(5):
        jax.block_until_ready(f(*x))
    before = faults()
    calls = 10
    for _ in range(calls):
        jax.block_until_ready(f(*x))
    # A result that was new in every call would cost all of its pages.
    assert faults() - before < calls * PAGES / 20


def test_memory_of_a_smaller_shape_comes_from_a_larger_one():
    f = shlo_disc.jit(lambda x: x * 2.0 + 1.0)
    large, small = jnp.ones((2048, 1024)), [jnp.ones((n, 1024)) for n in range(1100, 1120)]
    for _ in range(3):
        f(large)
    f(small[0])
    before = faults()
    for x in small:
        f(x)
    assert faults() - before < len(small) * PAGES / 4
