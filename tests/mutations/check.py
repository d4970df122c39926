"""What becomes of a mutated program, found out in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait

SECONDS = 60.0
"""For one program; compiling one of the corpus takes below a second on a machine that is idle."""

MEMORY_BYTES = 6 << 30
"""Of addresses, which LLVM reserves many of."""

GOOD = ("compiled", "refused")


def outcome(source: str | bytes, *, whole: bool) -> str:
    """`compiled`, `refused`, or what else happened; without `whole` no code is generated."""
    from shlo_disc.base.errors import InternalError, ShloDiscError
    from shlo_disc.driver.compile import compile
    from shlo_disc.driver.stages import examine

    try:
        if whole:
            compile(source)
        else:
            examine(source)
    except InternalError as error:
        return f"internal error: {error}"
    except ShloDiscError:
        return "refused"
    except MemoryError as error:
        return "refused" if "a constant of type" in str(error) else f"MemoryError: {error}"
    except Exception as error:
        return f"raw error: {type(error).__name__}: {error}"
    return "compiled"


def _work(pipe: Connection) -> None:
    from tests.mutations.edits import case

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (seed := pipe.recv()) is not None:
        pipe.send(outcome(case(seed), whole=seed % 7 == 0))


class _Worker:
    def __init__(self) -> None:
        # A fresh interpreter: a fork would share threads and locks of this one.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.fresh = True
        self.until = 0.0

    def give(self, seed: int) -> None:
        self.seed = seed
        self.until = time.monotonic() + SECONDS + (20.0 if self.fresh else 0.0)  # its imports
        self.fresh = False
        self.pipe.send(seed)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def check(seeds: Iterable[int], jobs: int) -> Iterator[tuple[int, str]]:
    """Every seed and its outcome, in the order in which they end."""
    waiting = iter(seeds)
    workers: list[_Worker] = []
    try:
        for seed in waiting:
            workers.append(_Worker())
            workers[-1].give(seed)
            if len(workers) == jobs:
                break
        while workers:
            ready = wait([w.pipe for w in workers], timeout=1.0)
            for number, worker in enumerate(list(workers)):
                if worker.pipe in ready:
                    result = _received(worker)
                elif time.monotonic() > worker.until:
                    result = f"did not end in {SECONDS:.0f} s"
                else:
                    continue
                assert worker.seed is not None
                yield worker.seed, result
                if result.startswith(("did not", "crashed")):
                    worker.stop()
                    workers[number] = _Worker()
                following = next(waiting, None)
                if following is None:
                    workers[number].stop()
                    workers[number].seed = None
                else:
                    workers[number].give(following)
            workers = [w for w in workers if w.seed is not None]
    finally:
        for worker in workers:
            worker.stop()


def _received(worker: _Worker) -> str:
    try:
        return str(worker.pipe.recv())
    except EOFError:
        worker.process.join()
        return f"crashed: exit status {worker.process.exitcode}"
