"""What emitters of kernels by tasks ask of the machine that they write for."""

from __future__ import annotations

from typing import Protocol

from shlo_disc.lower.values.builder import KernelBuilder

__all__ = ["TaskMachine"]


class TaskMachine(Protocol):
    """A machine that runs tasks; see the package."""

    def lanes(self, element_bytes: int) -> int:
        """Elements of so many bytes that one load or store takes."""

    def run(self, elements: int) -> int:
        """Neighbouring elements that make a task, where a CPU's core takes `elements`."""

    def builder(self) -> KernelBuilder:
        """A new kernel."""
