"""Timing that can be trusted: one process, systems taking turns, medians with their spread."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.peers.client import Peers, available
from benchmarks.store import write
from benchmarks.targets import DYNAMIC, wanted

Thunk = Callable[[], Any]

SETTLE = 0.05
"""Seconds after which XLA's threads no longer spin; half leaves our worker without a core."""


@dataclass(frozen=True)
class Spread:
    """A distribution of times in milliseconds."""

    median: float
    low: float
    """Tenth percentile."""
    high: float
    """Ninetieth percentile."""
    count: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        """The spread of times in milliseconds."""
        low, high = np.percentile(times, [10, 90])
        return cls(statistics.median(times), float(low), float(high), len(times))

    def __str__(self) -> str:
        digits = 3 if self.median < 1 else 2 if self.median < 100 else 0
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def milliseconds(thunk: Thunk) -> float:
    """How long `thunk` takes, its result waited for."""
    start = time.perf_counter()
    jax.block_until_ready(thunk())
    return (time.perf_counter() - start) * 1e3


class Remote(Protocol):
    """A system in another process, which takes its own times."""

    def sample(self, count: int, settle: float) -> list[float]:
        """Milliseconds of `count` calls, after `settle` seconds of untimed ones."""


def interleaved(
    thunks: Mapping[str, Thunk | Remote],
    *,
    seconds: float = 2.0,
    least: int = 5,
    most: int = 200,
    settle: float = 0.0,
) -> dict[str, Spread]:
    """Times of every thunk, one call each in turn, until `seconds` have passed.

    Each is called twice first, so that compilation and cold caches are not counted. Calls shorter
    than 500 us are timed in batches, as a program that calls them often has them. `settle`: seconds
    of untimed calls before a system's turn, which then has several calls: where the threads of
    another go on spinning. A call that takes longer than that is alone in its turn.
    """
    systems: dict[str, Any] = {}
    for name, thunk in thunks.items():
        if hasattr(thunk, "sample"):
            systems[name] = thunk
            thunk.sample(2, 0.0)
        else:
            systems[name] = _Local(thunk)
    shlo_disc.finish_compiling()
    times: dict[str, list[float]] = {name: [] for name in thunks}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or (time.perf_counter() < end and rounds < most):
        for name, system in systems.items():
            times[name] += system.sample(3 if settle else 1, settle)
        rounds += 1
    return {name: Spread.of(of) for name, of in times.items()}


class _Local:
    """A function of this process."""

    def __init__(self, thunk: Thunk) -> None:
        self._thunk = thunk
        milliseconds(thunk)
        self._batch = max(1, int(0.5 / max(milliseconds(thunk), 1e-4)))

    def sample(self, count: int, settle: float) -> list[float]:
        settled = time.perf_counter() + settle
        while time.perf_counter() < settled:
            milliseconds(self._thunk)
        times = []
        for _ in range(count):
            start = time.perf_counter()
            for _ in range(self._batch):
                result = self._thunk()
            jax.block_until_ready(result)
            times.append((time.perf_counter() - start) * 1e3 / self._batch)
            if settle and times[-1] > settle * 1e3:
                break  # threads of another have long stopped to spin, and all take long
        return times


@dataclass(frozen=True)
class Peaks:
    """What this machine can do, measured in this run."""

    gflops: float
    """Best of numpy's and XLA's large float32 matrix product."""
    gigabytes_per_second: float
    """Reading a large float32 array once, all cores."""

    def floor_ms(self, flops: float, read_bytes: float) -> float:
        """No computation of so many operations that reads so many bytes is faster than this."""
        return max(flops / self.gflops, read_bytes / self.gigabytes_per_second) / 1e6


def measure_peaks() -> Peaks:
    """The peaks of this machine: best of several attempts."""
    n = 2048
    a = np.random.default_rng(0).standard_normal((n, n), np.float32)
    b = jnp.asarray(a)
    product = jax.jit(lambda x: x @ x)
    products = [
        milliseconds(thunk) for thunk in (lambda: a @ a, lambda: product(b)) for _ in range(6)
    ]
    big = jnp.ones(1 << 26, jnp.float32)  # 256 MiB: no cache holds it
    total = jax.jit(lambda x: x.reshape(os.cpu_count() or 1, -1).max(1))
    sums = [milliseconds(lambda: total(big)) for _ in range(5)]
    copies = [milliseconds(lambda: np.copyto(_SINK, _SOURCE)) for _ in range(5)]
    read = max(big.nbytes / min(sums), 2 * _SOURCE.nbytes / min(copies)) / 1e6
    return Peaks(2.0 * n**3 / min(products) / 1e6, read)


_SOURCE = np.ones(1 << 25, np.float32)
_SINK = np.empty_like(_SOURCE)


@dataclass(frozen=True)
class Case:
    """One line of a table: the same work by all systems."""

    name: str
    calls: Mapping[str, Thunk | Remote]
    """`ours` first, then the peers."""
    flops: float = 0.0
    read_bytes: float = 0.0
    settle: float = 0.0
    """See :func:`interleaved`."""
    peer: str = ""
    """The same work in `peers/cases.py`, when it is there."""
    weights: Any = ()
    inputs: tuple[Any, ...] = ()


PEER_SETTLE = 0.25
"""Threads of PyTorch and ONNX Runtime spin, too."""


def compare(
    console: Console, suite: str, title: str, cases: Iterable[Case], *, seconds: float
) -> None:
    """Time every case, print how many times faster than each peer ours is, and store the rows.

    PyTorch and ONNX Runtime take part where there is a workload and an environment for them.
    """
    peaks = measure_peaks()
    rows: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        peers: Peers | None = None
        loaded: tuple[str, int] | None = None
        for case in cases:
            calls = dict(case.calls)
            if case.peer and available():
                peers = peers or stack.enter_context(Peers())
                if loaded != (case.peer, id(case.weights)):
                    peers.load(case.peer, case.weights)
                    loaded = (case.peer, id(case.weights))
                expected = np.asarray(case.calls["ours"]())
                systems, failed = peers.systems(case.inputs, expected)
                calls |= systems
                notes.update(dict.fromkeys(f"{name}: {why}" for name, why in failed.items()))
            elif case.peer:
                notes["no PyTorch and ONNX Runtime: run `make peers`"] = None
            settle = max(case.settle, PEER_SETTLE) if len(calls) > len(case.calls) else case.settle
            times = interleaved(calls, seconds=seconds * max(1, len(calls) / 2), settle=settle)
            rows.append(_row(suite, case, times, peaks))
        about = peers.about if peers is not None else {}
    console.print(_table(title, rows, peaks))
    for note in notes:
        console.print(note)
    console.print(str(write(suite, rows, peaks=asdict(peaks), peers=about)))


def _row(suite: str, case: Case, times: Mapping[str, Spread], peaks: Peaks) -> dict[str, Any]:
    mine, *others = times
    ratios = {name: times[name].median / times[mine].median for name in others}
    dynamic = {name: ratio for name, ratio in ratios.items() if name in DYNAMIC}
    xla, best = wanted(suite, case.name)
    return {
        "case": case.name,
        "times_ms": {name: asdict(spread) for name, spread in times.items()},
        "ratios": ratios,
        "best_dynamic": min(dynamic.values()) if dynamic else None,
        "floor_ms": peaks.floor_ms(case.flops, case.read_bytes),
        "target_xla": xla,
        "target_dynamic": best,
    }


def _table(title: str, rows: Sequence[Mapping[str, Any]], peaks: Peaks) -> Table:
    peak = f"{peaks.gflops:.0f} GFLOP/s, {peaks.gigabytes_per_second:.0f} GB/s measured"
    table = Table(title=f"{title} ({peak}); other / ours")
    systems = list(dict.fromkeys(name for row in rows for name in row["times_ms"]))
    table.add_column("")
    for name in systems:
        table.add_column(f"{name} ms" if name == systems[0] else name, justify="right")
    for name in ("x floor", "target XLA", "target dynamic"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [str(Spread(**row["times_ms"][systems[0]]))]
        for name in systems[1:]:
            ratio = row["ratios"].get(name)
            cells.append("" if ratio is None else f"{ratio:.2f}")
        floor = row["floor_ms"]
        cells.append(f"{row['times_ms'][systems[0]]['median'] / floor:.2f}" if floor else "")
        cells.append(judged(row["ratios"].get("jax.jit"), row["target_xla"]))
        cells.append(judged(row["best_dynamic"], row["target_dynamic"]))
        table.add_row(row["case"], *cells)
    return table


def judged(ratio: float | None, target: float | None) -> str:
    """`1.35 met`, `1.45 missed` or nothing."""
    if target is None:
        return ""
    if ratio is None:
        return f"{target} not measured"
    return f"{target} met" if ratio >= target else f"[red]{target} missed[/red]"


def report() -> Console:
    """Where tables go: wide enough when the output is a file."""
    console = Console()
    return console if console.is_terminal else Console(width=150)
