"""The seam between the front end and the compiler, which counts compilations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_disc import locks
from shlo_disc.frontend.call import Compiler
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

    target = "cpu"

    def __init__(self) -> None:
        self._lock = locks.lock()
        self.count = 0

    def at(self, target: str) -> Compiler:
        """The compiler for another target; compilations are counted here."""
        return self if target == self.target else _OfTarget(self, target)

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


class _OfTarget:
    """The compiler of a function, for one target."""

    def __init__(self, compiler: CountingCompiler, target: str) -> None:
        self._compiler = compiler
        self.target = target

    def at(self, target: str) -> Compiler:
        """See :meth:`CountingCompiler.at`."""
        return self if target == self.target else self._compiler.at(target)

    def __call__(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        """The compiled program, counted."""
        return self._compiler(lowered, target=self.target, **options)

    def part(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        """The compiled program, not counted."""
        return self._compiler.part(lowered, target=self.target, **options)

    def examine(self, lowered: LoweredModule) -> None:
        """Raise UnsupportedError for a program that cannot be compiled."""
        self._compiler.examine(lowered)

    def counted(self) -> None:
        """Count one compilation."""
        self._compiler.counted()
