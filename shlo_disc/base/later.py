"""Values that are made when somebody first asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from shlo_disc.base import locks

__all__ = ["Later"]

T = TypeVar("T")


class Later(Generic[T]):
    """A value, or how it is made: for what few ask for, such as texts for people."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: list[T] = []
        self._lock = locks.lock()

    @classmethod
    def of(cls, value: T) -> Later[T]:
        """A value that is there already."""
        return cls(lambda: value)

    @property
    def value(self) -> T:
        """The value, made once. Raises what making it raises."""
        with self._lock:
            if self._make is not None:
                self._made.append(self._make())
                self._make = None
            return self._made[0]
