"""Matrix products: ours against XLA and OpenBLAS at the shapes of a BERT-base encoder.

    python benchmarks/gemm.py [--quick] [--json FILE]

Each row times the same arrays in all systems, taking turns, and prints medians as GFLOP/s and the
ratio of times (above 1: ours is faster). XLA compiles every shape; ours is compiled once a line.
The weight (`w`) is a jax.Array that stays the same, so that ours keeps it packed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc

Function = Callable[..., Any]


def product(x: Any, w: Any) -> Any:
    """Rows times a weight."""
    return x @ w


def scores(q: Any, k: Any) -> Any:
    """Attention scores [b, h, t, s] from [b, t, h, d]."""
    return jnp.einsum("bthd,bshd->bhts", q, k)


def values(p: Any, v: Any) -> Any:
    """Attention output [b, t, h, d]."""
    return jnp.einsum("bhts,bshd->bthd", p, v)


def batched(a: Any, b: Any) -> Any:
    """A product per batch entry."""
    return jnp.einsum("bmk,bkn->bmn", a, b)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    function: Function
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    flops: float


def matmul(m: int, k: int, n: int) -> Case:
    """`product` at one size."""
    return Case(f"{m} x {k} x {n}", product, ((m, k), (k, n)), 2.0 * m * k * n)


def attention(b: int, t: int) -> list[Case]:
    """Both products of an attention layer with 12 heads of 64."""
    flops = 2.0 * b * 12 * t * t * 64
    heads, square = (b, t, 12, 64), (b, 12, t, t)
    return [
        Case(f"scores {b} x {t}", scores, (heads, heads), flops),
        Case(f"values {b} x {t}", values, (square, heads), flops),
    ]


CASES = [
    matmul(2048, 2048, 2048),
    *(
        matmul(m, k, n)
        for m in (1, 16, 128, 1024)
        for k, n in [(768, 768), (768, 3072), (3072, 768)]
    ),
    Case("12 x 128 x 64 x 128", batched, ((12, 128, 64), (12, 64, 128)), 2.0 * 12 * 128 * 64 * 128),
    *attention(1, 16),
    *attention(1, 128),
    *attention(1, 384),
    *attention(8, 128),
]
QUICK = {"16 x 768 x 768", "128 x 768 x 3072", "scores 1 x 128", "values 1 x 128"}


@dataclass
class Row:
    """Medians in microseconds."""

    name: str
    flops: float
    ours_us: float
    xla_us: float
    numpy_us: float | None
    error: float
    """Largest difference from float64, relative to the largest element."""


def measure(case: Case, ours: Function, seconds: float) -> Row:
    """Time the systems in turns for about `seconds`."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, dtype=np.float32) for s in case.shapes]
    x, w = (jnp.asarray(a) for a in arrays)
    xla = jax.jit(case.function)
    candidates: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(x, w).block_until_ready(),
        "xla": lambda: xla(x, w).block_until_ready(),
    }
    if case.function in (product, batched):
        out = np.empty((*case.shapes[0][:-1], case.shapes[1][-1]), np.float32)
        candidates["numpy"] = lambda: np.matmul(arrays[0], arrays[1], out=out)
    for run in candidates.values():
        for _ in range(3):  # compile, pack, warm up
            run()
    exact = np.asarray(reference(case, arrays))
    error = np.abs(np.asarray(ours(x, w)) - exact).max() / np.abs(exact).max()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["ours"]) < 5:
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e6)
    middle = {name: statistics.median(t) for name, t in times.items()}
    return Row(
        case.name, case.flops, middle["ours"], middle["xla"], middle.get("numpy"), float(error)
    )


def reference(case: Case, arrays: list[Any]) -> Any:
    """The result in float64."""
    a, b = (x.astype(np.float64) for x in arrays)
    if case.function is scores:
        return np.matmul(a.transpose(0, 2, 1, 3), b.transpose(0, 2, 3, 1))
    if case.function is values:
        return np.matmul(a, b.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    return np.matmul(a, b)


def main() -> None:
    """Print the table; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="four lines, a few seconds")
    parser.add_argument("--json", type=Path, help="store rows, machine and versions here")
    options = parser.parse_args()
    cases = [c for c in CASES if not options.quick or c.name in QUICK]
    ours = {f: shlo_disc.jit(f) for f in (product, scores, values, batched)}
    print(
        f"{'':22} {'ours':>9} {'XLA':>9} {'OpenBLAS':>9}  GFLOP/s   XLA/ours  BLAS/ours     error"
    )
    rows = []
    for case in cases:
        row = measure(case, ours[case.function], 0.3 if options.quick else 0.8)
        rows.append(row)
        rate = {k: row.flops / v / 1e3 for k, v in asdict(row).items() if k.endswith("_us") and v}
        blas, ratio = "", ""
        if row.numpy_us is not None:
            blas, ratio = f"{rate['numpy_us']:9.1f}", f"{row.numpy_us / row.ours_us:9.2f}"
        print(
            f"{row.name:22} {rate['ours_us']:9.1f} {rate['xla_us']:9.1f} {blas:>9} "
            f"{row.xla_us / row.ours_us:18.2f}  {ratio:>9} {row.error:9.1e}",
            flush=True,
        )
    if options.json:
        versions = {
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        }
        machine = {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0))}
        report = {"machine": machine, "versions": versions, "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(report, indent=1))


def cpu_name() -> str:
    """As the kernel reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
