"""Rows of one tile, sorted digit by digit in shared memory: one launch.

A block has a row. Keys, and their places in the row where other arrays follow, stay in shared
memory; a pass for each digit puts them where `radix.py` says. The elements of a thread are as many
as the row needs, so short rows cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.radix import Ranks, digit, last_digit, pass_count
from shlo_disc.lower.gpu.sorted_rows import Rows, builder, put_all, write_last
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

_NEIGHBOURS = 12
"""Elements of a thread, at most: it has all of them in registers at a time."""

MOST_ELEMENTS = THREADS * _NEIGHBOURS
"""Records of a row, at most."""


def radix_tiles(single: SingleOp, machine: Machine, rows: Rows) -> Launch:
    """The launch that sorts rows of up to :data:`MOST_ELEMENTS` records."""
    return _Tiles(single, machine, rows).launch()


class _Tiles:
    def __init__(self, single: SingleOp, machine: Machine, rows: Rows) -> None:
        assert rows.radix is not None
        self.single, self.rows, self.key = single, rows, rows.radix
        self.e = single.kernel(0, GroupBuilder(machine, THREADS, THREADS))
        self.b = builder(self.e)

    def launch(self) -> Launch:
        """See :func:`radix_tiles`."""
        b, rows, key = self.b, self.rows, self.key
        n = b.param(rows.size, opaque=True)
        count = b.param(pass_count(key), opaque=True)
        keys = b.shared(rows.storages[key.array][0], MOST_ELEMENTS)
        places = b.shared("i16", MOST_ELEMENTS) if rows.moved else None
        ranks = Ranks(b, key.bits)
        # One number that is compared with constants, where places would take a register each.
        left = b.cast("arith.index_cast", n - b.thread, "i32")
        stored = [i for i in rows.arrays if rows.results[i] is not None]
        with b.if_(b.lo < b.hi):  # a loop would keep addresses in registers, from in front of it
            row = b.lo
            ats = [b.thread + k * THREADS for k in range(_NEIGHBOURS)]
            there = [left > k * THREADS for k in range(_NEIGHBOURS)]

            def elements(read: Callable[[IndexValue], Register], type_: str) -> list[Register]:
                """What the records have that there are; all are read before one is stored."""
                return [
                    b.only_if(is_there, partial(read, at), type_)
                    for at, is_there in zip(ats, there, strict=True)
                ]

            type_ = rows.storages[key.array][0]
            read = elements(partial(rows.read, self.e, key.array, row), type_)
            for at, is_there, value in zip(ats, there, read, strict=True):
                with b.if_(is_there):
                    keys.store(value, at)
                    if places is not None:
                        places.store(b.cast("arith.index_cast", at, "i16"), at)
            b.join()
            b.barrier_of_block()
            each = n.ceil_div(THREADS)
            first = ranks.warp * (each * b.machine.warp) + ranks.lane
            sizes = [b.cast("arith.index_cast", x, "i32") for x in (each, n - first)]
            with b.loop(0, count, 1, sizes, hint="digit") as turn:
                self._pass(turn.index, first, turn.args, keys, places, ranks)
                turn.yield_(*map(b.again, turn.args))
            for i in stored:
                found = partial(self._element, i, row, keys, places)
                values = elements(found, rows.storages[i][0])
                for at, is_there, value in zip(ats, there, values, strict=True):
                    with b.if_(is_there):
                        write_last(self.e, rows, row, at, {i: value})
        return self.single.launch(self.e, "sort_radix_tiles", rows.rows, Expr.const(1))

    def _pass(
        self,
        number: IndexValue,
        first: IndexValue,
        sizes: Sequence[Register],
        keys: MemRef,
        places: MemRef | None,
        ranks: Ranks,
    ) -> None:
        """Put keys and places in the order of one digit.

        `sizes`: elements of a thread, and those from the thread's first one, `first`, on.
        """
        b, warp = self.b, self.b.machine.warp
        memories = [keys] if places is None else [keys, places]
        last = b.constant(last_digit(self.key), "i32")
        ranks.clear()
        each, left = sizes
        carried: list[list[Register]] = []
        for k in range(_NEIGHBOURS):
            with b.if_(each > k) as branch:
                values = [memory.load(first + k * warp, readonly=False) for memory in memories]
                # What is behind the row stays behind it.
                own = digit(self.e, self.key, values[0], number)
                branch.yield_(ranks.rank(b.select(left > k * warp, own, last)), *values)
                with branch.otherwise():
                    nothing = [b.constant(0, value.type) for value in values]
                    branch.yield_(b.constant(0, "i32"), *nothing)
            carried.append(branch.results)
        ranks.finish()
        b.barrier_of_block()
        each = b.again(each)
        for k, (rank, *values) in enumerate(carried):
            with b.if_(each > k):
                put_all(memories, values, ranks.place(rank))
        b.join()
        b.barrier_of_block()

    def _element(
        self, i: int, row: IndexValue, keys: MemRef, places: MemRef | None, at: IndexValue
    ) -> Register:
        """Array i of the record that is at `at` in the tile."""
        if i == self.key.array:
            return keys.load(at, readonly=False)
        assert places is not None
        place = self.b.to_index("arith.index_castui", places.load(at, readonly=False))
        return self.rows.read(self.e, i, row, place)
