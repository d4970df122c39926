"""Memory-bound kernels: activations, softmax, layer-norm, and friends, large and small."""

from __future__ import annotations

from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.harness import interleaved, measure_peaks
from benchmarks.store import write

SHAPES = ((4096, 768), (64, 64))


def layer_norm(x):
    """Rows to mean 0 and variance 1."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)


FUNCTIONS = {
    "add one": lambda x: x + 1.0,
    "gelu (erf)": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu (tanh)": lambda x: jax.nn.gelu(x, approximate=True),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "log-softmax": lambda x: jax.nn.log_softmax(x, -1),
    "layer-norm": layer_norm,
    "sum of rows": lambda x: x.sum(-1),
    "sum of columns": lambda x: x.sum(0),
    "transpose": lambda x: x.T,
}


def memory(console: Console, quick: bool) -> None:
    """Steady state at two shapes.

    The floor is reading the argument and writing the result once, from and to memory; a ratio
    below 1 says that caches held them between calls.
    """
    peaks = measure_peaks()
    table = Table(title=f"memory-bound functions ({peaks.gigabytes_per_second:.0f} GB/s measured)")
    for column in ("function", "shape", "ours ms", "jax.jit ms", "ours / jax", "ours / floor"):
        table.add_column(column, justify="left" if column == "function" else "right")
    rows = []
    for name, function in FUNCTIONS.items():
        ours, theirs = shlo_disc.jit(function), jax.jit(function)
        for shape in SHAPES:
            x = jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
            calls = {"ours": lambda x=x, f=ours: f(x), "jax": lambda x=x, f=theirs: f(x)}
            times = interleaved(calls, seconds=0.3 if quick else 1.5)
            floor = peaks.floor_ms(0, x.nbytes + ours(x).nbytes)
            ratio = times["ours"].median / times["jax"].median
            rows.append({"function": name, "shape": shape, "ratio": ratio, "floor_ms": floor,
                         **{f"{k}_ms": asdict(v) for k, v in times.items()}})  # fmt: skip
            table.add_row(name, f"{shape[0]} x {shape[1]}", str(times["ours"]), str(times["jax"]),
                          f"{ratio:.2f}", f"{times['ours'].median / floor:.1f}")  # fmt: skip
    console.print(table)
    console.print(str(write("memory", rows, peaks=asdict(peaks))))
