"""Text of column kernels: see `column.py`. Like a row kernel's, with columns in the lanes.

What a row kernel holds in scalars, vectors hold here, a lane for each column; nothing is combined
across lanes, and reductions are in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import InternalError
from shlo_disc.lower.cpu.index import Group, Index, Ix
from shlo_disc.lower.cpu.loop import ceil_div, odometer
from shlo_disc.lower.cpu.reduction import Reducer
from shlo_disc.lower.cpu.row_writer import RowWriter

__all__ = ["ColumnWriter"]


class ColumnWriter(RowWriter):
    """Writes the kernel of a plan whose reductions have kept dimensions behind them.

    The tile space is the leading dimensions, what is reduced, and the columns. A task has as many
    columns as there are lanes.
    """

    side_by_side: ClassVar[bool] = True

    def factors(self, rows: Sequence[Expr]) -> list[Expr]:
        """The tile space over factors of the leading dimensions."""
        return [*rows, self.plan.cols, self.plan.inner]

    @property
    def extent(self) -> Expr:
        """How many tasks there are."""
        return Expr.product(self.plan.rows) * ceil_div(self.plan.inner, self.lanes)

    def tasks(self, more: Sequence[str], work: Callable[[Sequence[str]], None]) -> None:
        """The task loop over leading dimensions, `more` sizes and columns; see `RowWriter`."""
        b, lanes, inner = self.b, self.lanes, self.plan.inner
        size = b.param(inner)
        sizes = [*(b.param(f) for f in self.space.factors[: self.rank]), *more]
        divisible = self.space.divisible(inner, lanes)

        def at(digits: Sequence[str], start: str, mask: str | None) -> None:
            overrides = dict(self.e.overrides)
            self.line_mask = self.e.tail = mask
            self.digits = [Ix(d) for d in digits[: self.rank]]
            self.across = Ix(start, 1, multiple=lanes)
            self.space.tiles = [*self.digits, self.space.zero(), self.across]
            work(digits[self.rank : -1])
            self.e.overrides = overrides

        def task(number: str, digits: list[str]) -> None:
            start = b.mul(digits[-1], lanes)
            if divisible:
                at(digits, start, None)
                return
            left = b.sub(size, start)
            if inner.is_const and inner.value < lanes:
                at(digits, start, b.mask(inner.value, lanes))
                return
            with b.if_(b.cmpi("sge", left, b.constant(lanes, "index"))) as branch:
                at(digits, start, None)
                with branch.otherwise():
                    at(digits, start, b.mask(left, lanes))

        odometer(b, [*sizes, b.param(ceil_div(inner, lanes))], task)

    def columns(
        self, start: Sequence[str], body: Callable[[Ix, str | None, list[str]], list[str]]
    ) -> list[str]:
        """Run `body(place, mask, accumulators)` from `first` to `last`, one after the other."""
        b = self.b
        with b.loop(self.first, self.last, 1, list(start), hint="k") as loop:
            loop.yield_(*body(Ix(loop.index), self.line_mask, list(loop.args)))
        return loop.results

    def _at(self, ix: Ix, mask: str | None) -> None:
        self.space.tiles = [*self.digits, ix, self.across]
        self.e.tail = mask

    def scratch_place(self) -> Ix:
        """Where the current elements are in scratch memory that holds these columns alone."""
        here = self.space.tiles[-2].base
        return Ix(self.b.mul(here, self.lanes), 1, multiple=self.lanes)

    def line_index(self, shape: Sequence[Expr]) -> Index:
        """Where a value of `shape`, one element a column, is read at these columns."""
        rows, inner = self.space.factors[: self.rank], [self.plan.inner]
        same = self.space.same_count
        for cut in range(len(shape) + 1):
            if same(shape[:cut], rows) and same(shape[cut:], inner):
                front = Group(tuple(shape[:cut]), self.space.flat_lazy(0, self.rank))
                behind = Group(
                    tuple(shape[cut:]), self.space.flat_lazy(self.rank + 1, self.rank + 2)
                )
                return (front, behind) if cut else (behind,)
        raise InternalError(f"a value of a column fusion is of other columns: {shape}")

    def line_place(self, piece: str | None = None, pieces: str | None = None) -> Ix:
        """Where these columns are in memory with one element a column, or a piece of it."""
        b = self.b
        front = replace(self.space.flat(0, self.rank), tile=None)
        if piece is not None and pieces is not None:
            front = Ix(b.add(b.mul(front.base, pieces), piece))
        return self.space.add(self.space.scale(front, self.plan.inner), self.across)

    def is_line(self, index: Index) -> bool:
        """Whether `index` is that of these columns."""
        groups = self.space.joined(index)
        front, behind = groups[:-1], groups[-1:]
        return self._is_flat(front, 0, self.rank) and self._is_flat(
            behind, self.rank + 1, self.rank + 2
        )

    def across_lanes(self, reducer: Reducer, accs: Sequence[str], in_order: bool) -> list[str]:
        """Every lane is a column of its own."""
        return list(accs)

    def _ask_for_next_row(self) -> None:
        """The next row of these columns is too near to ask for it."""
