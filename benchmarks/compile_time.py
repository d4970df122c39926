"""What the first call costs, in a process without a cache and in the next one with it.

Every attempt is a process of its own. Seconds of the processor, which count all threads, vary by a
few percent, so an attempt is made once. XLA compiles for the shapes of the call; `all` is the
processor time until nothing is left to compile. `import` is what `import shlo_disc` takes beside
JAX: it has the compiler, where nothing is kept on disk. Else the first call imports the compiler if
it needs it. So imports count on both sides where an edited program is compared with a cold one.
"""

from __future__ import annotations

import compileall
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.first_calls import PROGRAMS
from benchmarks.store import write

__all__ = ["compile_time", "first"]

_SHAPES = {"cold": (2, 17), "next": (2, 17), "other": (3, 19), "edited": (2, 17),
           "rescaled": (2, 17)}  # fmt: skip
"""(batch, length) of an attempt: without a cache, after a process of equal and of other sizes, and
after one of the program without the line of `_EDITS`."""
_MOST, _MEAN = 4.0, 1.5
"""Of XLA's time for one shape, at most."""


def compile_time(console: Console, quick: bool) -> None:
    """Seconds of first calls, ours and those of `jax.jit`, by program."""
    # As installers do, and did for JAX: else first calls compile Python, too.
    compileall.compile_dir(Path(__file__).parents[1] / "shlo_disc", quiet=1)
    rows = []
    for name in list(PROGRAMS)[: 2 if quick else None]:
        seconds = _attempts(name)
        rows.append({"case": name, "seconds": seconds, "times": _times(seconds)})
        console.print(name, rows[-1]["times"])
    console.print(_table(rows))
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
        **{f"{edit}, of cold": _with_import(seconds[f"ours {edit}"]) / _with_import(cold)
           for edit in _EDITS},
    }  # fmt: skip


def _with_import(seconds: dict[str, float]) -> float:
    return seconds["import"] + seconds["processor"]


def _attempts(name: str) -> dict[str, dict[str, float]]:
    found = {}
    for system in ("ours", "jax.jit"):
        with tempfile.TemporaryDirectory() as folder:
            off = {"SHLO_DISC_CACHE": "0", "JAX_ENABLE_COMPILATION_CACHE": "false"}
            found[f"{system} cold"] = _in_a_process(name, system, "cold", off)
            on = {
                "SHLO_DISC_CACHE": "1",  # the suites run without it
                "SHLO_DISC_CACHE_DIR": folder,
                "JAX_COMPILATION_CACHE_DIR": folder,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            _in_a_process(name, system, "cold", on)
            found[f"{system} next"] = _in_a_process(name, system, "next", on)
            for kind in ("other", *_EDITS) if system == "ours" else ():
                found[f"ours {kind}"] = _in_a_process(name, system, kind, on)
    return found


def _in_a_process(name: str, system: str, kind: str, variables: dict[str, str]) -> dict[str, float]:
    arguments = f"{name!r}, {system!r}, {_SHAPES[kind]!r}, {kind if kind in _EDITS else ''!r}"
    program = f"from benchmarks.compile_time import first; first({arguments})"
    done = subprocess.run(
        [sys.executable, "-c", program],
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


def first(name: str, system: str, shape: tuple[int, int], edit: str = "") -> None:
    """Call a program in this process, which has compiled nothing yet; print seconds as JSON."""
    import jax

    before = time.process_time()
    import shlo_disc

    jit: Any = shlo_disc.jit
    imported = time.process_time() - before
    if system == "jax.jit":  # with as much of JAX imported
        jit = jax.jit
    function, arguments = PROGRAMS[name](*shape)
    if edit:
        function = _EDITS[edit](function)
    jax.block_until_ready(arguments)
    compiled = jit(function)
    wall, processor = time.perf_counter(), time.process_time()
    jax.block_until_ready(compiled(*arguments))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    before = time.process_time()
    shlo_disc.finish_compiling()
    done = processor + time.process_time() - before
    seconds = {"import": imported, "wall": wall, "processor": processor, "all": done}
    print(json.dumps(seconds))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="First calls: times as long as jax.jit, and milliseconds")
    for column in ("program", "import ms", "cold", "wall", "all", "ours ms", "jax.jit ms",
                   "next ms", "jax.jit next ms", "other sizes ms", *_EDITS):  # fmt: skip
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
            *(f"{times[f'{edit}, of cold']:.2f}" for edit in _EDITS),
        )  # fmt: skip
    return table
