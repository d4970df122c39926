"""Where the elements of rows are, and the loops over them (see `row_writer.py`).

*Whole* rows lie in memory as one run, which lanes are along.

Rows *in parts*: what is kept is between what is reduced (batch-norm of channels in front of the
pixels). A task is one row, and sweeps over its parts one after the other.

Rows *side by side*, that is, columns: what is kept is behind what is reduced. A task is as many
columns as there are lanes. What is a scalar of a row elsewhere is a vector here, nothing is
combined across lanes, and every column is reduced in order.

*Short* rows are whole, and side by side in lanes, too: a vector along one of them would be mostly
empty.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.strips import vector_loop
from shlo_disc.lower.schedule.row_reduction import Plan
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.index import Group, Index, Ix, Space
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_rows import Layout

RowStep = Callable[[Ix, Mask | None, list[Register]], list[Register]]
"""The accumulators behind some columns, of which those in the mask are there."""

Work = Callable[[Sequence[IndexValue]], None]


class Rows:
    """The rows of a plan, over row `factors`, in the kernel of `b`."""

    is_short: ClassVar[bool] = False
    """Rows are shorter than a vector, and there is one row factor at least."""
    line_mask: Mask | None = None
    """The rows that exist, if lanes hold rows and not all of them exist."""

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[Expr],
        lanes: int,
        b: KernelBuilder,
        arguments: Arguments | None = None,
    ) -> None:
        self.plan, self.lanes, self.rank = plan, lanes, len(factors)
        self.b, self.arguments = b, arguments or Arguments()
        self.in_lanes = self.is_short or plan.layout is Layout.SIDE_BY_SIDE
        """Lanes hold rows, and not columns of one row."""
        behind = {
            Layout.WHOLE: [plan.cols],
            Layout.PARTS: [plan.parts, plan.apart, plan.cols],
            Layout.SIDE_BY_SIDE: [plan.cols, plan.apart],
        }
        space = [*factors, *behind[plan.layout]]
        self.space = Space(b, plan.shapes.constraints, space, lanes)
        self.end = len(space)
        self.e = Elemental(b, self.space, plan.shapes, plan.block, self.arguments)
        self.cols = b.param(plan.cols, opaque=plan.cols.is_const and plan.cols.value > lanes)
        self.first, self.last = b.index(0), b.param(plan.cut)
        """What is swept: of the columns, or of the parts where the row is in parts."""
        self.digits: list[Ix] = []
        self.part = self.across = self.place = self.space.zero()
        """The current part, the rows among those that are apart or in lanes, and the columns."""

    # ---------------------------------------------------------------- tasks

    @property
    def line_lanes(self) -> int:
        """Lanes of a row value; 0: it is a scalar."""
        return self.lanes if self.in_lanes else 0

    @property
    def lane_factor(self) -> int:
        """The factor of the tile space that lanes which hold rows run along."""
        return self.rank - 1 if self.is_short else self.rank + 1

    @property
    def _outer(self) -> int:
        """Number of factors in front of `lane_factor` and of what is reduced."""
        return self.rank - self.is_short

    @property
    def extent(self) -> Expr:
        """Number of tasks."""
        if not self.in_lanes:
            return Expr.product(self.plan.lines)
        factors = self.space.factors
        in_front = Expr.product(factors[: self._outer])
        return in_front * ceil_div(factors[self.lane_factor], self.lanes)

    def tasks(self, more: Sequence[IndexValue], work: Work) -> None:
        """The task loop over rows and `more` sizes, whose digits `work` is given at each place."""
        if self.in_lanes:
            self._tasks_of_lanes(more, work)
            return
        b, in_parts = self.b, self.plan.layout is Layout.PARTS
        sizes = [*(b.param(f) for f in self.space.factors[: self.rank]), *more]

        def task(number: IndexValue, digits: list[IndexValue]) -> None:
            self.digits = [Ix(d) for d in digits[: self.rank]]
            if in_parts:
                self.part, self.across = self.space.zero(), Ix(digits[-1])
            elif self.rank and not more:
                self.space.flats = {(0, self.rank): number}
            self.at(self.space.zero(), None)
            work(digits[self.rank : self.rank + len(more)])

        odometer(b, [*sizes, b.param(self.plan.apart)] if in_parts else sizes, task)

    def _tasks_of_lanes(self, more: Sequence[IndexValue], work: Work) -> None:
        """The task loop over leading dimensions, `more` sizes and lanes."""
        b, lanes, columns = self.b, self.lanes, self.space.factors[self.lane_factor]
        sizes = [*(b.param(f) for f in self.space.factors[: self._outer]), *more]
        divisible = self.space.divisible(columns, lanes)

        def at(digits: Sequence[IndexValue], start: IndexValue, mask: Mask | None) -> None:
            overrides = dict(self.e.overrides)
            self.line_mask = mask
            self.digits = [Ix(d) for d in digits[: self._outer]]
            self.across = Ix(start, 1, multiple=lanes)
            self.at(self.space.zero(), mask)
            work(digits[self._outer : -1])
            self.e.overrides = overrides

        def task(number: IndexValue, digits: list[IndexValue]) -> None:
            start = digits[-1] * lanes
            left = b.param(columns) - start
            if divisible:
                at(digits, start, None)
            elif columns.is_const and columns.value < lanes:
                at(digits, start, b.mask(columns.value, lanes))
            else:
                some = functools.partial(at, digits, start)
                b.either(left >= lanes, lambda: some(None), lambda: some(b.mask(left, lanes)))

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

    # ---------------------------------------------------------------- where the elements are

    def at(self, ix: Ix, mask: Mask | None) -> None:
        """From now on, these are the current columns."""
        self.place, self.e.tail = ix, mask
        behind = {
            Layout.WHOLE: [self.across, ix] if self.is_short else [ix],
            Layout.PARTS: [self.part, self.across, ix],
            Layout.SIDE_BY_SIDE: [ix, self.across],
        }
        self.space.tiles = [*self.digits, *behind[self.plan.layout]]

    def line_index(self, shape: Sequence[Expr]) -> Index:
        """Where a value of `shape`, one element a row, is read at this row."""
        if self.plan.layout is Layout.WHOLE:
            return self.space.root(shape, 0, self.rank) if shape else ()
        rows, same = self.space.factors[: self.rank], self.space.same_count
        for cut in range(len(shape) + 1):
            front, behind = tuple(shape[:cut]), tuple(shape[cut:])
            if same(front, rows) and same(behind, [self.plan.apart]):
                outer = Group(front, self.space.flat_lazy(0, self.rank))
                inner = Group(behind, self.space.flat_lazy(self.rank + 1, self.rank + 2))
                return (outer, inner) if cut else (inner,)
        raise InternalError(f"a value of a row fusion has other rows: {shape}")

    def line_place(self, piece: IndexValue | None = None, pieces: IndexValue | None = None) -> Ix:
        """The number of this row, or of its piece `piece` of `pieces` among all pieces."""
        row = replace(self.space.flat(0, self.rank), tile=None)
        if self.plan.layout is Layout.WHOLE and not self.is_short:
            row = Ix(row.base)
        if piece is not None and pieces is not None:
            row = Ix(row.base * pieces + piece)
        if self.plan.layout is Layout.WHOLE:
            return row
        return self.space.add(self.space.scale(row, self.plan.apart), self.across)

    @property
    def has_one_element(self) -> bool:
        """True if a row is proved to have one element, or there to be no row, in which case
        nothing runs. Either may follow from a constraint.
        """
        return self.space.same(self.plan.length, Expr.const(1)) or self.space.same_count(
            self.plan.space, self.plan.lines
        )

    def is_line(self, index: Index) -> bool:
        """True if `index` is this row's; that of its element is, if the row has one element."""
        if self.has_one_element and self.is_element(index):
            return True
        groups = self.space.joined(index)
        if self.plan.apart.is_one:
            return self._is_flat(groups, 0, self.rank)
        front, behind = groups[:-1], groups[-1:]
        place = self.rank + 1
        return self._is_flat(front, 0, self.rank) and self._is_flat(behind, place, place + 1)

    def is_element(self, index: Index) -> bool:
        """True if `index` is that of the current row and columns."""
        return self._is_flat(self.space.joined(index), 0, self.end)

    @staticmethod
    def _is_flat(groups: Index, first: int, last: int) -> bool:
        """True if groups are the flat index over factors `first` to `last`."""
        if first == last:
            return all(s.is_one for g in groups for s in g.sizes)
        return len(groups) == 1 and groups[0].at.tile == (first, last)

    def scratch_place(self) -> Ix:
        """Where the current columns are in a scratch row, or rows in lanes in their memory."""
        if self.in_lanes:
            return Ix(self.place.base * self.lanes, 1, multiple=self.lanes)
        columns = self.space.tiles[-1]
        if self.plan.layout is Layout.WHOLE:
            return columns
        return self.space.add(self.space.scale(self.part, self.plan.cols), columns)

    # ---------------------------------------------------------------- columns

    def columns(self, start: Sequence[Register], body: RowStep) -> list[Register]:
        """Run `body(columns, mask, accumulators)` from `first` to `last` of the row, or rows."""
        if self.in_lanes:
            with self.b.loop(self.first, self.last, 1, list(start), hint="k") as loop:
                loop.yield_(*body(Ix(loop.index), self.line_mask, list(loop.args)))
            return loop.results
        if self.plan.layout is Layout.WHOLE:
            return self.span(self.first, self.last, start, body)
        with self.b.loop(self.first, self.last, 1, list(start), hint="part") as loop:
            self.part = Ix(loop.index)
            loop.yield_(*self.span(self.b.index(0), self.cols, loop.args, body))
        return loop.results

    def span(
        self, first: IndexValue, last: IndexValue, start: Sequence[Register], body: RowStep
    ) -> list[Register]:
        """Run `body(columns, mask, accumulators)` over columns `first` to `last` of a run."""
        b, space, size = self.b, self.space, self.plan.cols
        return vector_loop(b, space, first, last, size, self.lanes, body, start)
