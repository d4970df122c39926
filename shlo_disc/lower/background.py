"""What is compiled after the first call: one thread of low priority, for all programs.

The first call waits for the code that it runs alone, and for code that is made quickly. What is
left are records for the disk, packed copies of weights, then better code of equal bits.

Variants that no call has needed come last, after a call at other sizes than the first one needed
one of them. They also come where a program is compiled before any call. Most programs are called at
the sizes of their first call alone. A call that needs a variant earlier compiles it itself.

None of this begins while something is traced or compiled that a caller waits for.

A process that ends finishes records and better code, within limits, where later processes can load
them.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import SystemRandom
from typing import Protocol, TypeVar, runtime_checkable

from shlo_disc.base import flags, locks
from shlo_disc.base.threads import begins, idle_seconds
from shlo_disc.store.claims import Claim

T = TypeVar("T")

_log = logging.getLogger(__name__)


@runtime_checkable
class Unfinished(Protocol):
    """A function whose best code is not made yet."""

    @property
    def name(self) -> str:
        """Its symbol."""

    @property
    def address(self) -> int:
        """Where its code is; 0: it has none."""

    def finish(self) -> None:
        """Make its best code, if that is not done."""


_PAUSE_S = 0.5
"""After a compilation; the first call runs meanwhile, and perhaps the next compilation begins."""
_LONGEST_WAIT_S = 10.0
"""Of one function, for compilations of others: a stream of first calls does not end its turn."""
_LOOK_S = 0.05
"""Between two looks whether other processes wait for this one."""
_NICENESS = 10

_MOST_AT_END_S = 10.0
"""For what a process that ends still makes for later ones."""

_jobs: deque[Callable[[], None]] = deque()
_packing: deque[Iterator[object]] = deque()
"""Work on packed copies, in short steps."""
_running: deque[weakref.ref[Unfinished]] = deque()
"""Functions that calls run already; they go first."""
_waiting: deque[weakref.ref[Unfinished]] = deque()
_claims: deque[Claim] = deque()
"""Released once the functions that calls run are finished."""
_lock = locks.lock()
_busy = threading.Lock()
"""Held while a function is compiled: a fork, and the end of the process, wait for that."""
_nears_end, _ends, _hurries = threading.Event(), threading.Event(), threading.Event()
"""The process is about to end; it ends now; somebody waits."""
_thread: threading.Thread | None = None


def finish_later(function: Unfinished) -> None:
    """Have `function` finished if it still lives by then, unless SHLO_DISC_COMPILE_AHEAD is 0."""
    if flags.compile_ahead():
        _queue(_running if function.address else _waiting, weakref.ref(function))


def finish_all_later(functions: Iterable[object]) -> None:
    """Have those of `functions` finished later that have no code yet."""
    for function in functions:
        if isinstance(function, Unfinished) and not function.address:
            finish_later(function)


def do_later(job: Callable[[], None]) -> None:
    """Have `job` done, before what :func:`finish_later` takes; at once with no thread for that."""
    if not (flags.compile_ahead() and _queue(_jobs, job)):
        job()


def pack_later(functions: Iterable[object], fill: Callable[[], bool]) -> None:
    """Have `functions` finished, then `fill` called until it returns False."""

    def steps() -> Iterator[object]:
        for function in functions:
            if isinstance(function, Unfinished):
                function.finish()
                yield None
        while fill():
            yield None

    _queue(_packing, steps())


def free_later(free: Callable[[], bool]) -> None:
    """Have `free` called until it returns False, unless the process ends before."""
    pack_later((), free)


def release_later(claim: Claim) -> None:
    """Release `claim` behind all jobs and functions that calls run; at once with no thread."""
    if not flags.compile_ahead() or not _queue(_claims, claim):
        claim.release()


def _queue(queue: deque[T], what: T) -> bool:
    """Have the thread take `what`; False where the process ends, and nothing is taken."""
    global _thread  # noqa: PLW0603 - there is one for the process
    with _lock:
        if _ends.is_set() or not threading.main_thread().is_alive():
            return False  # `_end` would come too late to wait for it
        if _thread is None or not _thread.is_alive():  # a forked child has no such thread
            thread = threading.Thread(target=_work, name="shlo_disc-background", daemon=True)
            if not begins(thread):
                return False
            _thread = thread
        queue.append(what)
    return True


def finish_compiling(timeout_s: float | None = None) -> bool:
    """Wait until nothing is left to compile in the background; False after `timeout_s` seconds.

    Calls like those that were made run at their full speed from then on. The first one of sizes
    that need other kernels compiles these, unless the program was compiled by
    `JitFunction.warmup`, or `shlo_disc.compile` without first sizes.
    """
    with _lock:
        thread = _thread
        if thread is None:
            return True
        _hurries.set()
    thread.join(timeout_s)
    return not thread.is_alive()


def _wait_for_callers() -> None:
    """Wait until callers have waited for no compilation for a while, or somebody waits for this."""
    most = time.monotonic() + _LONGEST_WAIT_S
    while not _hurries.is_set() and time.monotonic() < most:
        left = _PAUSE_S - idle_seconds()
        if left <= 0 or any(claim.is_awaited for claim in list(_claims)):
            return
        _hurries.wait(min(left, _LOOK_S))


def _take_a_step(steps: Iterator[object]) -> None:
    """Other work of more weight goes first again before the next step."""
    for _ in steps:
        with _lock:
            _packing.appendleft(steps)
        return


_chance = SystemRandom()
"""Leaves the numbers that a program draws by `random` as they are."""


def _taken(queue: deque[T]) -> T:
    """One of `queue`, which it leaves.

    Processes that begin together have equal queues. Each takes another function, stores its code,
    and loads what the others stored: none waits, and nothing is held by a process that ends.
    """
    place = _chance.randrange(len(queue))
    found = queue[place]
    del queue[place]
    return found


def _work() -> None:
    global _thread  # noqa: PLW0603
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # of this thread
    except OSError as error:  # some sandboxes have no priorities
        _log.info("kernels are compiled in the background at normal priority: %s", error)
    _hurries.wait(_PAUSE_S)
    while True:
        _wait_for_callers()
        with _lock:
            job: Callable[[], object] | None = None
            function = None
            if _jobs:
                job = _jobs.popleft()
            elif _packing and not _nears_end.is_set():
                job = partial(_take_a_step, _packing.popleft())
            elif _running:
                function = _taken(_running)()
            elif _claims:
                job = _claims.popleft().release
            elif _waiting and not _nears_end.is_set():
                function = _taken(_waiting)()
            else:
                _thread = None
                _hurries.clear()
                return
        with _busy:
            if _ends.is_set():
                return
            try:
                if job is not None:
                    job()
                elif function is not None:
                    function.finish()
            except Exception as error:
                name = "a record" if function is None else function.name
                _log.warning("%s was not finished in the background: %s", name, error)
        del job, function


def _end() -> None:
    _nears_end.set()
    _hurries.set()
    thread = _thread
    if thread is not None and flags.cache():
        thread.join(_MOST_AT_END_S)
    _ends.set()
    with _busy:
        pass


atexit.register(_end)
os.register_at_fork(
    before=_busy.acquire, after_in_parent=_busy.release, after_in_child=_busy.release
)
