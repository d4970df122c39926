"""Small programs, one for each family of kernels, with sizes at which they run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

Array = Any


@dataclass(frozen=True)
class Family:
    """A program of arrays."""

    run: Callable[..., Any]
    arguments: tuple[tuple[str, str], ...]
    """Shape, in symbols, and dtype of each."""
    sizes: tuple[dict[str, int], ...]
    tolerance: float = 0.0
    """Differences from the CPU's kernels, relative to the largest result; 0: the same bits."""
    constraints: tuple[str, ...] = ()
    """Of the symbols."""

    @functools.cached_property
    def exported(self) -> export.Exported:
        """The program for all sizes."""
        scope = export.SymbolicScope(self.constraints)
        with jax.enable_x64(any(dtype == "float64" for _, dtype in self.arguments)):
            specs = [
                jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype)
                for shape, dtype in self.arguments
            ]
            return export.export(jax.jit(self.run))(*specs)

    def arrays(self, sizes: dict[str, int]) -> list[np.ndarray]:
        """Arguments: small random numbers, of which integers serve as places."""
        rng = np.random.default_rng(7)
        found = []
        for shape, dtype in self.arguments:
            dims = [int(d) if d.isdigit() else sizes[d] for d in shape.split(", ") if d]
            if np.issubdtype(np.dtype(dtype), np.integer):
                found.append(rng.integers(0, 5, dims).astype(dtype))
            else:
                found.append(rng.standard_normal(dims).astype(jnp.dtype(dtype)))
        return found


def _layer_norm(x: Array, scale: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale


def _dense(x: Array, w: Array, bias: Array) -> Array:
    return jax.nn.gelu(jnp.matmul(x, w, precision="highest") + bias)


def _gated(x: Array, w: Array) -> Array:
    gate, up = jnp.split(x @ w, 2, axis=-1)
    return jax.nn.silu(gate) * up


def _attention(q: Array, k: Array, v: Array) -> Array:
    """Causal, as `jax.nn.dot_product_attention` computes it."""
    scores = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32) * 0.125
    t, s = scores.shape[-2:]
    seen = jnp.arange(t)[:, None] >= jnp.arange(s)[None, :]
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30)).astype(v.dtype)
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def _conv(x: Array, w: Array) -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=numbers, precision="highest"
    )


def _unpooled(x: Array) -> Array:
    def pooled(x: Array) -> Array:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

    return jax.grad(pooled)(x)


def _counted(x: Array) -> Array:
    """A loop whose counter goes to kernels by value."""
    return lax.fori_loop(0, 3, lambda i, y: y * x[i] + i.astype(x.dtype), x)


def _updated(x: Array, u: Array, i: Array) -> Array:
    return lax.dynamic_update_slice(x, u, (i, i * 2))


def _rows(*sizes: Sequence[int]) -> tuple[dict[str, int], ...]:
    return tuple({"n": n, "m": m} for n, m in sizes)


FAMILIES: dict[str, Family] = {
    "loop_f32": Family(
        lambda x, y: jnp.tanh(x) * y + jnp.sin(y), (("n, m", "float32"), ("n, m", "float32")),
        _rows((3, 37)),
    ),
    "loop_bf16": Family(
        jax.nn.silu, (("n, m", "bfloat16"),), _rows((5, 41)),
    ),
    "transpose": Family(
        lambda x, y: x.T + y, (("n, m", "float32"), ("m, n", "float32")), _rows((70, 35)),
    ),
    "row": Family(
        jax.nn.softmax, (("n, m", "float32"),),
        _rows((3, 77), (2, 1100), (1, 17000)), 1e-6,
    ),
    "row_bf16": Family(
        _layer_norm, (("n, m", "bfloat16"), ("m", "bfloat16")), _rows((5, 96), (2, 1030)), 1e-2,
    ),
    "column": Family(
        lambda x: x.sum(0), (("n, m", "float32"),), _rows((9, 33), (200, 20)), 1e-6,
    ),
    "product_f32": Family(
        _dense, (("n, m", "float32"), ("m, k", "float32"), ("k", "float32")),
        ({"n": 37, "m": 50, "k": 67},), 1e-6,
    ),
    "product_bf16": Family(
        lambda x, y: jnp.einsum("bnm,bkm->bnk", x, y),
        (("b, n, m", "bfloat16"), ("b, k, m", "bfloat16")),
        ({"b": 2, "n": 33, "m": 40, "k": 66},), 1e-2,
    ),
    "product_f16": Family(
        lambda x, y: jnp.einsum("bmn,bmk->bnk", x, y),
        (("b, m, n", "float16"), ("b, m, k", "float16")),
        ({"b": 2, "n": 40, "m": 72, "k": 136}, {"b": 1, "n": 33, "m": 40, "k": 67}), 2e-3,
    ),
    "product_f64": Family(
        jnp.matmul, (("n, m", "float64"), ("m, k", "float64")),
        ({"n": 37, "m": 50, "k": 68}, {"n": 5, "m": 33, "k": 67}), 1e-14,
    ),
    "product_i8": Family(
        lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.int32),
        (("n, m", "int8"), ("m, k", "int8")),
        ({"n": 37, "m": 48, "k": 80}, {"n": 5, "m": 33, "k": 67}), 0.0,
    ),
    "product_bands": Family(
        _gated, (("n, m", "bfloat16"), ("m, 144", "bfloat16")), _rows((37, 72), (3, 33)), 1e-2,
    ),
    "attention": Family(
        _attention,
        (("b, t, h, 64", "bfloat16"), ("b, s, h, 64", "bfloat16"), ("b, s, h, 64", "bfloat16")),
        ({"b": 1, "t": 20, "s": 70, "h": 2}, {"b": 1, "t": 130, "s": 70, "h": 1}), 2e-2,
    ),
    "attention_wide": Family(
        _attention,
        (("b, t, h, 128", "bfloat16"), ("b, s, h, 128", "bfloat16"), ("b, s, h, 128", "bfloat16")),
        ({"b": 1, "t": 20, "s": 70, "h": 2},), 2e-2,
    ),
    "attention_odd": Family(
        _attention,
        (("b, t, h, 100", "float16"), ("b, s, h, 100", "float16"), ("b, s, h, 99", "float16")),
        ({"b": 1, "t": 9, "s": 70, "h": 2},), 2e-2,
    ),
    "attention_f32": Family(
        _attention,
        (("b, t, h, 64", "float32"), ("b, s, h, 64", "float32"), ("b, s, h, 64", "float32")),
        ({"b": 1, "t": 20, "s": 70, "h": 2}, {"b": 1, "t": 5, "s": 300, "h": 1}), 4e-3,
    ),
    "attention_f32_wide": Family(
        _attention,
        (("b, t, h, 128", "float32"), ("b, s, h, 128", "float32"), ("b, s, h, 128", "float32")),
        ({"b": 1, "t": 20, "s": 70, "h": 2},), 4e-3,
    ),
    "attention_f32_256": Family(
        _attention,
        (("b, t, h, 256", "float32"), ("b, s, h, 256", "float32"), ("b, s, h, 256", "float32")),
        ({"b": 1, "t": 20, "s": 70, "h": 1},), 4e-3,
    ),
    "attention_f32_odd": Family(
        _attention,
        (("b, t, h, 50", "float32"), ("b, s, h, 50", "float32"), ("b, s, h, 149", "float32")),
        ({"b": 1, "t": 9, "s": 70, "h": 2},), 4e-3,
    ),
    "attention_256": Family(
        _attention,
        (("b, t, h, 256", "bfloat16"), ("b, s, h, 256", "bfloat16"), ("b, s, h, 256", "bfloat16")),
        ({"b": 1, "t": 20, "s": 70, "h": 1}, {"b": 1, "t": 3, "s": 300, "h": 1}), 2e-2,
    ),
    "attention_192": Family(
        _attention,
        (("b, t, h, 192", "float16"), ("b, s, h, 192", "float16"), ("b, s, h, 128", "float16")),
        ({"b": 1, "t": 20, "s": 70, "h": 1},), 2e-2,
    ),
    "conv": Family(
        _conv, (("b, h, w, 3", "float32"), ("3, 3, 3, 5", "float32")),
        ({"b": 2, "h": 7, "w": 6},), 1e-6,
    ),
    "conv_bf16": Family(
        _conv, (("b, h, w, 16", "bfloat16"), ("3, 3, 16, 24", "bfloat16")),
        ({"b": 2, "h": 7, "w": 6},), 1e-2,
    ),
    "fft": Family(
        lambda x: jnp.abs(jnp.fft.rfft(x)), (("n, 60", "float32"),), ({"n": 2},), 1e-6,
    ),
    "sort": Family(
        lambda x: jnp.sort(x, axis=-1), (("n, m", "float32"),), _rows((2, 50)),
    ),
    "scan": Family(
        lambda x: jnp.cumsum(x, axis=-1), (("n, m", "float32"),), _rows((3, 60)), 1e-6,
    ),
    "scatter": Family(
        lambda x, i, u: x.at[i].add(u),
        (("n, m", "float32"), ("k", "int32"), ("k, m", "float32")),
        ({"n": 6, "m": 20, "k": 9},), 1e-6,
    ),
    "select_and_scatter": Family(
        _unpooled, (("b, 8, 6, c", "float32"),), ({"b": 2, "c": 3},),
    ),
    "top_k": Family(
        lambda x: lax.top_k(x, 5), (("n, m", "float32"),), _rows((3, 40)), constraints=("m >= 5",),
    ),
    "rng": Family(
        lambda key, x: lax.rng_bit_generator(key, x.shape, jnp.uint32),
        (("4", "uint32"), ("n, m", "int8")), _rows((3, 7)),
    ),
    "update_slice": Family(
        _updated, (("n, m", "float32"), ("2, 3", "float32"), ("", "int32")), _rows((6, 20)),
        constraints=("n >= 2", "m >= 3"),
    ),
    "scalars": Family(_counted, (("n", "float32"),), ({"n": 50},)),
}  # fmt: skip

OF_NVIDIA = frozenset(
    ["attention_f32", "attention_f32_wide", "attention_f32_256", "attention_f32_odd",
     "attention_256", "attention_192"]
)  # fmt: skip
"""Families that other GPUs compute by kernels of other families."""


def families_of(platform: str) -> dict[str, Family]:
    """The families with kernels of their own on "cuda" or "rocm"."""
    return {
        name: family
        for name, family in FAMILIES.items()
        if platform == "cuda" or name not in OF_NVIDIA
    }
