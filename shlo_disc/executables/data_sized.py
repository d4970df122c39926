"""`DataSizedExecutable`: a program whose sizes come from data, compiled as several in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc import ral
from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.records import dataclass
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.record import (
    BranchesRecord,
    GuardedRecord,
    ImpossibleRecord,
    LoopRecord,
    PartsRecord,
    ProgramRecord,
    Record,
)
from shlo_disc.executables.savable import Savable
from shlo_disc.executables.signature import Signature
from shlo_disc.executables.tensor_call import TensorCall
from shlo_disc.executables.typed_keys import TypedKeys
from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.report.profile import Profile
from shlo_disc.report.render import render

_PACKED = frozenset(row.dtype for row in ELEMENT_TYPES.values() if row.is_packed_by_jax)
"""Types of which the programs take NumPy's arrays only."""


class DataSizedExecutable(Savable):
    """A program with sizes computed from data, such as the number of positive elements.

    Programs run in turn: each takes the arguments of the call, and the results of those before it,
    where sizes of the next are. So every buffer has its true size when a program starts. Regions
    of a `case`, `if` or `while` with sizes of their own are programs, too.
    Stateless in calls: any number of threads may call one object.
    """

    def __init__(self, name: str, steps: Sequence[Step], arguments: int) -> None:
        self.name = name
        self.steps = tuple(steps)
        """In the order they run; the last one, an `Executable`, gives the results."""
        self.programs = tuple(program for step in steps for program in _executables(step))
        """All executables, those of regions too."""
        signature = self._last.signature
        self.signature = Signature(signature.arguments[:arguments], signature.results)
        self.kept_at: bytes | None = None
        """As of an `Executable`."""
        self.weights: frozenset[str] = frozenset()
        """As of an `Executable`."""
        self.not_kept = self.lowered_anew = ""
        """As of an `Executable`."""
        self.keys = TypedKeys()
        """As of an `Executable`."""
        self._are_packed = [spec.dtype in _PACKED for spec in self.signature.arguments]

    @property
    def _last(self) -> Executable:
        last = self.steps[-1]
        assert isinstance(last, Executable)
        return last

    def compile_for_all_sizes(self) -> None:
        """As :meth:`Executable.compile_for_all_sizes`."""
        for program in self.programs:
            program.compile_for_all_sizes()

    @property
    def symbols(self) -> frozenset[str]:
        """Those of all programs."""
        return frozenset(s for made in self.programs for s in made.symbols)

    @property
    def packable(self) -> tuple[int, ...]:
        """Arguments of which a call with tensors may keep packed copies, in order."""
        found = {k for step in self.steps if isinstance(step, Executable) for k in step.packable}
        return tuple(k for k in sorted(found) if k < len(self.signature.arguments))

    @property
    def unused_donations(self) -> dict[str, int]:
        """As :attr:`Executable.unused_donations`."""
        return self._last.unused_donations

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """As :meth:`Executable.__call__`. Results have the sizes that the data gave."""
        return tuple(self.keys.keys(self.call_leaves(self.keys.words(arrays))))

    def call_leaves(self, leaves: Sequence[Any]) -> list[Any]:
        """As calling, from and to lists."""
        return self._last.call_leaves(self._values(leaves))

    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """As `call_leaves` with numpy arrays as results; does not touch JAX."""
        return self._last.run_numpy(self._values(leaves))

    def tensor_call(
        self,
        tensor_type: type | None,
        *,
        versioned: Sequence[int] = (),
        frozen: Sequence[int] = (),
        weights: ral.Weights | None = None,
        over: Callable[[Any, tuple[int, ...]], Any] | None = None,
        flag: int | None = None,
    ) -> TensorCall:
        """As :meth:`Executable.tensor_call`; programs of regions keep no packed copies.

        Only the last program writes results into donated tensors, and gives the `flag`.
        """

        def calls(program: Executable) -> _PartCall:
            own = [place for place, k in enumerate(versioned) if k in program.packable]
            return _PartCall(
                program.tensor_call(
                    tensor_type,
                    versioned=[versioned[place] for place in own],
                    frozen=[k for k in frozen if k in program.packable],
                    weights=weights,
                    over=over,
                    flag=flag if program is self.steps[-1] else None,
                ),
                own,
                [spec.dtype for spec in program.signature.results],
            )

        runs = [calls(step) if isinstance(step, Executable) else None for step in self.steps]
        last = runs[-1]
        assert last is not None

        def call(leaves: Sequence[Any], versions: Sequence[int]) -> list[Any]:
            specs = self.signature.arguments
            views = [
                ral.numpy_view(leaf, spec.dtype) for leaf, spec in zip(leaves, specs, strict=False)
            ]
            views += leaves[len(specs) :]
            self._check_count(views)
            made: list[Any] = []
            for step, run in zip(self.steps[:-1], runs[:-1], strict=True):
                if run is None:
                    made += step.run_numpy([*views, *made])
                else:
                    made += run.run_numpy([*leaves, *made], versions)
            return last.run([*leaves, *made], versions)

        return TensorCall(tensor_type, call)

    def _check_count(self, leaves: Sequence[Any]) -> None:
        if len(leaves) != len(self.signature.arguments):
            raise TypeError(
                f"{self.name}: {len(leaves)} arguments were given, the program takes "
                f"{len(self.signature.arguments)}"
            )

    def _values(
        self, leaves: Sequence[Any], run: Callable[[Executable, list[Any]], None] | None = None
    ) -> list[Any]:
        """The arguments, and what all steps but the last give; `run` sees each program first."""
        self._check_count(leaves)
        values = [
            np.asarray(leaf) if is_packed and not isinstance(leaf, int | float) else leaf
            for leaf, is_packed in zip(leaves, self._are_packed, strict=True)
        ]
        for step in self.steps[:-1]:
            if run is not None and isinstance(step, Executable):
                run(step, values)
            values += step.run_numpy(values)
        return values

    def as_text(self, stage: str = "disc") -> str:
        """Every program at a stage of :meth:`Executable.as_text`, one after the other."""
        return "\n\n".join(
            f"// program {number}: {program.name}\n{program.as_text(stage)}"
            for number, program in enumerate(self.programs, 1)
        )

    def explain(self, *, format: str = "text") -> str:
        """As :meth:`Executable.explain`, of every program; those of regions keep no copies."""
        rows = []
        for step in self.steps:
            for program in _executables(step):
                row = program.describe()
                row["memory"]["keeps_packed"] = isinstance(step, Executable)
                rows.append(row)
        return render(rows, format)

    def profile(self, *arrays: Any, calls: int | None = None) -> tuple[Profile, ...]:
        """As :meth:`Executable.profile`, of every program at the sizes that the data gives.

        Programs of regions are not timed.
        """
        found: list[Profile] = []
        values = self._values(
            arrays, lambda program, given: found.append(program.profile(*given, calls=calls))
        )
        return (*found, self._last.profile(*values, calls=calls))

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Operations and bytes of each program: `program 1: flops`."""
        return self._of_each(lambda program: program.cost_analysis(sizes))

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Bytes of each program: `program 1: temp_size_in_bytes`."""
        return self._of_each(lambda program: program.memory_analysis(sizes))

    def _of_each(
        self, ask: Callable[[Executable], Mapping[str, str | int]]
    ) -> dict[str, str | int]:
        return {
            f"program {number}: {key}": value
            for number, program in enumerate(self.programs, 1)
            for key, value in ask(program).items()
        }

    def __repr__(self) -> str:
        return f"<shlo_disc.DataSizedExecutable {self.name}{self.signature}>"


@dataclass(frozen=True)
class _PartCall:
    """How calls with tensors run one of the programs."""

    call: TensorCall
    places: Sequence[int]
    """Of its versioned arguments, among those of the whole."""
    results: Sequence[np.dtype[Any]]

    def run(self, leaves: Sequence[Any], versions: Sequence[int]) -> list[Any]:
        """Its results as tensors."""
        return self.call(leaves, [versions[place] for place in self.places])

    def run_numpy(self, leaves: Sequence[Any], versions: Sequence[int]) -> list[Any]:
        """Its results as read-only arrays over the memory of tensors."""
        tensors = self.run(leaves, versions)
        pairs = zip(tensors, self.results, strict=True)
        return [ral.numpy_view(tensor, dtype) for tensor, dtype in pairs]


@dataclass(frozen=True)
class Impossible:
    """A region that breaks a rule of StableHLO at all sizes: a program may have it, not run it."""

    name: str
    error: InvalidModuleError

    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """Raises InvalidModuleError."""
        raise InvalidModuleError(str(self.error))


Program = Executable | DataSizedExecutable | Impossible


@dataclass(frozen=True)
class Branches:
    """A `case` or `if`; its results are those of one branch, in the sizes that it gives."""

    index: int
    """The value that chooses."""
    programs: tuple[Program, ...]
    """By its number: false and true for an `if`."""

    def run_numpy(self, values: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """The results of the branch that `values` choose."""
        number = int(np.asarray(values[self.index]))
        last = len(self.programs) - 1
        return self.programs[number if 0 <= number < last else last].run_numpy(values)


@dataclass(frozen=True)
class Loop:
    """A `while`; the values that it carries may have other sizes after each iteration."""

    initial: tuple[int, ...]
    """The values it starts with."""
    condition: Program
    body: Program

    def run_numpy(self, values: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """What the loop carries at its end."""
        initial = [values[index] for index in self.initial]
        carried = initial
        while self.condition.run_numpy([*values, *carried])[0]:
            carried = self.body.run_numpy([*values, *carried])
        return [_copied(value) for value in initial] if carried is initial else carried


def _copied(value: Any) -> Any:
    """`value` in memory of its own: a later program may overwrite an argument."""
    return value if isinstance(value, bool | int | float | complex) else np.array(value)


Step = Executable | DataSizedExecutable | Branches | Loop


Node = Record | BranchesRecord | LoopRecord
"""What a program or a step of one is as data."""


def record_of(made: Program | Step) -> Any:
    """`made` as data."""
    if isinstance(made, Executable):
        return made.record
    if isinstance(made, DataSizedExecutable):
        count = len(made.signature.arguments)
        return PartsRecord(made.name, tuple(map(record_of, made.steps)), count)
    if isinstance(made, Branches):
        return BranchesRecord(made.index, tuple(map(record_of, made.programs)))
    if isinstance(made, Loop):
        return LoopRecord(made.initial, record_of(made.condition), record_of(made.body))
    return ImpossibleRecord(made.name, str(made.error))


def made_of(record: Node, executable: Callable[[ProgramRecord], Executable]) -> Any:
    """What `record` is of; `executable` makes each program."""
    if isinstance(record, ProgramRecord):
        return executable(record)
    if isinstance(record, GuardedRecord):
        guarded, apart = executable(record.program), made_of(record.apart, executable)
        guarded.run_apart_by(lambda: apart)
        return guarded
    if isinstance(record, PartsRecord):
        steps = [made_of(step, executable) for step in record.steps]
        return DataSizedExecutable(record.name, steps, record.arguments)
    if isinstance(record, BranchesRecord):
        return Branches(record.index, tuple(made_of(r, executable) for r in record.programs))
    if isinstance(record, LoopRecord):
        condition, body = (made_of(r, executable) for r in (record.condition, record.body))
        return Loop(record.initial, condition, body)
    return Impossible(record.name, InvalidModuleError(record.error))


def _executables(step: Step | Program) -> Iterator[Executable]:
    if isinstance(step, Executable):
        yield step
    elif isinstance(step, DataSizedExecutable):
        yield from step.programs
    elif isinstance(step, Branches):
        for program in step.programs:
            yield from _executables(program)
    elif isinstance(step, Loop):
        yield from _executables(step.condition)
        yield from _executables(step.body)
