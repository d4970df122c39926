"""Times of every kernel of a call, beside what the machine allows, and as a trace.

The host program is compiled a second time with a mark before and after every launch (about 0.1 us
each); kernels, buffers and packed copies are those of an ordinary call. Marked and ordinary calls
take turns, so that the table can say what marking cost.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.records import dataclass
from shlo_disc.lower.host.record import HostProgram
from shlo_disc.report.describe import describe
from shlo_disc.report.marks import marked_host
from shlo_disc.report.page import page
from shlo_disc.report.peak import Peak, peak
from shlo_disc.report.reported import Reported


@dataclass(frozen=True)
class KernelTime:
    """One kernel in a call: all its launches together."""

    number: int
    """As in `explain()`, from 1."""
    kind: str
    name: str
    where: str
    launches: int
    variants: tuple[str, ...]
    """The machine functions that ran."""
    ms: float
    """Median over the calls."""
    runs: int
    """How often the whole kernel ran (more than once in a loop)."""
    flops: int
    """Of one run."""
    bytes_moved: int
    """Read and written by one run."""
    floor_ms: float
    """No less is possible on this machine: see `Peak.floor_ms`; all runs together."""

    @property
    def of_floor(self) -> float:
        """How many times the floor it takes."""
        return self.ms / self.floor_ms if self.floor_ms else float("inf")


@dataclass(frozen=True)
class Profile:
    """What :meth:`Executable.profile` found."""

    name: str
    sizes: dict[str, int]
    calls: int
    call_ms: float
    """Median of ordinary calls, everything included."""
    marked_ms: float
    """Median of marked calls, from the first to the last instruction of the host program."""
    kernels: tuple[KernelTime, ...]
    peak: Peak
    dropped: int
    """Marks there was no room for, in all calls."""
    program: dict[str, Any]
    """`describe` of the executable at these sizes."""
    events: tuple[tuple[int, str, bool, float, float], ...]
    """Of the median call: (kernel, machine function, does it pack, begin, end in us)."""

    def as_text(self) -> str:
        """A table, slowest kernel first."""
        # Only here: every program that compiles imports this module.
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=None, box=None, pad_edge=False)
        for column in ("#", "kernel", "line", "ms", "share", "floor ms", "x floor",
                       "GFLOP/s", "GB/s", "launches"):  # fmt: skip
            table.add_column(column, justify="left" if column in ("kernel", "line") else "right")
        inside = sum(kernel.ms for kernel in self.kernels)
        for kernel in sorted(self.kernels, key=lambda kernel: -kernel.ms):
            seconds = kernel.ms / 1e3
            rates = [
                f"{amount * kernel.runs / seconds / 1e9:.1f}" if seconds else ""
                for amount in (kernel.flops, kernel.bytes_moved)
            ]
            table.add_row(
                str(kernel.number), f"{kernel.kind} {kernel.name}", kernel.where,
                f"{kernel.ms:.4f}", f"{kernel.ms / self.marked_ms:.1%}",
                f"{kernel.floor_ms:.4f}", f"{kernel.of_floor:.2f}" if kernel.floor_ms else "",
                *rates, f"{kernel.launches} {', '.join(kernel.variants)}",
            )  # fmt: skip
        floor = sum(kernel.floor_ms for kernel in self.kernels)
        at = ", ".join(f"{name} = {value}" for name, value in sorted(self.sizes.items()))
        out = StringIO()
        console = Console(file=out, width=180)
        console.print(table)
        lines = [
            f"{self.name}{' at ' + at if at else ''}: {self.call_ms:.3f} ms a call "
            f"({self.calls} calls); {self.marked_ms:.3f} ms marked, of which kernels "
            f"{inside:.3f} ms, {inside / floor if floor else float('inf'):.2f} x their floor",
            f"machine: {self.peak.gflops:.0f} GFLOP/s float32, "
            + ", ".join(
                f"{speed:.0f} GB/s up to {_size(size)}" for size, speed in self.peak.bandwidth
            ),
        ]
        if self.dropped:
            lines.append(f"{self.dropped} marks were dropped: times of kernels are too small")
        return "\n".join([*lines, out.getvalue().rstrip()])

    __str__ = as_text

    def as_json(self) -> str:
        """Everything, as JSON."""
        content = {
            "name": self.name,
            "sizes": self.sizes,
            "calls": self.calls,
            "call_ms": self.call_ms,
            "marked_ms": self.marked_ms,
            "dropped_marks": self.dropped,
            "machine": vars(self.peak),
            "kernels": [{**vars(kernel), "of_floor": kernel.of_floor if kernel.floor_ms else None}
                        for kernel in self.kernels],
            "program": self.program,
        }  # fmt: skip
        return json.dumps(content, indent=1)

    def as_html(self) -> str:
        """The page of `explain(format="html")` with times."""
        return page([{**self.program, "profile": json.loads(self.as_json())}])

    def as_trace(self) -> str:
        """The median call in the Trace Event Format, for chrome://tracing and ui.perfetto.dev.

        https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsChNAySU
        """
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": self.name}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "kernels"}},
        ]
        for index, function, packs, begin, end in self.events:
            kernel = self.program["kernels"][index]
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": 1,
                    "ts": begin,
                    "dur": end - begin,
                    "name": f"pack {function}" if packs else kernel["name"],
                    "cat": kernel["kind"],
                    "args": {
                        "kernel": kernel["number"],
                        "function": function,
                        "line": kernel["where"][0],
                        "flops": kernel["work"]["flops"]["value"],
                        "bytes_read": kernel["work"]["bytes_read"]["value"],
                        "bytes_written": kernel["work"]["bytes_written"]["value"],
                    },
                }
            )
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    def save(self, path: str | Path) -> Path:
        """Write to a file: `.html` the page, `.json` everything, `.trace` the trace, `.txt` text.

        Raises ValueError for another ending.
        """
        path = Path(path)
        kinds = {".html": self.as_html, ".json": self.as_json, ".trace": self.as_trace,
                 ".txt": self.as_text}  # fmt: skip
        if path.suffix not in kinds:
            raise ValueError(f"{path} should end in one of {', '.join(kinds)}")
        path.write_text(kinds[path.suffix](), encoding="utf-8")
        return path


def profile(executable: Reported, leaves: Sequence[Any], calls: int | None = None) -> Profile:
    """Run a program `calls` times with marks and as often without; the first calls are not counted.

    Without `calls` as often as fits into about a second, 5 to 50 times.

    `leaves` are the arguments in the order of the signature. Raises what a call raises, and
    ValueError for less than one call.
    """
    if calls is not None and calls < 1:
        raise ValueError(f"a profile needs at least one call, got calls={calls}")
    is_foreign = [hasattr(leaf, "__dlpack__") and not hasattr(leaf, "dtype") for leaf in leaves]
    if executable.target.platform != "cpu":
        leaves = [
            leaf if foreign else np.asarray(leaf)
            for leaf, foreign in zip(leaves, is_foreign, strict=True)
        ]
    executable.run_numpy(leaves)  # raises what a call raises
    prepare, run = executable.target.compile_host(marked_host(executable.host))
    prepare.finish()  # and `run` with it
    program = executable.program
    leaves = [
        np.from_dlpack(x) if foreign else x for x, foreign in zip(leaves, is_foreign, strict=True)
    ]
    elements = [int(n) for k in program.size_arguments for n in np.asarray(leaves[k]).reshape(-1)]
    sizes, _ = program.evaluate([np.shape(leaf) for leaf in leaves], elements)
    # A donated jax.Array could be passed only once; numpy's memory is not taken over.
    donated = executable.donated
    leaves = [np.array(leaf) if k in donated else leaf for k, leaf in enumerate(leaves)]
    # Immutable arguments are packed in the first call, fresh ones in the second.
    for _ in range(2):
        warm = executable.call_marked(run, leaves)
    if calls is None:
        calls = min(50, max(5, int(0.5e9 / max(1, warm.end - warm.begin))))
    marked, ordinary = [], []
    call = executable.as_users_call(leaves)
    for _ in range(calls):
        start = time.perf_counter()
        call()
        ordinary.append((time.perf_counter() - start) * 1e3)
        # Without the results: their memory is to be used again, as in a loop.
        marked.append(executable.call_marked(run, leaves)._replace(results=[]))
    runs = [_Run.of(call.marks, call.begin, executable.host) for call in marked]
    lengths = [(call.end - call.begin) / 1e6 for call in marked]
    median = sorted(range(calls), key=lambda k: lengths[k])[calls // 2]
    limits = peak(executable.target.name)
    launched: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for use_index, function, _, _, _ in runs[median].events:
        launched[use_index][function] += 1
    kernels = []
    for index, use in enumerate(executable.host.uses):
        times = [run.ms[index] for run in runs]
        flops = use.work.flops.evaluate(sizes)
        moved = use.work.reads.evaluate(sizes) + use.work.writes.evaluate(sizes)
        functions = launched[index]
        most = max(functions.values(), default=0)
        count = most if use.inside else min(most, 1)
        kernels.append(
            KernelTime(
                number=index + 1,
                kind=use.kind,
                name=use.name,
                where=use.where[0],
                launches=functions.total(),
                variants=tuple(functions),
                ms=float(np.median(times)),
                runs=count,
                flops=flops,
                bytes_moved=moved,
                floor_ms=limits.floor_ms(flops, moved) * count,
            )
        )
    return Profile(
        name=executable.name,
        sizes=dict(sizes),
        calls=calls,
        call_ms=float(np.median(ordinary)),
        marked_ms=float(np.median(lengths)),
        kernels=tuple(kernels),
        peak=limits,
        dropped=sum(call.dropped for call in marked),
        program=describe(executable, sizes),
        events=tuple(runs[median].events),
    )


@dataclass
class _Run:
    """One marked call."""

    events: list[tuple[int, str, bool, float, float]]
    ms: dict[int, float]

    @classmethod
    def of(cls, marks: npt.NDArray[np.int64], begin: int, host: HostProgram) -> _Run:
        events = []
        ms = dict.fromkeys(range(len(host.uses)), 0.0)
        # Launches do not nest: marks come in pairs, unless the last one was dropped.
        for (site, _, started), (_, _, ended) in zip(marks[::2], marks[1::2], strict=False):
            launch = host.sites[int(site)]
            events.append((launch.use, launch.kernel, launch.packs,
                           (int(started) - begin) / 1e3, (int(ended) - begin) / 1e3))  # fmt: skip
            ms[launch.use] += (int(ended) - int(started)) / 1e6
        return cls(events, ms)


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
