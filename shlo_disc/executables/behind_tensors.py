"""What the executables of frameworks of tensors share: reports of the program behind them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy.typing as npt

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.process_bound import OfThisProcess
from shlo_disc.executables.savable import SaveOptions
from shlo_disc.executables.signature import Signature


class BehindTensors(OfThisProcess):
    """A function of tensors with a program behind it, whose reports are its own."""

    executable: Executable | DataSizedExecutable
    """The program."""
    name: str

    def save(
        self,
        path: str | os.PathLike[str],
        targets: Sequence[str] | None = None,
        **options: Unpack[SaveOptions],
    ) -> None:
        """Write an artifact, which runs without the framework: see :meth:`Executable.save`.

        It takes the tensors that the program reads, flat, and gives those of the results. With
        `weights="inside"` it has the weights, with the values of this moment, and with
        `weights="separate"` they are in a file beside it. With `weights="arguments"` they are
        arguments, too; `signature` tells which.

        Raises what :meth:`Executable.save` raises, and UnsupportedError where a call does more than
        to run the program.
        """
        weights = options.get("weights", "inside")
        if weights not in ("inside", "separate", "arguments"):
            raise ValueError(
                f"weights must be 'inside', 'separate' or 'arguments', got {weights!r}"
            )
        if reason := self._why_not_saved():
            raise UnsupportedError(f"{self.name} cannot be saved: it {reason}")
        fixed = {} if weights == "arguments" else self._weight_arrays()
        options["weights"] = "separate" if weights == "separate" else "inside"
        self.executable.save(path, targets, fixed=fixed, **options)

    def _why_not_saved(self) -> str:
        """What a call does beyond the program, behind "it"; "" if it does nothing."""
        return ""

    def _weight_arrays(self) -> dict[int, npt.NDArray[Any]]:
        """The bytes of the weights, by their places among the arguments of the program."""
        raise NotImplementedError

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
