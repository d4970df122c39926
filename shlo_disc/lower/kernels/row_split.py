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
from typing import Self

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.row_layouts import ColumnWriter, PartsWriter
from shlo_disc.lower.kernels.row_writer import RowWriter
from shlo_disc.lower.plan import Launch, Workspace
from shlo_disc.lower.schedule.online_stages import Relative, Stage
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
    on one core. `writers`: what writes the kernels of pieces, and those that combine pieces.
    """

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[Stage],
        factors: Sequence[Expr],
        lanes: int,
        name: str,
        machine: TaskMachine,
        piece: int,
        time: Expr,
        writers: tuple[type[Pieces], type[Combine]],
    ) -> None:
        self.plan, self.stages, self.machine = plan, stages, machine
        self.lines = Expr.product(plan.lines)
        self.piece = piece
        self.pieces = ceil_div(plan.cut, self.piece)
        self.workspaces: list[Expr] = []
        self._places: dict[tuple[str, ir.Value], int] = {}
        self.launches: list[Launch] = []
        pieces, combine = writers
        for number in range(len(stages)):
            part = pieces(self, number, factors, lanes).write()
            self.launches.append(part.launch(f"{name}_pieces", time, self.pieces))
            if stages[number].reductions:
                whole = combine(self, number, factors, lanes).write()
                self.launches.append(whole.launch(f"{name}_combine", self.pieces * 2 + 20))

    def workspace(self, what: str, value: ir.Value, element: str) -> Workspace:
        """Where `what` of `value` is: "piece" or "reference", one a piece; "row", one a row."""
        key = (what, value)
        if key not in self._places:
            self._places[key] = len(self.workspaces)
            count = self.lines if what == "row" else self.lines * self.pieces
            self.workspaces.append(count * (8 if element.endswith("64") else 4))
        return Workspace(self._places[key])


class Stages(RowWriter):
    """What the kernels of a stage have in common: values in workspaces."""

    def __init__(self, split: SplitRows, number: int, factors: Sequence[Expr], lanes: int) -> None:
        super().__init__(split.plan, factors, lanes, self.builder(split.machine))
        self.split, self.stage = split, split.stages[number]
        self.earlier = split.stages[:number]
        self.last_to_reduce = not any(s.reductions for s in split.stages[number + 1 :])

    def find_earlier(self) -> None:
        """Values of the row that earlier stages have found."""
        row = self.line_place()
        for op in _reductions(self.earlier):
            reducer = Reducer(self.e, op)
            self.announce(reducer, self.get("row", reducer, row))

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
        register = self.e.load_from(memory, at, self.line_mask, readonly=True)
        if type_ != "i1":
            return register
        return register.differs(0)

    def put_one(self, what: str, value: ir.Value, register: Register, at: Ix) -> None:
        """Store `what` of `value` to its workspace (see :meth:`SplitRows.workspace`)."""
        type_ = register.element
        memory = self._memory(what, value, type_)
        stored = self.b.cast("arith.extui", register, "i8") if type_ == "i1" else register
        self.e.store_to(memory, stored, at, self.line_mask)

    def _memory(self, what: str, value: ir.Value, type_: str) -> MemRef:
        slot = self.arguments.slot(self.split.workspace(what, value, type_))
        return self.b.memref(slot, "i8" if type_ == "i1" else type_)

    def columns_of(self, first: IndexValue, type_: str) -> Register:
        """Number of elements, as a float, of the piece that begins at `first`."""
        b = self.b
        count = b.min(first + self.split.piece, b.param(self.plan.cut)) - first
        if self.plan.layout is Layout.PARTS:
            count = count * self.cols
        number = b.cast("arith.index_cast", count, "i32")
        return b.broadcast(b.cast("arith.sitofp", number, element_type(type_)), lanes_of(type_))


class Pieces(Stages):
    """A task is a piece of a row."""

    def write(self) -> Self:
        """See `RowWriter.write`."""
        b, size = self.b, self.split.piece
        pieces = b.param(self.split.pieces)

        def task(piece: IndexValue) -> None:
            self.here = self.line_place(piece, pieces)
            self.totals: dict[ir.Operation, Register] = {}
            self.first = piece * size
            self.last = b.min(self.first + size, b.param(self.plan.cut))
            self.find_earlier()
            self.sweep(self.stage.sweep)
            if self.stage.relative:
                for relative in self.stage.relative:
                    self._refer(relative)
                self.sweep(Sweep([relative.op for relative in self.stage.relative]))

        self.tasks([pieces], lambda digits: task(*digits))
        return self

    def found(self, reducer: Reducer, scalars: list[Register]) -> None:
        """See `RowWriter.found`."""
        self.put("piece", reducer, scalars, self.here)
        self.totals[reducer.op] = scalars[0]
        if self.stage.relative:
            self.publish(reducer, scalars)

    def _refer(self, relative: Relative) -> None:
        """From now on, the columns of this piece are seen from a value of its own."""
        if relative.reference in self.e.overrides:
            return
        b = self.b
        if relative.total is not None:
            total = self.totals[relative.total]
            count = self.columns_of(self.first, total.type)
            own = total / count
        else:
            own = self.row_value(relative.row)
            # Nothing but -inf in this piece must not make the others NaN.
            zero = own.constant(0.0)
            own = b.select((own - own).equals(zero), own, zero)
        self.put_one("reference", relative.reference, own, self.here)

        def found(index: Index, mask: Mask | None) -> Register | None:
            if not self.is_element(index):
                raise InternalError(f"a column is asked for out of its turn: {relative.op}")
            return b.broadcast(own, self.lanes)

        self.e.overrides[relative.reference] = found


class Combine(Stages):
    """A task is a row, whose pieces are combined."""

    def work(self) -> None:
        """See `RowWriter.work`."""
        row = self.line_place()
        self.find_earlier()
        for op in self.stage.reductions:
            reducer = Reducer(self.e, op)
            self._found(reducer, self._of_pieces(reducer), row)
        for relative in self.stage.relative:
            reducer = Reducer(self.e, relative.op)
            self._found(reducer, self._of_relative(reducer, relative), row)
        if self.last_to_reduce:
            self.store_row_values()

    def over_pieces(
        self, reducer: Reducer, term: Callable[[Ix, IndexValue], Sequence[Register]]
    ) -> list[Register]:
        """The accumulators of a row: `term(place in workspaces, number in the row)` of its pieces,
        merged in order.
        """
        b = self.b
        count = b.param(self.split.pieces)
        with b.loop(0, count, 1, reducer.neutral(self.line_lanes), hint="piece") as loop:
            here = term(self.line_place(loop.index, count), loop.index)
            loop.yield_(*reducer.merge(loop.args, here))
        return loop.results

    def _of_pieces(self, reducer: Reducer) -> list[Register]:
        return self.over_pieces(reducer, lambda at, _: self.get("piece", reducer, at))

    def _of_relative(self, reducer: Reducer, relative: Relative) -> list[Register]:
        (type_,) = reducer.types
        final = self.row_value(relative.row)

        def term(at: Ix, number: IndexValue) -> list[Register]:
            own = self.get_one("reference", relative.reference, type_, at)
            (part,) = self.get("piece", reducer, at)
            return [self._seen_from(final, relative, own, part, number)]

        return self.over_pieces(reducer, term)

    def _found(self, reducer: Reducer, accumulators: list[Register], row: Ix) -> None:
        accumulators = self.publish(reducer, accumulators)
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


class _PiecesInParts(Pieces, PartsWriter):
    """A task is some parts of a row."""


class _CombineInParts(Combine, PartsWriter):
    """A task is a row in parts."""


class _ColumnPieces(Pieces, ColumnWriter):
    """A task is a piece of columns that lie side by side."""


class _ColumnCombine(Combine, ColumnWriter):
    """A task is columns that lie side by side."""


WRITERS: dict[Layout, tuple[type[Pieces], type[Combine]]] = {
    Layout.WHOLE: (Pieces, Combine),
    Layout.PARTS: (_PiecesInParts, _CombineInParts),
    Layout.SIDE_BY_SIDE: (_ColumnPieces, _ColumnCombine),
}


def _reductions(stages: Sequence[Stage]) -> list[ir.Operation]:
    return [op for s in stages for op in (*s.reductions, *(r.op for r in s.relative))]
