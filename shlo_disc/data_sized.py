"""`DataSizedExecutable`: a program whose sizes come from data, compiled as several in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from shlo_disc.executable import Executable, OfThisProcess, Signature
from shlo_disc.report.profile import Profile
from shlo_disc.report.render import render

__all__ = ["DataSizedExecutable"]


class DataSizedExecutable(OfThisProcess):
    """A program with sizes computed from data, such as the number of positive elements.

    Programs run in turn: each takes the arguments of the call, and the results of those before it,
    where sizes of the next are. So every buffer has its true size when a program starts.
    Stateless in calls: any number of threads may call one object.
    """

    def __init__(self, name: str, programs: Sequence[Executable]) -> None:
        self.name = name
        self.programs = tuple(programs)
        """In the order they run; the last one gives the results."""
        self.signature = Signature(
            self.programs[0].signature.arguments, self.programs[-1].signature.results
        )

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """As :meth:`Executable.__call__`. Results have the sizes that the data gave."""
        return tuple(self.call_leaves(arrays))

    def call_leaves(self, leaves: Sequence[Any]) -> list[Any]:
        """As calling, from and to lists."""
        return self._run(Executable.call_leaves, leaves)

    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """As `call_leaves` with numpy arrays as results; does not touch JAX."""
        return self._run(Executable.run_numpy, leaves)

    def _run(
        self, call: Callable[[Executable, Sequence[Any]], list[Any]], leaves: Sequence[Any]
    ) -> list[Any]:
        *early, last = self.programs
        values = list(leaves)
        for program in early:
            values += call(program, values)
        return call(last, values)

    def as_text(self, stage: str = "disc") -> str:
        """Every program at a stage of :meth:`Executable.as_text`, one after the other."""
        return "\n\n".join(
            f"// program {number}\n{program.as_text(stage)}"
            for number, program in enumerate(self.programs, 1)
        )

    def explain(self, *, format: str = "text") -> str:
        """As :meth:`Executable.explain`, of every program."""
        return render([program.describe() for program in self.programs], format)

    def profile(self, *arrays: Any, calls: int | None = None) -> tuple[Profile, ...]:
        """As :meth:`Executable.profile`, of every program at the sizes that the data gives."""
        *early, last = self.programs
        values = list(arrays)
        found = []
        for program in early:
            found.append(program.profile(*values, calls=calls))
            values += program.call_leaves(values)
        return (*found, last.profile(*values, calls=calls))

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
