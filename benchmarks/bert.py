"""BERT-base, 12 layers, float32: steady state, new shapes and cold compilation.

Floors: floating-point operations over the measured peak, weight bytes over the measured bandwidth.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.harness import SETTLE, Case, compare, milliseconds
from benchmarks.store import write
from examples import bert as model

STEADY = ((1, 16), (1, 128), (8, 128), (1, 384))


def flops(batch: int, length: int) -> float:
    """Of the matrix products: 2 operations for each weight and token, and the attention."""
    h, tokens = model.HIDDEN, batch * length
    return float(model.LAYERS * (2 * tokens * 12 * h * h + 4 * tokens * length * h))


def weight_bytes() -> float:
    """Of the layers; of the embeddings only a few rows are read."""
    h = model.HIDDEN
    return 4.0 * model.LAYERS * (12 * h * h + 13 * h)


def _compiled() -> tuple[Any, Any, Any]:
    params = model.init()
    ours, theirs = shlo_disc.jit(model.bert), jax.jit(model.bert)
    jax.block_until_ready(ours(params, *model.batch(1, 24, seed=99)))
    return params, ours, theirs


def steady(console: Console, quick: bool) -> None:
    """Time of a call at a shape that was seen before."""
    params, ours, theirs = _compiled()

    def cases() -> Iterator[Case]:
        for batch, length in STEADY[:2] if quick else STEADY:
            ids, mask = (jax.device_put(a) for a in model.batch(batch, length))
            calls = {
                "ours": lambda ids=ids, mask=mask: ours(params, ids, mask),
                "jax.jit": lambda ids=ids, mask=mask: theirs(params, ids, mask),
            }
            yield Case(f"{batch} x {length}", calls, flops(batch, length), weight_bytes(),
                       settle=SETTLE, peer="bert", weights=params, inputs=(ids, mask))  # fmt: skip

    compare(console, "bert", "BERT-base steady state", cases(), seconds=2 if quick else 8)
    console.print(str(ours.cache_info()))


def new_shape(console: Console, quick: bool) -> None:
    """Cost of the first call at a shape nobody has seen, beyond the time of a later one."""
    params, ours, theirs = _compiled()
    table = Table(title="BERT-base, the first call at a new shape")
    for column in ("shape", "ours first ms", "ours again ms", "extra ms", "jax.jit first ms"):
        table.add_column(column, justify="right")
    rows, extras, totals = [], [], [0.0, 0.0]
    for batch, length in model.requests(5 if quick else 20):
        inputs = [jax.device_put(a) for a in model.batch(batch, length)]
        # Another shape of about the same size first: its pages and caches are as warm as later.
        ours(params, *(jax.device_put(a) for a in model.batch(batch, min(length + 1, 512))))
        first = milliseconds(lambda inputs=inputs: ours(params, *inputs))
        # The median, not the least: `first` is one call, with whatever else the machine does.
        again = statistics.median(
            milliseconds(lambda inputs=inputs: ours(params, *inputs)) for _ in range(5)
        )
        jax_first = milliseconds(lambda inputs=inputs: theirs(params, *inputs))
        extras.append(first - again)
        totals[0] += first
        totals[1] += jax_first
        rows.append({"batch": batch, "length": length, "first_ms": first, "again_ms": again,
                     "jax_first_ms": jax_first})  # fmt: skip
        table.add_row(f"{batch} x {length}", f"{first:.2f}", f"{again:.2f}",
                      f"{first - again:.2f}", f"{jax_first:.0f}")  # fmt: skip
    console.print(table)
    extras.sort()
    console.print(
        f"{len(rows)} new shapes: ours {totals[0] / 1e3:.2f} s, jax.jit {totals[1] / 1e3:.2f} s, "
        f"{totals[1] / totals[0]:.1f} times less; extra median {extras[len(extras) // 2]:.2f} ms, "
        f"most {extras[-1]:.2f} ms; {ours.cache_info()}"
    )
    console.print(str(write("new_shape", rows, total_ms=totals)))
