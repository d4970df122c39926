"""What the executables of frameworks of tensors share: reports of the program behind them."""

from __future__ import annotations

from collections.abc import Mapping

from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.process_bound import OfThisProcess
from shlo_disc.executables.signature import Signature


class BehindTensors(OfThisProcess):
    """A function of tensors with a program behind it, whose reports are its own."""

    executable: Executable | DataSizedExecutable
    """The program."""

    @property
    def signature(self) -> Signature:
        """Arguments and results of the program, flat: weights too."""
        return self.executable.signature

    def as_text(self, stage: str = "disc") -> str:
        """The program at a stage: see :meth:`shlo_disc.Executable.as_text`."""
        return self.executable.as_text(stage)

    def explain(self, *, format: str = "text") -> str:
        """Every kernel, with lines of the model: see :meth:`shlo_disc.Executable.explain`."""
        return self.executable.explain(format=format)

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """See :meth:`shlo_disc.Executable.cost_analysis`."""
        return self.executable.cost_analysis(sizes)

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """See :meth:`shlo_disc.Executable.memory_analysis`."""
        return self.executable.memory_analysis(sizes)
