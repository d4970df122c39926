"""What reports read of an executable: its parts, what it counted, and calls to time."""

# ruff: noqa: D102 - `Executable` documents the members

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.ir.pass_record import PassRecord
from shlo_disc.lower.host.record import HostProgram, Unfused
from shlo_disc.lower.target import Function, Target


class MarkedCall(NamedTuple):
    """What a call of a host program made for profiling gives."""

    results: list[Any]
    marks: npt.NDArray[np.int64]
    """[n, 3]: launch site, 0 where it begins or 1 where it is done, nanoseconds."""
    begin: int
    """Of the host program, in nanoseconds."""
    end: int
    dropped: int
    """Marks there was no room for."""


class ArgumentCopies(NamedTuple):
    """Arguments that were copied before a program read them: strided or misaligned ones."""

    calls: dict[str, int]
    """By the argument's path: in how many calls."""
    bytes: int
    """Of all copies."""


class GpuCalls(NamedTuple):
    """Calls on GPUs since a program was compiled; all are 0 for a program of the CPU."""

    direct: int
    """They ended when their kernels had ended."""
    enqueued: int
    """By XLA, as custom calls."""
    graphs: int
    """Of both, those that were launched as a graph of the driver."""


class _Signature(Protocol):
    @property
    def arguments(self) -> Sequence[object]: ...
    @property
    def results(self) -> Sequence[object]: ...


class Described(Protocol):
    """A program as reports see it; `Executable` says what the members are."""

    @property
    def name(self) -> str: ...
    @property
    def program(self) -> ShapeProgram: ...
    @property
    def host(self) -> HostProgram: ...
    @property
    def on_host(self) -> frozenset[str]: ...
    @property
    def signature(self) -> _Signature: ...
    @property
    def unfused(self) -> tuple[Unfused, ...]: ...
    @property
    def checked(self) -> list[str]: ...


class Reported(Described, Protocol):
    """An executable as reports see it."""

    donated: frozenset[int]
    not_kept: str
    lowered_anew: str

    @property
    def target(self) -> Target: ...
    @property
    def stage_ms(self) -> tuple[tuple[str, float], ...]: ...
    @property
    def passes(self) -> tuple[PassRecord, ...]: ...
    @property
    def code_bytes(self) -> int: ...
    @property
    def loaded_kernels(self) -> int: ...
    @property
    def late_kernels(self) -> int: ...
    @property
    def copies(self) -> ArgumentCopies: ...
    @property
    def gpu_calls(self) -> GpuCalls: ...
    @property
    def unused_donations(self) -> dict[str, int]: ...
    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]: ...
    def as_users_call(self, leaves: Sequence[Any]) -> Callable[[], object]: ...
    def call_marked(self, run: Function, leaves: Sequence[Any]) -> MarkedCall: ...
