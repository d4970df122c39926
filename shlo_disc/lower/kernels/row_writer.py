"""Text of row kernels: see `row.py` for what they do and in which order."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar, Self, TypeVar

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.strips import vector_loop
from shlo_disc.lower.plan import Input, Launch, Output
from shlo_disc.lower.schedule.contraction import SHORT
from shlo_disc.lower.schedule.iteration_space import refine
from shlo_disc.lower.schedule.row_reduction import Materialised, Plan, Sweep
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index, Ix, Space
from shlo_disc.lower.values.reduction import Reducer
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register

RowStep = Callable[[Ix, Mask | None, list[Register]], list[Register]]
"""The accumulators behind some columns, of which those in the mask are there."""

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
    merged: list[Expr] = []
    for k, factor in enumerate(factors):
        if k and k not in writer.space.used:
            merged[-1] = merged[-1] * factor
        else:
            merged.append(factor)
    if merged == factors:
        return writer
    writer.b.forget()
    return write(merged)


class RowWriter:
    """Writes the kernel of a plan over row `factors`, or its part in the kernel of `b`."""

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[Expr],
        lanes: int,
        b: KernelBuilder,
        arguments: Arguments | None = None,
    ) -> None:
        self.plan, self.lanes = plan, lanes
        self.b, self.arguments = b, arguments or Arguments()
        self.outputs: Sequence[Output] = [Output(k) for k in range(len(plan.roots))]
        """Where each root goes."""
        self.first_scratch = Expr.const(0)
        """Where the scratch rows begin, in bytes."""
        self.rank = len(factors)
        self.space = Space(self.b, plan.shapes.constraints, self.factors(factors), lanes)
        self.end = len(self.space.factors)
        self.e = Elemental(self.b, self.space, plan.shapes, plan.block, self.arguments)
        self.cols = self.b.param(plan.cols, opaque=plan.cols.is_const and plan.cols.value > lanes)
        self.first, self.last = self.b.index(0), self.b.param(plan.cut)
        """What is swept: of the columns, or of the parts where the row is in parts."""

    @staticmethod
    def builder(machine: TaskMachine) -> KernelBuilder:
        """A new kernel of such rows."""
        return machine.builder()

    def write(self) -> Self:
        """The whole function up to `finish`; returns itself."""
        self.tasks([], lambda _: self.work())
        return self

    # ---------------------------------------------------------------- where the elements are

    rows_in_lanes: ClassVar[bool] = False
    """True if lanes hold rows, and not columns of one row."""
    line_mask: Mask | None = None
    """The rows that exist, if lanes hold rows and not all of them exist."""

    @property
    def line_lanes(self) -> int:
        """Lanes of a row value; 0: it is a scalar."""
        return self.lanes if self.rows_in_lanes else 0

    def factors(self, rows: Sequence[Expr]) -> list[Expr]:
        """The tile space over row factors."""
        return [*rows, self.plan.cols]

    @property
    def extent(self) -> Expr:
        """Number of tasks."""
        return Expr.product(self.plan.lines)

    def tasks(
        self, more: Sequence[IndexValue], work: Callable[[Sequence[IndexValue]], None]
    ) -> None:
        """The task loop over rows and `more` sizes, whose digits `work` is given at each place."""
        sizes = [*(self.b.param(f) for f in self.space.factors[: self.rank]), *more]

        def task(number: IndexValue, digits: list[IndexValue]) -> None:
            self.digits = [Ix(d) for d in digits[: self.rank]]
            self.space.flats = {(0, self.rank): number} if self.rank and not more else {}
            self.space.tiles = [*self.digits, self.space.zero()]
            work(digits[self.rank :])

        odometer(self.b, sizes, task)

    def line_index(self, shape: Sequence[Expr]) -> Index:
        """Where a value of `shape`, one element a row, is read at this row."""
        return self.space.root(shape, 0, self.rank) if shape else ()

    def line_place(self, piece: IndexValue | None = None, pieces: IndexValue | None = None) -> Ix:
        """The number of this row, or of its piece `piece` of `pieces`."""
        row = self.space.force(self.space.flat_lazy(0, self.rank)).base
        if piece is None or pieces is None:
            return Ix(row)
        return Ix(row * pieces + piece)

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
        return self.is_flat(self.space.joined(index), 0, self.rank)

    def is_element(self, index: Index) -> bool:
        """True if `index` is that of the current row and columns."""
        return self.is_flat(self.space.joined(index), 0, self.end)

    @staticmethod
    def is_flat(groups: Index, first: int, last: int) -> bool:
        """True if groups are the flat index over factors `first` to `last`."""
        if first == last:
            return all(s.is_one for g in groups for s in g.sizes)
        return len(groups) == 1 and groups[0].at.tile == (first, last)

    # ---------------------------------------------------------------- a row

    def work(self) -> None:
        """What is done for one row."""
        for place, sweep in enumerate(self.plan.sweeps):
            self.sweep(sweep, asks_ahead=place == 1)
        self.store_row_values()

    def store_row_values(self) -> None:
        """The results that have one element a row."""
        for k in self.plan.row_outputs:
            root = self.plan.roots[k]
            value = self.row_value(root)
            at = self.line_place()
            self.e.store(self.outputs[k], element_of(root), value, at, self.line_mask)

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

    def sweep(self, sweep: Sweep, asks_ahead: bool = False) -> None:
        """One pass over a row. General reductions come first: results may overwrite what they read.

        `asks_ahead`: ask for the next row of the inputs. The first sweep has read this row, and
        until it reads the next one memory would have nothing to do.
        """
        for op in sweep.general:
            reducer = Reducer(self.e, op)
            self.found(reducer, self.in_order(reducer))
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
                self.store_columns(sweep, full, mask)
                return new

            found = self.columns(start, body)
            for reducer, own in zip(reducers, _shares(reducers, found), strict=True):
                self.found(reducer, self.across_lanes(reducer, own, in_order=False))
        for item in sweep.stores:
            self._override(item)

    def ask_for_next_row(self) -> None:
        """Let the caches fetch the inputs' columns that come next."""
        b = self.b
        here = self.space.force(self.space.flat_lazy(0, self.end))
        following = here.base + self.cols
        space = (*self.space.factors[:-1], self.plan.cols)
        for index, argument in enumerate(self.plan.block.arguments):
            if Expr.product(self.e.shape(argument)) == Expr.product(space):
                memory = b.memref(self.arguments.slot(Input(index)), element_of(argument).storage)
                memory.prefetch(following)

    def at(self, ix: Ix, mask: Mask | None) -> None:
        """From now on, these are the current columns."""
        self.space.tiles = [*self.digits, ix]
        self.e.tail = mask

    def _full(self, value: ir.Value, mask: Mask | None) -> Register:
        """A full-size value at the current columns."""
        index = self.space.root(self.e.shape(value), 0, self.end)
        return self.e.value_at(value, index, mask)

    def _values(self, sweep: Sweep, mask: Mask | None) -> list[tuple[Register, Materialised | int]]:
        found: list[tuple[Register, Materialised | int]] = []
        for item in sweep.stores:
            if item.output is None or self.plan.roots[item.output] != item.value:
                found.append((self._full(item.value, mask), item))
        found += [(self._full(self.plan.roots[k], mask), k) for k in sweep.outputs]
        return found

    def store_columns(
        self, sweep: Sweep, full: Sequence[tuple[Register, Materialised | int]], mask: Mask | None
    ) -> None:
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

    def scratch_place(self) -> Ix:
        """Where the current columns are in a scratch row."""
        return self.space.tiles[-1]

    def scratch_row(self, item: Materialised) -> MemRef:
        """The scratch row that holds `item`."""
        offset = self.first_scratch
        for element in self.plan.slots[: item.slot]:
            offset = offset + self._row_bytes(element)
        return self.b.scratch(element_of(item.value).storage, self.b.param(offset))

    def _override(self, item: Materialised) -> None:
        """From now on, the value at the current row and column is loaded."""

        def load(index: Index, mask: Mask | None) -> Register | None:
            if not self.is_element(index):
                return None
            element = element_of(item.value)
            if item.output is None:
                memory, at = self.scratch_row(item), self.scratch_place()
            else:
                memory, at = self.result(item.output)
            register = self.e.load_from(memory, at, mask, readonly=False)
            if element.kind != "b":
                return register
            return register.differs(0)

        self.e.overrides[item.value] = load

    def columns(self, start: Sequence[Register], body: RowStep) -> list[Register]:
        """Run `body(columns, mask, accumulators)` over columns `first` to `last` of the row."""
        return self.span(self.first, self.last, start, body)

    def span(
        self, first: IndexValue, last: IndexValue, start: Sequence[Register], body: RowStep
    ) -> list[Register]:
        """Run `body(columns, mask, accumulators)` over columns `first` to `last` of a run."""
        b, space, size = self.b, self.space, self.plan.cols
        return vector_loop(b, space, first, last, size, self.lanes, body, start)

    # ---------------------------------------------------------------- reductions

    def in_order(self, reducer: Reducer) -> list[Register]:
        """Scalar accumulators over columns `first` to `last`, neighbours combined first."""
        return self.span_in_order(reducer, self.first, self.last)

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

    def found(self, reducer: Reducer, scalars: list[Register]) -> None:
        """What a sweep has found for a reduction."""
        self.publish(reducer, scalars)

    def across_lanes(
        self, reducer: Reducer, accs: Sequence[Register], in_order: bool
    ) -> list[Register]:
        """Scalar accumulators: the lanes as a balanced tree; those of a short row one by one."""
        b = self.b
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
