"""Text of row kernels: see `row.py` for what they do and in which order."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Self, TypeVar

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.kernels.row_layouts import Rows
from shlo_disc.lower.plan import Input, Launch, Output
from shlo_disc.lower.schedule.contraction import SHORT
from shlo_disc.lower.schedule.iteration_space import merged, refine
from shlo_disc.lower.schedule.row_reduction import Materialised, Plan, Sweep
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.reduction import Reducer
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register
from shlo_disc.passes.match_rows import Layout

Found = Callable[[Reducer, list[Register]], object]

Full = list[tuple[Register, Materialised | int]]
"""Full-size values at the current columns, and the intermediate or the result that each is."""

W = TypeVar("W", bound="RowWriter")


def write_rows(plan: Plan, shapes: ShapeAnalysis, write: Callable[[Sequence[Expr]], W]) -> W:
    """What `write` gives for the row factors that its accesses ask for: a writer that has written.

    Rows are cut where an access needs one of their dimensions, else they are one factor.
    """
    factors = [s for s in plan.rows if not s.is_one]
    writer = write(factors)
    for _ in range(3):
        rows_only = [(i, j, s) for i, j, s in writer.space.wanted if j <= len(factors)]
        finer = refine(factors, rows_only, shapes.constraints.equal)
        if finer == factors:
            break
        writer.b.forget()
        factors, writer = finer, write(finer)
    fewer = merged(factors, writer.space.used)
    if fewer == factors:
        return writer
    writer.b.forget()
    return write(fewer)


class RowWriter(Rows):
    """Writes the kernel of a plan over row `factors`, or its part in the kernel of `b`."""

    first_scratch = Expr.const(0)
    """Where the scratch rows begin, in bytes."""
    has_results = False
    """True if the current sweep stores."""

    @functools.cached_property
    def outputs(self) -> Sequence[Output]:
        """Where each root goes."""
        return [Output(k) for k in range(len(self.plan.roots))]

    def write(self) -> Self:
        """The whole function up to `finish`; returns itself."""
        self.tasks([], lambda _: self.work())
        return self

    # ---------------------------------------------------------------- a row

    def work(self) -> None:
        """What is done for one row."""
        for place, sweep in enumerate(self.plan.sweeps):
            self.sweep(sweep, asks_ahead=place == 1)
        self.store_row_values()

    def store_row_values(self) -> None:
        """The results that have one element a row."""
        if not self.plan.row_outputs:
            return
        with self.once():
            for k in self.plan.row_outputs:
                root = self.plan.roots[k]
                value = self.row_value(root)
                at = self.line_place()
                self.e.store(self.outputs[k], element_of(root), value, at, self.line_mask)

    def once(self) -> AbstractContextManager[object]:
        """What stores a row's values is inside, where several threads take the row."""
        return contextlib.nullcontext()

    def row_value(self, value: ir.Value) -> Register:
        """A value with one element a row, at this row."""
        return self.e.value_at(value, self.line_index(self.e.shape(value)), self.line_mask)

    def launch(self, name: str, time: Expr, times: Expr | int = 1) -> Launch:
        """The finished kernel: `times` tasks of `time` nanoseconds for every row."""
        made, extent = self.b.finish(), self.extent * times
        return self.arguments.launch(made, name, extent, time, self.scratch_bytes())

    def scratch_bytes(self) -> Expr:
        """Bytes of all scratch rows."""
        total = Expr.const(0)
        for element in self.plan.slots:
            total = total + self._row_bytes(element)
        return total

    def _row_bytes(self, element: ElementType) -> Expr:
        lanes = max(1, self.line_lanes)
        return ceil_div(self.plan.length * (element.bytes * lanes), 64) * 64

    # ---------------------------------------------------------------- sweeps

    def sweep(self, sweep: Sweep, asks_ahead: bool = False, found: Found | None = None) -> None:
        """One pass over a row. General reductions come first: results may overwrite what they read.

        `asks_ahead`: ask for the next row of the inputs. The first sweep has read this row, and
        until it reads the next one memory would have nothing to do. `found` is given what the sweep
        has found for each reduction; :meth:`publish` by default.
        """
        self.has_results = bool(sweep.outputs or sweep.stores)
        found = found or self.publish
        for op in sweep.general:
            reducer = Reducer(self.e, op)
            found(reducer, self.in_order(reducer))
        if sweep.simple or sweep.outputs or sweep.stores:
            reducers = [Reducer(self.e, op) for op in sweep.simple]
            start = [a for r in reducers for a in r.neutral(self.lanes)]

            def body(ix: Ix, mask: Mask | None, accs: list[Register]) -> list[Register]:
                self.at(ix, mask)
                if asks_ahead and mask is None:
                    self.ask_for_next_row()
                full = self._values(sweep, mask)
                new: list[Register] = []
                for reducer, own in zip(reducers, _shares(reducers, accs), strict=True):
                    stepped = reducer.step(own, [self._full(v, mask) for v in reducer.inputs])
                    if mask is not None and not self.line_lanes:
                        pairs = zip(stepped, own, strict=True)
                        stepped = [self.b.select(mask, now, before) for now, before in pairs]
                    new += stepped
                self.store_columns(full, mask)
                return new

            swept = self.columns(start, body)
            for reducer, own in zip(reducers, _shares(reducers, swept), strict=True):
                found(reducer, self.across_lanes(reducer, own, in_order=False))
        for item in sweep.stores:
            self._override(item)

    def ask_for_next_row(self) -> None:
        """Let the caches fetch the inputs' columns that come next.

        Rows that are in lanes are too near to ask for them.
        """
        b = self.b
        if self.in_lanes:
            return
        here = self.space.force(self.space.flat_lazy(0, self.end))
        following = here.base + self.cols
        space = (*self.space.factors[:-1], self.plan.cols)
        for index, argument in enumerate(self.plan.block.arguments):
            if Expr.product(self.e.shape(argument)) == Expr.product(space):
                memory = b.memref(self.arguments.slot(Input(index)), element_of(argument).storage)
                memory.prefetch(following)

    def _full(self, value: ir.Value, mask: Mask | None) -> Register:
        """A full-size value at the current columns."""
        index = self.space.root(self.e.shape(value), 0, self.end)
        return self.e.value_at(value, index, mask)

    def _values(self, sweep: Sweep, mask: Mask | None) -> Full:
        found: Full = []
        for item in sweep.stores:
            if item.output is None or self.plan.roots[item.output] != item.value:
                found.append((self._full(item.value, mask), item))
        found += [(self._full(self.plan.roots[k], mask), k) for k in sweep.outputs]
        return found

    def store_columns(self, full: Full, mask: Mask | None) -> None:
        """Store full-size values at the current columns, to results and scratch rows."""
        for register, where in full:
            value = where.value if isinstance(where, Materialised) else self.plan.roots[where]
            element = element_of(value)
            if isinstance(where, Materialised) and where.output is None:
                stored = register
                if element.kind == "b":
                    stored = self.b.cast("arith.extui", register, "i8")
                stored = self.b.broadcast(stored, self.lanes)
                self.e.store_to(self.scratch_row(where), stored, self.scratch_place(), mask)
            else:
                out = where.output if isinstance(where, Materialised) else where
                assert out is not None
                if element.kind == "b":
                    register = self.b.cast("arith.extui", register, "i8")
                memory, at = self.result(out)
                self.e.store_to(memory, register, at, mask)

    def result(self, k: int) -> tuple[MemRef, Ix]:
        """Where the current columns of result `k` are: memref and index."""
        storage = element_of(self.plan.roots[k]).storage
        memory = self.b.memref(self.arguments.slot(self.outputs[k]), storage)
        return memory, self.space.flat(0, self.end)

    def scratch_row(self, item: Materialised) -> MemRef:
        """The scratch row that holds `item`."""
        offset = self.first_scratch
        for element in self.plan.slots[: item.slot]:
            offset = offset + self._row_bytes(element)
        return self.b.scratch(element_of(item.value).storage, self.b.param(offset))

    def _override(self, item: Materialised) -> None:
        def where() -> tuple[MemRef, Ix]:
            if item.output is None:
                return self.scratch_row(item), self.scratch_place()
            return self.result(item.output)

        self.override(item.value, where)

    def override(self, value: ir.Value, where: Callable[[], tuple[MemRef, Ix]]) -> None:
        """From now on, `value` at the current row and column is loaded from `where`."""

        def load(index: Index, mask: Mask | None) -> Register | None:
            if not self.is_element(index):
                return None
            register = self.e.load_from(*where(), mask, readonly=False)
            return register.differs(0) if element_of(value).kind == "b" else register

        self.e.overrides[value] = load

    # ---------------------------------------------------------------- reductions

    def in_order(self, reducer: Reducer) -> list[Register]:
        """Accumulators over `first` to `last` of the row, neighbours combined first."""
        if self.in_lanes:
            return self.columns(reducer.init(self.lanes), functools.partial(self._step, reducer))
        if self.plan.layout is Layout.WHOLE:
            return self.span_in_order(reducer, self.first, self.last)
        with self.b.loop(self.first, self.last, 1, reducer.init(0), hint="part") as loop:
            self.part = Ix(loop.index)
            found = self.span_in_order(reducer, self.b.index(0), self.cols)
            loop.yield_(*reducer.merge(loop.args, found))
        return loop.results

    def _step(
        self, reducer: Reducer, ix: Ix, mask: Mask | None, accs: list[Register]
    ) -> list[Register]:
        self.at(ix, mask)
        return reducer.step(accs, [self._full(v, mask) for v in reducer.inputs])

    def span_in_order(
        self, reducer: Reducer, first: IndexValue, last: IndexValue
    ) -> list[Register]:
        """Lane l reduces the l-th run of neighbouring columns, in order."""
        b, space, lanes = self.b, self.space, self.lanes
        run = (last - first).ceil_div(lanes)
        start = b.iota(lanes) * run + first
        with b.loop(0, run, 1, reducer.init(lanes), hint="k") as loop:
            column = start + loop.index
            mask = b.cmpi("ult", column, b.broadcast(last, lanes))
            self.at(space.uniform(column), None)
            values = [self._full(v, mask) for v in reducer.inputs]
            new = reducer.step(loop.args, values)
            loop.yield_(*(b.select(mask, n, o) for n, o in zip(new, loop.args, strict=True)))
        return self.across_lanes(reducer, loop.results, in_order=True)

    def across_lanes(
        self, reducer: Reducer, accs: Sequence[Register], in_order: bool
    ) -> list[Register]:
        """Scalar accumulators: the lanes as a balanced tree; those of a short row one by one.

        Where every lane is a row of its own, there is nothing to do.
        """
        b = self.b
        if self.in_lanes:
            return list(accs)
        width = accs[0].lanes
        parts = list(accs)
        cols = self.plan.cols
        if cols.is_const and 0 < cols.value <= min(width, SHORT) and not in_order:
            ones = [[b.extract(p, lane) for p in parts] for lane in range(cols.value)]
            return functools.reduce(reducer.merge, ones)
        while width > 1:
            half = width // 2
            if in_order:  # neighbours first
                low, high = list(range(0, width, 2)), list(range(1, width, 2))
            else:
                low, high = list(range(half)), list(range(half, width))
            left = [b.shuffle(p, p, low) for p in parts]
            right = [b.shuffle(p, p, high) for p in parts]
            parts = reducer.merge(left, right) if in_order else reducer.combine(left, right)
            width = half
        return [b.extract(p, 0) for p in parts]

    def merged(
        self, reducer: Reducer, count: IndexValue, term: Callable[[IndexValue], Sequence[Register]]
    ) -> list[Register]:
        """The accumulators `term(number)` of `count` pieces of a row, merged in order."""
        start = reducer.neutral(self.line_lanes)
        with self.b.loop(0, count, 1, start, hint="piece") as loop:
            loop.yield_(*reducer.merge(loop.args, term(loop.index)))
        return loop.results

    def publish(self, reducer: Reducer, scalars: list[Register]) -> list[Register]:
        """Add the init value where it is still missing; the row values can be found now."""
        if reducer.simple is not None:
            scalars = reducer.merge(reducer.init(self.line_lanes), scalars)
        self.announce(reducer, scalars)
        return scalars

    def announce(self, reducer: Reducer, scalars: Sequence[Register]) -> None:
        """The row values of a reduction can be found now."""
        for result, register in zip(reducer.op.results, reducer.finish(scalars), strict=True):
            self._announce(result, register)

    def _announce(self, result: ir.Value, register: Register) -> None:
        def found(index: Index, mask: Mask | None) -> Register | None:
            if self.is_line(index):
                return register
            if Expr.product(self.plan.space) == 0:  # nothing runs, and all indices are equal
                return None
            raise InternalError(f"a row reads the reduction of another row: {result.owner}")

        self.e.overrides[result] = found


def _shares(reducers: Sequence[Reducer], accumulators: Sequence[Register]) -> list[list[Register]]:
    """The accumulators of each reducer."""
    rest = iter(accumulators)
    return [list(itertools.islice(rest, reducer.count)) for reducer in reducers]
