"""What the first call costs, in a process without a cache and in the next one with it.

Every attempt is a process of its own, and is made in `_ROUNDS` rounds: the medians are compared.
`cold` and the like are seconds of the processor, which count all threads. XLA compiles for the
shapes of the call; `all` is the processor time until nothing is left to compile. `import` is what
`import shlo_disc` and `shlo_disc.jit(f)` take beside JAX: it has the compiler, where nothing is on
disk or a program is edited. An edited program is compared with a cold one twice, with imports on
both sides (`+ import`) and without.

`beyond` is what we add to the work of JAX's that nobody can save, and to the run of the compiled
code: in the next process to the trace at the sizes of the call, at other sizes to the trace with
symbols and the lowering. `trace` is `jax.jit(f).trace` alone, in a process of its own.
"""

from __future__ import annotations

import compileall
import functools
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks.first_calls import PROGRAMS
from benchmarks.store import write

_SHAPES = {"cold": (2, 17), "next": (2, 17), "other": (3, 19), "edited": (2, 17),
           "rescaled": (2, 17), "trace": (2, 17)}  # fmt: skip
"""(batch, length) of an attempt: without a cache, after a process of equal and of other sizes, and
after one of the program without the line of `_EDITS`; and of a trace alone."""
_ROUNDS = 3
_MOST, _MEAN = 4.0, 1.5
"""Of XLA's time for one shape, at most."""


def compile_time(console: Console, quick: bool) -> None:
    """Seconds of first calls, ours and those of `jax.jit`, by program."""
    # As installers do, and did for JAX: else first calls compile Python, too.
    compileall.compile_dir(Path(__file__).parents[1] / "shlo_disc", quiet=1)
    rows = []
    for name in list(PROGRAMS)[: 2 if quick else None]:
        seconds = _medians([_attempts(name) for _ in range(1 if quick else _ROUNDS)])
        beyond = {kind: _beyond_ms(seconds, kind) for kind in _OF_JAX}
        times = _times(seconds)
        rows.append({"case": name, "seconds": seconds, "times": times, "beyond_ms": beyond})
        console.print(name, rows[-1]["times"])
    console.print(_table(rows))
    console.print(_beyond_table(rows))
    means = {key: statistics.geometric_mean(row["times"][key] for row in rows)
             for key in rows[0]["times"]}  # fmt: skip
    console.print({key: f"{mean:.2f}" for key, mean in means.items()})
    console.print(str(write("compile_time", rows, geometric_means=means, target=_MEAN)))


def _times(seconds: dict[str, dict[str, float]]) -> dict[str, float]:
    """How many times as long as `jax.jit`, by kind of attempt."""
    cold, theirs = seconds["ours cold"], seconds["jax.jit cold"]
    return {
        "cold": cold["processor"] / theirs["processor"],
        "cold, wall": cold["wall"] / theirs["wall"],
        "all": cold["all"] / theirs["processor"],
        "next process": seconds["ours next"]["wall"] / seconds["jax.jit next"]["wall"],
        "next, other sizes": seconds["ours other"]["wall"] / theirs["wall"],
        **{
            f"{edit}{and_import}": processor(seconds[f"ours {edit}"]) / processor(cold)
            for edit in _EDITS
            for and_import, processor in _PROCESSOR.items()
        },
    }


_PROCESSOR: dict[str, Callable[[dict[str, float]], float]] = {
    "": lambda seconds: seconds["processor"],
    " + import": lambda seconds: seconds["import"] + seconds["processor"],
}


def _edit_columns() -> list[str]:
    return [f"{edit}{and_import}" for edit in _EDITS for and_import in _PROCESSOR]


def _medians(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The median of each time of each attempt."""
    return {
        attempt: {part: statistics.median(r[attempt][part] for r in rounds) for part in parts}
        for attempt, parts in rounds[0].items()
    }


def _attempts(name: str) -> dict[str, dict[str, float]]:
    off = {"SHLO_DISC_CACHE": "0", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    with tempfile.TemporaryDirectory() as folder:
        on = {
            "SHLO_DISC_CACHE": "1",  # the suites run without it
            "SHLO_DISC_CACHE_DIR": folder,
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        found = {}
        for kind, variables in (("cold", off), ("next", on)):
            for system in ("ours", "jax.jit"):
                if kind == "next":
                    _in_a_process(name, system, "cold", on)
                found[f"{system} {kind}"] = _in_a_process(name, system, kind, variables)
        for kind in ("other", *_EDITS):
            found[f"ours {kind}"] = _in_a_process(name, "ours", kind, on)
    found["jax.jit trace"] = _in_a_process(name, "jax.jit", "trace", off)
    return found


def _in_a_process(name: str, system: str, kind: str, variables: dict[str, str]) -> dict[str, float]:
    # The text of the program is the same for all: it is a part of what is looked up.
    program = "import sys; from benchmarks.compile_time import first; first(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, name, system, kind],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
    )
    if done.returncode:
        raise RuntimeError(f"{name}, {system}: {done.stderr}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _edited(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with a line before the others that scales its first floating array.

    A person edits one line of a model or of its loss, which one operation more stands for. So what
    reads this array changes, and what does not is as it was.
    """
    import jax

    @functools.wraps(function)
    def edited(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        first = next(k for k, x in enumerate(leaves) if _is_floating(x))
        leaves[first] = leaves[first] * 1.5
        return function(*jax.tree.unflatten(tree, leaves))

    return edited


def _rescaled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with a line that scales all its results: every kernel that writes one changes."""
    import jax

    def scaled(x: jax.Array) -> jax.Array:
        return x * 1.5 if _is_floating(x) else x + 1

    return functools.wraps(function)(lambda *args: jax.tree.map(scaled, function(*args)))


def _is_floating(x: Any) -> bool:
    import jax

    return jax.numpy.issubdtype(x.dtype, jax.numpy.floating)


_EDITS = {"edited": _edited, "rescaled": _rescaled}
"""Lines that a program has not when it is kept on disk, and has when it is called next."""


@contextmanager
def _parts(compiled: Any) -> Iterator[dict[str, float]]:
    """Processor seconds of JAX's parts in the first call of ours, and of the compiled code."""
    import jax

    from shlo_disc.jax.calls import lowered
    from shlo_disc.jax.calls.entries import Entry
    from shlo_disc.lower.cpu.codegen import Function

    seconds = dict.fromkeys(("numbers", "symbols", "lowering", "kernels", "run"), 0.0)
    jitted = compiled._options.jitted
    trace, lower, run = jitted.trace, lowered.lower_whole, Entry.run
    compile_kernel = Function.compiled

    def timed(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before, of_kernels = time.process_time(), seconds["kernels"]
        try:
            return function(*args, **kwargs)
        finally:
            last = time.process_time() - before
            if name == "kernels":
                seconds[name] += last
            elif name == "run":  # which compiles the kernels that no earlier call needed
                seconds[name] = last - (seconds["kernels"] - of_kernels)
            else:  # JAX has what it traced when it is asked for it again
                seconds[name] = max(seconds[name], last)

    def traced(*args: Any, **kwargs: Any) -> Any:
        sizes = (n for leaf in jax.tree.leaves((args, kwargs)) for n in getattr(leaf, "shape", ()))
        name = "numbers" if all(isinstance(n, int) for n in sizes) else "symbols"
        return timed(name, trace, *args, **kwargs)

    with (
        patch.object(jitted, "trace", traced),
        patch.object(lowered, "lower_whole", functools.partial(timed, "lowering", lower)),
        patch.object(Entry, "run", lambda *args: timed("run", run, *args)),
        patch.object(Function, "compiled", lambda self: timed("kernels", compile_kernel, self)),
    ):
        yield seconds


def first(name: str, system: str, kind: str) -> None:
    """Call a program in this process, which has compiled nothing yet; print seconds as JSON."""
    import jax

    before = time.process_time()
    import shlo_disc

    shlo_disc.jit(lambda: None)  # the first one replaces functions of JAX
    if kind in _EDITS:
        importlib.import_module("shlo_disc.driver.stages")
    imported = time.process_time() - before
    # Both with as much of JAX imported.
    jit: Any = shlo_disc.jit if system == "ours" else jax.jit
    function, arguments = PROGRAMS[name](*_SHAPES[kind])
    if kind in _EDITS:
        function = _EDITS[kind](function)
    jax.block_until_ready(arguments)
    compiled = jit(function)
    parts: dict[str, float] = {}
    with ExitStack() as stack:
        if system == "ours":
            parts = stack.enter_context(_parts(compiled))
        wall, processor = time.perf_counter(), time.process_time()
        if kind == "trace":
            compiled.trace(*arguments)
        else:
            jax.block_until_ready(compiled(*arguments))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    before = time.process_time()
    shlo_disc.finish_compiling()
    done = processor + time.process_time() - before
    seconds = {"import": imported, "wall": wall, "processor": processor, "all": done, **parts}
    print(json.dumps(seconds))


_OF_JAX = {"next": ("numbers", "run"), "other": ("symbols", "lowering", "run")}
"""What is not ours in the first call of a later process, at known and at other sizes."""
_MOST_BEYOND_MS = {"next": 30, "other": 100}


def _beyond_ms(seconds: dict[str, dict[str, float]], kind: str) -> float:
    """What a first call adds to JAX's own work, and to the run of the compiled code."""
    found = seconds[f"ours {kind}"]
    return 1e3 * (found["processor"] - sum(found.get(part, 0) for part in _OF_JAX[kind]))


def _beyond_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="First calls of a later process: processor milliseconds")
    for column in ("program", "trace", "next", "its trace", "run", "beyond", "other", "symbols",
                   "lowering", "run", "beyond", "of it at numbers"):  # fmt: skip
        table.add_column(column, justify="left" if column == "program" else "right")
    for row in rows:
        seconds, cells = row["seconds"], []
        cells.append(f"{1e3 * seconds['jax.jit trace']['processor']:.1f}")
        for kind, parts in _OF_JAX.items():
            found, beyond = seconds[f"ours {kind}"], _beyond_ms(seconds, kind)
            cells += [f"{1e3 * found.get(part, 0):.1f}" for part in ("processor", *parts)]
            cells.append(f"{beyond:.1f}{'*' if beyond > _MOST_BEYOND_MS[kind] else ''}")
        cells.append(f"{1e3 * seconds['ours other'].get('numbers', 0):.1f}")
        table.add_row(row["case"], *cells)
    return table


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="First calls: times as long as jax.jit, and milliseconds")
    for column in ("program", "import ms", "cold", "wall", "all", "ours ms", "jax.jit ms",
                   "next ms", "jax.jit next ms", "other sizes ms", *_edit_columns()):  # fmt: skip
        table.add_column(column, justify="left" if column == "program" else "right")
    for row in rows:
        times, seconds = row["times"], row["seconds"]
        late = "*" if times["cold"] > _MOST else ""
        table.add_row(
            row["case"],
            f"{1e3 * seconds['ours cold']['import']:.0f}",
            f"{times['cold']:.2f}{late}",
            f"{times['cold, wall']:.2f}",
            f"{times['all']:.2f}",
            *(f"{1e3 * seconds[key]['processor']:.0f}" for key in ("ours cold", "jax.jit cold")),
            *(f"{1e3 * seconds[key]['wall']:.0f}"
              for key in ("ours next", "jax.jit next", "ours other")),
            *(f"{times[column]:.2f}" for column in _edit_columns()),
        )  # fmt: skip
    return table
