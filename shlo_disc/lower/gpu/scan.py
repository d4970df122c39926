"""Kind `scan`: running totals along one dimension, by blocks of threads.

Along the innermost dimension a block takes a row, a tile after the other. A thread has 8
neighbours, which it combines one by one. A warp combines its threads as a balanced tree, and a
block its warps one after the other. Warps exchange elements without the others; a tile has one
barrier of the block, and the next tile is read while it is combined.

Along another dimension a thread takes a column, in pieces of 128 rows. It combines 8 rows at a time
one by one.

Few long rows, or columns, are cut in pieces. A launch finds their totals, a second one what is in
front of each, a third one the results.

Sizes alone decide on the order. An element is rounded at most 60 + n / 2048 times on its way into
the n-th result of a row. Of a column it is 60 + n / 128 times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.builder import THREADS, GpuBuilder, GroupBuilder
from shlo_disc.lower.gpu.groups import get, put, stored
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.kernels.scan import Scan, scanned_dimension
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Launch, Step, Workspace
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

_NEIGHBOURS = 8
"""Elements of a thread, of a tile or of a column: so many loads wait for memory at once."""

_ROW_PIECE = 4 * THREADS * _NEIGHBOURS
"""Elements of a piece of a row: whole tiles."""

_COLUMN_PIECE = 128
"""Rows of a piece of columns."""

_FEW_ROWS = 264
"""Rows by a block each, fewer than this many leave multiprocessors without work."""

_FEW_COLUMNS = 1 << 17
"""Columns by a thread each; fewer than this many do not hide the latency of memory."""

_WARPS = (1, 4)
"""Warps of a block for rows of one tile that is shorter."""

_Load = Callable[[IndexValue], list[Register]]
_Store = Callable[[IndexValue, Sequence[Register]], None]

_TOTALS = Workspace(0)


def emit_scan(fusion: Planned[SingleOpRecord], machine: Machine) -> KernelPlan:
    """The plan of a `disc.scan`.

    Raises UnsupportedError for an element type or a reducer that is not compiled.
    """
    single = SingleOp.of(fusion, machine)
    _, size, inner = scanned_dimension(single)
    kind: type[_Lines] = _Rows if inner == Expr.const(1) else _Columns
    steps: tuple[Step, ...] = (kind(single, machine).whole(),)
    if kind is _Rows:
        for warps in reversed(_WARPS):
            threads = warps * machine.warp
            short = kind(single, machine, threads)
            fits = Condition(size, "<=", Expr.const(threads * _NEIGHBOURS))
            steps = (If(fits, (short.whole(),), steps),)
    first = kind(single, machine)
    cut = (
        first.totals(),
        kind(single, machine).in_front(),
        kind(single, machine).results(),
    )
    long = Condition(size, ">=", Expr.const(2 * kind.piece))
    few = Condition(first.lines, "<", Expr.const(kind.few))
    is_long = Expr.min(size // (2 * kind.piece), 1)
    total = max(4, first.reducer.neutral(0)[0].element_bits // 8)
    step = If(All((long, few)), cut, steps)
    return KernelPlan((step,), (first.lines * first.pieces * is_long * total,))


class _Lines(Scan):
    """One kernel, over whole lines or over pieces of them."""

    piece: int
    few: int

    def __init__(self, single: SingleOp, machine: Machine, threads: int = THREADS) -> None:
        self.machine, self.threads = machine, threads
        super().__init__(single, self._kernel(single))
        self.n = self.b.param(self.size, opaque=True)
        self.lines = self.outer * self.inner
        self.pieces = ceil_div(self.size, self.piece)

    def _kernel(self, single: SingleOp) -> Elemental:
        raise NotImplementedError

    def scan(
        self, first: IndexValue, last: IndexValue, before: Sequence[Register], load: _Load,
        store: _Store | None, *, exclusive: bool = False,
    ) -> list[Register]:  # fmt: skip
        """Scan elements `first` to `last` behind the total `before`; returns the total of all.

        There is at least one. `exclusive`: a result leaves out its own element. The total is
        right if all elements are whole tiles, or whole batches, or if nobody reads it.
        """
        raise NotImplementedError

    def place(self, line: IndexValue, at: IndexValue) -> IndexValue:
        """Where element `at` of a line lies, counted from where the scan begins."""
        inner = self.b.param(self.inner)
        row = self.n - 1 - at if self.reverse else at
        return (line // inner * self.n + row) * inner + line % inner

    def total_place(self, line: IndexValue, piece: IndexValue) -> IndexValue:
        """Where the total of a piece is."""
        raise NotImplementedError

    # ---------------------------------------------------------------- launches

    def whole(self) -> Launch:
        """All of a line by one task."""
        with self.b.loop(self.b.lo, self.b.hi, 1, hint="line") as task, self.b.if_(self.n > 0):
            load, store = self._elements(task.index)
            self.scan(self.b.index(0), self.n, self.reducer.init(0), load, store)
        return self._launch("scan", self.lines)

    def totals(self) -> Launch:
        """The total of each piece."""
        with self.b.loop(self.b.lo, self.b.hi, 1, hint="task") as task:
            line, piece, first, last = self._piece(task.index)
            load, _ = self._elements(line)
            total = self.scan(first, last, self.reducer.neutral(0), load, None)
            self._put_total(line, piece, total)
        return self._launch("scan_totals", self.lines * self.pieces)

    def in_front(self) -> Launch:
        """What is in front of each piece, in the place of its total."""
        b = self.b
        with b.loop(b.lo, b.hi, 1, hint="line") as task:

            def load(piece: IndexValue) -> list[Register]:
                return self._total(task.index, piece)

            def store(piece: IndexValue, value: Sequence[Register]) -> None:
                self._put_one(task.index, piece, value)

            count, zero = b.param(self.pieces, opaque=True), b.index(0)
            self.scan(zero, count, self.reducer.init(0), load, store, exclusive=True)
        return self._launch("scan_in_front", self.lines)

    def results(self) -> Launch:
        """The results of each piece."""
        with self.b.loop(self.b.lo, self.b.hi, 1, hint="task") as task:
            line, piece, first, last = self._piece(task.index)
            load, store = self._elements(line)
            self.scan(first, last, self._total(line, piece), load, store)
        return self._launch("scan_pieces", self.lines * self.pieces)

    def _launch(self, name: str, extent: Expr) -> Launch:
        return self.single.launch(self.e, name, extent, Expr.const(1))

    def _piece(self, task: IndexValue) -> tuple[IndexValue, IndexValue, IndexValue, IndexValue]:
        """The line and the number of a piece, and its first and last element."""
        line, piece = self.split(task)
        first = piece * self.piece
        return line, piece, first, self.b.min(first + self.piece, self.n)

    def split(self, task: IndexValue) -> tuple[IndexValue, IndexValue]:
        """The line and the number of the piece of a task."""
        raise NotImplementedError

    # ---------------------------------------------------------------- memory

    def _elements(self, line: IndexValue) -> tuple[_Load, _Store]:
        def read(at: IndexValue) -> list[Register]:
            return self.load(Ix(self.place(line, at)), None)

        def write(at: IndexValue, value: Sequence[Register]) -> None:
            self.store(value, Ix(self.place(line, at)), None)

        return read, write

    def _total(self, line: IndexValue, piece: IndexValue) -> list[Register]:
        (like,) = self.reducer.neutral(0)
        room = self.b.memref(self.e.arguments.slot(_TOTALS), stored(like))
        return [get(self.b, like, room, self.total_place(line, piece))]

    def _put_one(self, line: IndexValue, piece: IndexValue, total: Sequence[Register]) -> None:
        room = self.b.memref(self.e.arguments.slot(_TOTALS), stored(total[0]))
        put(self.b, total[0], room, self.total_place(line, piece))

    def _put_total(self, line: IndexValue, piece: IndexValue, total: Sequence[Register]) -> None:
        """The total of a piece, which all threads of the task have."""
        self._put_one(line, piece, total)


class _Rows(_Lines):
    """A block for each row, or piece of one."""

    b: GroupBuilder
    piece = _ROW_PIECE
    few = _FEW_ROWS

    def _kernel(self, single: SingleOp) -> Elemental:
        return single.kernel(0, GroupBuilder(self.machine, self.threads, self.threads))

    def split(self, task: IndexValue) -> tuple[IndexValue, IndexValue]:
        """See `_Lines.split`."""
        pieces = self.b.param(self.pieces, opaque=True)
        return task // pieces, task % pieces

    def total_place(self, line: IndexValue, piece: IndexValue) -> IndexValue:
        """See `_Lines.total_place`."""
        return line * self.b.param(self.pieces, opaque=True) + piece

    def _put_total(self, line: IndexValue, piece: IndexValue, total: Sequence[Register]) -> None:
        with self.b.if_(self.b.thread.equals(0)):
            super()._put_total(line, piece, total)

    def scan(
        self, first: IndexValue, last: IndexValue, before: Sequence[Register], load: _Load,
        store: _Store | None, *, exclusive: bool = False,
    ) -> list[Register]:  # fmt: skip
        """See `_Lines.scan`: tile by tile, of which each warp takes neighbouring elements.

        Elements of the next tile are on their way from memory while a tile is added up. The threads
        of a warp exchange elements through shared memory of its own. A tile has one barrier of the
        block, in front of the totals of its warps.
        """
        b, merge = self.b, self.merge
        tile = self.threads * _NEIGHBOURS
        (like,) = self.reducer.neutral(0)
        size, warps = b.machine.warp, self.threads // b.machine.warp
        lane, warp = b.thread % size, b.thread // size
        # A place more for each thread, so that the threads of a warp meet in no bank.
        room = b.shared(stored(like), self.threads * (_NEIGHBOURS + 1))
        base = warp * (size * (_NEIGHBOURS + 1))
        own = base + lane * (_NEIGHBOURS + 1)
        # Warps that are a tile ahead write another half.
        of_warps = b.shared(stored(like), 2 * warps)

        def spread(k: int) -> IndexValue:
            at = lane + k * size
            return base + at + at // _NEIGHBOURS

        def of_tile(start: IndexValue) -> tuple[IndexValue, list[Mask]]:
            """The thread's first element, and which of them there are."""
            at = start + warp * (size * _NEIGHBOURS) + lane
            # One number that is compared with constants, where places would take a register each.
            left = b.cast("arith.index_cast", b.min(last - at, tile), "i32")
            return at, [left > k * size for k in range(_NEIGHBOURS)]

        def loaded(start: IndexValue) -> list[Register]:
            """The thread's elements. Behind the last one 0 is added up: nobody reads the total."""
            at, there = of_tile(start)
            return [
                b.only_if(is_there, partial(_only, load, at + k * size), like.type)
                for k, is_there in enumerate(there)
            ]

        carried = [*before, *loaded(first)]
        with b.loop(first, last, tile, carried, hint="tile") as loop:
            total = Register.each_of(loop.args[:1])
            following = loaded(loop.index + tile)
            for k, value in enumerate(loop.args[1:]):
                put(b, value, room, spread(k))
            b.barrier_of_warp()
            runs = [[get(b, like, room, own)]]
            for k in range(1, _NEIGHBOURS):
                runs.append(merge(runs[-1], [get(b, like, room, own + k)]))
            front, of_warp = self._in_warp(runs[-1])
            half = (loop.index - first) // tile % 2 * warps
            with b.if_(lane.equals(size - 1)):
                put(b, of_warp[0], of_warps, half + warp)
            b.barrier_of_block()
            inside, mine = self.reducer.neutral(0), self.reducer.neutral(0)
            for number in range(warps):
                is_mine = warp.equals(number)
                mine = [b.select(is_mine, x, y) for x, y in zip(inside, mine, strict=True)]
                inside = merge(inside, [get(b, like, of_warps, half + number)])
            if store is not None:
                mine = merge(total, merge(mine, front))
                results = [merge(mine, run) for run in runs]
                if exclusive:
                    results = [mine, *results[:-1]]
                for k, result in enumerate(results):
                    put(b, result[0], room, own + k)
                b.barrier_of_warp()
                at, there = of_tile(loop.index)
                for k, is_there in enumerate(there):
                    with b.if_(is_there):
                        store(at + k * size, [get(b, like, room, spread(k))])
            b.join()
            loop.yield_(*merge(total, inside), *following)
        return Register.each_of(loop.results[:1])

    def _in_warp(self, own: Sequence[Register]) -> tuple[list[Register], list[Register]]:
        """What is in front of this thread in its warp, and the total of the warp."""
        b = self.b
        front, total = self.reducer.neutral(0), list(own)
        distance = 1
        while distance < b.machine.warp:
            other = [b.from_lane(x, distance) for x in total]
            is_later = (b.thread // distance % 2).equals(1)
            ahead = self.merge(other, front)
            front = [b.select(is_later, x, y) for x, y in zip(ahead, front, strict=True)]
            pairs = list(zip(total, other, strict=True))
            left = [b.select(is_later, y, x) for x, y in pairs]
            right = [b.select(is_later, x, y) for x, y in pairs]
            total = self.merge(left, right)
            distance *= 2
        return front, total


def _only(load: _Load, at: IndexValue) -> Register:
    (value,) = load(at)
    return value


class _Columns(_Lines):
    """A thread for each column, or piece of one."""

    b: GpuBuilder
    piece = _COLUMN_PIECE
    few = _FEW_COLUMNS

    def _kernel(self, single: SingleOp) -> Elemental:
        return single.kernel(0)

    def split(self, task: IndexValue) -> tuple[IndexValue, IndexValue]:
        """See `_Lines.split`: threads side by side take columns side by side."""
        lines = self.b.param(self.lines, opaque=True)
        return task % lines, task // lines

    def total_place(self, line: IndexValue, piece: IndexValue) -> IndexValue:
        """See `_Lines.total_place`."""
        return piece * self.b.param(self.lines, opaque=True) + line

    def scan(
        self, first: IndexValue, last: IndexValue, before: Sequence[Register], load: _Load,
        store: _Store | None, *, exclusive: bool = False,
    ) -> list[Register]:  # fmt: skip
        """See `_Lines.scan`: piece by piece, and in a piece batch by batch."""
        b, merge = self.b, self.merge
        with b.loop(first, last, self.piece, list(before), hint="piece") as pieces:
            ahead, end = Register.each_of(pieces.args), b.min(pieces.index + self.piece, last)
            start = self.reducer.neutral(0)
            with b.loop(pieces.index, end, _NEIGHBOURS, start, hint="batch") as loop:
                ats = [loop.index + k for k in range(_NEIGHBOURS)]
                values = [load(b.min(at, last - 1)) for at in ats]
                total = Register.each_of(loop.args)
                runs = values[:1]
                for value in values[1:]:
                    runs.append(merge(runs[-1], value))
                own = [start, *runs[:-1]] if exclusive else runs
                for at, run in zip(ats, own, strict=True):
                    if store is not None:
                        with b.if_(at < last):
                            store(at, merge(ahead, merge(total, run)))
                loop.yield_(*merge(total, runs[-1]))
            pieces.yield_(*merge(ahead, loop.results))
        return Register.each_of(pieces.results)
