"""Programs that are saved, with arguments of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_RNG = np.random.default_rng(50)
WEIGHTS = _RNG.standard_normal((48, 96)).astype(np.float32)
"""Closed over, of a size that JAX writes into the module; those of `large` are beside it."""
LARGE = _RNG.standard_normal((300, 300)).astype(np.float32)


class Program(NamedTuple):
    function: Callable[..., Any]
    shapes: Sequence[str]
    sizes: Sequence[dict[str, int]]
    dtypes: Sequence[str] = ()


def _attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8.0
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def _scan(w, x):
    def step(carry, row):
        carry = jnp.tanh(carry @ w + row)
        return carry, carry.sum()

    return lax.scan(step, jnp.zeros(w.shape[0], x.dtype), x)


ROWS = [{"n": n} for n in (1, 7, 64, 129, 1000)]
PROGRAMS = {
    "element-wise": Program(
        lambda x, y: (jnp.tanh(x) * y, jnp.exp(x - y)), ["n, 33", "n, 33"], ROWS
    ),
    "product": Program(lambda x, w: jax.nn.gelu(x @ w), ["n, 48", "48, 96"], ROWS),
    "long sums": Program(
        lambda x, w: x @ w, ["4, n", "n, 4"], [{"n": 4096 * k} for k in range(1, 6)]
    ),
    "attention": Program(
        _attention,
        ["b, 4, t, 64"] * 3,
        [{"b": b, "t": t} for b, t in ((1, 1), (2, 17), (1, 64), (3, 100), (2, 257))],
    ),
    "scan": Program(_scan, ["32, 32", "n, 32"], [*ROWS[:4], {"n": 300}]),
    "sort": Program(lambda x: (jnp.sort(x), jnp.argsort(x, axis=0)), ["n, 5"], ROWS),
    "weights": Program(lambda x: x @ WEIGHTS + jnp.arange(96.0), ["n, 48"], ROWS),
    "large weights": Program(lambda x: x @ LARGE, ["n, 300"], ROWS),
    "halves": Program(lambda x, w: x @ w, ["n, 48", "48, 96"], ROWS, ["bfloat16", "bfloat16"]),
    "integers": Program(lambda x: (x // 3, x.sum(0)), ["n, 9"], ROWS, ["int32"]),
    "fft": Program(lambda x: jnp.abs(jnp.fft.rfft(x)), ["n, 64"], ROWS),
}  # fmt: skip


def dtypes_of(program: Program) -> Sequence[str]:
    """The element types of the arguments."""
    return program.dtypes or ["float32"] * len(program.shapes)


def arguments(program: Program, sizes: dict[str, int]) -> list[np.ndarray[Any, Any]]:
    """Random arguments, the same in every call."""
    rng = np.random.default_rng(sum(sizes.values()))
    made = []
    for text, dtype in zip(program.shapes, dtypes_of(program), strict=True):
        shape = [int(part) if part.isdigit() else sizes[part] for part in text.split(", ")]
        made.append((4 * rng.standard_normal(shape)).astype(dtype))
    return made


def export(program: Program) -> Any:
    """The program with its symbols."""
    scope = jax.export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=scope), dtype)
        for text, dtype in zip(program.shapes, dtypes_of(program), strict=True)
    ]
    return jax.export.export(jax.jit(program.function))(*specs)


EXTERN = """
func.func public @main(%x: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xf32>) {
  %l = stablehlo.cholesky %x, lower = true : tensor<3x3xf32>
  %y = stablehlo.custom_call @nobody.has_it(%l) {mhlo.backend_config =
    {a = {b = {c = "d", e = array<i16: 1, 2>}}, f = dense<1.5> : tensor<2xf64>, g = 7 : i32}}
    : (tensor<3x3xf32>) -> tensor<3xf32>
  return %l, %y : tensor<3x3xf32>, tensor<3xf32>
}"""
"""Calls LAPACK, and a target that no process has registered."""
