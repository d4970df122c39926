"""What a program is compiled to; equal programs are compiled once."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from shlo_disc.base import flags, locks
from shlo_disc.executables.devices import Place
from shlo_disc.executables.savable import SaveOptions
from shlo_disc.jax.calls.lowered import LoweredModule

if TYPE_CHECKING:
    from shlo_disc.report.profile import Profile


class CompiledCall(Protocol):
    """What a program is compiled to (`shlo_disc.executables.executable.Executable`)."""

    @property
    def fingerprint(self) -> int:
        """The attribute that names the program to the FFI target."""

    @property
    def stands_in(self) -> bool:
        """True if it was compiled for other short sizes, of which it has faster kernels."""

    def call_leaves(self, leaves: Sequence[Any], place: Place | None = None) -> list[Any]:
        """Run on concrete arrays, which are at `place`; None: on a CPU."""

    def compile_for_all_sizes(self) -> None:
        """Have the kernels that no call has needed compiled in the background."""

    def save(
        self,
        path: str | os.PathLike[str],
        targets: Sequence[str] | None,
        **options: Unpack[SaveOptions],
    ) -> None:
        """Write an artifact."""

    def as_text(self, stage: str = "disc") -> str:
        """The program at a stage of compilation."""

    def describe(
        self,
        sizes: Mapping[str, int] | None = None,
        calls: Sequence[tuple[Mapping[str, int], int]] = (),
    ) -> dict[str, Any]:
        """Its kernels and memory, as data (`report.describe`)."""

    def profile(self, *arrays: Any) -> Profile:
        """Times of its kernels."""

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Operations and bytes of a call."""

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Bytes of arguments, results and temporary memory."""


_programs: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_pending: dict[str, Any] = {}
_programs_lock = locks.lock()


def compiled_once(
    lowered: LoweredModule, compile: Callable[..., CompiledCall], **options: Any
) -> CompiledCall:
    """`compile(lowered, **options)`; equal programs alive at the same time are compiled once.

    Programs that differ in `seen` alone are equal: no result depends on it (`dynamic/seen.py`).
    So one of them may stand in, if `may_stand_in` is among the options.
    """
    data = lowered.data
    digest = hashlib.sha256(data.encode() if isinstance(data, str) else data)
    known = lowered.dims, lowered.constraints, getattr(compile, "target", "cpu")
    ignored = "seen", "may_stand_in"
    named = sorted((name, value) for name, value in options.items() if name not in ignored)
    # Programs alive hold their constants: no other ones are there.
    weights = [(w.ctypes.data, w.shape, str(w.dtype)) for w in lowered.weights]
    digest.update(repr((known, named, flags.fusion(), weights)).encode())
    key = digest.hexdigest()
    with _programs_lock:
        lock = _pending.setdefault(key, locks.lock())
    with lock:  # programs that differ are compiled side by side
        found: CompiledCall | None = _programs.get(key)
        if found is None or (found.stands_in and "may_stand_in" not in options):
            found = _programs[key] = compile(lowered, **options)
    with _programs_lock:
        _pending.pop(key, None)
    return found
