"""Kinds `row` and `column`: element-wise work around reductions (softmax, layer-norm, batch-norm).

`row`: of trailing dimensions. Some in front of kept ones may be reduced, too: the rows are then in
parts (batch-norm of channels before pixels). `column`: of neighbours with kept dimensions behind
them (batch-norm of pixels before channels, softmax along the first axis).

A task is one row, or as many columns as there are lanes. A row is swept once per level of chained
reductions, and once more for results that need the last of them. Thus `x -> max -> exp(x - max) ->
sum -> quotient` is three sweeps. Row values live in registers. A full-size value used by a later
sweep is materialised if computing it again costs more than storing and loading it. Its place is a
result's own row or scratch memory.

Order of a reduction: lane i of W accumulators takes columns i, i + W, .... The lanes are then
combined as a balanced tree, those of at most `SHORT` columns one by one, and the init value comes
last. W depends on the fusion and the machine's vector width only: results do not depend on the
number of threads. If the body is not one known commutative operation (arg-max), lane i takes the
i-th run of neighbouring columns, and only associativity is used. Side by side, columns are reduced
in order, first to last; those of a large matrix that are only reduced, see `row_blocks.py`.

Short rows are in lanes, as columns are: see `short_rows.py`.

Long rows are cut into pieces where there are few of them, and where what is swept again would not
fit a cache: see `row_split.py`. The choice depends on sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.seen import SHORT
from shlo_disc.ir.mlir import is_in_loop
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.model import TALL_COLUMNS
from shlo_disc.lower.cpu.row_blocks import RowBlocks, reads_rows
from shlo_disc.lower.cpu.row_lanes import choose_row_lanes
from shlo_disc.lower.cpu.short_rows import (
    RowsInLanes,
    ShortRows,
    are_short,
    short_at,
    short_row_lanes,
)
from shlo_disc.lower.kernels.lanes import choose_lanes
from shlo_disc.lower.kernels.names import fusion_name
from shlo_disc.lower.kernels.row_split import SPLIT_COLUMNS, SPLIT_PARTS, SPLIT_ROWS, SplitRows
from shlo_disc.lower.kernels.row_writer import RowWriter, write_rows
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step
from shlo_disc.lower.schedule.iteration_space import refine
from shlo_disc.lower.schedule.row_reduction import Plan, Storage, plan_rows
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.match_rows import Layout, RowRecord
from shlo_disc.passes.records import Planned

_PANEL_BYTES = 256
"""Bytes of a matrix row that a task of columns reads. Runs as short as a vector leave half of the
bandwidth. Batch-norm of 8192 x 256 takes 1.6, 1.0, 0.8, 0.7 ms in runs of 32, 64, 128, 256
bytes."""

_MOST_COLUMNS = 64
"""Columns of a task: with more, of small integers, code and the time to compile it grow for
nothing."""

_FEW_LOADS = 16
"""Columns at most of few rows whose elements are loaded one by one. Three rows of 12 and a sine
take 0.6 of the time in lanes. Rows that lie in memory as they are read take longer there."""

_FEW_VECTORS = 8
"""Vectors that rows of an arg-max fill at most to be in lanes: these take half the time or less."""

_PIECE = {
    Layout.WHOLE: SPLIT_COLUMNS,
    Layout.PARTS: SPLIT_PARTS,
    Layout.SIDE_BY_SIDE: SPLIT_ROWS,
}
"""What a piece of a long row has, along `Plan.cut`."""


@dataclass(frozen=True)
class _Split:
    """When rows are cut into pieces."""

    long: tuple[Condition, ...]
    """Only rows as long as this, ..."""
    few: int | None
    """... where there are fewer tasks than this; None: however many there are."""


def emit(fusion: Planned[RowRecord], machine: Machine) -> KernelPlan:
    """The plan of a `row` or `column` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    emitter = _Emitter(fusion, machine)
    plan, one = emitter.plan, choose_lanes(fusion.block, machine)
    if are_short(plan, one):
        return KernelPlan(emitter.short_rows(short_row_lanes(plan, one, machine)))
    wide, narrow = emitter.lanes()
    if emitter.has_few_rows(one, wide):
        return KernelPlan(emitter.short_rows(one))
    if narrow == wide:
        steps = emitter.steps(wide)
    else:
        along = plan.apart if plan.layout is Layout.SIDE_BY_SIDE else plan.cols
        few = Condition(along, "<", Expr.const(wide))
        fewer = emitter.steps(narrow, are_short=plan.layout is Layout.WHOLE)
        steps = (If(few, fewer, emitter.steps(wide)),)
    if emitter.combines_slowly(one):
        short = Condition(plan.cols, "<=", Expr.const(_FEW_VECTORS * one))
        many = Condition(Expr.product(plan.rows), ">=", Expr.const(one))
        steps = (If(All((short, many)), emitter.rows_in_lanes(one), steps),)
    at = short_at(plan, fusion.op)
    return KernelPlan(steps, tuple(emitter.workspaces), better_at=at, short=tuple(emitter.runs))


class _Emitter:
    """The launches of one fusion."""

    def __init__(self, fusion: Planned[RowRecord], machine: Machine) -> None:
        self.block, self.shapes, self.machine = fusion.block, fusion.shapes, machine
        self.record = fusion.record
        self.plan = plan_rows(self.record, self.block, self.shapes, Storage(cost.op_cycles))
        self.op, self.name = fusion.op, fusion_name(fusion.op, kind_of(fusion.op).name)
        self.workspaces: list[Expr] = []
        along = {Layout.WHOLE: self.plan.cols, Layout.SIDE_BY_SIDE: self.plan.apart}
        self.runs = {along[self.plan.layout]} if self.plan.layout in along else set[Expr]()
        """How long the runs are that vectors are along."""

    def lanes(self) -> tuple[int, int]:
        """Lanes of a kernel, and lanes where these would not be filled. Lanes that are off cost as
        much as the others, or more.
        """
        plan, one = self.plan, choose_lanes(self.block, self.machine)
        if plan.layout is not Layout.SIDE_BY_SIDE:
            wide = choose_row_lanes(plan, self.machine)
            has_parts = plan.layout is Layout.PARTS
            may_be_few = not plan.cols.is_const and (has_parts or is_in_loop(self.op))
            return wide, min(one, wide) if may_be_few else wide
        wide = one * min(8, max(1, _PANEL_BYTES // self.machine.vector_bytes))
        wide = max(one, min(wide, _MOST_COLUMNS))
        if not plan.apart.is_const:
            return wide, one
        columns = plan.apart.value
        while wide > one and ceil_div(columns, wide) * wide > 1.3 * columns:
            wide //= 2
        return wide, wide

    def has_few_rows(self, lanes: int, wide: int) -> bool:
        """True if rows too few to fill a vector of `lanes` are better off in lanes all the same.

        What is computed of them, such as a sine, is computed once then. `wide`: lanes along a row.
        """
        plan, rows = self.plan, Expr.product(self.plan.rows)
        if plan.layout is not Layout.WHOLE or not rows.is_const or not plan.cols.is_const:
            return False
        if not 1 < rows.value < lanes or any(s.outputs or s.stores for s in plan.sweeps):
            return False
        if plan.cols.value <= SHORT and 2 * rows.value >= lanes:
            return True
        return plan.cols.value <= _FEW_LOADS and self._looks_up(wide)

    def _looks_up(self, lanes: int) -> bool:
        """True if lanes along a row are elements that are loaded one by one."""
        writer = self._whole(self.plan, lanes)
        writer.b.forget()
        return any(not read.is_close for read in writer.e.reads)

    def combines_slowly(self, lanes: int) -> bool:
        """True if rows of any length have a reduction whose lanes take long to combine.

        Those of an arg-max are pairs: 20 000 rows of 10 took 471 us along rows, 94 us in lanes.
        Whole rows that are stored are not in lanes, where each element has a store of its own.
        """
        plan = self.plan
        if any(sweep.outputs or sweep.stores for sweep in plan.sweeps):
            return False
        if not lanes or plan.layout is not Layout.WHOLE or plan.cols.is_const:
            return False
        high = self.shapes.constraints.bounds(Expr.product(plan.rows))[1]
        if not plan.rows or (high is not None and high < lanes):
            return False
        return any(s.general or any(len(op.results) > 1 for op in s.simple) for s in plan.sweeps)

    def rows_in_lanes(self, lanes: int) -> tuple[Step, ...]:
        """The kernel of rows of any length that are in lanes."""
        plan = self.plan

        def write(factors: Sequence[Expr]) -> RowsInLanes:
            return RowsInLanes(plan, factors, lanes, self.machine.builder()).write()

        writer = write_rows(plan, self.shapes, write)
        time = cost.of_rows(self.block, plan.cols * lanes, self.machine)
        return (writer.launch(self.name, time),)

    def short_rows(self, lanes: int) -> tuple[Step, ...]:
        """The kernel of rows that are shorter than a vector."""
        plan = self.plan

        def write(factors: Sequence[Expr]) -> ShortRows:
            return ShortRows(plan, factors, lanes, self.machine.builder()).write()

        writer = write_rows(plan, self.shapes, write)
        time = cost.of_short_rows(self.block, self.shapes, plan.cols.value, lanes, self.machine)
        return (writer.launch(self.name, time),)

    def steps(self, lanes: int, *, are_short: bool = False) -> tuple[Step, ...]:
        """All of it with vectors of `lanes`; `are_short`: no row is long."""
        plan, shapes, writer = self.plan, self.shapes, self._whole(self.plan, lanes)
        time = cost.of_rows(self.block, plan.elements(plan.cut, lanes), self.machine)
        whole = writer.launch(self.name, time)
        split, bounds = _split(plan), shapes.constraints.bounds
        highest = [(bounds(c.lhs)[1], c.rhs.value) for c in split.long]
        never_long = are_short or any(h is not None and h < least for h, least in highest)
        tasks = bounds(whole.extent)[0]
        if never_long or (split.few is not None and tasks is not None and tasks >= split.few):
            return (whole,)
        again = plan_rows(self.record, self.block, shapes, None)
        factors = writer.space.factors[: writer.rank]
        piece = _PIECE[again.layout]
        time = cost.of_rows(self.block, again.elements(piece, lanes), self.machine)

        def again_of() -> RowWriter:
            return RowWriter(again, factors, lanes, self.machine.builder())

        pieces = SplitRows(again, self.name, piece, time, again_of, again_of)
        self.workspaces = pieces.workspaces
        long = split.long[0] if len(split.long) == 1 else All(split.long)
        step = If(long, tuple(pieces.launches), (whole,))
        if split.few is not None:
            step = If(Condition(whole.extent, "<", Expr.const(split.few)), (step,), (whole,))
        return (step,)

    def _whole(self, plan: Plan, lanes: int) -> RowWriter:
        """Rows that are not cut; in parts where something is read along some trailing columns."""
        is_wide = lanes > choose_lanes(self.block, self.machine)
        kind = RowBlocks if is_wide and reads_rows(plan, lanes) else RowWriter

        def write(factors: Sequence[Expr]) -> RowWriter:
            return kind(plan, factors, lanes, self.machine.builder()).write()

        writer = write_rows(plan, self.shapes, write)
        self.runs.update(_runs_of(writer))
        if plan.layout is Layout.WHOLE:
            space = writer.space
            factors = refine(space.factors, space.wanted, self.shapes.constraints.equal)
            cols = factors[-1]
            if cols != plan.cols and (not cols.is_const or cols.value >= lanes):
                writer.b.forget()
                self.runs.add(cols)
                cut = replace(plan, layout=Layout.PARTS, parts=factors[-2], cols=cols)
                return self._whole(cut, lanes)
        return writer


def _runs_of(writer: RowWriter) -> Iterator[Expr]:
    """How long the runs are of operands whose elements are loaded one by one."""
    for read in writer.e.reads:
        sizes = writer.e.shape(read.value)
        yield from (Expr.product(sizes[k:]) for k in range(1, len(sizes)) if not read.is_close)


def _split(plan: Plan) -> _Split:
    """What is too much for one task: the rows would be scratch memory beyond the caches, or read
    several times from memory, or there are not enough of them for all cores.
    """
    several = sum(bool(s.simple or s.general or s.outputs) for s in plan.sweeps) > 1

    def at_least(size: Expr, least: int) -> Condition:
        return Condition(size, ">=", Expr.const(least))

    if plan.layout is Layout.SIDE_BY_SIDE:
        if several:
            return _Split((at_least(plan.cols, 4 * SPLIT_ROWS),), None)
        return _Split((at_least(plan.cols, TALL_COLUMNS),), 8)
    long = at_least(plan.length, 4 * SPLIT_COLUMNS)
    if plan.layout is Layout.PARTS:
        parts = at_least(plan.parts, 4 * SPLIT_PARTS)
        return _Split((long, parts), None if several else 64)
    return _Split((long,), None if plan.slots else 64)
