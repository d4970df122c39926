"""Kinds `row` and `column`: rows by a group of threads each, columns by a thread each.

    very short rows        a part of a warp takes a row
    short rows             a warp takes a row
    other rows             a block takes a row, whole or in parts
    side by side           a thread takes as many columns as one access has elements
    few long rows          in pieces, by stages (`kernels/row_split.py`)

Of T threads that take a row, thread i has its accesses i, i + T, i + 2T and so on. An access is a
vector where rows begin at whole vectors, else an element.

A row is read from memory once: the first sweep keeps in shared memory what later ones need. Rows
that have no room there are in pieces, too.

Order of a reduction: every thread reduces what it takes, first to last. Then its lanes are combined
as a balanced tree, the threads of a warp likewise, and the warps one after the other. Sizes alone
decide, so results do not depend on the grid. If the body is not one known commutative operation,
every thread takes a run of neighbours instead, and only associativity is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.ops import row_of
from shlo_disc.lower.gpu.access import access_lanes
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.row_writers import ThreadRows, Together
from shlo_disc.lower.gpu.variants import assuming_divisible
from shlo_disc.lower.kernels.names import fusion_name
from shlo_disc.lower.kernels.row_split import SplitRows
from shlo_disc.lower.kernels.row_writer import RowWriter, write_rows
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step
from shlo_disc.lower.schedule.iteration_space import refine
from shlo_disc.lower.schedule.online_stages import stages_of
from shlo_disc.lower.schedule.row_reduction import Plan, Storage, plan_rows
from shlo_disc.lower.values.elements import element_of
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.match_rows import Layout, RowRecord
from shlo_disc.passes.records import Planned

SHORT_ROW = 1024
"""Elements of a row below which a warp takes it: a block would leave most threads without work."""

PIECES = {Layout.WHOLE: 8192, Layout.PARTS: 4, Layout.SIDE_BY_SIDE: 64}
"""What a piece of a long row has, along `Plan.cut`. It fixes the order of a sum."""

_TWICE_BYTES = 256
"""Bytes that a thread takes of columns which it reads twice, at most: those of all threads of a
multiprocessor stay in its cache. On an H200 a batch norm of 8192 x 8192 takes 257 us, at four times
as many bytes 280 (f32); 138 and 153 (bf16)."""

_NEAR_BYTES = 32 << 10
"""Shared memory of a block for what sweeps keep of a row: seven such blocks of 256 threads fill a
multiprocessor of 227 KiB."""

_NARROW = 4
"""Bytes that sweeps keep of an element, above which a row of any length is for twice the threads:
there are fewer such blocks."""

_LEAST_THREADS, _MOST_THREADS = 128, 512
"""Of a block for a row of known length."""

FEW_TASKS = 264
"""Rows by a block each, fewer than this many leave multiprocessors without work: two for each of
the 132 of an H100."""

FEW_COLUMNS = 32 << 10
"""Columns, fewer than this many: a thread for each leaves most of the threads without work."""


COMBINERS = 128
"""Threads of a block that combines pieces of columns. There may be thousands of blocks: few threads
leave room for all of them."""


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
        self._in_pieces: tuple[Step, ...] = ()
        lanes = self.most_lanes = max(1, access_lanes(self.block, self.plan.roots, machine))
        # Where rows do not begin at whole accesses, neighbours are for neighbouring threads.
        self.lanes = lanes if is_aligned and lanes > 1 else 0
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
        if plan.layout is Layout.SIDE_BY_SIDE:
            columns = write_rows(plan, self.shapes, lambda f: self._columns(plan, f).write())
            return self._split(columns, (self._launch(columns),))
        near = self._near()
        each = sum(element.bytes for element in near.slots)
        short_row, warp = SHORT_ROW, self.machine.warp
        while short_row * each * (THREADS // warp) > _NEAR_BYTES:
            short_row //= 2
        least, most = self.shapes.constraints.bounds(plan.length)
        short: tuple[Step, ...] = ()
        if least is None or least < short_row:
            group, room = warp, short_row
            if plan.length.is_const:
                room = plan.length.value
                group = _group_of(room, max(1, self.lanes), warp)
            short = (self._launch(self._together(near, group, THREADS, room)),)
        if most is not None and most < short_row:
            return short
        long = self._long(near, each)
        if not short:
            return long
        return (If(Condition(plan.length, "<", Expr.const(short_row)), short, long),)

    def _near(self) -> Plan:
        """The plan whose sweeps keep in shared memory what later ones read."""
        plan = self.plan
        if any(sweep.general for sweep in plan.sweeps):
            return plan  # runs of neighbours are not the own elements of a thread
        storage = Storage(lambda op: row_of(op).cost, is_near=True)
        return plan_rows(plan.record, self.block, self.shapes, storage)

    def _long(self, near: Plan, each: int) -> tuple[Step, ...]:
        """Rows by a block each, which keeps `each` bytes an element, or in pieces.

        Rows that shared memory has no room for are in pieces, however many there are: a piece is
        read once from memory.
        """
        length, most = self.plan.length, self.machine.shared_bytes
        threads = THREADS if each <= _NARROW else 2 * THREADS
        if not length.is_const:
            most = min(most, threads * (_NEAR_BYTES // THREADS))
        room = most // each if each else 0
        if length.is_const:
            threads = _threads_of(length.value, max(1, self.lanes))
            if each and length.value > room:
                writer = self._together(self.plan, threads, threads, 0)
                is_whole = writer.plan.layout is Layout.WHOLE
                whole = self._pieces(writer) if is_whole else (self._launch(writer),)
                return self._split(writer, whole)
            room = min(room, length.value)
        writer = self._together(near, threads, threads, room)
        whole = (self._launch(writer),)
        longest = self.shapes.constraints.bounds(length)[1]
        if room and (longest is None or longest > room):
            whole = (If(Condition(length, "<=", Expr.const(room)), whole, self._pieces(writer)),)
        return self._split(writer, whole)

    def _launch(self, writer: RowWriter) -> Step:
        return writer.launch(self.name, self._cost)

    def _split(self, writer: RowWriter, whole: tuple[Step, ...]) -> tuple[Step, ...]:
        """`whole` rows of `writer`, or in pieces where there are few of them, and long ones."""
        plan, bounds = writer.plan, self.shapes.constraints.bounds
        piece = self._piece
        is_columns = plan.layout is Layout.SIDE_BY_SIDE
        most_tasks = FEW_COLUMNS if is_columns else FEW_TASKS
        long = Condition(plan.cut, ">=", Expr.const(2 * piece))
        few = Condition(writer.extent, "<", Expr.const(most_tasks))
        longest, fewest = bounds(plan.cut)[1], bounds(writer.extent)[0]
        if (longest is not None and longest < 2 * piece) or (
            fewest is not None and fewest >= most_tasks
        ):
            return whole
        return (If(All((long, few)), self._pieces(writer), whole),)

    @property
    def _piece(self) -> int:
        """What a piece has along `Plan.cut`; in both variants of a fusion the same."""
        layout = self.plan.layout
        is_twice = any(stage.relative for stage in stages_of(self.plan))
        if layout is not Layout.SIDE_BY_SIDE or not is_twice:
            return PIECES[layout]
        arrays = [v for v in self.block.arguments if self.shapes.shape(v)]
        widest = max((element_of(value).bytes for value in arrays), default=1)
        return min(PIECES[layout], max(1, _TWICE_BYTES // (self.most_lanes * widest)))

    def _pieces(self, writer: RowWriter) -> tuple[Step, ...]:
        """The rows of `writer` in pieces; written once."""
        if not self._in_pieces:
            plan = replace(writer.plan, sweeps=self.plan.sweeps, materialised=[], slots=[])
            factors = writer.space.factors[: writer.rank]
            are_columns = plan.layout is Layout.SIDE_BY_SIDE

            def together(threads: int) -> RowWriter:
                b = GroupBuilder(self.machine, threads, threads)
                return Together(plan, factors, self.lanes, b)

            def pieces() -> RowWriter:
                return self._columns(plan, factors) if are_columns else together(THREADS)

            combine = partial(together, COMBINERS if are_columns else THREADS)
            split = SplitRows(plan, self.name, self._piece, self._cost, pieces, combine)
            self.workspaces = split.workspaces
            self._in_pieces = tuple(split.launches)
        return self._in_pieces

    def _columns(self, plan: Plan, factors: Sequence[Expr]) -> RowWriter:
        return ThreadRows(plan, factors, self.lanes, self.machine.builder())

    def _together(self, plan: Plan, group: int, threads: int, room: int) -> RowWriter:
        """Rows that are not cut, by groups of threads; in parts where something is read along some
        trailing columns.
        """

        def write(factors: Sequence[Expr]) -> RowWriter:
            b = GroupBuilder(self.machine, group, threads)
            writer = Together(plan, factors, self.lanes, b)
            writer.room = room
            return writer.write()

        writer = write_rows(plan, self.shapes, write)
        if plan.layout is Layout.WHOLE:
            space = writer.space
            factors = refine(space.factors, space.wanted, self.shapes.constraints.equal)
            cols = factors[-1]
            if cols != plan.cols and (not cols.is_const or cols.value >= self.lanes):
                writer.b.forget()
                cut = replace(plan, layout=Layout.PARTS, parts=factors[-2], cols=cols)
                return self._together(cut, group, threads, room)
        return writer


def _group_of(length: int, lanes: int, warp: int) -> int:
    """Threads of a warp for a short row of known length: each takes about two vectors."""
    threads = 1
    while threads < warp and threads * 2 * lanes < length:
        threads *= 2
    return threads


def _threads_of(length: int, lanes: int) -> int:
    """Threads of a block for a row of known length: each takes about four vectors."""
    threads = _LEAST_THREADS
    while threads < _MOST_THREADS and threads * 4 * lanes < length:
        threads *= 2
    return threads
