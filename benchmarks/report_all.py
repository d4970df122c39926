"""Every target beside the latest stored result."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.table import Table

from benchmarks.harness import judged
from benchmarks.store import latest
from benchmarks.targets import FOR_ALL, TARGETS


def targets(console: Console, suites: Collection[str]) -> None:
    """Print the table of some suites; a target whose case was never measured says so.

    Where all cases of a suite have one target, those that miss it are printed.
    """
    table = Table(title="targets, from the latest result of every suite")
    for column in ("suite", "case", "XLA / ours", "target", "best dynamic / ours", "target",
                   "x floor", "measured"):  # fmt: skip
        table.add_column(column, justify="left" if column in ("suite", "case") else "right")
    missed = {
        (suite, row["case"]): wanted
        for suite, wanted in FOR_ALL.items()
        for row in (latest(suite) or {"rows": []})["rows"]
        if "missed" in judged(row["ratios"].get("jax.jit"), wanted[0])
        or "missed" in judged(row["best_dynamic"], wanted[1])
    }
    for (suite, case), (xla, dynamic) in (TARGETS | missed).items():
        if suite not in suites:
            continue
        stored = latest(suite)
        rows = {row.get("case"): row for row in stored["rows"]} if stored else {}
        row = rows.get(case, {})
        ratio, best = row.get("ratios", {}).get("jax.jit"), row.get("best_dynamic")
        floor = row.get("floor_ms")
        above = row["times_ms"]["ours"]["median"] / floor if floor else None
        table.add_row(
            suite, case, _number(ratio), judged(ratio, xla), _number(best), judged(best, dynamic),
            _number(above), stored["date"][:10] if stored and row else "never",
        )  # fmt: skip
    if table.row_count:
        console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
