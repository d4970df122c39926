"""Few long rows: kernels over pieces of them, and kernels that combine what the pieces have found.
The same for rows in parts, and for columns of a tall matrix.

    stage 1   a task is a piece of a row: its reductions, into workspaces
              a task is a row: the pieces in order; values of the row, into workspaces
    stage 2   the same with the values of stage 1, and so on; results where they can be had

A piece fits L2, so what a stage reads twice it reads from memory once, and nothing full-size is
kept between stages. `schedule/online_stages.py` says what is done in which stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.kernels.row_writer import RowWriter
from shlo_disc.lower.plan import Launch, Workspace
from shlo_disc.lower.schedule.online_stages import Relative, Stage, stages_of
from shlo_disc.lower.schedule.row_reduction import Plan, Sweep
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.math import emit_math
from shlo_disc.lower.values.reduction import Reducer
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, element_type, lanes_of
from shlo_disc.passes.match_rows import Layout

SPLIT_COLUMNS = 16384
"""Columns of a piece of a row: 64 KiB of f32, a few microseconds. It fixes the order of the sum, so
another value gives other roundings."""

SPLIT_ROWS = 512
"""Rows of a piece of columns that lie side by side: of 64 columns of f32, 128 KiB."""

SPLIT_PARTS = 4
"""Parts of a piece of a row in parts."""


class SplitRows:
    """The launches that compute a plan in stages, and their workspaces.

    `piece`: columns, rows or parts of a piece, by the plan's layout. `time`: nanoseconds of a piece
    on one core. `of_pieces`, `of_rows`: new kernels over pieces, and over rows to combine them.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        piece: int,
        time: Expr,
        of_pieces: Callable[[], RowWriter],
        of_rows: Callable[[], RowWriter],
    ) -> None:
        self.stages = stages_of(plan)
        self.lines, self.piece = Expr.product(plan.lines), piece
        self.pieces = ceil_div(plan.cut, piece)
        self.workspaces: list[Expr] = []
        self._places: dict[tuple[str, ir.Value], int] = {}
        self.launches: list[Launch] = []
        for number, stage in enumerate(self.stages):
            part = _Pieces(self, number, of_pieces()).write()
            self.launches.append(part.launch(f"{name}_pieces", time, self.pieces))
            if stage.reductions:
                whole = _Combine(self, number, of_rows()).write()
                self.launches.append(whole.launch(f"{name}_combine", self.pieces * 2 + 20))

    def workspace(self, what: str, value: ir.Value, element: str) -> Workspace:
        """Where `what` of `value` is: "piece" or "reference", one a piece; "row", one a row."""
        key = (what, value)
        if key not in self._places:
            self._places[key] = len(self.workspaces)
            count = self.lines if what == "row" else self.lines * self.pieces
            self.workspaces.append(count * (8 if element.endswith("64") else 4))
        return Workspace(self._places[key])


class _Stage:
    """What the kernels of a stage have in common: values in workspaces. `w` writes the kernel."""

    def __init__(self, split: SplitRows, number: int, w: RowWriter) -> None:
        self.split, self.w, self.b, self.plan = split, w, w.b, w.plan
        self.stage, self.earlier = split.stages[number], split.stages[:number]
        self.last_to_reduce = not any(s.reductions for s in split.stages[number + 1 :])

    def find_earlier(self) -> None:
        """Values of the row that earlier stages have found."""
        row = self.w.line_place()
        for op in _reductions(self.earlier):
            reducer = Reducer(self.w.e, op)
            self.w.announce(reducer, self.get("row", reducer, row))

    def get(self, what: str, reducer: Reducer, at: Ix) -> list[Register]:
        """Accumulators of a reduction from workspaces."""
        pairs = zip(reducer.op.results, reducer.types, strict=True)
        return [self.get_one(what, value, type_, at) for value, type_ in pairs]

    def put(self, what: str, reducer: Reducer, accumulators: Sequence[Register], at: Ix) -> None:
        """Accumulators of a reduction to workspaces."""
        for value, register in zip(reducer.op.results, accumulators, strict=True):
            self.put_one(what, value, register, at)

    def get_one(self, what: str, value: ir.Value, type_: str, at: Ix) -> Register:
        """A register of `type_` that :meth:`put_one` has stored."""
        memory = self._memory(what, value, type_)
        register = self.w.e.load_from(memory, at, self.w.line_mask, readonly=True)
        if type_ != "i1":
            return register
        return register.differs(0)

    def put_one(self, what: str, value: ir.Value, register: Register, at: Ix) -> None:
        """Store `what` of `value` to its workspace (see :meth:`SplitRows.workspace`)."""
        with self.w.once():
            type_ = register.element
            memory = self._memory(what, value, type_)
            stored = self.b.cast("arith.extui", register, "i8") if type_ == "i1" else register
            self.w.e.store_to(memory, stored, at, self.w.line_mask)

    def _memory(self, what: str, value: ir.Value, type_: str) -> MemRef:
        slot = self.w.arguments.slot(self.split.workspace(what, value, type_))
        return self.b.memref(slot, "i8" if type_ == "i1" else type_)

    def columns_of(self, first: IndexValue, type_: str) -> Register:
        """Number of elements, as a float, of the piece that begins at `first`."""
        b = self.b
        count = b.min(first + self.split.piece, b.param(self.plan.cut)) - first
        if self.plan.layout is Layout.PARTS:
            count = count * self.w.cols
        number = b.cast("arith.index_cast", count, "i32")
        return b.broadcast(b.cast("arith.sitofp", number, element_type(type_)), lanes_of(type_))


class _Pieces(_Stage):
    """A task is a piece of a row."""

    def write(self) -> RowWriter:
        """The writer, when it has written the function up to `finish`."""
        b, w, size = self.b, self.w, self.split.piece
        pieces = b.param(self.split.pieces)

        def task(piece: IndexValue) -> None:
            self.here = w.line_place(piece, pieces)
            self.totals: dict[ir.Operation, Register] = {}
            w.first = piece * size
            w.last = b.min(w.first + size, b.param(self.plan.cut))
            self.find_earlier()
            w.sweep(self.stage.sweep, found=self._found)
            if self.stage.relative:
                for relative in self.stage.relative:
                    self._refer(relative)
                w.sweep(Sweep([x.op for x in self.stage.relative]), found=self._found)

        w.tasks([pieces], lambda digits: task(*digits))
        return w

    def _found(self, reducer: Reducer, scalars: list[Register]) -> None:
        self.put("piece", reducer, scalars, self.here)
        self.totals[reducer.op] = scalars[0]
        if self.stage.relative:
            self.w.publish(reducer, scalars)

    def _refer(self, relative: Relative) -> None:
        """From now on, the columns of this piece are seen from a value of its own."""
        b, w = self.b, self.w
        if relative.reference in w.e.overrides:
            return
        if relative.total is not None:
            total = self.totals[relative.total]
            count = self.columns_of(w.first, total.type)
            own = total / count
        else:
            own = w.row_value(relative.row)
            # Nothing but -inf in this piece must not make the others NaN.
            zero = own.constant(0.0)
            own = b.select((own - own).equals(zero), own, zero)
        self.put_one("reference", relative.reference, own, self.here)

        def found(index: Index, mask: Mask | None) -> Register | None:
            if not w.is_element(index):
                raise InternalError(f"a column is asked for out of its turn: {relative.op}")
            return b.broadcast(own, w.lanes)

        w.e.overrides[relative.reference] = found


class _Combine(_Stage):
    """A task is a row, whose pieces are combined."""

    def write(self) -> RowWriter:
        """The writer, when it has written the function up to `finish`."""
        self.w.tasks([], lambda _: self._row())
        return self.w

    def _row(self) -> None:
        row = self.w.line_place()
        self.find_earlier()
        for op in self.stage.reductions:
            reducer = Reducer(self.w.e, op)
            self._found(reducer, self._of_pieces(reducer), row)
        for relative in self.stage.relative:
            reducer = Reducer(self.w.e, relative.op)
            self._found(reducer, self._of_relative(reducer, relative), row)
        if self.last_to_reduce:
            self.w.store_row_values()

    def _of_pieces(self, reducer: Reducer) -> list[Register]:
        return self._merged(reducer, lambda at, _: self.get("piece", reducer, at))

    def _merged(
        self, reducer: Reducer, term: Callable[[Ix, IndexValue], Sequence[Register]]
    ) -> list[Register]:
        """The accumulators of a row: `term(place in workspaces, number in the row)` of its pieces,
        merged in order.
        """
        count = self.b.param(self.split.pieces)
        return self.w.merged(
            reducer, count, lambda piece: term(self.w.line_place(piece, count), piece)
        )

    def _of_relative(self, reducer: Reducer, relative: Relative) -> list[Register]:
        (type_,) = reducer.types
        final = self.w.row_value(relative.row)

        def term(at: Ix, number: IndexValue) -> list[Register]:
            own = self.get_one("reference", relative.reference, type_, at)
            (part,) = self.get("piece", reducer, at)
            return [self._seen_from(final, relative, own, part, number)]

        return self._merged(reducer, term)

    def _found(self, reducer: Reducer, accumulators: list[Register], row: Ix) -> None:
        accumulators = self.w.publish(reducer, accumulators)
        if self.stage is not self.split.stages[-1]:
            self.put("row", reducer, accumulators, row)

    def _seen_from(
        self, final: Register, relative: Relative, own: Register, part: Register, number: IndexValue
    ) -> Register:
        """The sum `part` of a piece, taken relative to `own`, relative to `final`."""
        b, type_ = self.b, part.type
        away = own - final
        if relative.total is not None:
            # Both infinite after an overflow: then the sum is relative to `final` already.
            same = own.equals(final)
            away = b.select(same, b.constant(0.0, type_), away)
            count = self.columns_of(number * self.split.piece, type_)
            shift = count * (away * away)
            return part + shift
        scaled = part * emit_math("exp", [away])
        # The factor of a piece of nothing but -inf may be infinite.
        zero = b.constant(0.0, type_)
        finite = (final - final).equals(zero)
        nothing = finite & part.equals(zero)
        return b.select(nothing, zero, scaled)


def _reductions(stages: Sequence[Stage]) -> list[ir.Operation]:
    return [op for s in stages for op in (*s.reductions, *(r.op for r in s.relative))]
