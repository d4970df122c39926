"""Processes that run a deployed model each, and the C programs among them."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.client import PYTHON, ROOT
from shlo_disc import ral

HERE = Path(__file__).parent
PEERS = HERE.parent / "peers"
MOST_SECONDS = 60
"""For an answer."""


def built(name: str, backend: str, folder: Path) -> list[str]:
    """The command of a C program of this folder with a backend. Raises CalledProcessError."""
    program = folder / f"{name}_{backend}"
    if backend == "disc":
        library = Path(ral.library())
        flags = [f"-I{ral.include_dir()}"]
    else:
        # The wheel has the file of the version alone; its loader wants the name in the file.
        capi = next(PYTHON.parents[1].glob("lib/*/site-packages/onnxruntime/capi"))
        library = folder / "libonnxruntime.so.1"
        library.unlink(missing_ok=True)
        library.symlink_to(next(capi.glob("libonnxruntime.so.*.*.*")))
        flags = []
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = [HERE / f"{name}.c", HERE / f"backend_{backend}.c"]
    rest = [library, f"-Wl,-rpath,{library.parent}", "-pthread", "-o", program]
    subprocess.run([*compiler, "-O2", "-std=c11", *flags, *sources, *rest], check=True)
    return [str(program)]


def python_of_ours() -> tuple[list[str], dict[str, str]]:
    """The command and environment of a Python that has numpy and shlo_disc_runtime alone."""
    places = [ROOT, Path(np.__file__).parents[1]]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, places))}
    return [sys.executable, "-S", str(PEERS / "deployed.py"), "ours"], environment


def python_of_peers(system: str) -> list[str]:
    """The command of a peer."""
    return [str(PYTHON), str(PEERS / "deployed.py"), system]


class Process:
    """A process that runs one model: as `benchmarks/peers/deployed.py` says. A context manager."""

    def __init__(
        self, command: Sequence[str], model: Path, inputs: Path, environment: dict[str, str]
    ) -> None:
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [*command, str(model), str(inputs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip
        try:
            word, load = self._answer().split()
        except BaseException:
            self.__exit__()
            raise
        self.start_ms = (time.perf_counter() - start) * 1e3
        """Until the first result is there."""
        assert word == "ready"
        self.load_ms = float(load)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not select.select([self._process.stdout], [], [], MOST_SECONDS)[0]:
            self._process.kill()
            raise RuntimeError(f"no answer in {MOST_SECONDS} s: stopped")
        if line := self._process.stdout.readline():
            return line
        told = self._process.stderr.read().strip().splitlines() or [""]
        raise RuntimeError(f"ended ({self._process.wait()}): {told[-1][:200]}")

    def ask(self, *words: object) -> str:
        """One request and its answer; RuntimeError where the process ended."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def result(self, case: int, folder: Path) -> np.ndarray:
        """The first result of a case: flat float32."""
        path = folder / "result.bin"
        self.ask("run", case, path)
        return np.fromfile(path, np.float32)

    def sample(self, case: int, count: int, settle: float) -> list[float]:
        """Milliseconds of `count` calls, after `settle` seconds of untimed ones."""
        return [float(word) for word in self.ask("time", case, count, settle).split()]

    def resident_mb(self) -> float:
        """Memory of the process, what it shares with others included."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")


def write_inputs(folder: Path, cases: Iterable[Sequence[np.ndarray]]) -> None:
    """What processes read: see `benchmarks/peers/deployed.py`."""
    folder.mkdir(exist_ok=True)
    given = list(cases)
    words = [str(len(given))]
    for number, arrays in enumerate(given):
        words.append(str(len(arrays)))
        for index, array in enumerate(arrays):
            words += [array.dtype.name, str(array.ndim), *map(str, array.shape)]
            (folder / f"{number}-{index}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    (folder / "cases.txt").write_text(" ".join(words) + "\n")
