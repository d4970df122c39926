"""Plans that differ in the names of sizes alone are one function of the host program."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc

LAYERS = 4


def stack(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def operands(rows, widths):
    rng = np.random.default_rng(rows)
    pairs = itertools.pairwise(widths)
    weights = [(rng.normal(size=pair) / np.sqrt(pair[0])).astype("f") for pair in pairs]
    return [*map(jnp.asarray, weights)], jnp.asarray(rng.normal(size=(rows, widths[0])), "f")


@pytest.fixture(scope="module")
def compiled():
    function = shlo_disc.jit(stack)
    given = operands(5, [12, 20, 28, 36, 44])
    function(*given)
    return function


def test_layers_share_a_function(compiled):
    executable = compiled.lower(*operands(5, [12, 20, 28, 36, 44])).compile().executable
    text = executable.as_text("host")
    functions, calls = re.findall(r"func.func @plan", text), re.findall(r"call @plan", text)
    assert len(functions) == 1
    assert len(calls) == LAYERS


@pytest.mark.parametrize(
    ("rows", "widths"),
    [(5, [12, 20, 28, 36, 44]), (1, [3, 1, 2, 300, 5]), (70, [64, 64, 48, 1024, 9])],
)
def test_values(compiled, rows, widths):
    weights, x = operands(rows, widths)
    want = np.asarray(x, np.float64)
    for w in weights:
        want = np.tanh(want @ np.asarray(w, np.float64))
    for _ in range(2):  # the second call finds packed copies
        np.testing.assert_allclose(compiled(weights, x), want, rtol=0, atol=3e-6)
    numpy = [np.asarray(w) for w in weights]  # nobody keeps copies of these
    np.testing.assert_allclose(compiled(numpy, np.asarray(x)), want, rtol=0, atol=3e-6)
    np.testing.assert_allclose(jax.jit(compiled)(weights, x), want, rtol=0, atol=3e-6)


def test_a_profile_tells_the_calls_apart(compiled):
    given = operands(300, [64, 96, 8, 96, 64])
    found = compiled.profile(*given)
    assert [row.launches > 0 for row in found.kernels] == [True] * LAYERS
