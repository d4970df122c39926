"""The seam between the front end and the compiler, which counts compilations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shlo_disc.base import locks
from shlo_disc.driver.compile import compile_one
from shlo_disc.executables.executable import Executable
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.calls.lowered import LoweredModule


def _compile(
    lowered: LoweredModule,
    shapes: Sequence[Sequence[str]] | None = None,
    seen: Mapping[str, int] | None = None,
    **options: Any,
) -> Executable:
    return compile_one(lowered.source(shapes), first_sizes=seen, **options)


class _Counter:
    def __init__(self) -> None:
        self.lock = locks.lock()
        self.value = 0
        self.loaded = 0


class Compiler:
    """The seam to the compiler; `count` is the number of compilations so far.

    Versions and programs hold this object and not the function, which would then only be freed by
    Python's garbage collector. Those of other targets, and of parts, share the count.
    """

    def __init__(
        self,
        target: str = "cpu",
        counter: _Counter | None = None,
        counts: bool = True,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.target = target
        self.tell = tell
        """Is told what XLA runs in place of a program; None: it is an error instead."""
        self._counter = counter or _Counter()
        self._counts = counts

    @property
    def count(self) -> int:
        """Compilations so far."""
        return self._counter.value

    @property
    def loaded(self) -> int:
        """Of these, programs that an earlier process had compiled."""
        return self._counter.loaded

    @property
    def platform(self) -> str:
        """That of the target: `cpu`, `cuda` or `rocm`."""
        return self.target.partition(":")[0]

    def at(self, target: str) -> Compiler:
        """The compiler for another target."""
        if target == self.target:
            return self
        return type(self)(target, self._counter, self._counts, self.tell)

    @property
    def of_parts(self) -> Compiler:
        """The compiler for parts of a program, which are counted as a whole."""
        return type(self)(self.target, self._counter, counts=False, tell=self.tell)

    def __call__(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        """:func:`shlo_disc.compile` of a lowered program, counted as a compilation.

        `shapes` may equate symbols of the program. `seen`: its sizes in the call that it is
        compiled for (`dynamic/seen.py`).
        """
        executable = _compile(lowered, target=self.target, **options)
        if self._counts:
            self.counted(was_loaded=executable.was_loaded)
        return executable

    def examine(self, lowered: LoweredModule) -> None:
        """Raise UnsupportedError for a program that cannot be compiled."""
        from shlo_disc.driver.stages import examine  # noqa: PLC0415 - as above

        examine(lowered.source(), target=self.target)

    def counted(self, *, was_loaded: bool = False) -> None:
        """Count one compilation, or a program that was loaded instead."""
        with self._counter.lock:
            self._counter.value += 1
            self._counter.loaded += was_loaded

    def forget(self) -> None:
        """Count from 0 again."""
        with self._counter.lock:
            self._counter.value = self._counter.loaded = 0
