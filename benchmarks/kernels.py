"""Single kernels: matrix products, attention, a recurrent layer, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import shlo_disc
from benchmarks.harness import SETTLE, Case, Thunk, compare
from benchmarks.models.layers import Weights, conv, lstm, lstm_init
from benchmarks.targets import TARGETS


def _both(function: Callable[..., Any], ours: Any, *args: Any) -> dict[str, Thunk]:
    theirs = jax.jit(function)
    return {"ours": lambda: ours(*args), "jax.jit": lambda: theirs(*args)}


def gemm(console: Console, quick: bool) -> None:
    """Matrix products with a weight that stays the same; OpenBLAS through numpy."""
    sizes = [(2048, 2048, 2048), *(
        (m, k, n) for m in (1, 16, 128, 1024) for k, n in ((768, 768), (768, 3072), (3072, 768))
    )]  # fmt: skip

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w

    ours = shlo_disc.jit(product)

    def cases() -> Iterator[Case]:
        rng = np.random.default_rng(0)
        for m, k, n in sizes[:2] if quick else sizes:
            x, w = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
            out = np.empty((m, n), np.float32)
            weights = {"w": jnp.asarray(w)}
            calls = _both(product, ours, jnp.asarray(x), weights["w"])
            calls["OpenBLAS"] = lambda x=x, w=w, out=out: np.matmul(x, w, out=out)
            read = 4.0 * k * n
            # Peers compile for each weight: only where there is a target.
            peer = "gemm" if ("gemm", f"{m} x {k} x {n}") in TARGETS else ""
            # OpenBLAS' threads spin for a while after a call.
            yield Case(f"{m} x {k} x {n}", calls, 2.0 * m * k * n, read, settle=0.2,
                       peer=peer, weights=weights, inputs=(x,))  # fmt: skip

    compare(console, "gemm", "matrix products", cases(), seconds=0.3 if quick else 2.5)


def _attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / 8.0
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)


def _attend_causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / 8.0
    t = jnp.arange(q.shape[1])
    scores = jnp.where(t[:, None] >= t[None, :], scores, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)


def _attend_repeated(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Every head of keys and values for four heads of queries."""
    return _attend(q, jnp.repeat(k, 4, axis=2), jnp.repeat(v, 4, axis=2))


def attention(console: Console, quick: bool) -> None:
    """12 heads of 64, batch 1 and 8; 32 heads over 8 of keys. The floor counts both products."""
    functions = {"": _attend, "causal ": _attend_causal, "nn ": jax.nn.dot_product_attention}

    def cases() -> Iterator[Case]:
        rng = np.random.default_rng(0)
        for name, function in functions.items():
            ours = shlo_disc.jit(function)
            for b, t in ((1, 128), (8, 128), (1, 384), (1, 1024), (1, 4096))[: 1 if quick else 5]:
                shape = (b, t, 12, 64)
                q, k, v = (jnp.asarray(rng.standard_normal(shape, np.float32)) for _ in range(3))
                flops = 4.0 * b * 12 * t * t * 64
                yield Case(f"{name}{b} x {t}", _both(function, ours, q, k, v), flops, settle=SETTLE,
                           peer="" if name else "attention", inputs=(q, k, v))  # fmt: skip
        ours = shlo_disc.jit(_attend_repeated)
        for t, s in ((1, 4096), (128, 128), (1024, 1024))[: 1 if quick else 3]:
            sizes = (1, t, 32, 64), (1, s, 8, 64), (1, s, 8, 64)
            q, k, v = (jnp.asarray(rng.standard_normal(x, np.float32)) for x in sizes)
            yield Case(f"repeated {t} of {s}", _both(_attend_repeated, ours, q, k, v),
                       4.0 * 32 * t * s * 64, float(k.nbytes + v.nbytes), settle=SETTLE,
                       inputs=(q, k, v))  # fmt: skip

    compare(console, "attention", "attention", cases(), seconds=0.5 if quick else 3)


def recurrent(console: Console, quick: bool) -> None:
    """An LSTM layer of 256 by lax.scan, and a loop of tiny steps."""

    def tiny(x: jax.Array) -> Any:
        return jax.lax.scan(lambda c, v: (c * 0.9 + v, c), jnp.zeros(()), x)

    def cases() -> Iterator[Case]:
        weight, ours = Weights(0), shlo_disc.jit(lstm)
        p = lstm_init(weight, 256, 256)
        for t, b in ((256, 1), (128, 8), (100, 64))[: 1 if quick else 3]:
            xs = weight(t, b, 256)
            flops = 2.0 * t * b * 512 * 1024
            calls = _both(lstm, ours, p, xs)
            yield Case(f"LSTM {t} steps, batch {b}", calls, flops, settle=SETTLE,
                       peer="lstm", weights=p, inputs=(xs,))  # fmt: skip
        yield Case("1000 tiny steps", _both(tiny, shlo_disc.jit(tiny), jnp.ones(1000)))

    compare(console, "recurrent", "recurrent layers", cases(), seconds=0.5 if quick else 3)


def convolutions(console: Console, quick: bool) -> None:
    """NHWC, 3 x 3 and 1 x 1."""
    sizes = (
        (32, 32, 64, 64, 3),
        (56, 56, 64, 128, 3),
        (14, 14, 256, 256, 3),
        (28, 28, 128, 512, 1),
    )

    def cases() -> Iterator[Case]:
        weight, ours = Weights(0), shlo_disc.jit(conv)
        for h, w, c, d, k in sizes[: 1 if quick else None]:
            for b in (1, 4):
                x, kernel = weight(b, h, w, c), weight(k, k, c, d)
                flops = 2.0 * b * h * w * c * d * k * k
                name = f"{b} x {h} x {w} x {c}, {k} x {k} to {d}"
                yield Case(name, _both(conv, ours, x, kernel), flops, settle=SETTLE)

    compare(console, "conv", "convolutions", cases(), seconds=0.3 if quick else 1.5)
