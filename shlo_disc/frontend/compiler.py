"""The seam between the front end and the compiler, which counts compilations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_disc import locks
from shlo_disc.frontend.compiled_call import CompiledCall
from shlo_disc.frontend.lowered import LoweredModule

__all__ = ["CountingCompiler"]


def _compile(
    lowered: LoweredModule, shapes: Sequence[Sequence[str]] | None = None, **options: Any
) -> CompiledCall:
    from shlo_disc.compile import compile_one  # noqa: PLC0415 - MLIR is loaded when first needed

    return compile_one(lowered.source(shapes), **options)


class CountingCompiler:
    """A :class:`shlo_disc.frontend.call.Compiler`; `count` is the number of compilations so far.

    Versions and programs hold this object and not the function, which would then only be freed by
    Python's garbage collector.
    """

    def __init__(self) -> None:
        self._lock = locks.lock()
        self.count = 0

    def __call__(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        """The compiled program, counted."""
        executable = self.part(lowered, **options)
        self.counted()
        return executable

    def part(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        """The compiled program, not counted."""
        return _compile(lowered, **options)

    def examine(self, lowered: LoweredModule) -> None:
        """Raise UnsupportedError for a program that cannot be compiled."""
        from shlo_disc.compile import examine  # noqa: PLC0415 - as above

        examine(lowered.source())

    def counted(self) -> None:
        """Count one compilation."""
        with self._lock:
            self.count += 1
