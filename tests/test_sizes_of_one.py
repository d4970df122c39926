"""Sizes that are proved to be 1, by a stated constraint or by a branch of the function.

Broadcasts, reshapes and run-time iotas of one element are then one another: rules that ask whether
a value repeats one number meet all of them. The oracle is `jax.jit`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.cases import crossed

X = np.array([0.7], np.float32)

SOURCES = {
    "argument": lambda x, n: x,
    "array": lambda x, n: jnp.full((1,), 3.0),
    "computed": lambda x, n: jnp.sin(x),
    "full": lambda x, n: jnp.full((n,), 3.0),
    "iota": lambda x, n: jnp.arange(n, dtype=np.float32),
    "iota of a sum": lambda x, n: 1 + jnp.arange(n, dtype=np.float32),
    "number": lambda x, n: jnp.float32(3),
    "scalar": lambda x, n: x.sum(),
    "totals": lambda x, n: jnp.cumsum(x),
}
SHAPES = {
    "n": lambda n: (n,),
    "n, 1": lambda n: (n, 1),
    "1, n": lambda n: (1, n),
    "n, n": lambda n: (n, n),
    "1, n, 1": lambda n: (1, n, 1),
}
OPS = (
    lambda a: a * 0.5,
    lambda a: jnp.maximum(a, 0),
    lambda a: jnp.where(a > 0, a, 8.0),
    lambda a: jnp.exp(a) / (1 + jnp.exp(a)),
    lambda a: a.astype(np.int32) * 8 + 1,
    lambda a: a[None] * a[:, None],
    lambda a: jnp.broadcast_to(a * 3, (a.shape[0], *a.shape)) + 1,
    lambda a: (a > 0) & True,
    lambda a: (a * 2).sum(-1) * 3,
)
CONDITIONS = {
    "none": lambda n: False,
    "n > 1": lambda n: n > 1,
    "n >= 2": lambda n: n >= 2,
    "n + 1 > 2": lambda n: n + 1 > 2,
    "max(n, 2) == n": lambda n: max(n, 2) == n,
}


@pytest.mark.parametrize(("source", "shape", "condition"), crossed(SOURCES, SHAPES, CONDITIONS))
def test_elementwise_work_on_one_element(source: str, shape: str, condition: str) -> None:
    def function(x: jax.Array) -> list[jax.Array]:
        n = x.shape[0]
        if CONDITIONS[condition](n):
            return [x]
        value = SOURCES[source](x, n).reshape(SHAPES[shape](n))
        return [op(value) for op in OPS]

    options = {"shapes": "n", "constraints": "n <= 1"} if condition == "none" else {}
    found = shlo_disc.jit(function, **options)(X)
    for one, other in zip(found, jax.jit(function)(X), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_an_iota_of_the_run_time_with_one_element() -> None:
    """As a StableHLO program of any front end writes the starts of windows."""
    number, pair, column = "tensor<1xi32>", "tensor<2xi32>", "tensor<?x1xi32>"
    text = f"""
    func.func @main(%x: tensor<?xi32>) -> {column} {{
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xi32>) -> tensor<i32>
      %size = stablehlo.reshape %n : (tensor<i32>) -> {number}
      %one = stablehlo.constant dense<1> : {number}
      %shape = stablehlo.concatenate %size, %one, dim = 0 : ({number}, {number}) -> {pair}
      %starts = stablehlo.dynamic_iota %size, dim = 0 : ({number}) -> tensor<?xi32>
      %next = stablehlo.add %starts, %x : tensor<?xi32>
      %a = stablehlo.dynamic_reshape %starts, %shape : (tensor<?xi32>, {pair}) -> {column}
      %b = stablehlo.dynamic_reshape %next, %shape : (tensor<?xi32>, {pair}) -> {column}
      %step = stablehlo.constant dense<8> : tensor<i32>
      %steps = stablehlo.dynamic_broadcast_in_dim %step, %shape, dims = []
          : (tensor<i32>, {pair}) -> {column}
      %c = stablehlo.multiply %a, %steps : {column}
      %d = stablehlo.multiply %b, %steps : {column}
      %y = stablehlo.add %c, %d : {column}
      return %y : {column}
    }}"""
    program = shlo_disc.compile(text, shapes=[["n"]], constraints="n <= 1")
    (found,) = program(np.array([5], np.int32))
    np.testing.assert_array_equal(found, [[40]])


@pytest.mark.slow
def test_second_derivatives_at_one_datum() -> None:
    """The rule of triangular_solve asks whether there is more than one row."""

    def likelihood(scale: jax.Array, y: jax.Array) -> jax.Array:
        n = y.shape[0]
        factor = jnp.linalg.cholesky(scale * jnp.eye(n) + jnp.ones((n, n)))
        z = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * z @ z + jnp.log(jnp.diagonal(factor)).sum()

    function = jax.grad(jax.grad(likelihood))
    compiled = shlo_disc.jit(function)
    for n in (1, 3):
        y = np.linspace(1, 2, n, dtype=np.float32)
        want = jax.jit(function)(np.float32(0.5), y)
        np.testing.assert_allclose(compiled(np.float32(0.5), y), want, rtol=1e-4)
