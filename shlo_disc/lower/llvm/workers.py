"""The processes that run LLVM for other machines; see `worker.py`.

They start when the first kernel is compiled, at most one a core, and end with this process or with
:func:`stop`. A forked child starts its own.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import field
from pathlib import Path

from shlo_disc.base import locks
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.base.records import dataclass

LEAST_LLVMLITE = (0, 48)
"""The first release whose LLVM (22) reads what torch-mlir's (24) writes."""

_MOST = 8
"""Processes at most: each holds about 150 MB."""

_WORKER = Path(__file__).parent / "worker.py"


class _LostWorkerError(Exception):
    """A worker has ended before it answered."""


class _Worker:
    """One process."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", str(_WORKER), *_folders()]
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._told
        )

    def answer(self, request: dict[str, object], sent: bytes) -> bytes:
        """The code of a module.

        Raises InternalError with the message of LLVM or nvJitLink, and _LostWorkerError with what
        these wrote last.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            head = json.dumps({**request, "size": len(sent)}).encode()
            process.stdin.write(head + b"\n" + sent)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise _LostWorkerError(self._last_words())
        reply = json.loads(line)
        code = process.stdout.read(reply["size"])
        if reply["error"] is not None:
            name = "nvJitLink" if "library" in request else "LLVM"
            raise InternalError(f"{name} did not accept a kernel: {reply['error']}")
        return code

    def _last_words(self) -> str:
        self._process.communicate()
        self._told.seek(0)
        lines = self._told.read().decode(errors="replace").strip().splitlines()
        return f"exit status {self._process.returncode}" + "".join(f"\n{x}" for x in lines[:5])

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        with contextlib.suppress(ValueError):  # its pipes are closed
            self._process.communicate()


@dataclass
class _Idle:
    """The workers of process `owner` that have nothing to do."""

    owner: int = field(default_factory=os.getpid)
    workers: list[_Worker] = field(default_factory=list)


_idle = _Idle()
_lock = locks.lock()


def _take() -> _Worker | None:
    global _idle  # noqa: PLW0603 - those of the parent are not ours after a fork
    with _lock:
        if _idle.owner != os.getpid():
            _idle = _Idle()
        return _idle.workers.pop() if _idle.workers else None


def _give_back(worker: _Worker) -> None:
    with _lock:
        is_one_too_many = len(_idle.workers) >= min(len(os.sched_getaffinity(0)), _MOST)
        if not is_one_too_many:
            _idle.workers.append(worker)
    if is_one_too_many:
        worker.end()


def compiled(
    text: str,
    triple: str,
    chip: str,
    features: str,
    *,
    form: str = "assembly",
    level: int = 3,
    model: str = "default",
) -> bytes:
    """The code of LLVM IR for a machine that LLVM calls so; `form`: "assembly" or "object".

    `model` is LLVM's name of the code model. Raises UnsupportedError without llvmlite,
    InternalError for what LLVM does not accept.
    """
    request: dict[str, object] = {
        "triple": triple,
        "chip": chip,
        "features": features,
        "level": level,
        "model": model,
        "form": form,
    }
    return _answered(request, text.encode())


def linked(ptx: bytes, architecture: str, library: str) -> bytes:
    """Machine code of PTX by nvJitLink, whose path is `library`.

    Raises UnsupportedError without llvmlite, InternalError for what nvJitLink does not accept.
    """
    return _answered({"library": library, "chip": architecture}, ptx)


def _answered(request: dict[str, object], sent: bytes) -> bytes:
    worker = _take() or _Worker()
    try:
        code = worker.answer(request, sent)
    except _LostWorkerError as lost:
        raise InternalError(f"a process ended on a kernel: {lost}") from None
    except InternalError:
        _give_back(worker)
        raise
    except BaseException:  # it may be in the middle of an answer
        worker.end()
        raise
    _give_back(worker)
    return code


def stop() -> int:
    """End the processes that have nothing to do; returns how many."""
    with _lock:
        ended, _idle.workers = _idle.workers, []
    for worker in ended:
        worker.end()
    return len(ended)


def _folders() -> list[str]:
    """Where Python finds llvmlite.

    Raises UnsupportedError if there is none, or one that is too old.
    """
    wanted = ".".join(map(str, LEAST_LLVMLITE))
    advice = f"install it: pip install 'llvmlite>={wanted}', or 'shlo_disc[gpu]'"
    needed = "code for GPUs and for artifacts needs llvmlite"
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise UnsupportedError(f"{needed}, which is not installed; {advice}")
    found = importlib.metadata.version("llvmlite")
    if tuple(int(part) for part in found.split(".")[:2]) < LEAST_LLVMLITE:
        raise UnsupportedError(f"{needed} {wanted}, found {found}; {advice}")
    return [str(Path(spec.origin).parents[1])]
