"""Runs code in child processes; of many small jobs, a crash or a hang costs one.

Used by the random programs (`tests/fuzz`) and the sweep over functions (`tests/functions`).
"""

from __future__ import annotations

import faulthandler
import importlib.metadata
import multiprocessing
import multiprocessing.connection
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

Job = TypeVar("Job")

CODE = platformdirs.user_cache_dir("shlo_disc-tests")
"""Machine code that tests load and keep (CONTRIBUTING.md)."""

BATCH = 20
"""Jobs of one child: starting a child takes as long as two jobs."""

LIMIT_S = 180
"""A job takes one to two seconds; on a busy machine ten."""


@dataclass(frozen=True)
class Ended:
    """A job without an outcome."""

    kind: str
    """crash or hang."""
    message: str


def prepare() -> None:
    """Set what children inherit; called before JAX computes anything."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("SHLO_DISC_SPEC", "1")
    os.environ.setdefault("SHLO_DISC_CACHE", "kernels")
    os.environ.setdefault("SHLO_DISC_CACHE_DIR", CODE)
    flags = os.environ.get("XLA_FLAGS", "")
    wanted = ["--xla_backend_optimization_level=0", "--xla_allow_excess_precision=false"]
    if importlib.metadata.version("jaxlib").startswith(("0.10.", "0.11.")):
        wanted.append("--xla_cpu_parallel_codegen_split_count=1")
    for flag in wanted:
        if flag not in flags:
            flags = f"{flags} {flag}".strip()
    os.environ["XLA_FLAGS"] = flags


def outcomes(
    work: Callable[[Job], Any],
    jobs: Sequence[Job],
    processes: int,
    *,
    limit_s: float = LIMIT_S,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Job, Any]]:
    """Every job and what `work` returns for it, or :class:`Ended`, as they come.

    `work` is a function of a module and the jobs are distinct: both are pickled.
    """
    waiting = list(jobs)
    children: list[_Child] = []
    slow: list[Job] = []
    try:
        while (waiting or children) and not stop():
            while waiting and len(children) < processes:
                children.append(_Child(work, waiting[:BATCH]))
                del waiting[:BATCH]
            ready = multiprocessing.connection.wait([c.pipe for c in children], timeout=1)
            for child in list(children):
                ended: Ended | None = None
                if child.pipe in ready:
                    try:
                        outcome = child.pipe.recv()
                        child.since = time.monotonic()
                        yield child.left.pop(0), outcome
                        continue
                    except EOFError:
                        child.process.join()
                        if child.left:
                            ended = _crash(child.process.exitcode)
                elif time.monotonic() - child.since > limit_s:
                    ended = _hang(limit_s)
                else:
                    continue
                children.remove(child)
                _end(child.process)
                if ended:
                    job, *rest = child.left
                    if ended.kind == "hang" and job not in slow:
                        slow.append(job)  # a busy machine: once more
                        rest.append(job)
                    else:
                        yield job, ended
                    waiting[:0] = rest
    finally:
        for child in children:
            _end(child.process)


class Server:
    """Does one job after the other in a process of its own, a new one after a crash.

    `leaf`: the process has no children, and ends with the one that started it.
    """

    def __init__(
        self, work: Callable[[Any], Any], limit_s: float = LIMIT_S, *, leaf: bool = False
    ) -> None:
        self._work = work
        self._limit_s = limit_s
        self._leaf = leaf
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *args: object) -> None:
        self._end()

    def outcome(self, job: Any) -> Any:
        """What `work` returns for the job, or :class:`Ended`."""
        if self._process is None:
            context = _context()
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(self._work, theirs), daemon=self._leaf
            )
            self._process.start()
            theirs.close()
        try:
            self._pipe.send(job)
            if self._pipe.poll(self._limit_s):
                return self._pipe.recv()
            ended = _hang(self._limit_s)
        except (EOFError, ConnectionError):
            self._process.join()
            ended = _crash(self._process.exitcode)
        self._end()
        return ended

    def _end(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._pipe.close()
            self._process = None


class _Child:
    """A process that does some of the jobs."""

    def __init__(self, work: Callable[[Any], Any], jobs: list[Any]) -> None:
        context = _context()
        self.left = jobs
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_do, args=(work, jobs, theirs))
        self.process.start()
        theirs.close()
        self.since = time.monotonic()


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["jax.numpy", "shlo_disc"])
    return context


def _do(work: Callable[[Any], Any], jobs: Sequence[Any], pipe: Any) -> None:
    faulthandler.disable()  # a crash prints no stack here: its job is known
    for job in jobs:
        pipe.send(work(job))


def _serve(work: Callable[[Any], Any], pipe: Any) -> None:
    faulthandler.disable()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(work(job))


def _crash(code: int | None) -> Ended:
    return Ended("crash", f"the process ended with {code}")


def _hang(limit_s: float) -> Ended:
    return Ended("hang", f"no answer after {limit_s} s")


def _end(process: Any) -> None:
    if process.is_alive():
        process.kill()
    process.join()


def at_once(work: Callable[[Any], object], arguments: Iterable[Any]) -> None:
    """Call `work` with each argument, in a thread each, all set off together.

    Raises what the first call raises that fails, and TimeoutError if one takes five minutes.
    """
    given = list(arguments)
    barrier = threading.Barrier(len(given))

    def run(argument: Any) -> None:
        barrier.wait()
        work(argument)

    threads = ThreadPoolExecutor(len(given))
    calls = [threads.submit(run, argument) for argument in given]
    try:
        for call in calls:
            call.result(300)
    finally:
        threads.shutdown(wait=all(call.done() for call in calls))


def forked(code: str, timeout: float = 60, **environment: str) -> str:
    """As :func:`python`, from a process that has imported JAX and shlo_disc, and done nothing else.

    This takes a tenth of the time. It is not for what is read when JAX is imported, for what Python
    does in the end, or for what is imported by whom.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        variables = {**os.environ, **environment}
        process = _context().Process(
            target=_execute, args=(textwrap.dedent(code), variables, files)
        )
        process.start()
        process.join(timeout)
        _end(process)
        told, wrong = (file.read_text() if file.exists() else "" for file in files)
        assert process.exitcode == 0, f"{_crash(process.exitcode).message}\n{wrong}"
        return told.strip()


def _execute(code: str, variables: dict[str, str], files: Sequence[Path]) -> None:
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY), descriptor)
    os.environ.clear()
    os.environ.update(variables)
    exec(compile(code, "<code of a test>", "exec"), {"__name__": "__main__"})


def python(code: str, timeout: float = 60, *, quiet: bool = False, **environment: str) -> str:
    """What `code` prints in a Python of its own, which finds the project and its tests.

    Raises AssertionError where it fails, or writes to stderr though it shall be `quiet`.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr), done.stderr
    return done.stdout.strip()
