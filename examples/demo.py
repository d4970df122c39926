"""`make demo`: BERT-base compiled once, run at 24 shapes beside `jax.jit`.

Prints a row per shape: milliseconds of ours (the first call at that shape, and the steady state),
of `jax.jit` (first call, which compiles, and steady state), and the largest error of both against
a float64 reference, then the totals over the first 20 shapes, which are drawn as requests come.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import bert as model
import click
import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.special import erf

import shlo_disc

REFERENCE = ((1, 128), (8, 128), (1, 384), (1, 1))
"""Shapes beside those of `bert.requests`, which alone make the totals."""


def reference(params: model.Params, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The encoder in numpy float64, written apart from the JAX one: [B, T, H]."""

    def norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale + bias

    b, t = ids.shape
    x = params["tokens"][ids] + params["positions"][:t]
    x = norm(x, params["norm_scale"], params["norm_bias"])
    bias = (1.0 - mask[:, None, None, :]) * -1e9
    for p in params["layers"]:
        q, k, v = (
            (x @ p[n] + p[n + "_bias"]).reshape(b, t, model.HEADS, -1).transpose(0, 2, 1, 3)
            for n in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(-1, -2) / (model.HIDDEN // model.HEADS) ** 0.5 + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(b, t, -1)
        x = norm(x + mixed @ p["out"] + p["out_bias"], p["norm1_scale"], p["norm1_bias"])
        h = x @ p["up"] + p["up_bias"]
        h = h * 0.5 * (1 + erf(h / np.sqrt(2)))
        x = norm(x + h @ p["down"] + p["down_bias"], p["norm2_scale"], p["norm2_bias"])
    return x


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """(result, milliseconds) of one call, waiting for the result."""
    start = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    return result, (time.perf_counter() - start) * 1e3


@click.command()
@click.option("--layers", default=model.LAYERS, show_default=True, help="Encoder layers.")
@click.option("--repeat", default=3, show_default=True, help="Steady-state calls per shape.")
def main(layers: int, repeat: int) -> None:
    """Compile BERT once, run it at every shape beside jax.jit, and print the table."""
    console = Console()
    params = model.init(layers=layers)
    exact = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    ours, theirs = shlo_disc.jit(model.bert), jax.jit(model.bert)
    _, compile_ms = timed(ours, params, *model.batch(1, 16, seed=99))
    console.print(f"shlo_disc: compiled once in {compile_ms / 1e3:.2f} s (first call at 1 x 16)")

    table = Table(title=f"BERT-base, {layers} layers, float32")
    for column in ("batch x length", "ours first ms", "ours ms", "jax first ms", "jax ms",
                   "ours / jax", "ours error", "jax error"):  # fmt: skip
        table.add_column(column, justify="right")
    totals = [0.0, 0.0]
    rows = []
    requests = model.requests()
    with Progress(console=console) as progress:
        for shape in progress.track([*requests, *REFERENCE], description="timing "):
            inputs = model.batch(*shape)
            got, first = timed(ours, params, *inputs)
            want, jax_first = timed(theirs, params, *inputs)
            pairs = [
                (timed(ours, params, *inputs)[1], timed(theirs, params, *inputs)[1])
                for _ in range(repeat)
            ]
            steady = [statistics.median(column) for column in zip(*pairs, strict=True)]
            rows.append((shape, got, want, first, jax_first, *steady))
            if len(rows) <= len(requests):
                totals[0] += first
                totals[1] += jax_first
        # The reference works through 700 MB of weights: after the timings, not between them.
        for shape, got, want, first, jax_first, steady_ms, jax_ms in progress.track(
            rows, description="float64"
        ):
            truth = reference(exact, *model.batch(*shape))
            errors = [float(np.abs(np.asarray(a) - truth).max()) for a in (got, want)]
            table.add_row(
                f"{shape[0]} x {shape[1]}", f"{first:.1f}", f"{steady_ms:.1f}", f"{jax_first:.0f}",
                f"{jax_ms:.1f}", f"{steady_ms / jax_ms:.2f}", *(f"{e:.1e}" for e in errors),
            )  # fmt: skip
    console.print(table)
    console.print(
        f"{len(requests)} new shapes: ours {totals[0] / 1e3:.2f} s, jax.jit "
        f"{totals[1] / 1e3:.2f} s ({totals[1] / totals[0]:.1f} x); {ours.cache_info()}"
    )


if __name__ == "__main__":
    main()
