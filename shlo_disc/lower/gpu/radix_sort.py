"""Long rows, sorted digit by digit from the lowest on: up to three launches for each.

    radix_count    a block counts the digits of its tile
    radix_sums     a block adds up the counters of a digit, tile by tile
    radix_move     a block ranks the elements of its tile (`radix.py`), and puts them in order in
                   shared memory; from there neighbours go to neighbouring places

`radix_move` adds up the counters itself where there are few tiles, and there are two launches. No
block waits for another one. A tile has as many elements as gives every multiprocessor two blocks.
The first launches read the operands and the last ones write the results.

Other arrays of the records go along. A gather by a sorted permutation instead would read a whole
sector, 32 bytes, for every element: four passes move as much of 4-byte elements.

Source: D. Merrill, A. Grimshaw, "High Performance and Scalable Radix Sorting" (2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.radix import (
    DIGIT_BITS,
    DIGITS,
    Ranks,
    digit,
    exclusive,
    last_digit,
    passes,
)
from shlo_disc.lower.gpu.sorted_rows import (
    SOURCE,
    TARGET,
    Rows,
    array,
    builder,
    renumbered,
    with_buffers,
    write_last,
)
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import Buffer, Condition, If, Launch, Step, Workspace
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register

MOST_ELEMENTS = (1 << 31) - 1
"""Records of a row, at most: places in it have 32 bits."""

_LEAST, _MOST = 4, 16
"""Elements of a thread."""

_BLOCKS = 264
"""Blocks that leave no multiprocessor without work; tiles grow when there are as many."""

_FEW_TILES = 32
"""Tiles of a row whose counters every block may as well add up."""
_COUNTED = 4
"""Elements that a thread reads at once to count them."""
_BATCH = 8
"""Counters that a thread reads at once."""

_EACH, _TILES, _DIGIT, _LAST = (
    Expr.symbol(f"radix_{name}") for name in ("each", "tiles", "digit", "last")
)
"""Sizes in which launches of one kernel differ: elements of a thread, tiles of a row, the digit,
and the last one."""

_COUNTS, _SUMS = Workspace(3000), Workspace(3001)
"""The counters of each row, digit and tile, and of each row and digit."""


class RadixSort:
    """The steps that sort `rows` by their key; see the module.

    `halves`: two workspaces for each of `rows.arrays`. `counters`: the number of the first of two
    workspaces, whose sizes are :attr:`workspaces`.
    """

    def __init__(
        self,
        single: SingleOp,
        machine: Machine,
        rows: Rows,
        halves: Sequence[dict[int, Buffer]],
        counters: int,
    ) -> None:
        assert rows.radix is not None
        self.single, self.machine, self.rows, self.key = single, machine, rows, rows.radix
        self.halves, self.counters = halves, counters
        records = rows.rows * rows.size
        each = Expr.min(ceil_div(records, THREADS * _BLOCKS), Expr.const(_MOST))
        self.each = Expr.max(each, Expr.const(_LEAST))
        self.tiles = ceil_div(rows.size, self.each * THREADS)
        self.moved = [i for i in rows.arrays if i != self.key.array]

    @property
    def workspaces(self) -> list[Expr]:
        """Bytes of the counters."""
        digits = self.rows.rows * DIGITS
        return [digits * self.tiles * 4, digits * 4]

    def steps(self) -> tuple[Step, ...]:
        """All launches, as many as the largest key has digits."""
        launches = self._count(), self._add_up(), self._move()
        steps = self._passes(*launches, passes(self.key))
        if self.key.most is None:
            return steps
        for count in range(passes(self.key) - 1, 0, -1):
            fits = Condition(self.key.most, "<", Expr.const(1 << DIGIT_BITS * count))
            steps = (If(fits, self._passes(*launches, count), steps),)
        return steps

    def _passes(self, count: Launch, add_up: Launch, move: Launch, total: int) -> tuple[Step, ...]:
        blocks = self.rows.rows * self.tiles
        counters: dict[Buffer, Buffer] = {
            _COUNTS: Workspace(self.counters),
            _SUMS: Workspace(self.counters + 1),
        }
        many = Condition(self.tiles, ">", Expr.const(_FEW_TILES))
        steps: list[Step] = []
        for number in range(total):
            buffers = {
                **counters,
                **renumbered(SOURCE, self.halves[(number + 1) % 2]),
                **renumbered(TARGET, self.halves[number % 2]),
            }
            sizes: dict[Expr, Expr | int] = {
                _EACH: self.each, _TILES: self.tiles, _DIGIT: number, _LAST: total - 1,
            }  # fmt: skip
            digits = self.rows.rows * DIGITS
            steps += [
                with_buffers(count, buffers, sizes, blocks),
                If(many, (with_buffers(add_up, buffers, sizes, digits),), ()),
                with_buffers(move, buffers, sizes, blocks),
            ]
        return tuple(steps)

    # ---------------------------------------------------------------- kernels

    def _kernel(self) -> Elemental:
        return self.single.kernel(0, GroupBuilder(self.machine, THREADS, THREADS))

    def _count(self) -> Launch:
        """Count the digits of each tile."""
        e = self._kernel()
        b = builder(e)
        tile = _Tile(e, self)
        ranks = Ranks(b, self.key.bits)
        counts = b.memref(e.arguments.slot(_COUNTS), "i32")
        with b.if_(b.lo < b.hi):
            tile.enter(b.lo)
            for k in range(ranks.warps):
                ranks.counts.store(b.constant(0, "i32"), b.thread + k * THREADS)
            b.barrier_of_block()
            with b.loop(0, tile.count, _COUNTED * THREADS, hint="batch") as batch:
                left = tile.left(batch.index + b.thread)
                elements = tile.read(self.key.array, batch.index + b.thread, THREADS, _COUNTED)
                for k, element in enumerate(elements):
                    own = digit(e, self.key, element, tile.digit)
                    with b.if_(left > k * THREADS):
                        ranks.add(own)
            b.join()
            b.barrier_of_block()
            total = b.constant(0, "i32")
            for count in ranks.of_digit():
                total = total + count
            counts.store(total, tile.counter)
        return self.single.launch(e, "radix_count", Expr.const(1), Expr.const(1))

    def _add_up(self) -> Launch:
        """The counters of a digit in front of each tile, in their place, and their sum."""
        e = self._kernel()
        b = builder(e)
        tiles = b.param(_TILES)
        counts, sums = (b.memref(e.arguments.slot(x), "i32") for x in (_COUNTS, _SUMS))
        room = b.shared("i32", b.threads // self.machine.warp)
        zero = b.constant(0, "i32")
        with b.loop(b.lo, b.hi, 1, hint="digit") as task:
            start = task.index * tiles
            with b.loop(0, tiles, THREADS, [zero], hint="tile") as loop:
                at = loop.index + b.thread
                own = counts.load(start + b.min(at, tiles - 1), readonly=False)
                own = b.select(at < tiles, own, zero)
                (front,), (total,) = exclusive(b, [own], room)
                with b.if_(at < tiles):
                    counts.store(loop.args[0] + front, start + at)
                b.join()
                b.barrier_of_block()
                loop.yield_(loop.args[0] + total)
            with b.if_(b.thread.equals(0)):
                sums.store(loop.results[0], task.index)
        return self.single.launch(e, "radix_sums", Expr.const(1), Expr.const(1))

    def _move(self) -> Launch:
        """Put the elements of each tile where they go."""
        e = self._kernel()
        b, rows, key = builder(e), self.rows, self.key
        tile = _Tile(e, self)
        ranks = Ranks(b, key.bits)
        firsts = b.shared("i32", DIGITS)
        ordered = b.shared("i8", _MOST * THREADS)
        stage = b.shared_offset(_MOST * THREADS * max(rows.storages[i][1] for i in rows.arrays))
        warp = self.machine.warp
        last = b.constant(last_digit(key), "i32")
        with b.if_(b.lo < b.hi):
            tile.enter(b.lo)
            ranks.clear()
            first = ranks.warp * (tile.each * warp) + ranks.lane
            values = tile.read(key.array, first, warp, _MOST)
            in_front, total = self._counted(e, tile)
            found: list[Register] = []
            each = b.cast("arith.index_cast", tile.each, "i32")
            left = b.again(tile.left(first))
            for k, value in enumerate(values):
                is_there = left > k * warp

                def ranked(value: Register = value, is_there: Mask = is_there) -> Register:
                    mine = digit(e, key, value, tile.digit)
                    # What is behind the tile stays behind it.
                    return ranks.rank(b.select(is_there, mine, last))

                found.append(b.only_if(each > k, ranked, "i32"))
            begin, below = ranks.finish(total)
            firsts.store(below + in_front - begin, b.thread)
            b.barrier_of_block()
            for i in [key.array, *self.moved]:
                each = b.again(each)
                if i != key.array:
                    values = tile.read(i, first, warp, _MOST)
                    b.barrier_of_block()
                memory = b.shared_at(rows.storages[i][0], stage, _MOST * THREADS)
                for k, (rank, value) in enumerate(zip(found, values, strict=True)):
                    with b.if_(each > k):
                        to = ranks.place(rank)
                        memory.store(value, to)
                        if i == key.array and self.moved:
                            ordered.store(rank.cast("arith.trunci", "i8"), to)
                b.join()
                b.barrier_of_block()

                def of(i: int, at: IndexValue, value: Register) -> Register:
                    if i == key.array:
                        return digit(e, key, value, tile.digit)
                    return ordered.load(at, readonly=False).cast("arith.extui", "i32")

                self._write(e, tile, i, memory, firsts, of)
        return self.single.launch(e, "radix_move", Expr.const(1), Expr.const(1))

    def _counted(self, e: Elemental, tile: _Tile) -> tuple[Register, Register]:
        """Of the digit that is the thread's number: elements of earlier tiles, and of all."""
        b = builder(e)
        counts, sums = (b.memref(e.arguments.slot(x), "i32") for x in (_COUNTS, _SUMS))
        zero = b.constant(0, "i32")
        start = tile.counter - tile.number
        with b.if_(tile.tiles <= _FEW_TILES) as branch:
            with b.loop(0, tile.tiles, _BATCH, [zero, zero], hint="tile") as loop:
                before, all_ = loop.args
                ats = [loop.index + k for k in range(_BATCH)]
                read = [counts.load(start + b.min(at, tile.tiles - 1)) for at in ats]
                for at, count in zip(ats, read, strict=True):
                    before = before + b.select(at < tile.number, count, zero)
                    all_ = all_ + b.select(at < tile.tiles, count, zero)
                loop.yield_(before, all_)
            branch.yield_(*loop.results)
            with branch.otherwise():
                branch.yield_(counts.load(tile.counter), sums.load(tile.row * DIGITS + b.thread))
        before, all_ = branch.results
        return before, all_

    def _write(
        self,
        e: Elemental,
        tile: _Tile,
        i: int,
        memory: MemRef,
        firsts: MemRef,
        digit_of: Callable[[int, IndexValue, Register], Register],
    ) -> None:
        """Elements of array i to the results, or to where the next pass reads them."""
        b = builder(e)
        with b.loop(b.thread, tile.count, THREADS, hint="at") as loop:
            at = loop.index
            value = memory.load(at, readonly=False)
            digit = b.to_index("arith.index_castui", digit_of(i, at, value))
            shift = b.to_index("arith.index_cast", firsts.load(digit, readonly=False))
            with b.if_(tile.is_last) as branch:
                write_last(e, self.rows, tile.row, at + shift, {i: value})
                with branch.otherwise():
                    target = array(e, self.rows, Workspace(TARGET + i), i)
                    target.store(value, tile.start + at + shift)


class _Tile:
    """The tile of a block, in a kernel being written."""

    row: IndexValue
    number: IndexValue
    """Of the tile in its row."""
    start: IndexValue
    """Records of the rows in front."""
    first: IndexValue
    """The first record of the tile in its row."""
    count: IndexValue
    """Records of the tile: at least one."""
    counter: IndexValue
    """Where the counter of the tile and of the digit is that is the thread's number."""

    def __init__(self, e: Elemental, sort: RadixSort) -> None:
        self.e, self.b, self.rows = e, builder(e), sort.rows
        b = self.b
        self.n = b.param(sort.rows.size, opaque=True)
        self.each, self.tiles, self.digit = b.param(_EACH), b.param(_TILES), b.param(_DIGIT)
        self.is_first: Mask = self.digit.equals(0)

    @property
    def is_last(self) -> Mask:
        """True in the pass that writes the results."""
        return self.digit.equals(self.b.param(_LAST))

    def enter(self, task: IndexValue) -> None:
        """Take the tile of number `task`."""
        b, n = self.b, self.n
        self.row, self.number = task // self.tiles, task % self.tiles
        self.start = self.row * n
        self.first = self.number * (self.each * THREADS)
        self.count = b.min(n - self.first, self.each * THREADS)
        self.counter = (self.row * DIGITS + b.thread) * self.tiles + self.number

    def left(self, first: IndexValue) -> Register:
        """Records of the tile from `first` on, or less than 1: i32."""
        # One number that is compared with constants, where places would take a register each.
        return self.b.cast("arith.index_cast", self.count - first, "i32")

    def read(self, i: int, first: IndexValue, step: int, count: int) -> list[Register]:
        """Array i of `count` records of the tile, so many apart; 0 where there is none."""
        e, b = self.e, self.b
        left = self.left(first)
        there = [left > k * step for k in range(count)]
        type_ = self.rows.storages[i][0]

        def each(read: Callable[[IndexValue], Register]) -> list[Register]:
            return [
                b.only_if(is_there, partial(read, first + k * step), type_)
                for k, is_there in enumerate(there)
            ]

        with b.if_(self.is_first) as branch:
            branch.yield_(*each(lambda at: self.rows.read(e, i, self.row, self.first + at)))
            with branch.otherwise():
                memory = array(e, self.rows, Workspace(SOURCE + i), i)
                start = self.start + self.first
                branch.yield_(*each(lambda at: memory.load(start + at, readonly=False)))
        return branch.results
