"""Writers of row kernels for rows that do not lie in memory as one run (see `row_writer.py`).

Rows *in parts*: what is kept is between what is reduced (batch-norm of channels in front of the
pixels). A task is one row, and sweeps over its parts one after the other.

Rows *side by side*, that is, columns: what is kept is behind what is reduced. A task is as many
columns as there are lanes. What is a scalar of a row elsewhere is a vector here, nothing is
combined across lanes, and every column is reduced in order.

*Short* rows are whole, and side by side in lanes, too: a vector along one of them would be mostly
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.row_writer import RowStep, RowWriter
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.reduction import Reducer
from shlo_disc.lower.values.typed import IndexValue, Mask, Register


class _Apart(RowWriter):
    """Writes rows of which others lie between their elements, or, in parts, may lie."""

    across: Ix
    """Which of the rows that are apart."""

    def line_index(self, shape: Sequence[Expr]) -> Index:
        """Where a value of `shape`, one element a row, is read at this row."""
        rows, same = self.space.factors[: self.rank], self.space.same_count
        for cut in range(len(shape) + 1):
            front, behind = tuple(shape[:cut]), tuple(shape[cut:])
            if same(front, rows) and same(behind, [self.plan.apart]):
                outer = Group(front, self.space.flat_lazy(0, self.rank))
                inner = Group(behind, self.space.flat_lazy(self.rank + 1, self.rank + 2))
                return (outer, inner) if cut else (inner,)
        raise InternalError(f"a value of a row fusion has other rows: {shape}")

    def line_place(self, piece: IndexValue | None = None, pieces: IndexValue | None = None) -> Ix:
        """The number of this row, or where its piece `piece` of `pieces` is among all pieces."""
        row = replace(self.space.flat(0, self.rank), tile=None)
        if piece is not None and pieces is not None:
            row = Ix(row.base * pieces + piece)
        return self.space.add(self.space.scale(row, self.plan.apart), self.across)

    def is_line(self, index: Index) -> bool:
        """True if `index` is this row's; that of its element is, if the row has one element."""
        if self.has_one_element and self.is_element(index):
            return True
        groups = self.space.joined(index)
        if self.plan.apart.is_one:
            return self.is_flat(groups, 0, self.rank)
        front, behind = groups[:-1], groups[-1:]
        place = self.rank + 1
        return self.is_flat(front, 0, self.rank) and self.is_flat(behind, place, place + 1)


class PartsWriter(_Apart):
    """Writes rows in parts."""

    def factors(self, rows: Sequence[Expr]) -> list[Expr]:
        """The tile space over row factors: parts, rows between them, columns."""
        return [*rows, self.plan.parts, self.plan.apart, self.plan.cols]

    def tasks(
        self, more: Sequence[IndexValue], work: Callable[[Sequence[IndexValue]], None]
    ) -> None:
        """The task loop over rows and `more` sizes, whose digits `work` is given at each place."""
        sizes = [self.b.param(f) for f in self.space.factors[: self.rank]]

        def task(number: IndexValue, digits: list[IndexValue]) -> None:
            self.digits = [Ix(d) for d in digits[: self.rank]]
            self.across = Ix(digits[-1])
            self.at_columns(self.space.zero(), self.space.zero())
            work(digits[self.rank : -1])

        odometer(self.b, [*sizes, *more, self.b.param(self.plan.apart)], task)

    def at_columns(self, part: Ix, columns: Ix) -> None:
        """From now on, these are the current part and columns."""
        self.part = part
        self.space.tiles = [*self.digits, part, self.across, columns]

    def at(self, ix: Ix, mask: Mask | None) -> None:
        """From now on, these are the current columns."""
        self.at_columns(self.part, ix)
        self.e.tail = mask

    def columns(self, start: Sequence[Register], body: RowStep) -> list[Register]:
        """Run `body(columns, mask, accumulators)` over parts `first` to `last` of the row."""
        with self.b.loop(self.first, self.last, 1, list(start), hint="part") as loop:
            self.part = Ix(loop.index)
            loop.yield_(*self.span(self.b.index(0), self.cols, loop.args, body))
        return loop.results

    def in_order(self, reducer: Reducer) -> list[Register]:
        """Part after part."""
        with self.b.loop(self.first, self.last, 1, reducer.init(0), hint="part") as loop:
            self.part = Ix(loop.index)
            found = self.span_in_order(reducer, self.b.index(0), self.cols)
            loop.yield_(*reducer.merge(loop.args, found))
        return loop.results

    def scratch_place(self) -> Ix:
        """Where the current columns are in a scratch row."""
        start = self.space.scale(self.part, self.plan.cols)
        return self.space.add(start, self.space.tiles[-1])


class LaneWriter(RowWriter):
    """Writes as many rows at once as there are lanes."""

    rows_in_lanes: ClassVar[bool] = True
    across: Ix
    """The rows in the lanes, along `lane_factor`."""
    place: Ix
    """The current place in the rows."""

    @property
    def lane_factor(self) -> int:
        """The factor of the tile space that lanes run along."""
        raise NotImplementedError

    @property
    def outer(self) -> int:
        """Number of factors in front of `lane_factor` and of what is reduced."""
        raise NotImplementedError

    @property
    def extent(self) -> Expr:
        """Number of tasks."""
        factors = self.space.factors
        return Expr.product(factors[: self.outer]) * ceil_div(factors[self.lane_factor], self.lanes)

    def tasks(
        self, more: Sequence[IndexValue], work: Callable[[Sequence[IndexValue]], None]
    ) -> None:
        """The task loop over leading dimensions, `more` sizes and lanes; see `RowWriter`."""
        b, lanes, columns = self.b, self.lanes, self.space.factors[self.lane_factor]
        sizes = [*(b.param(f) for f in self.space.factors[: self.outer]), *more]
        divisible = self.space.divisible(columns, lanes)

        def at(digits: Sequence[IndexValue], start: IndexValue, mask: Mask | None) -> None:
            overrides = dict(self.e.overrides)
            self.line_mask = mask
            self.digits = [Ix(d) for d in digits[: self.outer]]
            self.across = Ix(start, 1, multiple=lanes)
            self.at(self.space.zero(), mask)
            work(digits[self.outer : -1])
            self.e.overrides = overrides

        def task(number: IndexValue, digits: list[IndexValue]) -> None:
            start = digits[-1] * lanes
            left = b.param(columns) - start
            if divisible:
                at(digits, start, None)
            elif columns.is_const and columns.value < lanes:
                at(digits, start, b.mask(columns.value, lanes))
            else:
                with b.if_(left >= lanes) as branch:
                    at(digits, start, None)
                    with branch.otherwise():
                        at(digits, start, b.mask(left, lanes))

        partly = not divisible and not (columns.is_const and columns.value < lanes)
        if partly and not sizes and not b.one_task:
            # Without a branch in the loop, what every task reads is read once, in front of it.
            full = b.param(columns // lanes)
            with b.loop(b.lo, b.min(b.hi, full), 1, hint="task") as loop:
                at([loop.index], loop.index * lanes, None)
            with b.if_(b.hi > full):
                at([full], full * lanes, b.mask(b.param(columns) - full * lanes, lanes))
            return
        odometer(b, [*sizes, b.param(ceil_div(columns, lanes))], task)

    def columns(self, start: Sequence[Register], body: RowStep) -> list[Register]:
        """Run `body(place, mask, accumulators)` from `first` to `last`, one after the other."""
        with self.b.loop(self.first, self.last, 1, list(start), hint="k") as loop:
            loop.yield_(*body(Ix(loop.index), self.line_mask, list(loop.args)))
        return loop.results

    def scratch_place(self) -> Ix:
        """Where the current elements are in scratch memory that holds these rows alone."""
        here = self.place.base
        return Ix(here * self.lanes, 1, multiple=self.lanes)

    def across_lanes(
        self, reducer: Reducer, accs: Sequence[Register], in_order: bool
    ) -> list[Register]:
        """Every lane is a row of its own."""
        return list(accs)

    def ask_for_next_row(self) -> None:
        """The next rows are too near to ask for them."""


class ColumnWriter(_Apart, LaneWriter):
    """Writes rows side by side: columns."""

    def factors(self, rows: Sequence[Expr]) -> list[Expr]:
        """The tile space over factors of the leading dimensions: what is reduced, columns."""
        return [*rows, self.plan.cols, self.plan.apart]

    @property
    def lane_factor(self) -> int:
        """Behind what is reduced."""
        return self.rank + 1

    @property
    def outer(self) -> int:
        """All factors of rows."""
        return self.rank

    def at(self, ix: Ix, mask: Mask | None) -> None:
        """From now on, this is the current place in the columns."""
        self.place = ix
        self.space.tiles = [*self.digits, ix, self.across]
        self.e.tail = mask


class ShortRowWriter(LaneWriter):
    """Writes rows that are shorter than a vector."""

    def factors(self, rows: Sequence[Expr]) -> list[Expr]:
        """The tile space over row factors, of which there is one at least."""
        return [*rows, self.plan.cols]

    @property
    def lane_factor(self) -> int:
        """The last factor of rows."""
        return self.rank - 1

    @property
    def outer(self) -> int:
        """The others."""
        return self.rank - 1

    def at(self, ix: Ix, mask: Mask | None) -> None:
        """From now on, this is the current place in the rows."""
        self.place = ix
        self.space.tiles = [*self.digits, self.across, ix]
        self.e.tail = mask

    def line_place(self, piece: IndexValue | None = None, pieces: IndexValue | None = None) -> Ix:
        """The numbers of these rows."""
        return replace(self.space.flat(0, self.rank), tile=None)

    def in_order(self, reducer: Reducer) -> list[Register]:
        """One column after the other."""

        def body(ix: Ix, mask: Mask | None, accs: list[Register]) -> list[Register]:
            self.at(ix, mask)
            return reducer.step(accs, [self._full(v, mask) for v in reducer.inputs])

        return self.columns(reducer.init(self.lanes), body)
