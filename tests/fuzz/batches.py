"""Checks many programs in child processes, so that a crash or a hang costs one program."""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.check import Failure, Outcome, check
from tests.fuzz.generate import generate
from tests.fuzz.program import Program

__all__ = ["Checker", "check_seeds", "prepare"]

BATCH = 20
"""Programs a child checks: starting one takes as long as two programs."""

LIMIT_S = 180
"""A program takes one to two seconds; on a busy machine ten."""


def prepare() -> None:
    """Set what children inherit; called before JAX computes anything."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("SHLO_DISC_SPEC", "1")
    flags = os.environ.get("XLA_FLAGS", "")
    for flag in ("--xla_backend_optimization_level=0", "--xla_allow_excess_precision=false"):
        if flag not in flags:
            flags = f"{flags} {flag}".strip()
    os.environ["XLA_FLAGS"] = flags


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fuzz.batches"])
    return context


def _quiet() -> None:
    """A crash prints no stack here: its program is found by its seed."""
    faulthandler.disable()


def _work(seeds: Sequence[int], pipe: Any) -> None:
    _quiet()
    for seed in seeds:
        pipe.send((seed, None))
        pipe.send((seed, check(generate(seed))))


def _serve(pipe: Any) -> None:
    _quiet()
    while True:
        try:
            program, compare = pipe.recv()
        except EOFError:
            return
        pipe.send(check(program, compare))


@dataclass
class _Child:
    process: Any
    pipe: Any
    left: list[int]
    since: float


def check_seeds(
    seeds: Sequence[int], jobs: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, Outcome]]:
    """The outcome of every seed, as they come."""
    context = _context()
    waiting = list(seeds)
    children: list[_Child] = []
    slow: set[int] = set()

    def start(some: list[int]) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(some, theirs))
        process.start()
        theirs.close()
        children.append(_Child(process, ours, some, time.monotonic()))

    while (waiting or children) and not stop():
        while waiting and len(children) < jobs:
            start(waiting[:BATCH])
            del waiting[:BATCH]
        ready = multiprocessing.connection.wait([c.pipe for c in children], timeout=1)
        for child in list(children):
            ended: Failure | None = None
            if child.pipe in ready:
                try:
                    seed, outcome = child.pipe.recv()
                    child.since = time.monotonic()
                    if outcome is not None:
                        child.left.remove(seed)
                        yield seed, outcome
                    continue
                except EOFError:
                    child.process.join()
                    if child.left:
                        ended = _crash(child.process.exitcode)
            elif time.monotonic() - child.since > LIMIT_S:
                ended = Failure("hang", "hang", f"no answer after {LIMIT_S} s")
            else:
                continue
            children.remove(child)
            _end(child.process)
            if ended:
                seed, *rest = child.left
                if ended.kind == "hang" and seed not in slow:
                    slow.add(seed)  # a busy machine: once more
                    rest.append(seed)
                else:
                    yield seed, Outcome(ended)
                if rest:
                    waiting[:0] = rest
    for child in children:
        _end(child.process)


class Checker:
    """Checks one program after the other in a process of its own, a new one after a crash."""

    def __init__(self, compare: bool = True, limit_s: float = LIMIT_S) -> None:
        self._compare = compare
        self._limit_s = limit_s
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *args: object) -> None:
        self._end()

    def check(self, program: Program) -> Outcome:
        if self._process is None:
            self._start()
        try:
            self._pipe.send((program, self._compare))
            if self._pipe.poll(self._limit_s):
                return self._pipe.recv()
            failure = Failure("hang", "hang", f"no answer after {self._limit_s} s")
        except (EOFError, ConnectionError):
            self._process.join()
            failure = _crash(self._process.exitcode)
        self._end()
        return Outcome(failure)

    def _start(self) -> None:
        context = _context()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._pipe.close()
            self._process = None


def _crash(code: int | None) -> Failure:
    return Failure("crash", f"crash {code}", f"the process ended with {code}")


def _end(process: Any) -> None:
    if process.is_alive():
        process.kill()
    process.join()
