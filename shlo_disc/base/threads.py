"""How threads begin, and share the interpreter and the cores while one of them traces or compiles.

Python's collection of garbage is another one then, too. Python lets no thread begin once it ends,
which is in functions of `atexit`: callers do the work themselves there.
"""

from __future__ import annotations

import functools
import gc
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, Self, TypeVar

from shlo_disc.base import locks

_P = ParamSpec("_P")
_T = TypeVar("_T")

SWITCH_SECONDS = 0.0005
"""After how many seconds of Python another thread may run, while something is compiled."""

COLLECTIONS = (100_000, 10, 1 << 30)
"""Thresholds of `gc`, while something is compiled: no full collections.

A trace and a module are many objects that live until they are compiled. Full collections go over
them and over all of JAX again and again. They took 12 % of the first call of an MLP with Adam.
"""


class _Compiling:
    """The functions under way, and the settings Python had before the first of them."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._count = 0
        self._before = 0.0
        self._ended = -math.inf
        self._collections = (0, 0, 0)

    def idle(self) -> float:
        return 0.0 if self._count else time.monotonic() - self._ended

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_SECONDS))
                self._collections = gc.get_threshold()
                if self._collections[0]:  # 0: the program collects by itself
                    gc.set_threshold(*COLLECTIONS)

    def end(self) -> None:
        with self._lock:
            if self._count == 0:
                return  # a forked child
            self._count -= 1
            if self._count == 0:
                self._ended = time.monotonic()
                self._restore()

    def forget(self) -> None:
        """In a forked child, which has none of the threads that compile."""
        if self._count:
            self._count = 0
            self._restore()

    def _restore(self) -> None:
        # Somebody else may have set them meanwhile.
        if abs(sys.getswitchinterval() - SWITCH_SECONDS) < 1e-6:
            sys.setswitchinterval(self._before)
        if gc.get_threshold() == COLLECTIONS:
            gc.set_threshold(*self._collections)


_compiling = _Compiling()
os.register_at_fork(after_in_child=_compiling.forget)


def idle_seconds() -> float:
    """For how long no thread has traced or compiled for a caller; 0 while one does."""
    return _compiling.idle()


def lets_others_run(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, during which a waiting thread gets the interpreter after SWITCH_SECONDS, and
    Python collects garbage by COLLECTIONS.

    Python's own 5 ms (`sys.setswitchinterval`) are longer than most calls of compiled code, and a
    call asks for the interpreter three times: it would take 15 ms beside a compilation.

    Nothing begins in the background meanwhile (see :mod:`shlo_disc.lower.background`).
    """

    @functools.wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        _compiling.begin()
        try:
            return function(*args, **kwargs)
        finally:
            _compiling.end()

    return wrapped


def begins(thread: threading.Thread) -> bool:
    """Start `thread`; False where Python lets none begin."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


class Job(Generic[_T]):
    """A call of a thread of :class:`Workers`."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self._made: list[_T] = []
        self._error: BaseException | None = None
        self._is_done = threading.Event()

    def run(self) -> None:
        """Make the call, in this thread."""
        try:
            self._made.append(self._call())
        except BaseException as error:  # raised by `result`
            self._error = error
        self._is_done.set()

    def result(self) -> _T:
        """What the call returned, when it has. Raises what it raised."""
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return self._made[0]


class Workers:
    """Up to `most` threads for jobs; a context that waits for what was begun.

    Those of `concurrent.futures` cannot be imported once Python ends. An exception that passes
    gives up the jobs that wait for a thread.
    """

    def __init__(self, most: int | None = None) -> None:
        """`most`: without it one a core, but no more than 8."""
        self._most = most or min(len(os.sched_getaffinity(0)), 8)
        self._changed = threading.Condition()
        self._waiting: deque[Job[Any]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._ends = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._changed:
            self._ends = True
            if kind is not None:
                self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def begin(self, function: Callable[..., _T], *args: Any) -> Job[_T]:
        """Have a thread call `function`; the caller's own does where no other can begin.

        The call has the caller's context variables.
        """
        job = Job(functools.partial(copy_context().run, function, *args))
        with self._changed:
            if len(self._waiting) >= self._idle and len(self._threads) < self._most:
                thread = threading.Thread(target=self._work)
                if begins(thread):
                    self._threads.append(thread)
            if self._threads:
                self._waiting.append(job)
                self._changed.notify()
                return job
        job.run()
        return job

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._waiting and not self._ends:
                    self._changed.wait()
                self._idle -= 1
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            job.run()
            del job  # or a thread that waits keeps its results
