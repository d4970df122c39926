"""Kernel texts compiled on threads while more are written, each once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from shlo_disc.base import locks
from shlo_disc.base.errors import CacheMismatchError, UnsupportedError
from shlo_disc.base.threads import Job, Workers
from shlo_disc.lower.plan import KernelText, text_of

_T = TypeVar("_T")


class KernelJobs(ABC, Workers, Generic[_T]):
    """A base of :class:`shlo_disc.lower.target.CodeGenerator`; `_T` is what a text becomes."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = locks.lock()
        self._begun: dict[KernelText, Job[_T]] = {}

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self._begun.clear()  # an error kept in a job knows this object

    @abstractmethod
    def _compile(self, source: KernelText) -> _T:
        """Compile a text, on a thread."""

    def add(self, source: KernelText, *, wanted: bool = True) -> None:
        """Have a kernel compiled, `wanted` by a first call or not."""
        with self._lock:
            if source not in self._begun:
                self._begun[source] = self.begin(self._compile, source)

    def made(self, sources: Sequence[KernelText]) -> list[_T]:
        """What texts became, in order.

        Raises KernelsRefused when some do not compile, and UnsupportedError without llvmlite.
        """
        made: list[_T] = []
        refused: dict[str, Exception] = {}
        for source in sources:
            self.add(source)
        for source in sources:
            try:
                made.append(self._begun[source].result())
            except (CacheMismatchError, MemoryError, UnsupportedError):
                raise
            except Exception as error:  # told by name, and planned again
                refused[text_of(source)] = error
        if refused:
            from shlo_disc.lower.refused import KernelsRefused  # noqa: PLC0415 - MLIR's classes

            raise KernelsRefused(refused) from next(iter(refused.values()))
        return made
