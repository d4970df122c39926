"""What emitters of kernels by tasks ask of the machine that they write for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.kernels.sized import Sized
from shlo_disc.lower.values.builder import KernelBuilder


class TaskMachine(Protocol):
    """A machine that runs tasks; see the package."""

    def lanes(self, element_bytes: int) -> int:
        """Elements of so many bytes that one load or store takes."""

    def run(self, elements: int) -> int:
        """Neighbouring elements that make a task, where a CPU's core takes `elements`."""

    def moved(self, elements: int, lanes: int) -> int:
        """The same for tasks that only move elements, `lanes` of them at once."""

    def builder(self) -> KernelBuilder:
        """A new kernel."""

    def sized(self, sizes: Mapping[str, Expr]) -> Sized:
        """A new kernel with named sizes."""
