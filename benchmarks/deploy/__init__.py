"""Deployed models: our artifact beside what other systems deploy, each in a process of its own.

Start (from the beginning of a process to its first result), loading, memory, calls at several
sizes, and files; then an HTTP server twice, around an artifact and around ONNX Runtime. All files
are in the page cache. Needs a C compiler; `make peers` installs the peers.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.deploy.models import BERT, MLP, MODELS, Model
from benchmarks.deploy.processes import (
    PEERS,
    Process,
    built,
    python_of_ours,
    python_of_peers,
    write_inputs,
)
from benchmarks.deploy.serving import Server, requests
from benchmarks.harness import PEER_SETTLE, Spread
from benchmarks.peers.client import PYTHON, available, flat
from benchmarks.store import host, write
from examples import bert as example

TOLERANCE = 2e-3
MOST_SECONDS = 200
"""For a peer to compile a model; longer ones are left out, and the results say so."""
STARTS = {False: 3, True: 1}
TURNS = {False: 6, True: 2}
MOST_OF_STARTS = 5e3
"""Milliseconds after which a system is not started once more."""
MOST_OF_CALLS = {False: 6e3, True: 0}
"""Milliseconds of calls of a size after which a system is not asked for more."""
REQUESTS = {False: 10_000, True: 40}
ROUNDS = 10
"""Of requests: the servers take turns."""

_OURS = ("ours, C", "ours, C, packed", "ours, Python")


@dataclass(frozen=True)
class System:
    """A way to run a model."""

    command: Sequence[str]
    model: Path
    environment: dict[str, str]


def deploy(console: Console, quick: bool) -> None:
    """Artifacts beside ONNX Runtime, AOTInductor, IREE and TVM; `quick`: of one small model."""
    rows: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    peers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for model in [MLP] if quick else MODELS:
            rows += _Deployed(model, folder / model.name, quick, notes, peers).rows()
            console.print(_table(model, [row for row in rows if row["model"] == model.name]))
        if available():
            rows += _served(folder, quick)
            console.print(_served_table([row for row in rows if row["model"] == "server"]))
        else:
            notes["peers"] = "there is no .venv-peers: run `make peers`"
    for what, why in notes.items():
        console.print(f"{what}: {why}")
    console.print(str(write("deploy", rows, peers=peers, left_out=notes)))


class _Deployed:
    """One model, made for all systems in a folder."""

    def __init__(
        self, model: Model, folder: Path, quick: bool, notes: dict[str, str], peers: dict[str, str]
    ) -> None:
        folder.mkdir()
        self.model, self.folder, self.quick = model, folder, quick
        self.notes, self.peers = notes, peers
        self.inputs = folder / "inputs"
        self.sizes = model.sizes
        self.given = [model.arguments(*one) for one in self.sizes]
        write_inputs(self.inputs, self.given)
        self.params = jax.tree.map(jnp.asarray, model.params(quick))

    def rows(self) -> list[dict[str, Any]]:
        """What was measured, a row a system."""
        systems = self._ours()
        if available():
            systems |= self._made_by_peers()
        rows: dict[str, dict[str, Any]] = {}
        with ExitStack() as stack:
            running: dict[str, Process] = {}
            expected: list[np.ndarray] = []
            for name, system in systems.items():
                try:
                    starts = self._starts(system)
                    process = stack.enter_context(self._process(system))
                    results = [process.result(k, self.folder) for k in range(len(self.sizes))]
                except RuntimeError as error:
                    self._note(name, str(error))
                    continue
                expected = expected or results
                if wrong := _difference(results, expected):
                    self._note(name, wrong)
                    continue
                running[name] = process
                rows[name] = {
                    "model": self.model.name,
                    "system": name,
                    "start_ms": statistics.median(one.start_ms for one in starts),
                    "load_ms": statistics.median(one.load_ms for one in starts),
                    "resident_mb": process.resident_mb(),
                    "file_mb": _megabytes(system.model),
                }
            for number, sizes in enumerate(self.sizes):
                place = " x ".join(map(str, sizes))
                for name, times in self._times(running, number).items():
                    rows[name].setdefault("calls_ms", {})[place] = asdict(Spread.of(times))
        return list(rows.values())

    def _starts(self, system: System) -> list[Process]:
        """Processes that ran once and have ended, until they took long enough."""
        found: list[Process] = []
        while len(found) < STARTS[self.quick] and sum(p.start_ms for p in found) < MOST_OF_STARTS:
            with self._process(system) as process:
                found.append(process)
        return found

    def _times(self, running: dict[str, Process], case: int) -> dict[str, list[float]]:
        """Milliseconds of calls of every process, which take turns until they took long enough."""
        times: dict[str, list[float]] = {name: [] for name in running}
        settle = 0.0 if self.quick else PEER_SETTLE
        for _ in range(TURNS[self.quick]):
            for name, process in list(running.items()):
                if times[name] and sum(times[name]) >= MOST_OF_CALLS[self.quick]:
                    continue
                try:
                    times[name] += process.sample(case, 1 if self.quick else 5, settle)
                except RuntimeError as error:
                    if name in _OURS:
                        raise
                    self._note(name, f"calls at {self.sizes[case]}: {error}")
                    del running[name], times[name]
        return times

    def _note(self, system: str, why: str) -> None:
        self.notes[f"{self.model.name}, {system}"] = why

    def _process(self, system: System) -> Process:
        return Process(system.command, system.model, self.inputs, system.environment)

    def _ours(self) -> dict[str, System]:
        # The weights are constants, as they are for the others.
        function = shlo_disc.jit(functools.partial(self.model.function, self.params))
        compiled = function.lower(*self.given[-1]).compile()
        plain, packed = self.folder / "plain.disc", self.folder / "packed.disc"
        target = "x86-64-v4" if "avx512f" in host()["flags"] else "x86-64-v3"
        compiled.save(plain, (target,))
        compiled.save(packed, (target,), packed_for=self.given[-1])
        process = built("process", "disc", self.folder)
        python, environment = python_of_ours()
        commands = (process, plain, {}), (process, packed, {}), (python, plain, environment)
        return {name: System(*it) for name, it in zip(_OURS, commands, strict=True)}

    def _made_by_peers(self) -> dict[str, System]:
        weights = self.folder / "weights.npz"
        np.savez(weights, **flat(self.params))
        found = {}
        for system, suffix in _SUFFIXES.items():
            path = self.folder / f"{system}.{suffix}"
            if not self._make(system, weights, path):
                continue
            title = _TITLES[system]
            found[title] = System(python_of_peers(system), path, {})
            if system == "onnxruntime":
                found[f"{title}, C"] = System(built("process", "onnx", self.folder), path, {})
        return found

    def _make(self, system: str, source: Path, path: Path) -> bool:
        """Have a peer compile the model; False, with a note, where it cannot."""
        command = [PYTHON, PEERS / "making.py", system, self.model.name, source, self.inputs, path]
        try:
            made = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, check=False,
                timeout=MOST_SECONDS, cwd=self.folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self._note(_TITLES[system], f"it compiled for {MOST_SECONDS} s: stopped")
            return False
        if made.returncode != 0:
            self._note(_TITLES[system], _reason(made.stderr))
            return False
        self.peers[_TITLES[system]] = made.stdout.split()[-1]
        return True


_TITLES = {
    "onnxruntime": "ONNX Runtime",
    "inductor": "AOTInductor",
    "iree": "IREE",
    "tvm": "TVM, untuned",
}
_SUFFIXES = {"onnxruntime": "onnx", "inductor": "pt2", "iree": "vmfb", "tvm": "so"}


def _reason(text: str) -> str:
    """The line of an error output that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return told[-1][:300] if told else "it failed without a word"


def _difference(results: list[np.ndarray], expected: list[np.ndarray]) -> str:
    """What is wrong with results; "" where they are as expected."""
    for one, want in zip(results, expected, strict=True):
        if one.shape != want.shape:
            return f"a result has {one.size} elements, and ours {want.size}"
        error = float(np.abs(one - want).max(initial=0.0))
        if not error <= TOLERANCE * max(1.0, float(np.abs(want).max(initial=0.0))):
            return f"its result is off by {error:.2g}"
    return ""


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 2**20


def _table(model: Model, rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=f"{model.name}, deployed: ms of a call (10 % to 90 %), other columns once")
    places = list(rows[0]["calls_ms"])
    for column in ("", "start ms", "load ms", "resident MB", "file MB", *places):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        calls = [str(Spread(**row["calls_ms"][p])) if p in row["calls_ms"] else "" for p in places]
        table.add_row(
            row["system"], f"{row['start_ms']:.0f}", f"{row['load_ms']:.1f}",
            f"{row['resident_mb']:.0f}", f"{row['file_mb']:.2f}", *calls,
        )  # fmt: skip
    return table


def _served(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Latencies of both servers, for a BERT of one layer."""
    model = _Deployed(_SERVED, folder / "server", quick, notes := {}, {})
    ours = model._ours()[_OURS[0]].model
    onnx = model.folder / "model.onnx"
    weights = model.folder / "weights.npz"
    np.savez(weights, **flat(model.params))
    if not model._make("onnxruntime", weights, onnx):
        raise RuntimeError(f"no server of ONNX Runtime: {notes}")
    given = list(requests(REQUESTS[quick]))
    step = len(given) // ROUNDS
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(Server(built("server", backend, model.folder), path))
            for name, backend, path in (("ours", "disc", ours), ("ONNX Runtime", "onnx", onnx))
        }
        for request in given[:5]:
            want, other = (server.result(request) for server in servers.values())
            if wrong := _difference([other], [want]):
                raise RuntimeError(f"ONNX Runtime's server: {wrong}")
        times: dict[str, list[np.ndarray]] = {name: [] for name in servers}
        seconds = dict.fromkeys(servers, 0.0)
        for begin in range(0, step * ROUNDS, step):
            for name, server in servers.items():
                one, took = server.latencies(given[begin : begin + step])
                times[name].append(one)
                seconds[name] += took
    rows = []
    for name in servers:
        p50, p90, p99 = np.percentile(np.concatenate(times[name]), [50, 90, 99])
        rows.append({
            "model": "server", "system": name, "requests": step * ROUNDS, "p50_ms": p50,
            "p90_ms": p90, "p99_ms": p99, "requests_per_s": step * ROUNDS / seconds[name],
        })  # fmt: skip
    return rows


_SERVED = replace(BERT, params=lambda _: example.init(layers=1), sizes=((1, 16), (2, 32)))


def _served_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=f"{rows[0]['requests']} requests of random sizes, BERT of one layer, HTTP")
    for column in ("", "p50 ms", "p90 ms", "p99 ms", "requests / s"):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        cells = (row["p50_ms"], row["p90_ms"], row["p99_ms"], row["requests_per_s"])
        table.add_row(row["system"], *(f"{cell:.2f}" for cell in cells))
    return table
