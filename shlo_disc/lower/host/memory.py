"""What a host program does with memory of the target: the one thing in it that targets differ in.

Sizes, guards, offsets, control flow and arrays of addresses are the host's own on every target.
Pointers of values are numbers to a host program. It reaches what is there through a `Memory`: that
of the target, or its own for scalars at home on the host (`passes/homes.py`).

A host program gives its operations in order and waits for none of them: a target may put them on a
stream. An operation sees what all earlier ones did. `read` alone has a result, which the host
program needs at once: a target that runs behind waits there.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import Mask, Pointer, Register
from shlo_disc.passes.homes import is_on_host


class Memory(Protocol):
    """Writes operations on memory into a host program."""

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


class HostMemory(Memory, Protocol):
    """Memory of the target, and the kernels that run on it.

    The host program itself never loads from it or stores into it, unless it is the host's own. A
    target whose memory is not has `Capabilities.shares_memory` false: `place-scalars` then keeps
    scalars on the host, and kernels get these by value.
    """

    can_fail: ClassVar[bool] = False
    """True if an operation may end the call. Later ones do nothing then, and `read` gives 0."""
    calls_kernels: ClassVar[bool] = False
    """True if the host program itself can call kernels, with addresses on its stack."""

    def launch(
        self, w: HostWriter, launch: Launch, kernel: Pointer, arguments: Pointer, sizes: Pointer
    ) -> None:
        """Run `launch`; no task runs if its extent is 0.

        `kernel`: its entry in the kernel table of `disc_context`. `arguments`: a host array of the
        addresses of `launch.args`, of kernels what the kernel table has. Those of operands that are
        passed by value (`Planned.by_value`) are addresses of the host's memory. `sizes`: a host
        array of `launch.params`. The program writes `arguments` and the scalars anew for its next
        launch. What `launch` says is zeroed is zeroed already.
        """

    def is_alone(self, w: HostWriter, launch: Launch) -> Mask | bool:
        """Whether one call of the kernel does what `launch` would do; see `calls_kernels`.

        A bool is known when the program is compiled.
        """
        return False


class OwnMemory(Memory):
    """The host's own memory: loads and stores, done when they are given."""

    def copy(self, w: HostWriter, destination: Pointer, source: Pointer, count: Expr) -> None:
        """See Memory."""
        w.copy_bytes(destination, source, w.size(count))

    def zero(self, w: HostWriter, address: Pointer, count: Expr) -> None:
        """See Memory."""
        if count.is_const and count.value in (1, 2, 4, 8):
            w.store(w.const(0, 8 * count.value), address)  # no call of `memset`
        else:
            w.set_bytes(address, w.const(0, 8), w.size(count))

    def read(self, w: HostWriter, address: Pointer, bits: int, hint: str) -> Register:
        """See Memory."""
        return w.load(address, bits, hint)

    def write(self, w: HostWriter, value: Register, address: Pointer) -> None:
        """See Memory."""
        w.store(value, address)


_OWN = OwnMemory()


def memory_of(value: ir.Value, target: HostMemory) -> Memory:
    """The memory that `value` is in: that of the target, or the host's own."""
    return _OWN if is_on_host(value) else target
