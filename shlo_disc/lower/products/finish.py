"""What goes into a product and comes out of it, one vector of columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shlo_disc.lower.schedule.contraction import Axis
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register


class Finish(Protocol):
    """Computes result elements from finished sums."""

    def __call__(
        self,
        b: KernelBuilder,
        sums: Register,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        mask: Mask,
    ) -> Register:
        """`sums`: a vector of the compute type, in the columns from `column` on of `row`.

        `place`: the index along every batch axis. Returns the vector of result registers; its
        lanes off in `mask` may hold anything.
        """
        ...

    @property
    def reads_rows(self) -> bool:
        """True if it reads other memory than a vector of columns."""
        ...

    def at(
        self, b: KernelBuilder, sums: Register, axes: Sequence[tuple[Axis, Ix]], mask: Mask | None
    ) -> Register:
        """Like a call, at an index along any axes of the result, one of them in lanes."""
        ...

    def ask(
        self,
        b: KernelBuilder,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        mask: Mask,
    ) -> None:
        """Prefetch what a call for this place will read."""
        ...


class FinishBands(Finish, Protocol):
    """Computes results from the finished sums of all bands."""

    def write(
        self,
        b: KernelBuilder,
        sums: Sequence[Register],
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        mask: Mask,
    ) -> None:
        """Like a call with a vector of every band, `column` the one in each; stores the results."""
        ...


class Fill(Protocol):
    """Computes elements of B that are not in memory."""

    def __call__(
        self,
        b: KernelBuilder,
        place: list[IndexValue],
        k: IndexValue,
        column: IndexValue,
        mask: Mask | None,
    ) -> Register:
        """A vector of the compute type: B at `k`, columns from `column` on. Lanes off in `mask` may
        hold anything.

        `place`: the index along every batch axis.
        """
        ...
