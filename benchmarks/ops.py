"""Single ops beside `jax.jit` at the same shapes: transforms, linear algebra, sorts, data movement,
windows, running totals, complex numbers, products of narrow types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console

import shlo_disc
from benchmarks.harness import SETTLE, Case, compare

Shape = tuple[int, ...]
Random = np.random.Generator


@dataclass(frozen=True)
class Op:
    """A function and the shapes it is measured at; the first of them is enough to see it run."""

    function: Callable[..., Any]
    inputs: Callable[..., tuple[Any, ...]]
    """From a random generator and a shape to the arguments."""
    shapes: tuple[Shape, ...]
    flops: Callable[..., float] = lambda *_: 0.0
    """Operations at a shape, for the floor; 0 where bytes decide."""


# ---------------------------------------------------------------- inputs


def _floats(r: Random, *shape: int) -> tuple[np.ndarray, ...]:
    return (r.standard_normal(shape, np.float32),)


def _complex(r: Random, *shape: int, count: int = 1) -> tuple[np.ndarray, ...]:
    def one() -> np.ndarray:
        planes = r.standard_normal((2, *shape), np.float32)
        return planes[0] + 1j * planes[1]

    return tuple(one() for _ in range(count))


def _definite(r: Random, *shape: int) -> tuple[np.ndarray, ...]:
    """Symmetric matrices whose eigenvalues are at least 1."""
    (x,) = _floats(r, *shape)
    n = shape[-1]
    return ((x @ x.swapaxes(-1, -2) / n + np.eye(n)).astype(np.float32),)


def _triangular(r: Random, *shape: int) -> tuple[np.ndarray, ...]:
    """Lower triangular matrices of n, and right sides of m columns, of (..., n, m)."""
    *batch, n, m = shape
    return np.linalg.cholesky(_definite(r, *batch, n, n)[0]), *_floats(r, *batch, n, m)


def _rows_of(r: Random, n: int, width: int, count: int) -> tuple[np.ndarray, ...]:
    """A table, places of `count` rows in it, and as many rows."""
    places = r.integers(0, n, count).astype(np.int32)
    return *_floats(r, n, width), places, *_floats(r, count, width)


def _elements_of(r: Random, n: int, count: int) -> tuple[np.ndarray, ...]:
    places = r.integers(0, n, count).astype(np.int32)
    return *_floats(r, n), places, *_floats(r, count)


def _orders(r: Random, *shape: int) -> tuple[np.ndarray, ...]:
    return *_floats(r, *shape), r.permuted(np.indices(shape)[-1], axis=-1).astype(np.int32)


def _factors(dtype: str, r: Random, m: int, k: int, n: int) -> tuple[Any, ...]:
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return tuple(r.integers(info.min, info.max + 1, s).astype(dtype) for s in ((m, k), (k, n)))
    if dtype == "complex64":
        return *_complex(r, m, k), *_complex(r, k, n)
    return tuple(jnp.asarray(*_floats(r, *s)).astype(dtype) for s in ((m, k), (k, n)))


# ---------------------------------------------------------------- functions


def _product(result: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return lax.dot(x, y, preferred_element_type=jnp.dtype(result))


def _pooled(how: str, window: int, stride: int, x: jax.Array) -> jax.Array:
    """NHWC."""
    sizes, strides = (1, window, window, 1), (1, stride, stride, 1)
    if how == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, sizes, strides, "SAME")
    return lax.reduce_window(x, 0.0, lax.add, sizes, strides, "SAME")


def _solve(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def _fft_flops(count: float, *shape: int, axes: int = 1) -> float:
    """`count` n log2 n for each transform, as FFTW counts: 5 of complex numbers, 2.5 of reals."""
    total = float(np.prod(shape))
    return count * total * float(np.log2(np.prod(shape[-axes:])))


def _product_flops(dtype: str, m: int, k: int, n: int) -> float:
    """As far as the peak of f32 bounds them: bf16 and integers have instructions of their own."""
    return {"float16": 2.0, "complex64": 8.0}.get(dtype, 0.0) * m * k * n


TRANSFORMS = ((256, 64), (1, 1024), (256, 1024), (16, 1009), (16, 65_536), (1, 1 << 20))
PLANES = ((128, 128), (512, 512), (1024, 1024), (16, 256, 256))
MATRICES = ((64, 64), (512, 512), (16, 128, 128))
LISTS = ((64, 64), (1 << 20,), (1024, 1024))
SIZES = ((128, 768, 768), (1, 768, 3072), (16, 768, 3072), (2048, 768, 1), (2048, 768, 3),
         (512, 512, 512), (1024, 1024, 1024))  # fmt: skip
TYPES = (("bfloat16", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16"),
         ("int8", "int32"), ("uint8", "int32"), ("complex64", "complex64"))  # fmt: skip

OPS: dict[str, Op] = {
    "fft": Op(jnp.fft.fft, _complex, TRANSFORMS, functools.partial(_fft_flops, 5.0)),
    "ifft": Op(jnp.fft.ifft, _complex, TRANSFORMS[2:3], functools.partial(_fft_flops, 5.0)),
    "rfft": Op(jnp.fft.rfft, _floats, TRANSFORMS, functools.partial(_fft_flops, 2.5)),
    "irfft": Op(jnp.fft.irfft, _complex, ((256, 513),), functools.partial(_fft_flops, 5.0)),
    "fft2": Op(jnp.fft.fft2, _complex, PLANES, functools.partial(_fft_flops, 5.0, axes=2)),
    "rfft2": Op(jnp.fft.rfft2, _floats, PLANES[1:2], functools.partial(_fft_flops, 2.5, axes=2)),
    "cholesky": Op(jnp.linalg.cholesky, _definite, MATRICES),
    "triangular_solve": Op(_solve, _triangular, ((64, 8), (512, 64), (16, 128, 128))),
    "sort": Op(lambda x: jnp.sort(x, -1), _floats, LISTS),
    "argsort": Op(lambda x: jnp.argsort(x, -1), _floats, LISTS),
    "top 8": Op(lambda x: lax.top_k(x, 8), _floats, ((64, 64), (1024, 1024), (1, 1 << 20))),
    "top 40": Op(lambda x: lax.top_k(x, 40), _floats, ((32, 50_257),)),
    "scatter-add of rows": Op(
        lambda x, i, u: x.at[i].add(u), _rows_of, ((1000, 64, 256), (50_257, 64, 8192))
    ),
    "scatter-add of elements": Op(
        lambda x, i, u: x.at[i].add(u), _elements_of, ((1000, 1000), (1 << 20, 1 << 18))
    ),
    "gather of rows": Op(lambda x, i, u: x[i] + u, _rows_of, ((1000, 64, 256), (50_257, 64, 8192))),
    "gather of elements": Op(
        lambda x, i, u: x[i] + u, _elements_of, ((1000, 1000), (1 << 20, 1 << 18))
    ),
    "take_along_axis": Op(
        lambda x, i: jnp.take_along_axis(x, i, -1), _orders, ((64, 64), (1024, 1024))
    ),
    "max-pooling 3 x 3, stride 2": Op(
        functools.partial(_pooled, "max", 3, 2), _floats, ((1, 28, 28, 32), (8, 56, 56, 64))
    ),
    "sum-pooling 2 x 2, stride 2": Op(
        functools.partial(_pooled, "sum", 2, 2), _floats, ((1, 28, 28, 32), (8, 56, 56, 64))
    ),
    "sums of 5 x 5": Op(functools.partial(_pooled, "sum", 5, 1), _floats, ((8, 28, 28, 64),)),
    "cumsum of rows": Op(lambda x: jnp.cumsum(x, -1), _floats, ((64, 64), *LISTS[1:])),
    "cumsum of columns": Op(lambda x: jnp.cumsum(x, 0), _floats, ((64, 64), (1024, 1024))),
    "cummax of rows": Op(lambda x: lax.cummax(x, 1), _floats, ((1024, 1024),)),
    "roll of rows": Op(lambda x: jnp.roll(x, 5, 1), _floats, ((64, 64), (1024, 1024))),
    "padding between columns": Op(
        lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 0, 1))), _floats, ((64, 64), (1024, 1024))
    ),
    "complex x / y": Op(
        lambda x, y: x / y, functools.partial(_complex, count=2), ((64, 64), (1024, 1024))
    ),
    "complex x * y + x": Op(
        lambda x, y: x * y + x, functools.partial(_complex, count=2), ((64, 64), (1024, 1024))
    ),
    "complex exp": Op(jnp.exp, _complex, ((64, 64), (1024, 1024))),
    "complex abs": Op(jnp.abs, _complex, ((64, 64), (1024, 1024))),
    **{
        f"{left} product to {result}": Op(
            functools.partial(_product, result),
            functools.partial(_factors, left),
            SIZES,
            functools.partial(_product_flops, left),
        )
        for left, result in TYPES
    },
}


def ops(console: Console, quick: bool) -> None:
    """Every op at its shapes; one compilation of ours serves all of them."""

    def cases() -> Iterator[Case]:
        for name, op in OPS.items():
            ours, theirs = shlo_disc.jit(op.function), jax.jit(op.function)
            for shape in op.shapes[:1] if quick else op.shapes:
                x = tuple(jnp.asarray(v) for v in op.inputs(np.random.default_rng(0), *shape))
                calls = {
                    "ours": lambda f=ours, x=x: f(*x),
                    "jax.jit": lambda f=theirs, x=x: f(*x),
                }
                moved = sum(v.nbytes for v in (*x, *jax.tree.leaves(ours(*x))))
                size = " x ".join(map(str, shape))
                yield Case(f"{name} {size}", calls, op.flops(*shape), float(moved), settle=SETTLE)

    compare(console, "ops", "single ops", cases(), seconds=0.1 if quick else 1.5)
