"""The other side of `server.py`: peers as systems that take turns with ours."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"


def available() -> bool:
    """Has `make peers` been run?"""
    return PYTHON.exists()


@dataclass(frozen=True)
class Remote:
    """A system of another process; `harness.interleaved` asks it for times."""

    peers: Peers
    system: str

    def sample(self, count: int, settle: float) -> list[float]:
        """Milliseconds of `count` calls, after `settle` seconds of untimed ones."""
        answer = self.peers.ask(op="time", system=self.system, count=count, settle=settle)
        return list(answer["ms"])


class Peers:
    """A running server; a context manager."""

    def __init__(self, *, from_nothing: bool = False) -> None:
        """`from_nothing`: without what PyTorch compiled in earlier runs and keeps on disk."""
        self._folder = tempfile.TemporaryDirectory()
        cache = str(Path(self._folder.name) / "cache")
        own = {"TORCHINDUCTOR_CACHE_DIR": cache} if from_nothing else {}
        self._process = subprocess.Popen(
            [str(PYTHON), str(Path(__file__).with_name("server.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | own,
        )  # fmt: skip
        self.about = self._answer()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    def load(self, case: str, weights: Any = ()) -> None:
        """Make a workload ready; `weights` is the pytree of its JAX function."""
        path = Path(self._folder.name) / "weights.npz"
        np.savez(path, **flat(weights))
        self.ask(op="load", case=case, weights=str(path))

    def systems(
        self, inputs: Sequence[Any], expected: Any, tolerance: float = 2e-3
    ) -> tuple[dict[str, Remote], dict[str, str]]:
        """The systems that run these inputs and give what is expected, and why others do not."""
        answer, outputs = self._run(inputs, op="inputs")
        failed = dict(answer["failed"])
        found = {}
        for system in answer["systems"]:
            if (wrong := _difference(outputs[system], expected, tolerance)) is None:
                found[system] = Remote(self, system)
            else:
                failed[system] = wrong
        return found, failed

    def request(
        self, system: str, inputs: Sequence[Any], expected: Any, tolerance: float = 2e-3
    ) -> float:
        """Milliseconds of one call of `system`, what it compiles for these inputs included.

        Raises RuntimeError where it fails or gives another result.
        """
        answer, outputs = self._run(inputs, op="request", system=system)
        if (wrong := _difference(outputs[system], expected, tolerance)) is not None:
            raise RuntimeError(f"{system}: {wrong}")
        return float(answer["ms"])

    def _run(
        self, inputs: Sequence[Any], **request: Any
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The answer to a request about these inputs, and the results by system."""
        given = Path(self._folder.name) / "inputs.npz"
        results = Path(self._folder.name) / "outputs.npz"
        np.savez(given, **{str(k): np.asarray(x) for k, x in enumerate(inputs)})
        answer = self.ask(inputs=str(given), outputs=str(results), **request)
        with np.load(results) as outputs:
            return answer, dict(outputs)

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its answer; RuntimeError when the server could not do it."""
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peers' process ended ({self._process.wait()})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def _difference(output: np.ndarray, expected: Any, tolerance: float) -> str | None:
    """What is wrong with a result; None where it is as expected."""
    error = np.abs(output - np.asarray(expected)).max(initial=0.0)
    if error <= tolerance * max(1.0, float(np.abs(expected).max(initial=0.0))):
        return None
    return f"its result is off by {error:.2g}"


def flat(weights: Any) -> Mapping[str, np.ndarray]:
    """A pytree of arrays by path: `layers/0/query`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(weights)
    return {
        "/".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in path): np.asarray(leaf)
        for path, leaf in leaves
    }
