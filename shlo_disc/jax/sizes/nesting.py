"""Whether this thread traces a function of ours: others called inside are part of it.

A trace never waits for another one: not for another function's, nor for what another thread derives
from a program. So no threads wait in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from shlo_disc.base import locks
from shlo_disc.base.errors import UnsupportedError


class PartOfOuterError(UnsupportedError):
    """The function only has a meaning as part of the program that JAX is tracing around it."""


class _State(threading.local):
    nested = False


_state = _State()


@contextmanager
def nested() -> Iterator[None]:
    """Our functions that are called inside become part of the program that is being traced."""
    before, _state.nested = _state.nested, True
    try:
        yield
    finally:
        _state.nested = before


def is_nested() -> bool:
    """True inside :func:`nested`."""
    return _state.nested


def one_at_a_time(lock: AbstractContextManager[None]) -> AbstractContextManager[None]:
    """`lock`; nothing inside :func:`nested`, where waiting may close a circle.

    What the lock guards may then be made twice: by this thread, and by the one that holds the lock.
    """
    return nullcontext() if _state.nested else lock


class BusyError(Exception):
    """Another thread holds a lock for which a trace may not wait."""


@contextmanager
def in_turn(lock: locks.Lock) -> Iterator[None]:
    """`lock`, which may be waited for; inside :func:`nested` BusyError is raised instead."""
    if not _state.nested:
        with lock:
            yield
        return
    if not lock.take_now():
        raise BusyError
    try:
        yield
    finally:
        lock.give_back()
