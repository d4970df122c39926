"""What a host program does with memory of the target: the one thing in it that targets differ in.

Sizes, guards, offsets, control flow and arrays of addresses are the host's own on every target.
Pointeres of values are numbers to a host program; it reaches what is there through a `HostMemory`.

A host program gives its operations in order and waits for none of them: a target may put them on a
stream. An operation sees what all earlier ones did. `read` alone has a result, which the host
program needs at once: a target that runs behind waits there.
"""

from __future__ import annotations

from typing import Protocol

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import Pointer, Register

__all__ = ["HostMemory"]


class HostMemory(Protocol):
    """Writes operations on memory of the target into a host program.

    Pointeres are of the target's memory, those of the arrays of `launch` of the host's.
    """

    def launch(
        self, w: HostWriter, launch: Launch, kernel: Pointer, arguments: Pointer, sizes: Pointer
    ) -> None:
        """Run `launch`; no task runs if its extent is 0.

        `kernel`: its entry in the kernel table of `disc_context`. `arguments`: a host array of the
        entries of `launch.calls`, then the addresses of `launch.args`. `sizes`: a host array of
        `launch.params`. The program writes `arguments` anew for its next launch. What `launch`
        says is zeroed is zeroed already.
        """

    def copy(self, w: HostWriter, destination: Pointer, source: Pointer, count: Expr) -> None:
        """Copy `count` bytes; the two places are one, or do not overlap."""

    def zero(self, w: HostWriter, address: Pointer, count: Expr) -> None:
        """Zero `count` bytes."""

    def read(self, w: HostWriter, address: Pointer, bits: int, hint: str) -> Register:
        """The integer of 8, 16, 32 or 64 bits that is at `address`, in the body of `w`.

        `hint` is for its SSA name.
        """

    def write(self, w: HostWriter, value: Register, address: Pointer) -> None:
        """Put an integer to `address`."""
