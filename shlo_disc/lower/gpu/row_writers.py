"""Writers of rows that a group of threads computes, and of pieces that blocks combine.

What one sweep keeps for the next is in shared memory of the group. Every sweep gives a thread the
same columns, so that a thread reads what it has stored itself, and waits for no other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.builder import GroupBuilder
from shlo_disc.lower.gpu.groups import across_threads
from shlo_disc.lower.kernels.row_layouts import RowStep
from shlo_disc.lower.kernels.row_writer import Full, RowWriter
from shlo_disc.lower.schedule.row_reduction import Materialised
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.reduction import Reducer, takes_any_order
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register
from shlo_disc.passes.match_rows import Layout

_MOST_VECTORS = 8
"""Vectors of a thread, of a row whose size is known, that are not a loop at run time."""

_STEPS = 4
"""Steps of a loop over columns that load at once."""


class ThreadRows(RowWriter):
    """Writes rows of which a thread takes as many as one access has; or a part of one row.

    Loops that store have several steps that load before one stores. LLVM cannot tell that a load
    reads other memory than a store in front of it writes.
    """

    _late: list[Callable[[], None]] | None = None
    """What stores the results of steps so far; None: steps store at once."""

    def store_columns(self, full: Full, mask: Mask | None) -> None:
        """See `RowWriter.store_columns`."""
        if self._late is None:
            self.store_now(full, mask)
            return
        tiles, tail = list(self.space.tiles), self.e.tail

        def later() -> None:
            self.space.tiles, self.e.tail = tiles, tail
            self.store_now(full, mask)

        self._late.append(later)

    def store_now(self, full: Full, mask: Mask | None) -> None:
        """Store as `RowWriter.store_columns`."""
        super().store_columns(full, mask)

    def steps(
        self, places: Sequence[Ix], mask: Mask | None, start: Sequence[Register], body: RowStep
    ) -> list[Register]:
        """Run `body` at each place; results are stored when all have loaded."""
        self._late, found = [], list(start)
        for place in places:
            with self.b.apart():
                found = body(place, mask, found)
        late, self._late = self._late, None
        for store in late:
            store()
        return found

    def columns(self, start: Sequence[Register], body: RowStep) -> list[Register]:
        """See `Rows.columns`."""
        if not self.in_lanes or not self.has_results:
            return super().columns(start, body)
        b, first = self.b, self.first
        whole = first + (self.last - first).round_down(_STEPS)
        with b.loop(first, whole, _STEPS, list(start), hint="k") as loop:
            places = [Ix(loop.index + k) for k in range(_STEPS)]
            loop.yield_(*self.steps(places, self.line_mask, loop.args, body))
        self.first = whole
        found = super().columns(loop.results, body)
        self.first = first
        return found


class Together(ThreadRows):
    """Writes rows of which a group of threads computes each."""

    b: GroupBuilder
    room: int = 0
    """Elements of a row that shared memory has place for."""

    # ---------------------------------------------------------------- what sweeps keep

    def scratch_bytes(self) -> Expr:
        """See `RowWriter.scratch_bytes`: kept values are in shared memory."""
        return Expr.const(0)

    def scratch_row(self, item: Materialised) -> MemRef:
        """See `RowWriter.scratch_row`: shared memory of the group."""
        element = element_of(item.value)
        size = self.room * element.bytes
        return self.b.shared_of_group(self._offsets[item.slot], element.storage, size)

    @functools.cached_property
    def _offsets(self) -> list[int]:
        """Where the kept rows of the groups begin in shared memory."""
        return [self.b.offset_of_groups(self.room * slot.bytes) for slot in self.plan.slots]

    def ask_for_next_row(self) -> None:
        """Other groups of threads are on their rows meanwhile."""

    # ---------------------------------------------------------------- columns

    def span(
        self, first: IndexValue, last: IndexValue, start: Sequence[Register], body: RowStep
    ) -> list[Register]:
        """See `Rows.span`: the thread's vectors of the run."""
        b, lanes = self.b, self.lanes
        count = last - first
        step = b.group * max(1, lanes)
        known = last.known if first.known == 0 else None
        if lanes and known and known % step == 0 and known // step <= _MOST_VECTORS:
            if self.has_results:
                places = [b.member * lanes + k * step for k in range(known // step)]
                return self.steps([Ix(at, 1, multiple=lanes) for at in places], None, start, body)
            with b.loop(0, known // step, 1, list(start), hint="j") as loop:
                own = loop.index * step + b.member * lanes
                loop.yield_(*body(Ix(own, 1, multiple=lanes), None, list(loop.args)))
            return loop.results
        if not lanes:
            with b.loop(first + b.member, last, b.group, list(start), hint="j") as loop:
                loop.yield_(*body(Ix(loop.index), None, list(loop.args)))
            return loop.results
        own = first + b.member * lanes
        whole = first + count.round_down(lanes)
        with b.loop(own, whole, b.group * lanes, list(start), hint="j") as loop:
            loop.yield_(*body(Ix(loop.index, 1, multiple=lanes), None, list(loop.args)))
        if self.space.divisible(self.plan.cols, lanes):
            return loop.results
        # The vector that is not whole is the next one of one thread.
        turn = (count // lanes) % b.group
        is_mine, at = (whole < last) & turn.equals(b.member), Ix(whole, 1, multiple=lanes)
        found = loop.results
        return b.either(
            is_mine, lambda: body(at, b.mask(last - whole, lanes), list(found)), lambda: found
        )

    def span_in_order(
        self, reducer: Reducer, first: IndexValue, last: IndexValue
    ) -> list[Register]:
        """See `RowWriter.span_in_order`: thread i reduces the i-th run of neighbours."""
        b = self.b
        run = (last - first + (b.group - 1)) // b.group
        own = first + b.member * run
        end = b.min(own + run, last)
        lanes, self.e.lanes, self.space.lanes = self.lanes, 0, 0
        with b.loop(own, end, 1, reducer.init(0), hint="k") as loop:
            self.at(Ix(loop.index), None)
            values = [self._full(v, None) for v in reducer.inputs]
            loop.yield_(*reducer.step(loop.args, values))
        self.e.lanes = self.space.lanes = lanes
        repeated = self.plan.layout is Layout.PARTS
        return across_threads(self.b, reducer, loop.results, in_order=True, repeated=repeated)

    # ---------------------------------------------------------------- reductions

    def across_lanes(
        self, reducer: Reducer, accs: Sequence[Register], in_order: bool
    ) -> list[Register]:
        """See `RowWriter.across_lanes`: the total of all threads, in each of them."""
        own = super().across_lanes(reducer, accs, in_order) if accs[0].lanes else list(accs)
        return across_threads(self.b, reducer, own, in_order=in_order)

    # ---------------------------------------------------------------- results

    def store_now(self, full: Full, mask: Mask | None) -> None:
        """See `ThreadRows.store_now`: only groups that have a task of their own store."""
        if self.b.has_task is None or not full:
            super().store_now(full, mask)
            return
        with self.b.if_(self.b.has_task):
            super().store_now(full, mask)

    def once(self) -> AbstractContextManager[object]:
        """See `RowWriter.once`: one thread of those that have a task of their own."""
        is_first, has_task = self.b.member.equals(0), self.b.has_task
        return self.b.if_(is_first if has_task is None else is_first & has_task)

    def merged(
        self, reducer: Reducer, count: IndexValue, term: Callable[[IndexValue], Sequence[Register]]
    ) -> list[Register]:
        """See `RowWriter.merged`: thread i takes pieces i, i + T, ..., or the i-th run."""
        b, in_order = self.b, not takes_any_order(reducer.op)
        first, last, step = b.member, count, b.group
        if in_order:
            run = (count + (b.group - 1)) // b.group
            first, step = b.member * run, 1
            last = b.min(first + run, count)
        with b.loop(first, last, step, reducer.neutral(self.line_lanes), hint="piece") as loop:
            loop.yield_(*reducer.merge(loop.args, term(loop.index)))
        return across_threads(b, reducer, loop.results, in_order=in_order)
