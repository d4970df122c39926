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

from collections.abc import Sequence

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
from shlo_disc.lower.plan import Buffer, Condition, If, Launch, Step, Workspace
from shlo_disc.lower.tasks.single_op import SingleOp
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

__all__ = ["MOST_ELEMENTS", "RadixSort"]

MOST_ELEMENTS = (1 << 31) - 1
"""Records of a row, at most: places in it have 32 bits."""

_LEAST, _MOST = 4, 16
"""Elements of a thread."""

_BLOCKS = 264
"""Blocks that leave no multiprocessor without work; tiles grow when there are as many."""

_FEW_TILES = 32
"""Tiles of a row whose counters every block may as well add up."""
_BATCH = 8
"""Counters that a thread reads at once."""

_EACH, _TILES, _DIGIT, _LAST = (
    Expr.symbol(f"radix_{name}") for name in ("each", "tiles", "digit", "last")
)
"""Sizes in which launches of one kernel differ: elements of a thread, tiles of a row, the number of
the digit, and that of the last one."""

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
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            tile.enter(task.index)
            for k in range(ranks.warps):
                ranks.counts.store(b.constant(0, "i32"), b.thread + k * THREADS)
            b.barrier_of_block()
            ats = [b.thread + k * THREADS for k in range(_MOST)]
            for at, element in zip(ats, tile.read(self.key.array, ats), strict=True):
                own = digit(e, self.key, element, tile.digit)
                with b.if_(at < tile.count):
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
        stage = b.shared_offset(_MOST * THREADS * max(rows.storages[i][1] for i in rows.arrays))
        warp = self.machine.warp
        last = b.constant(last_digit(key), "i32")
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            tile.enter(task.index)
            ranks.clear()
            first = ranks.warp * (tile.each * warp) + ranks.lane
            own = [first + k * warp for k in range(_MOST)]
            values = tile.read(key.array, own)
            in_front, total = self._counted(e, tile)
            digits = [
                b.select(at < tile.count, digit(e, key, value, tile.digit), last)
                for at, value in zip(own, values, strict=True)
            ]
            found = []
            for k, mine in enumerate(digits):
                with b.if_(tile.each > k) as branch:
                    branch.yield_(ranks.rank(mine))
                    with branch.otherwise():
                        branch.yield_(b.constant(0, "i32"))
                found.append(branch.results[0])
            begin, below = ranks.finish(total)
            firsts.store(below + in_front - begin, b.thread)
            b.barrier_of_block()
            places = [ranks.place(mine, at) for mine, at in zip(digits, found, strict=True)]
            ats = [b.thread + k * THREADS for k in range(_MOST)]
            targets: list[IndexValue] = []

            def through(i: int, elements: Sequence[Register]) -> list[Register]:
                """The elements of array i in the order of the digit."""
                memory = b.shared_at(rows.storages[i][0], stage, _MOST * THREADS)
                for k, element in enumerate(elements):
                    with b.if_(tile.each > k):
                        memory.store(element, places[k])
                b.join()
                b.barrier_of_block()
                return [memory.load(b.min(at, tile.count - 1), readonly=False) for at in ats]

            ordered = through(key.array, values)
            for at, element in zip(ats, ordered, strict=True):
                shift = firsts.load(_place(b, digit(e, key, element, tile.digit)), readonly=False)
                targets.append(at + b.to_index("arith.index_cast", shift))
            self._write(e, tile, key.array, ats, targets, ordered)
            for i in self.moved:
                elements = tile.read(i, own)
                b.barrier_of_block()
                self._write(e, tile, i, ats, targets, through(i, elements))
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
        ats: Sequence[IndexValue],
        targets: Sequence[IndexValue],
        elements: Sequence[Register],
    ) -> None:
        """Elements of array i to the results, or to where the next pass reads them."""
        b = e.b
        with b.if_(tile.is_last) as branch:
            for at, target, element in zip(ats, targets, elements, strict=True):
                with b.if_(at < tile.count):
                    write_last(e, self.rows, tile.row, target, {i: element})
            with branch.otherwise():
                memory = array(e, self.rows, Workspace(TARGET + i), i)
                for at, target, element in zip(ats, targets, elements, strict=True):
                    with b.if_(at < tile.count):
                        memory.store(element, tile.start + target)


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

    def read(self, i: int, ats: Sequence[IndexValue]) -> list[Register]:
        """Array i of the records at `ats` in the tile; of the last one where there is none."""
        e, b = self.e, self.b
        near = [self.first + b.min(at, self.count - 1) for at in ats]
        with b.if_(self.is_first) as branch:
            branch.yield_(*(self.rows.read(e, i, self.row, at) for at in near))
            with branch.otherwise():
                memory = array(e, self.rows, Workspace(SOURCE + i), i)
                branch.yield_(*(memory.load(self.start + at, readonly=False) for at in near))
        return branch.results


def _place(b: GroupBuilder, digit: Register) -> IndexValue:
    return b.to_index("arith.index_castui", digit)
