"""Memory that cannot be had is an error that says what it was for, with its size."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral

HUGE = 1 << 40


def compiled(body: str, result: str) -> shlo_disc.Executable:
    return shlo_disc.compile(f"func.func @main(%x: tensor<?xf32>) -> {result} {{ {body} }}")


@pytest.mark.parametrize(
    "body",
    [
        f"%r = stablehlo.iota dim = 0 : tensor<{HUGE}xf32>",
        f"%z = stablehlo.constant dense<1.0> : tensor<f32> %r = stablehlo.broadcast_in_dim %z, "
        f"dims = [] : (tensor<f32>) -> tensor<{HUGE}xf32>",
        f"%r = stablehlo.constant dense<1.0> : tensor<{HUGE}xf32>",
    ],
    ids=["iota", "broadcast", "constant"],
)
def test_a_result(body):
    kind = f"tensor<{HUGE}xf32>"
    executable = compiled(f"{body} return %r : {kind}", kind)
    before = ral.pool_stats()["in_use_blocks"]
    message = f"main: result 0 is float32[{HUGE}] and takes {4 * HUGE} bytes"
    with pytest.raises(MemoryError, match=re.escape(message)):
        executable(np.ones(2, np.float32))
    assert ral.pool_stats()["in_use_blocks"] <= before  # other tests may leave garbage


def test_the_result_that_is_named_is_the_one_without_memory():
    function = shlo_disc.jit(
        lambda x: (x + 1, {"wide": jnp.broadcast_to(x, (HUGE >> 8, x.shape[0]))})
    )
    with pytest.raises(MemoryError, match=r"result 1 is float32\[4294967296,2048\] and takes"):
        function(np.ones(2048, np.float32))
    assert function(np.ones(0, np.float32))[1]["wide"].shape == (HUGE >> 8, 0)


def _product(x):
    return jnp.sort(x.T @ x, 0).sum()


def test_temporary_values():
    message = r"_product: temporary values take \d{13} bytes, which cannot be allocated"
    with pytest.raises(MemoryError, match=message):
        shlo_disc.jit(_product)(np.ones((0, 1 << 20), np.float32))


SORTED = """func.func @main(%x: tensor<?x?xf32>) -> tensor<f32> {
  %p = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
    : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = "stablehlo.sort"(%p) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<?x?xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""


def test_bytes_that_wrap():
    """An array without elements has any sizes; 2^32 * 2^32 * 4 is 0 in 64 bits."""
    executable = shlo_disc.compile(SORTED)
    function = shlo_disc.jit(lambda x: x.T @ x)
    assert executable(np.ones((0, 5), np.float32))[0] == 0
    for size in (1 << 31, 1 << 32, 1 << 40):
        empty = np.ones((0, size), np.float32)
        with pytest.raises(shlo_disc.ShapeMismatchError, match=r"more than 2\*\*46 bytes"):
            executable(empty)
        with pytest.raises(MemoryError, match=rf"result 0 is float32\[{size},{size}\]"):
            function(empty)
