"""What is compiled after the first call: one thread of low priority, for all programs.

The first call waits for the code that it runs alone, and for code that is made quickly. What is
left are better code of equal bits for that, then variants that no call has needed so far. A call
that needs one of these earlier has it compiled itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from typing import Protocol

from shlo_disc import flags, locks

__all__ = ["Unfinished", "finish_compiling", "finish_later"]

_log = logging.getLogger(__name__)


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
"""The first call runs meanwhile, and perhaps the next compilation."""
_NICENESS = 10

_running: deque[weakref.ref[Unfinished]] = deque()
"""Functions that calls run already; they go first."""
_waiting: deque[weakref.ref[Unfinished]] = deque()
_lock = locks.lock()
_busy = threading.Lock()
"""Held while a function is compiled: a fork, and the end of the process, wait for that."""
_ends, _hurries = threading.Event(), threading.Event()
"""The process ends; somebody waits."""
_thread: threading.Thread | None = None


def finish_later(function: Unfinished) -> None:
    """Have `function` finished if it still lives by then, unless SHLO_DISC_COMPILE_AHEAD is 0."""
    global _thread  # noqa: PLW0603 - there is one for the process
    if not flags.compile_ahead():
        return
    with _lock:
        (_running if function.address else _waiting).append(weakref.ref(function))
        if _thread is None or not _thread.is_alive():  # a forked child has no such thread
            _thread = threading.Thread(target=_work, name="shlo_disc-background", daemon=True)
            _thread.start()


def finish_compiling(timeout_s: float | None = None) -> bool:
    """Wait until nothing is left to compile in the background; False after `timeout_s` seconds.

    Calls run at their full speed from then on.
    """
    with _lock:
        thread = _thread
        if thread is None:
            return True
        _hurries.set()
    thread.join(timeout_s)
    return not thread.is_alive()


def _work() -> None:
    global _thread  # noqa: PLW0603
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # of this thread
    except OSError as error:  # some sandboxes have no priorities
        _log.info("kernels are compiled in the background at normal priority: %s", error)
    _hurries.wait(_PAUSE_S)
    while True:
        with _lock:
            queue = _running or _waiting
            if not queue:
                _thread = None
                _hurries.clear()
                return
            function = queue.popleft()()
        if function is None:
            continue
        with _busy:
            if _ends.is_set():
                return
            try:
                function.finish()
            except Exception as error:
                _log.warning("%s does not compile: %s", function.name, error)
        del function


def _end() -> None:
    _ends.set()
    _hurries.set()
    with _busy:
        pass


atexit.register(_end)
os.register_at_fork(
    before=_busy.acquire, after_in_parent=_busy.release, after_in_child=_busy.release
)
