"""What it costs to get a program from JAX to the compiler, beside `jax.export`.

The times are of the process (CPU time), because a loaded machine changes them less.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import jax
from jax import export
from rich.console import Console
from rich.table import Table

from benchmarks.bert import model as bert
from benchmarks.store import write
from shlo_disc.ingest import ingest
from shlo_disc.ingest.source import read
from shlo_disc.ir.mlir import new_context
from shlo_disc.jax.calls.lowered import lowered_module

ROUNDS = 15

TARGET = 0.5
"""Of the time of `jax.export`, trace and reading included, at most."""

STEPS = ("trace", "lower and write", "read", "normalise")
WAYS = ("ours", "jax.export")


def hand_over(console: Console, quick: bool) -> None:
    """BERT-base from function to normal form: both ways in turns, medians."""
    params, (ids, mask) = bert.init(), bert.batch(2, 17)
    weights = jax.tree.map(_spec, params)
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(2 if quick else ROUNDS + 1):
        for way in WAYS:
            inputs = _dynamic(ids, mask)
            gc.collect()
            spent = _ours(weights, inputs) if way == "ours" else _exported(weights, inputs)
            for step, ms in zip(STEPS, spent, strict=True):
                if turn:  # the first turn fills JAX's caches
                    times.setdefault((way, step), []).append(ms)
    medians = {key: statistics.median(found) for key, found in times.items()}
    table = Table(title="BERT-base, 12 layers: ms of CPU time from function to normal form")
    for column in ("", *STEPS, "sum"):
        table.add_column(column, justify="right" if column else "left")
    rows = []
    for way in WAYS:
        spent = [medians[way, step] for step in STEPS]
        rows.append({"way": way, **dict(zip(STEPS, spent, strict=True)), "sum": sum(spent)})
        table.add_row(way, *(f"{ms:.0f}" for ms in (*spent, sum(spent))))
    console.print(table)
    # What stays the same whichever way it takes: the trace, and our normal form.
    ratio = _share(medians, "ours") / _share(medians, "jax.export")
    console.print(f"trace, lowering and reading take {ratio:.2f} of the time "
                  f"(target {TARGET}: {'met' if ratio <= TARGET else 'missed'})")  # fmt: skip
    console.print(str(write("hand_over", rows, ratio=ratio, target=TARGET)))


def _share(medians: dict[tuple[str, str], float], way: str) -> float:
    return sum(medians[way, step] for step in STEPS[:3])


def _spec(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _dynamic(*arrays: Any) -> list[jax.ShapeDtypeStruct]:
    sizes = export.symbolic_shape("b, t", constraints=["t <= 512"])
    return [jax.ShapeDtypeStruct(sizes, array.dtype) for array in arrays]


def _fresh() -> Any:
    """BERT as a function that JAX has not seen."""

    def model(*args: Any) -> jax.Array:
        return bert.bert(*args)

    return jax.jit(model)


class _Watch:
    """Milliseconds of CPU time between calls."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        self._last = time.process_time()

    def lap(self) -> None:
        now = time.process_time()
        self.spent.append((now - self._last) * 1e3)
        self._last = time.process_time()


def _ours(weights: Any, inputs: list[Any]) -> list[float]:
    function = _fresh()
    watch = _Watch()
    function.trace(weights, *inputs)
    watch.lap()
    made = lowered_module("bert", function, (weights, *inputs), {})
    watch.lap()
    source = made.source()
    read(source, new_context())
    watch.lap()
    ingest(source, new_context())
    watch.lap()
    watch.spent[3] -= watch.spent[2]
    return watch.spent


def _exported(weights: Any, inputs: list[Any]) -> list[float]:
    function = _fresh()
    watch = _Watch()
    function.trace(weights, *inputs)
    watch.lap()
    made = export.export(function, platforms=["cpu"])(weights, *inputs)
    watch.lap()
    read(made, new_context())
    watch.lap()
    ingest(made, new_context())
    watch.lap()
    watch.spent[3] -= watch.spent[2]
    return watch.spent
