"""Numbers of few bits: conversions, products of quantised operands, weights of 8 and 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import shlo_disc
from benchmarks.harness import SETTLE, Case, compare

SCALE, GROUP = 0.03, 128
STEP = 0.5
"""A step of the integers that results become."""


def quantise(x: jax.Array, scale: Any = SCALE, dtype: str = "int8") -> jax.Array:
    """The integers nearest to `x / scale`, saturated."""
    info = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x / scale), info.min, info.max).astype(dtype)


def product(w: jax.Array, scale: jax.Array, bias: jax.Array, x: jax.Array) -> jax.Array:
    """As exporters leave it: x [M, K] and w [N, K] dequantised, a scale of each result."""
    return (quantise(x).astype(x.dtype) * SCALE) @ (w.astype(x.dtype) * scale[:, None]).T + bias


def requantised(w: jax.Array, scale: jax.Array, bias: jax.Array, x: jax.Array) -> jax.Array:
    """The same, as integers that the next layer reads."""
    return quantise(product(w, scale, bias, x), STEP)


def dynamic(w: jax.Array, scale: jax.Array, bias: jax.Array, x: jax.Array) -> jax.Array:
    """The same with a scale of each row of `x`, computed in the call."""
    mine = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
    return (quantise(x, mine) * mine) @ (w.astype(x.dtype) * scale[:, None]).T + bias


def by_rows(w: jax.Array, scale: jax.Array, x: jax.Array) -> jax.Array:
    """Weights [N, K] of `torch.nn.Linear`, a scale of each result."""
    return x @ (w.astype(x.dtype) * scale[:, :1]).T


def by_groups_of_rows(w: jax.Array, scale: jax.Array, x: jax.Array) -> jax.Array:
    """The same with a scale of every `GROUP` weights."""
    n, k = w.shape
    wide = w.astype(x.dtype).reshape(n, k // GROUP, GROUP) * scale[:, :, None]
    return x @ wide.reshape(n, k).T


def by_columns(w: jax.Array, scale: jax.Array, x: jax.Array) -> jax.Array:
    """Weights [K, N], a scale of each result."""
    return x @ (w.astype(x.dtype) * scale[0])


def by_groups(w: jax.Array, scale: jax.Array, x: jax.Array) -> jax.Array:
    """The same with a scale of every `GROUP` weights."""
    k, n = w.shape
    wide = w.astype(x.dtype).reshape(k // GROUP, GROUP, n) * scale[:, None]
    return x @ wide.reshape(k, n)


def by_nibbles(w: jax.Array, scale: jax.Array, x: jax.Array) -> jax.Array:
    """Two rows of weights of 4 bits in each row of bytes."""
    halves = jnp.stack([(w & 15).astype(jnp.int8) - 8, (w >> 4 & 15).astype(jnp.int8) - 8], 1)
    return by_groups(halves.reshape(-1, w.shape[1]), scale, x)


CONVERSIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    **{f"f32 to {t}": lambda x, t=t: x.astype(t) for t in ("int8", "uint8", "int32")},
    "quantise": quantise,
    "requantise": lambda x: quantise(quantise(x).astype(x.dtype) * SCALE, STEP),
}

PRODUCTS = {"QDQ": product, "QDQ, requantised": requantised, "QDQ, dynamic": dynamic}

WEIGHT_ONLY = (by_rows, by_groups_of_rows, by_columns, by_groups, by_nibbles)


def _weights(function: Any, k: int, n: int) -> dict[str, jax.Array]:
    """Weights and scales as `function` wants them."""
    r = np.random.default_rng(0)
    rows, dtype = (k // 2, np.uint8) if function is by_nibbles else (k, np.int8)
    w = r.integers(*((0, 256) if dtype is np.uint8 else (-127, 128)), (rows, n)).astype(dtype)
    scale = r.uniform(1e-3, 1e-2, (k // GROUP, n)).astype(np.float32)
    if function in (by_rows, by_groups_of_rows):
        w, scale = w.T.copy(), scale.T.copy()
    return {"w": jnp.asarray(w), "scale": jnp.asarray(scale)}


def _calls(function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    ours, theirs = shlo_disc.jit(function), jax.jit(function)
    return {"ours": lambda: ours(*args), "jax.jit": lambda: theirs(*args)}


def quantised(console: Console, quick: bool) -> None:
    """Quantised products also by ONNX Runtime, which has QDQ of the same numbers."""
    r = np.random.default_rng(0)

    def cases() -> Iterator[Case]:
        for name, convert in CONVERSIONS.items():
            for shape in ((256, 768), (4096, 768))[: 1 if quick else 2]:
                x = jnp.asarray(r.normal(size=shape) * 3, jnp.float32)
                size = "{} x {}".format(*shape)
                moved = float(x.nbytes + jax.eval_shape(convert, x).dtype.itemsize * x.size)
                yield Case(f"{name} {size}", _calls(convert, x), read_bytes=moved, settle=SETTLE)
        m, k, n = 128, 768, 3072
        x = jnp.asarray(r.normal(size=(m, k)), jnp.float32)
        w = r.integers(-127, 128, (n, k)).astype(np.int8)
        made = (w, r.uniform(1e-3, 1e-2, n).astype(np.float32), r.normal(size=n))
        weights = dict(zip(("w", "scale", "bias"), (jnp.asarray(v) for v in made), strict=True))
        for name, function in PRODUCTS.items():
            calls = _calls(function, *weights.values(), x)
            yield Case(f"{name} {m} x {k} x {n}", calls, read_bytes=float(w.nbytes), settle=SETTLE,
                       peer="QDQ" if name == "QDQ" else "", weights=weights,
                       inputs=(x,))  # fmt: skip
        k = n = 1024 if quick else 4096
        for of_weights in WEIGHT_ONLY:
            weights = _weights(of_weights, k, n)
            for rows in (1, 16):
                x = jnp.asarray(r.normal(size=(rows, k)), jnp.float32)
                name = of_weights.__name__.replace("_", " ")
                read = float(sum(v.nbytes for v in weights.values()))
                calls = _calls(of_weights, *weights.values(), x)
                yield Case(f"weights {name} {rows} x {k} x {n}", calls, read_bytes=read,
                           settle=SETTLE, peer="weights by rows" if of_weights is by_rows else "",
                           weights=weights, inputs=(x,))  # fmt: skip

    compare(console, "quantised", "few bits", cases(), seconds=0.2 if quick else 1.5)
