"""Element-wise work, row reductions and the like, large and small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import shlo_disc
from benchmarks.harness import SETTLE, Case, compare
from benchmarks.models.layers import layer_norm


def rms_norm(x: jax.Array) -> jax.Array:
    """The last axis to a mean square of 1."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def gelu(x: jax.Array) -> jax.Array:
    """With the error function."""
    return jax.nn.gelu(x, approximate=False)


FUNCTIONS: dict[str, Callable[..., jax.Array]] = {
    "softmax": jax.nn.softmax,
    "layer-norm": layer_norm,
    "gelu": gelu,
    "rms-norm": rms_norm,
    "column sum": lambda x: x.sum(0),
    "transpose + bias": lambda x, b: x.T + b,
    "element-wise": lambda x, y: x * y + x,
}


def turned_pairs(x: jax.Array) -> jax.Array:
    """Neighbouring columns exchanged, one of them negated (rotary embedding)."""
    return jnp.stack([-x[:, 1::2], x[:, ::2]], -1).reshape(x.shape)


def batch_norm(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Mean 0 and variance 1 over `axes`, as in training."""
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


OTHERS: dict[str, tuple[Callable[..., jax.Array], tuple[tuple[int, ...], ...]]] = {
    "softmax": (jax.nn.softmax, ((1, 1 << 22), (4, 1 << 20))),
    "layer-norm": (layer_norm, ((1, 1 << 22), (4, 1 << 20))),
    "arg-max": (lambda x: jnp.argmax(x, -1), ((1, 50257), (32, 50257), (1, 1 << 22))),
    "turned pairs": (turned_pairs, ((64, 64), (4096, 768))),
    "batch-norm, NHWC": (lambda x: batch_norm(x, (0, 1, 2)), ((8, 14, 14, 256), (32, 28, 28, 128))),
    "batch-norm, NCHW": (lambda x: batch_norm(x, (0, 2, 3)), ((8, 256, 14, 14), (32, 128, 28, 28))),
    "softmax, first axis": (lambda x: jax.nn.softmax(x, 0), ((64, 64), (4096, 768))),
}
"""Functions without a peer, and their shapes: few long rows, columns in steps, reductions of other
than the last dimension."""


TWO_ARRAYS = frozenset({"element-wise", "transpose + bias"})
"""The others take one."""


def _inputs(name: str, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(shape, np.float32))
    if name == "element-wise":
        return x, x + 1
    return (x, jnp.ones(shape[0])) if name.startswith("transpose") else (x,)


def micro(console: Console, quick: bool) -> None:
    """Every function at 64 x 64 and 4096 x 768 (element-wise with a result of 32 MB); others."""

    def cases() -> Iterator[Case]:
        for name, function in FUNCTIONS.items():
            ours, theirs = shlo_disc.jit(function), jax.jit(function)
            large = (4096, 2048) if name == "element-wise" else (4096, 768)
            for rows, columns in ((64, 64),) if quick else ((64, 64), large):
                x = _inputs(name, (rows, columns))
                calls: dict[str, Any] = {
                    "ours": lambda f=ours, x=x: f(*x),
                    "jax.jit": lambda f=theirs, x=x: f(*x),
                }
                moved = sum(a.nbytes for a in x) + ours(*x).nbytes
                yield Case(f"{name} {rows} x {columns}", calls, read_bytes=float(moved),
                           settle=SETTLE, peer=name, inputs=x)  # fmt: skip

        for name, (function, shapes) in OTHERS.items():
            # Columns of pairs are even in number.
            named = {"shapes": ("n, 2*m",)} if name == "turned pairs" else {}
            ours, theirs = shlo_disc.jit(function, **named), jax.jit(function)
            for shape in shapes[:1] if quick else shapes:
                x = _inputs(name, shape)
                both = {"ours": lambda f=ours, x=x: f(*x), "jax.jit": lambda f=theirs, x=x: f(*x)}
                moved = x[0].nbytes + ours(*x).nbytes
                size = " x ".join(map(str, shape))
                yield Case(f"{name} {size}", both, read_bytes=float(moved),
                           settle=SETTLE, inputs=x)  # fmt: skip

    compare(console, "micro", "micro", cases(), seconds=0.3 if quick else 1.5)
