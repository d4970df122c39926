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

__all__ = ["check_apart", "check_seeds", "prepare"]

BATCH = 40
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


def _work_one(program: Program, pipe: Any) -> None:
    _quiet()
    pipe.send(check(program))


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
                yield seed, Outcome(ended)
                if rest:
                    waiting[:0] = rest
    for child in children:
        _end(child.process)


def check_apart(program: Program, limit_s: float = LIMIT_S) -> Outcome:
    """The outcome of one program, checked in a process of its own."""
    context = _context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work_one, args=(program, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            return Outcome(Failure("hang", "hang", f"no answer after {limit_s} s"))
        return ours.recv()
    except EOFError:
        process.join()
        return Outcome(_crash(process.exitcode))
    finally:
        _end(process)


def _crash(code: int | None) -> Failure:
    return Failure("crash", f"crash {code}", f"the process ended with {code}")


def _end(process: Any) -> None:
    if process.is_alive():
        process.kill()
    process.join()
