"""False alarms: sizes that only the comparison with numbers makes constants.

A new version is compared with a trace at the sizes of its call (`jax/equations/compare.py`).
The programs of the other tools of this folder ask no Python questions about types of sizes, so each
size that the comparison makes a constant is a false alarm. `python -m tests.fuzz --alarms` traces
them all, without compiling one.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import pytest

import shlo_disc
from shlo_disc.jax.versions.tracing import DIFFERS

SHARE = 0.01
"""The largest share of programs that may have a false alarm."""

Job = tuple[str, Any]
"""A key of `KINDS`, and which of its programs."""

Found = dict[str, tuple[str, ...] | None]
"""Name of a program -> its false alarms; None where JAX, or we, refuse to trace it."""


def pinned(f: Any) -> tuple[str, ...]:
    """The notes of a `shlo_disc.jit` function on sizes that the comparison made constants."""
    return tuple(note for note in f.guards() if DIFFERS in note)


def trace_calls(
    function: Callable[..., Any], calls: Sequence[Sequence[Any]], **options: Any
) -> tuple[str, ...] | None:
    """The false alarms of a function at several calls, traced and compared only."""
    f = shlo_disc.jit(function, **options)
    for call in calls:
        try:
            f.lower(*call)
        except Exception:
            return None
    return pinned(f)


def _program(seed: int) -> Found:
    from tests.fuzz.generate import generate

    program = generate(seed)
    with jax.enable_x64(program.x64):
        calls = [program.inputs(call) for call in range(program.calls)]
        return {f"seed {seed}": trace_calls(program.function(), calls)}


def _module(seed: int, flavour: str = "jax") -> Found:
    from tests.models.random_modules import arguments, program_of, spec_of

    spec = spec_of(seed, flavour)
    weights, program = program_of(spec)
    calls = [arguments(spec, weights, b, t) for b, t in spec.shapes]
    return {f"{flavour} {seed}": trace_calls(program, calls)}


def _flax_module(seed: int) -> Found:
    return _module(seed, "flax")


def _function(name: str) -> Found:
    from tests.functions.cases import arrays
    from tests.functions.table import case_of, function_of

    case = case_of(name)
    calls = {pair: arrays(case, *pair) for pair in case.sizes}
    # JAX has short cuts for a size of 1, which is one of a first call's as often as not.
    units = [[call] for pair, call in calls.items() if 1 in pair][:1]
    found = [trace_calls(function_of(name), several) for several in ([*calls.values()], *units)]
    return {name: None if None in found else sum(found, ())}


class _Tracing:
    """What `tests.libraries.harness.check` does instead of compiling, while it is active."""

    def __init__(self) -> None:
        self.active = False
        self.found: Found = {}
        self._test = ""

    def pytest_runtest_setup(self, item: Any) -> None:
        self._test = item.nodeid.rpartition("/")[2]

    def traced(self, function: Any, calls: Sequence[Sequence[Any]], options: Any) -> None:
        """Keep the false alarms of a program, and end its test."""
        self.found[self._test] = trace_calls(function, calls, **options)
        pytest.skip("traced only")

    @contextlib.contextmanager
    def on(self) -> Iterator[Found]:
        """The false alarms of what is checked inside."""
        self.active, self.found = True, {}
        try:
            yield self.found
        finally:
            self.active = False


tracing = _Tracing()


def _library(file: str) -> Found:
    """The programs of a file of `tests/libraries`, those of its slow tests too."""
    with tracing.on() as found, contextlib.redirect_stdout(io.StringIO()):
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark"]
        pytest.main([file, *options], plugins=[tracing])
    return found


KINDS: dict[str, Callable[[Any], Found]] = {
    "random programs": _program,
    "random modules": _module,
    "random modules of flax": _flax_module,
    "programs of libraries": _library,
    "functions of JAX": _function,
}
"""What is traced, by kind."""


def trace(job: Job) -> Found:
    """The programs of a job and their false alarms."""
    kind, which = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind](which)


def jobs(seeds: Sequence[int]) -> list[Job]:
    """All programs: random ones of these seeds, random modules, functions and libraries.

    A module takes ten times as long as another program, so there are fewer of them.
    """
    from tests.functions.table import names

    files = sorted((Path(__file__).parent / "libraries").glob("test_*.py"))
    return [
        *(("programs of libraries", str(file)) for file in files),
        *(("random programs", seed) for seed in seeds),
        *(("random modules", seed) for seed in seeds[: len(seeds) // 4]),
        *(("random modules of flax", seed) for seed in seeds[: len(seeds) // 20]),
        *(("functions of JAX", name) for name in names()),
    ]


def summary(found: dict[str, Found]) -> tuple[str, bool]:
    """A line for each kind and each false alarm, and whether they are few enough."""
    lines, good = [], True
    for kind, programs in found.items():
        traced = [alarms for alarms in programs.values() if alarms is not None]
        bad = {name: alarms for name, alarms in programs.items() if alarms}
        lines += [f"{name}: {alarm}" for name, alarms in bad.items() for alarm in alarms]
        share = len(bad) / len(traced) if traced else 0.0
        refused = len(programs) - len(traced)
        lines.append(
            f"{kind}: {len(bad)} of {len(traced)} have a false alarm ({share:.1%}), "
            f"{refused} refused"
        )
        good &= share <= SHARE
    return "\n".join(lines), good
