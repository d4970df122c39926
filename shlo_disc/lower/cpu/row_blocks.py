"""Sums of the columns of a matrix, and other reductions of that kind, from rows that lie in a run.

A task of `row.py` is a panel of columns. Its runs of memory are 256 bytes, each in a page of its
own. Here the panels that a thread takes at once are read as one, a few rows of all of them at a
time. Their accumulators wait in near memory. Every column is reduced in order all the same: bits
are those of panels one by one. The sums of 8192 x 2304 take two thirds of the time on Zen 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.kernels.row_writer import RowWriter
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.schedule.row_reduction import Plan
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.reduction import Reducer, simple_body
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register
from shlo_disc.passes.match_rows import Layout

_ROWS = 8
"""Rows that are added before an accumulator is stored."""

_COLUMNS = 4096
"""Columns at most that are read as one: accumulators of f32 take half of L1."""

_MOST_OPS = 8
"""Ops of a fusion at most: each is written `_ROWS` times."""


_LEAST_ROWS = 8 * _ROWS
"""Rows of a matrix, fewer than this many: accumulators are stored more often than it saves."""


def reads_rows(plan: Plan, lanes: int) -> bool:
    """True if all of `plan` is cheap reductions of the columns of one matrix to floats.

    The matrix may have many rows, and more than a few panels of `lanes` columns.
    """
    high = plan.shapes.constraints.bounds(plan.cols)[1]
    if plan.apart.is_const and plan.apart.value <= 2 * lanes:
        return False
    if high is not None and high < _LEAST_ROWS:
        return False
    ops = [view.operation for view in plan.block.operations]
    if plan.layout is not Layout.SIDE_BY_SIDE or not Expr.product(plan.rows).is_one:
        return False
    if len(ops) > _MOST_OPS or any(MODEL.costs.is_expensive(op) for op in ops):
        return False
    first, *rest = plan.sweeps
    if first.general or any(s.simple or s.general for s in rest):
        return False
    if any(s.outputs or s.stores for s in plan.sweeps):
        return False
    return all(simple_body(op) and element_of(op.results[0]).is_float for op in first.simple)


class RowBlocks(RowWriter):
    """Writes such a kernel; a task is as many columns as there are lanes."""

    def write(self) -> Self:
        """See `RowWriter.write`."""
        b, lanes = self.b, self.lanes
        columns = b.param(self.plan.apart)
        self.reducers = [Reducer(self.e, op) for op in self.plan.sweeps[0].simple]
        panels = _COLUMNS // lanes
        with b.loop(b.lo, b.hi, panels, hint="panels") as loop:
            last = b.min(loop.index + panels, b.hi) * lanes
            self._reduce(loop.index * lanes, b.min(last, columns))
        return self

    def scratch_bytes(self) -> Expr:
        """Bytes of all accumulators."""
        return Expr.const(len(self.reducers) * _COLUMNS * 8)

    def _accumulators(self) -> list[MemRef]:
        return [
            self.b.scratch(reducer.types[0], k * _COLUMNS * 8)
            for k, reducer in enumerate(self.reducers)
        ]

    def _reduce(self, first: IndexValue, last: IndexValue) -> None:
        """Columns `first` to `last`, at most `_COLUMNS`."""
        b = self.b
        rows, nothing = self.cols, b.index(0)
        whole = rows - rows % _ROWS
        memories = self._accumulators()

        def begin(at: IndexValue) -> None:
            for memory, reducer in zip(memories, self.reducers, strict=True):
                memory.vector_store(reducer.neutral(self.lanes)[0], at)

        def add(row: IndexValue, count: int, at: IndexValue) -> None:
            found = [b.vector_load(m, at, self.lanes, readonly=False) for m in memories]
            for k in range(count):
                self.e.piece = k
                self.at(Ix(row + k), self.line_mask)
                for number, reducer in enumerate(self.reducers):
                    values = [self._full(v, self.line_mask) for v in reducer.inputs]
                    (found[number],) = reducer.step([found[number]], values)
            self.e.piece = 0
            for memory, register in zip(memories, found, strict=True):
                memory.vector_store(register, at)

        def end(at: IndexValue) -> None:
            for memory, reducer in zip(memories, self.reducers, strict=True):
                self.publish(reducer, [b.vector_load(memory, at, self.lanes, readonly=False)])
            self.store_row_values()

        self._each(first, last, begin)
        with b.loop(nothing, whole, _ROWS, hint="rows") as loop:
            self._each(first, last, lambda at: add(loop.index, _ROWS, at))
        with b.loop(whole, rows, 1, hint="row") as loop:
            self._each(first, last, lambda at: add(loop.index, 1, at))
        self._each(first, last, end)

    def _each(
        self, first: IndexValue, last: IndexValue, body: Callable[[IndexValue], None]
    ) -> None:
        """`body(place among the accumulators)` at every vector of columns."""

        def here(at: IndexValue, mask: Mask | None, _: Sequence[Register]) -> None:
            overrides = dict(self.e.overrides)
            self.line_mask = mask
            self.across = Ix(at, 1, multiple=self.lanes)
            self.at(self.space.zero(), mask)
            body(at - first)
            self.e.overrides = overrides

        divisible = self.space.divisible(self.plan.apart, self.lanes)
        strips(self.b, first, last, self.lanes, here, divisible=divisible)
