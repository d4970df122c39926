"""Kinds `row` and `column`: rows by a group of threads each, columns by a thread each.

    whole rows, in parts   a warp takes a row of few elements, a block a longer one; thread i takes
                           vectors i, i + T, ... of T threads
    side by side           a thread takes as many columns as one access has elements
    few long rows          in pieces, by stages (`tasks/row_split.py`)

Order of a reduction: every thread reduces what it takes, first to last. Then its lanes are combined
as a balanced tree, the threads of a warp likewise, and the warps one after the other. Sizes alone
decide, so results do not depend on the grid. If the body is not one known commutative operation,
every thread takes a run of neighbours instead, and only associativity is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.groups import across_threads
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.variants import assuming_divisible
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step
from shlo_disc.lower.schedule.iteration_space import refine
from shlo_disc.lower.schedule.online_stages import stages_of
from shlo_disc.lower.schedule.row_reduction import Plan, plan_rows
from shlo_disc.lower.tasks.lanes import choose_lanes
from shlo_disc.lower.tasks.machine import TaskMachine
from shlo_disc.lower.tasks.names import fusion_name
from shlo_disc.lower.tasks.row_layouts import ColumnWriter, PartsWriter
from shlo_disc.lower.tasks.row_split import WRITERS, Combine, Pieces, SplitRows, Stages
from shlo_disc.lower.tasks.row_writer import RowWriter, write_rows
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.reduction import Reducer, takes_any_order
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.mlir import ir
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.match_rows import Layout, RowRecord
from shlo_disc.passes.records import Planned

__all__ = ["emit"]

SHORT_ROW = 1024
"""Elements of a row below which a warp takes it: a block would leave most threads without work."""

PIECES = {Layout.WHOLE: 8192, Layout.PARTS: 4, Layout.SIDE_BY_SIDE: 64}
"""What a piece of a long row has, along `Plan.cut`. It fixes the order of a sum."""

FEW_TASKS = 264
"""Rows by a block each, fewer than this many leave multiprocessors without work: two for each of
the 132 of an H100."""

FEW_COLUMNS = 32 << 10
"""Columns, fewer than this many: a thread for each leaves most of the threads without work."""


class _Together(RowWriter):
    """Writes rows of which a group of threads computes each."""

    b: GroupBuilder

    # ---------------------------------------------------------------- columns

    def span(
        self,
        first: IndexValue,
        last: IndexValue,
        start: Sequence[Register],
        body: Callable[[Ix, Mask | None, list[Register]], list[Register]],
    ) -> list[Register]:
        """See `RowWriter.span`: the thread's vectors of the run."""
        b, lanes = self.b, self.lanes
        count = last - first
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
        is_mine = (whole < last) & turn.equals(b.member)
        with b.if_(is_mine) as branch:
            mask = b.mask(last - whole, lanes)
            branch.yield_(*body(Ix(whole, 1, multiple=lanes), mask, list(loop.results)))
            with branch.otherwise():
                branch.yield_(*loop.results)
        return branch.results

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

    def store_row_values(self) -> None:
        """See `RowWriter.store_row_values`: one thread stores them."""
        if self.plan.row_outputs:
            with self.b.if_(self.b.member.equals(0)):
                super().store_row_values()


class _OfBlock(_Together):
    """A block takes a row."""

    @staticmethod
    def builder(machine: TaskMachine) -> KernelBuilder:
        """A new kernel of such rows."""
        assert isinstance(machine, Machine)
        return GroupBuilder(machine, THREADS)


class _OfWarp(_Together):
    """A warp takes a row."""

    @staticmethod
    def builder(machine: TaskMachine) -> KernelBuilder:
        """A new kernel of such rows."""
        assert isinstance(machine, Machine)
        return GroupBuilder(machine, machine.warp)


class _WholeOfBlock(_OfBlock):
    """Whole rows."""


class _PartsOfBlock(_OfBlock, PartsWriter):
    """Rows in parts."""


class _PartsOfWarp(_OfWarp, PartsWriter):
    """Rows in parts."""


class _StagesOfBlock(Stages):
    """What kernels of stages have in common: one thread stores what all have found."""

    b: GroupBuilder

    def put_one(self, what: str, value: ir.Value, register: Register, at: Ix) -> None:
        """See `Stages.put_one`."""
        with self.b.if_(self.b.member.equals(0)):
            super().put_one(what, value, register, at)

    def store_row_values(self) -> None:
        """See `RowWriter.store_row_values`: one thread stores them."""
        if self.plan.row_outputs:
            with self.b.if_(self.b.member.equals(0)):
                super().store_row_values()


class _PiecesOfBlock(_StagesOfBlock, _OfBlock, Pieces):
    """A block takes a piece of a row."""


class _PiecesInParts(_StagesOfBlock, _OfBlock, Pieces, PartsWriter):
    """A block takes some parts of a row."""


class _Combine(_StagesOfBlock, Combine):
    """A block combines the pieces of a row, or of as many columns as one access has."""

    threads: ClassVar[int] = THREADS

    @classmethod
    def builder(cls, machine: TaskMachine) -> KernelBuilder:
        """A new kernel of such rows."""
        assert isinstance(machine, Machine)
        return GroupBuilder(machine, cls.threads, cls.threads)

    def over_pieces(
        self, reducer: Reducer, term: Callable[[Ix, IndexValue], Sequence[Register]]
    ) -> list[Register]:
        """See `Combine.over_pieces`: thread i takes pieces i, i + T, ..., or the i-th run."""
        b, in_order = self.b, not takes_any_order(reducer.op)
        count = b.param(self.split.pieces)
        first, last, step = b.member, count, b.group
        if in_order:
            run = (count + (b.group - 1)) // b.group
            first, step = b.member * run, 1
            last = b.min(first + run, count)
        with b.loop(first, last, step, reducer.neutral(self.line_lanes), hint="piece") as loop:
            here = term(self.line_place(loop.index, count), loop.index)
            loop.yield_(*reducer.merge(loop.args, here))
        return across_threads(b, reducer, loop.results, in_order=in_order)


class _CombineInParts(_Combine, PartsWriter):
    """Rows in parts."""


class _CombineColumns(_Combine, ColumnWriter):
    """Columns. There may be thousands of blocks: fewer threads leave room for all of them."""

    threads: ClassVar[int] = 128


_ROWS: dict[Layout, tuple[type[RowWriter], type[RowWriter]]] = {
    Layout.WHOLE: (_OfWarp, _WholeOfBlock),
    Layout.PARTS: (_PartsOfWarp, _PartsOfBlock),
    Layout.SIDE_BY_SIDE: (ColumnWriter, ColumnWriter),
}
"""Writers of short and of long rows."""

_SPLIT: dict[Layout, tuple[type[Pieces], type[Combine]]] = {
    Layout.WHOLE: (_PiecesOfBlock, _Combine),
    Layout.PARTS: (_PiecesInParts, _CombineInParts),
    Layout.SIDE_BY_SIDE: (WRITERS[Layout.SIDE_BY_SIDE][0], _CombineColumns),
}


def emit(fusion: Planned[RowRecord], machine: Machine) -> KernelPlan:
    """The plan of a `row` or `column` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    shapes = fusion.shapes
    general = _Emitter(fusion, machine, shapes, is_aligned=False)
    along, lanes = general.along, general.most_lanes
    if lanes == 1:
        return KernelPlan(general.steps(), tuple(general.workspaces))
    aligned = _Emitter(fusion, machine, assuming_divisible(shapes, along, lanes), is_aligned=True)
    if shapes.constraints.divisible(along, lanes):
        return KernelPlan(aligned.steps(), tuple(aligned.workspaces))
    if along.is_const:
        return KernelPlan(general.steps(), tuple(general.workspaces))
    condition = Condition(along % lanes, "==", Expr.const(0))
    step = If(condition, aligned.steps(), general.steps())
    # Both variants keep the same values between their launches, one after the other.
    kept = general.workspaces
    if len(aligned.workspaces) > len(kept):
        kept = aligned.workspaces
    return KernelPlan((step,), tuple(kept))


class _Emitter:
    """The launches of one fusion.

    `is_aligned`: neighbours that a thread takes are whole accesses, all of them.
    """

    _cost: ClassVar[Expr] = Expr.const(1)

    def __init__(
        self,
        fusion: Planned[RowRecord],
        machine: Machine,
        shapes: ShapeAnalysis,
        *,
        is_aligned: bool,
    ) -> None:
        self.block, self.shapes, self.machine = fusion.block, shapes, machine
        # Every sweep computes what it needs: memory for what it might keep is not the thread's.
        self.plan = plan_rows(fusion.record, self.block, self.shapes, None)
        self.name = fusion_name(fusion.op, kind_of(fusion.op).name)
        self.workspaces: list[Expr] = []
        lanes = self.most_lanes = max(1, choose_lanes(self.block, machine))
        self.lanes = 0 if lanes == 1 else lanes
        if self.plan.layout is Layout.SIDE_BY_SIDE:
            self.lanes = lanes if is_aligned else 1

    @property
    def along(self) -> Expr:
        """The size of the dimension along which a thread takes neighbours."""
        plan = self.plan
        return plan.apart if plan.layout is Layout.SIDE_BY_SIDE else plan.cols

    def steps(self) -> tuple[Step, ...]:
        """All variants, chosen by sizes."""
        plan = self.plan
        of_warp, of_block = _ROWS[plan.layout]
        bounds = self.shapes.constraints.bounds
        least, most = bounds(plan.length)
        if plan.layout is Layout.SIDE_BY_SIDE:
            writer = self._writer(plan, of_block)
            return self._split(writer.plan, writer)
        short: tuple[Step, ...] = ()
        if least is None or least < SHORT_ROW:
            short = (self._launch(self._writer(plan, of_warp)),)
        if most is not None and most < SHORT_ROW:
            return short
        writer = self._writer(plan, of_block)
        long = self._split(writer.plan, writer)
        if not short:
            return long
        return (If(Condition(plan.length, "<", Expr.const(SHORT_ROW)), short, long),)

    def _launch(self, writer: RowWriter) -> Step:
        return writer.launch(self.name, self._cost)

    def _split(self, plan: Plan, writer: RowWriter) -> tuple[Step, ...]:
        """Rows as `writer` has them, or in pieces where there are few of them, and long ones."""
        whole = (self._launch(writer),)
        piece = PIECES[plan.layout]
        is_columns = plan.layout is Layout.SIDE_BY_SIDE
        most_tasks = FEW_COLUMNS if is_columns else FEW_TASKS
        long = Condition(plan.cut, ">=", Expr.const(2 * piece))
        few = Condition(writer.extent, "<", Expr.const(most_tasks))
        bounds = self.shapes.constraints.bounds
        longest, fewest = bounds(plan.cut)[1], bounds(writer.extent)[0]
        if (longest is not None and longest < 2 * piece) or (
            fewest is not None and fewest >= most_tasks
        ):
            return whole
        factors = writer.space.factors[: writer.rank]
        pieces = SplitRows(
            plan, stages_of(plan), factors, self.lanes, self.name, self.machine, piece, self._cost,
            _SPLIT[plan.layout],
        )  # fmt: skip
        self.workspaces = pieces.workspaces
        return (If(All((long, few)), tuple(pieces.launches), whole),)

    def _writer(self, plan: Plan, kind: type[RowWriter]) -> RowWriter:
        """Rows that are not cut; in parts where something is read along some trailing columns."""

        def write(factors: Sequence[Expr]) -> RowWriter:
            return kind(plan, factors, self.lanes, kind.builder(self.machine)).write()

        writer = write_rows(plan, self.shapes, write)
        if plan.layout is Layout.WHOLE:
            space = writer.space
            factors = refine(space.factors, space.wanted, self.shapes.constraints.equal)
            cols = factors[-1]
            if cols != plan.cols and (not cols.is_const or cols.value >= self.lanes):
                writer.b.forget()
                cut = replace(plan, layout=Layout.PARTS, parts=factors[-2], cols=cols)
                is_warp = issubclass(kind, _OfWarp)
                return self._writer(cut, _ROWS[Layout.PARTS][0 if is_warp else 1])
        return writer
