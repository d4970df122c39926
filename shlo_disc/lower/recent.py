"""Compiled code asked for most recently, up to a number of bytes: `lower.target.CodeCache`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from shlo_disc.base import locks

T = TypeVar("T")


class Recent(Generic[T]):
    """What was asked for most recently, kept alive; a key names the text that it was made of."""

    def __init__(self, limit_bytes: int, size_of: Callable[[T], int]) -> None:
        self._limit_bytes, self._size_of = limit_bytes, size_of
        self._lock = locks.lock()
        self._entries: OrderedDict[str, tuple[T, int]] = OrderedDict()
        """Each with its bytes when it was last added."""
        self._bytes = 0

    def get(self, key: str) -> T | None:
        """What `key` names, which becomes the most recent one."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def add(self, key: str, made: T) -> None:
        """Keep `made`, or what `key` names already; the oldest ones go where room is short."""
        gone: list[T] = []  # freed without the lock
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                made = before[0]
                self._bytes -= before[1]
            self._entries[key] = made, self._size_of(made)
            self._bytes += self._entries[key][1]
            self._drop(self._limit_bytes, gone)

    def resize(self, limit_bytes: int) -> int:
        """Set the limit; returns the one before."""
        gone: list[T] = []
        with self._lock:
            before, self._limit_bytes = self._limit_bytes, limit_bytes
            self._drop(limit_bytes, gone)
        return before

    def clear(self) -> int:
        """Keep nothing; returns the bytes of what was kept."""
        gone: list[T] = []
        with self._lock:
            before = self._bytes
            self._drop(0, gone)
        return before

    def stats(self) -> dict[str, int]:
        """`entries` and `bytes`."""
        with self._lock:
            return {"entries": len(self._entries), "bytes": self._bytes}

    def _drop(self, limit_bytes: int, gone: list[T]) -> None:
        while self._bytes > limit_bytes:
            _, (made, size) = self._entries.popitem(last=False)
            self._bytes -= size
            gone.append(made)
