"""No shape may be much slower than XLA's code for that very shape: many functions at many sizes.

Tiny arrays measure the call, so the table tells both: the ratio as it is, and the ratio of what is
left when the time of a call on empty work is taken off both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.harness import interleaved
from benchmarks.micro import FUNCTIONS, TWO_ARRAYS
from benchmarks.store import write

SIZES = (0, 1, 2, 3, 5, 7, 13, 16, 17, 31, 64, 100, 127, 128, 255, 512, 1000)

LIMIT = 0.9
"""A ratio below it is listed."""

DOUBTFUL = 1.0
"""Points below it, on either side of the limit, are measured again, ten times as long: a call of
10 us takes 8 or 14 from one moment to the next, and there are hundreds of points.
"""


def _next(x: jax.Array) -> jax.Array:
    return x + 1


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("thd,shd->hts", q, k) / 8.0
    return jnp.einsum("hts,shd->thd", jax.nn.softmax(scores), v)


def _workloads() -> dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]]:
    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))

    def one(n: int) -> tuple[jax.Array, ...]:
        return (normal(33, n),)

    def rows(n: int) -> tuple[jax.Array, ...]:
        return (normal(n, 96),)

    weight = normal(256, 192)
    kernel = normal(3, 3, 16, 32)
    of_one = {name: f for name, f in FUNCTIONS.items() if name not in TWO_ARRAYS}
    found: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
        f"{name}, columns": (f, one) for name, f in of_one.items()
    }
    found |= {f"{name}, rows": (f, rows) for name, f in of_one.items()}
    return found | {
        "product, rows": (lambda x, w: x @ w, lambda n: (normal(n, 256), weight)),
        "product, depth": (lambda x, w: x @ w, lambda n: (normal(48, n), normal(n, 64))),
        "product, columns": (lambda x, w: x @ w, lambda n: (normal(48, 80), normal(80, n))),
        "attention": (_attention, lambda n: (normal(n, 2, 64),) * 3),
        "convolution": (
            lambda x, w: jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            lambda n: (normal(1, n, 8, 16), kernel),
        ),
        "cumsum": (lambda x: jnp.cumsum(x, -1), one),
        "sort": (lambda x: jnp.sort(x, -1), one),
        "gather": (lambda x, i: x[i], lambda n: (normal(1000, 64), jnp.arange(n) % 1000)),
        "concatenate": (lambda x: jnp.concatenate([x, x * 2], -1), one),
        "scan": (
            lambda x: jax.lax.scan(lambda c, v: (c * 0.9 + v, c), jnp.zeros(33), x.T)[1],
            one,
        ),
    }


def sweep(console: Console, quick: bool) -> None:
    """Every workload at every size; lists what is slower than `LIMIT` times XLA."""
    empty = jnp.zeros(())
    ours, theirs = shlo_disc.jit(_next), jax.jit(_next)
    calls = {"ours": lambda: ours(empty), "jax.jit": lambda: theirs(empty)}
    floor = interleaved(calls, seconds=0.5, settle=0.05)
    rows: list[dict[str, Any]] = []
    for name, (function, inputs) in list(_workloads().items())[: 2 if quick else None]:
        mine = shlo_disc.jit(function)
        for n in SIZES[:: 4 if quick else 1]:
            x, its = inputs(n), jax.jit(function)
            calls = {"ours": lambda f=mine, x=x: f(*x), "jax.jit": lambda f=its, x=x: f(*x)}
            times = interleaved(calls, seconds=0.1, least=4, settle=0.02)
            if times["jax.jit"].median < DOUBTFUL * times["ours"].median:
                times = interleaved(calls, seconds=1.0, settle=0.02)
            work = {k: max(t.median - floor[k].median, 1e-3) for k, t in times.items()}
            rows.append(
                {
                    "workload": name,
                    "size": n,
                    "ratio": times["jax.jit"].median / times["ours"].median,
                    "ratio_without_call": work["jax.jit"] / work["ours"],
                    "times_ms": {k: asdict(t) for k, t in times.items()},
                }
            )
    slow = [row for row in rows if row["ratio"] < LIMIT]
    table = Table(title=f"{len(slow)} of {len(rows)} points below {LIMIT} of jax.jit")
    for column in ("workload", "size", "ours us", "jax.jit / ours", "without the call"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for row in sorted(slow, key=lambda row: row["ratio"]):
        table.add_row(row["workload"], str(row["size"]),
                      f"{row['times_ms']['ours']['median'] * 1e3:.1f}", f"{row['ratio']:.2f}",
                      f"{row['ratio_without_call']:.2f}")  # fmt: skip
    console.print(table)
    empty_ms = {name: spread.median for name, spread in floor.items()}
    console.print(f"a call on one number: {empty_ms}; {write('sweep', rows, call_ms=empty_ms)}")
