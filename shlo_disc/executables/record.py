"""`ProgramRecord`: all that is known of a compiled program, machine code aside.

A record is plain data: numbers, texts, symbolic sizes and frozen records of these. So it has no
addresses, and means the same in another process. Machine code follows from its texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shlo_disc.base.later import Later
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.ir.pass_record import PassRecord
from shlo_disc.lower.host.record import CodeNames, HostProgram, Unfused


@dataclass(frozen=True)
class Type:
    """Of an argument or result, as callers see it."""

    element: str
    """The element type as MLIR names it."""
    sizes: tuple[int, ...]
    """Of each dimension; -1: dynamic."""


@dataclass(frozen=True)
class ProgramRecord:
    """One compiled program."""

    name: str
    target: str
    """As :func:`shlo_disc.lower.target.parse` takes it."""
    program: ShapeProgram
    host: HostProgram
    arguments: tuple[Type, ...]
    results: tuple[Type, ...]
    weak_results: tuple[bool, ...]
    """For each result, whether its type is weak in JAX."""
    donated: tuple[int, ...]
    """Arguments whose arrays a call deletes."""
    unfused: tuple[Unfused, ...]
    """Fusions no kernel could be written for, which became smaller ones: mistakes of ours."""
    passes: tuple[PassRecord, ...]
    """What every pass did, in order."""
    stage_ms: tuple[tuple[str, float], ...]
    """Milliseconds of each stage of the compilation."""
    texts: Later[tuple[tuple[str, str], ...]]
    """The program at the stages that no other field tells of."""
    code: Later[CodeNames] | None
    """The machine code; None where it is not kept on disk."""
    has_apart: bool
    """Whether calls may need each region as a program of its own."""


@dataclass(frozen=True)
class ImpossibleRecord:
    """A region that breaks a rule of StableHLO at all sizes."""

    name: str
    error: str


@dataclass(frozen=True)
class BranchesRecord:
    """A `case` or `if` of programs."""

    index: int
    programs: tuple[Record, ...]


@dataclass(frozen=True)
class LoopRecord:
    """A `while` of programs."""

    initial: tuple[int, ...]
    condition: Record
    body: Record


@dataclass(frozen=True)
class GuardedRecord:
    """A program of an artifact, with its regions apart for calls that break a guard of one."""

    program: ProgramRecord
    apart: PartsRecord

    @property
    def name(self) -> str:
        """That of the program."""
        return self.program.name


@dataclass(frozen=True)
class PartsRecord:
    """A program compiled as several in turn (`data_sized.py` says what each field means)."""

    name: str
    steps: tuple[Record | BranchesRecord | LoopRecord, ...]
    arguments: int


Record = ProgramRecord | GuardedRecord | PartsRecord | ImpossibleRecord


def programs_of(record: Record | BranchesRecord | LoopRecord) -> Iterator[ProgramRecord]:
    """All programs in `record`."""
    if isinstance(record, ProgramRecord):
        yield record
    elif isinstance(record, GuardedRecord):
        yield record.program
        yield from programs_of(record.apart)
    elif isinstance(record, PartsRecord):
        for step in record.steps:
            yield from programs_of(step)
    elif isinstance(record, BranchesRecord):
        for program in record.programs:
            yield from programs_of(program)
    elif isinstance(record, LoopRecord):
        yield from programs_of(record.condition)
        yield from programs_of(record.body)


def with_programs(record: Any, changed: Callable[[ProgramRecord], ProgramRecord]) -> Any:
    """`record` with what `changed` gives for each program in it."""
    if isinstance(record, ProgramRecord):
        return changed(record)
    if isinstance(record, GuardedRecord):
        apart = with_programs(record.apart, changed)
        return GuardedRecord(changed(record.program), apart)
    if isinstance(record, PartsRecord):
        steps = tuple(with_programs(step, changed) for step in record.steps)
        return replace(record, steps=steps)
    if isinstance(record, BranchesRecord):
        programs = tuple(with_programs(program, changed) for program in record.programs)
        return replace(record, programs=programs)
    if isinstance(record, LoopRecord):
        condition, body = (with_programs(r, changed) for r in (record.condition, record.body))
        return replace(record, condition=condition, body=body)
    return record
