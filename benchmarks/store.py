"""Where results are kept: one file a suite and machine, the latest run; `history.csv`, every run.

A file has one row a line and numbers of four digits, so that two runs can be compared by `diff`.
"""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

COLUMNS = ("date", "machine", "suite", "rows", "xla_over_ours", "least", "dynamic_over_ours",
           "over_floor")  # fmt: skip
"""Of `history.csv`: geometric means over the rows of a run, and the smallest XLA / ours."""


def host() -> dict[str, Any]:
    """The machine: model, cores, vector extensions."""
    model, flags = platform.processor(), ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "flags":
                flags = value
    wanted = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "avx512_vnni")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "flags": [flag for flag in wanted if flag in flags.split()],
        "threads": os.environ.get("SHLO_DISC_NUM_THREADS", "one per core"),
        "load": os.getloadavg()[0],
    }


def machine_name(machine: Mapping[str, Any]) -> str:
    """A short name of a machine, such as `epyc-avx512-2`: family, vectors, cores."""
    words = str(machine["cpu"]).lower().replace("(r)", " ").split()
    known = [word for word in words if word in ("epyc", "xeon", "ryzen", "core")]
    family = known[0] if known else (words[0] if words else "unknown")
    flags = machine["flags"]
    vectors = next((v for f, v in (("avx512f", "avx512"), ("avx2", "avx2")) if f in flags), "sse2")
    return f"{family}-{vectors}-{machine['cores']}"


def versions() -> dict[str, str]:
    """Of Python and of what takes part."""
    names = ("shlo_disc", "jax", "jaxlib", "numpy", "torch-mlir")
    if importlib.util.find_spec("torch") is not None:
        names += ("torch",)
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "source tree"
    return found


def write(suite: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> Path:
    """Store a run of a suite on this machine, instead of the run before; add it to the history."""
    now = datetime.datetime.now(datetime.UTC)
    head = {
        "suite": suite,
        "date": now.isoformat(timespec="seconds"),
        "machine": host(),
        "versions": versions(),
        **more,
    }
    return store({**head, "rows": list(rows)})


def store(run: Mapping[str, Any]) -> Path:
    """As :func:`write`, of a run that has its date and machine."""
    RESULTS.mkdir(exist_ok=True)
    # Through JSON: what is no dictionary yet (spreads, peaks) becomes one.
    run = _rounded(json.loads(json.dumps(run, default=vars)))
    path = RESULTS / f"{run['suite']}-{machine_name(run['machine'])}.json"
    head = json.dumps({key: value for key, value in run.items() if key != "rows"}, indent=1)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in run["rows"])
    path.write_text(f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n')
    history = RESULTS / "history.csv"
    is_new = not history.exists()
    with history.open("a", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        if is_new:
            table.writerow(COLUMNS)
        table.writerow(summary(run))
    return path


def latest(suite: str) -> dict[str, Any] | None:
    """The youngest stored run of a suite, of any machine."""
    runs = [json.loads(path.read_text()) for path in RESULTS.glob(f"{suite}-*.json")]
    return max((run for run in runs if run["suite"] == suite), key=_date, default=None)


def _date(run: Mapping[str, Any]) -> str:
    return str(run["date"])


def summary(run: Mapping[str, Any]) -> list[Any]:
    """The line of a run in `history.csv`; empty cells for what the suite does not measure."""
    rows = run["rows"]
    ratios = [r for row in rows if (r := _ratio(row))]
    dynamic = [row["best_dynamic"] for row in rows if row.get("best_dynamic")]
    above = [
        ours / row["floor_ms"]
        for row in rows
        if row.get("floor_ms") and (ours := _median(row)) is not None
    ]
    return [
        run["date"], machine_name(run["machine"]), run["suite"], len(rows), _mean(ratios),
        f"{min(ratios):.3g}" if ratios else "", _mean(dynamic), _mean(above),
    ]  # fmt: skip


def _ratio(row: Mapping[str, Any]) -> float | None:
    """How many times longer XLA takes."""
    if "ratios" in row:
        return row["ratios"].get("jax.jit")
    for theirs, ours in (("jax_us", "ours_us"), ("jax_first_ms", "first_ms")):
        if row.get(theirs) and row.get(ours):
            return float(row[theirs] / row[ours])
    if isinstance(row.get("jax_ms"), dict) and isinstance(row.get("ours_ms"), dict):
        return float(row["jax_ms"]["median"] / row["ours_ms"]["median"])
    times = row.get("times_ms", {})
    if {"ours", "jax.jit"} <= times.keys():
        return float(times["jax.jit"]["median"] / times["ours"]["median"])
    return None


def _median(row: Mapping[str, Any]) -> float | None:
    spread = row.get("times_ms", {}).get("ours") or row.get("ours_ms")
    return float(spread["median"]) if isinstance(spread, dict) else None


def _mean(numbers: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(numbers):.3g}" if numbers else ""


def _rounded(value: Any) -> Any:
    """Numbers of four digits."""
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value
