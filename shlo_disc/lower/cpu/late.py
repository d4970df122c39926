"""Kernels that are compiled when a call first needs them, or before that in the background.

A plan has variants of kernels for other sizes than those of the first call. Compiling these took
half of LLVM's time before the first call ran. One thread of low priority compiles them afterwards.
A call that needs one earlier compiles it itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any, Generic, Protocol, TypeVar

from shlo_disc import flags, locks

__all__ = ["LateFunction", "compile_in_background"]

_log = logging.getLogger(__name__)


class _Code(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def from_store(self) -> bool: ...


_F = TypeVar("_F", bound=_Code)


class LateFunction(Generic[_F]):
    """A function without code so far: its address and size are 0 until then."""

    def __init__(self, name: str, make: Callable[[], _F]) -> None:
        self.name = name
        self._make, self._context = make, copy_context()
        self._lock = locks.lock()
        self._made: _F | None = None

    @property
    def address(self) -> int:
        """Where the code is."""
        return 0 if self._made is None else self._made.address

    @property
    def size_bytes(self) -> int:
        """Of the code."""
        return 0 if self._made is None else self._made.size_bytes

    @property
    def from_store(self) -> bool:
        """True if there is code that was kept on disk."""
        return self._made is not None and self._made.from_store

    def compiled(self) -> _F:
        """The function with its code. Raises what the code generator does."""
        with self._lock:
            if self._made is None:
                self._made = self._context.run(self._make)
            return self._made


_PAUSE_S = 0.5
"""The first call runs meanwhile, and perhaps the next compilation."""
_NICENESS = 10

_waiting: deque[weakref.ref[LateFunction[Any]]] = deque()
_lock = locks.lock()
_busy = threading.Lock()
"""Held while a kernel is compiled: a fork, and the end of the process, wait for that."""
_ends = threading.Event()
_thread: threading.Thread | None = None


def compile_in_background(functions: Iterable[LateFunction[Any]]) -> None:
    """Have those compiled that still live by then, unless SHLO_DISC_COMPILE_AHEAD is 0."""
    global _thread  # noqa: PLW0603 - there is one for the process
    found = [weakref.ref(function) for function in functions]
    if not found or not flags.compile_ahead():
        return
    with _lock:
        _waiting.extend(found)
        if _thread is None or not _thread.is_alive():  # a forked child has no such thread
            _thread = threading.Thread(target=_work, name="shlo_disc-late", daemon=True)
            _thread.start()


def _work() -> None:
    global _thread  # noqa: PLW0603
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # of this thread
    _ends.wait(_PAUSE_S)
    while True:
        with _lock:
            if not _waiting:
                _thread = None
                return
            function = _waiting.popleft()()
        if function is None:
            continue
        with _busy:
            if _ends.is_set():
                return
            try:
                function.compiled()
            except Exception as error:
                _log.warning("kernel %s does not compile: calls that need it will raise: %s",
                             function.name, error)  # fmt: skip
        del function


def _end() -> None:
    _ends.set()
    with _busy:
        pass


atexit.register(_end)
os.register_at_fork(
    before=_busy.acquire, after_in_parent=_busy.release, after_in_child=_busy.release
)
