"""Locks that a forked child may take.

`os.fork` copies a lock as it is; the thread that held it does not exist in the child, which would
wait for ever. Locks made here are free in a child. What they guard is whole there: a fork happens
between two bytecodes, and every guarded change that matters is one operation of a container.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Lock:
    """A lock as a context manager, made anew in a forked child."""

    __slots__ = ("__weakref__", "_inner", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._inner = make()
        _locks.add(self)

    def __enter__(self) -> None:
        self._inner.acquire()

    def __exit__(self, *raised: object) -> None:
        self._inner.release()

    def take_now(self) -> bool:
        """Take the lock unless another thread holds it; True if it is ours, until `give_back`."""
        return bool(self._inner.acquire(blocking=False))

    def give_back(self) -> None:
        """Release the lock."""
        self._inner.release()

    def renew(self) -> None:
        """Forget the thread that holds the lock, unless that is this one."""
        is_mine = getattr(self._inner, "_is_owned", None)  # of reentrant locks
        if is_mine is None or not is_mine():
            self._inner = self._make()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for each in list(_locks):
        each.renew()


os.register_at_fork(after_in_child=_renew_all)


def lock() -> Lock:
    """A lock for `with`."""
    return Lock(threading.Lock)


def reentrant_lock() -> Lock:
    """A lock for `with` that the thread that holds it may take again."""
    return Lock(threading.RLock)


def once(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, which runs once for equal arguments and later gives the same object.

    `functools.cache` alone lets threads that come together all run it; each gets its own object.
    A thread that comes meanwhile waits here. The arguments must be hashable.
    """
    cached = functools.cache(function)
    guard = reentrant_lock()

    @functools.wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with guard:
            return cached(*args, **kwargs)  # type: ignore[arg-type]  # hashable

    return wrapped
