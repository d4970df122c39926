"""Programs that are long or deep compile in bounded time, with kernels of bounded size."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc.ingest.concatenations import MOST_OPERANDS
from tests.models.harness import check


@pytest.mark.parametrize("size", ["2", "?"])
@pytest.mark.parametrize(
    "count", [MOST_OPERANDS, MOST_OPERANDS + 1, 130, pytest.param(700, marks=pytest.mark.slow)]
)
def test_one_concatenation_of_many_operands(count, size):
    """Operands repeat: an array passed to a kernel more than once is one array."""
    kinds = 40 if size == "2" else 3
    given = ", ".join(f"%a{k}: tensor<{size}x3xf32>" for k in range(kinds))
    operands = ", ".join(f"%a{k % kinds}" for k in range(count))
    types = ", ".join([f"tensor<{size}x3xf32>"] * count)
    result = f"tensor<{'?' if size == '?' else 2 * count}x3xf32>"
    text = f"""func.func @main({given}) -> {result} {{
      %r = stablehlo.concatenate {operands}, dim = 0 : ({types}) -> {result}
      return %r : {result}
    }}"""
    arrays = [np.full((2, 3), k, np.float32) for k in range(kinds)]
    (found,) = shlo_disc.compile(text)(*arrays)
    np.testing.assert_array_equal(found, np.concatenate([arrays[k % kinds] for k in range(count)]))


def test_values_read_at_ever_more_indices():
    """Each step reads the value before it at two places, which is 2^16 in the end.

    NumPy says what is right: XLA takes minutes for such a program.
    """

    def twice(xp, x):
        for k in range(10):
            x = xp.concatenate([x, x + k])[k % 2 :]
        return x

    def looked_up(xp, x):
        for _ in range(16):
            x = x[xp.abs(x).astype(int) % 3]
        return x

    def shifted(xp, x):
        for _ in range(16):
            x = xp.where(x > 0, xp.pad(x, (1, 0))[:-1], x[::-1])
        return x

    def function(xp, x):
        return twice(xp, x), looked_up(xp, x), shifted(xp, x)

    f = shlo_disc.jit(functools.partial(function, jnp))
    for n in (3, 5):
        x = np.arange(n, dtype=np.float32) - 2
        for got, want in zip(f(x), function(np, x), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
    assert f.cache_info().misses == 1


def test_many_reductions_of_one_row():
    """Every reduction of a row computes what is in front of it anew."""

    def function(x):
        for _ in range(40):
            x = x - x.sum(-1, keepdims=True) * 0.01
        return x

    check(function, [(np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(3, n),) for n in (4, 9)])


def test_deep_control_flow():
    def nested(x, depth):
        if not depth:
            return x + 1
        return lax.cond(
            x.sum() > depth,
            lambda x: nested(x, depth - 1),
            lambda x: lax.fori_loop(0, 2, lambda i, c: c * 0.5 + i, x),
            x,
        )

    check(lambda x: nested(x, 16), [(np.arange(float(n), dtype=np.float32),) for n in (5, 40)])
