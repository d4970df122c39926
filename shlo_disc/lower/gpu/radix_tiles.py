"""Rows of one tile, sorted digit by digit in shared memory: one launch.

A block has a row. Keys, and their places in the row where other arrays follow, stay in shared
memory; a pass for each digit puts them where `radix.py` says. The elements of a thread are as many
as the row needs, so short rows cost less.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.radix import Ranks, digit, last_digit, pass_count
from shlo_disc.lower.gpu.sorted_rows import Rows, builder, write_last
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.tasks.single_op import SingleOp
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

__all__ = ["radix_tiles"]


def radix_tiles(single: SingleOp, machine: Machine, rows: Rows, neighbours: int) -> Launch:
    """The launch that sorts rows of up to `neighbours` records for each thread of a block."""
    assert rows.radix is not None
    return _Tiles(single, machine, rows, neighbours).launch()


class _Tiles:
    def __init__(self, single: SingleOp, machine: Machine, rows: Rows, neighbours: int) -> None:
        assert rows.radix is not None
        self.single, self.rows, self.key, self.most = single, rows, rows.radix, neighbours
        self.e = single.kernel(0, GroupBuilder(machine, THREADS, THREADS))
        self.b = builder(self.e)
        self.tile = THREADS * neighbours

    def launch(self) -> Launch:
        """See :func:`radix_tiles`."""
        b, rows, key = self.b, self.rows, self.key
        n = b.param(rows.size, opaque=True)
        count = b.param(pass_count(key), opaque=True)
        each = n.ceil_div(THREADS)
        keys = b.shared(rows.storages[key.array][0], self.tile)
        places = b.shared("i16", self.tile) if rows.moved else None
        ranks = Ranks(b, key.bits)
        with b.loop(b.lo, b.hi, 1, hint="row") as row:
            ats = [b.thread + k * THREADS for k in range(self.most)]
            near = [b.min(at, n - 1) for at in ats]
            read = [rows.read(self.e, key.array, row.index, at) for at in near]
            for at, value in zip(ats, read, strict=True):
                keys.store(value, at)
                if places is not None:
                    places.store(b.cast("arith.index_cast", at, "i16"), at)
            b.barrier_of_block()
            with b.loop(0, count, 1, hint="digit") as turn:
                self._pass(turn.index, n, each, keys, places, ranks)
            self._write(row.index, n, ats, near, keys, places)
        return self.single.launch(self.e, "sort_radix_tiles", rows.rows, Expr.const(1))

    def _pass(
        self,
        number: IndexValue,
        n: IndexValue,
        each: IndexValue,
        keys: MemRef,
        places: MemRef | None,
        ranks: Ranks,
    ) -> None:
        """Put keys and places in the order of one digit."""
        b = self.b
        ranks.clear()
        warp = b.machine.warp
        first = ranks.warp * (each * warp) + ranks.lane
        # Behind the last element of the tile anything is read.
        ats = [b.min(first + k * warp, self.tile - 1) for k in range(self.most)]
        values = [keys.load(at, readonly=False) for at in ats]
        moved = [] if places is None else [places.load(at, readonly=False) for at in ats]
        digits = self._digits(number, n, ats, values)
        found: list[Register] = []
        for k, own in enumerate(digits):
            with b.if_(each > k) as branch:
                branch.yield_(ranks.rank(own))
                with branch.otherwise():
                    branch.yield_(b.constant(0, "i32"))
            found.append(branch.results[0])
        ranks.finish()
        b.barrier_of_block()
        for k, own in enumerate(digits):
            with b.if_(each > k):
                to = ranks.place(own, found[k])
                keys.store(values[k], to)
                if places is not None:
                    places.store(moved[k], to)
        b.join()
        b.barrier_of_block()

    def _digits(
        self,
        number: IndexValue,
        n: IndexValue,
        ats: Sequence[IndexValue],
        values: Sequence[Register],
    ) -> list[Register]:
        """Digits of the keys; what is behind the row stays behind it."""
        b = self.b
        last = b.constant(last_digit(self.key), "i32")
        return [
            b.select(at < n, digit(self.e, self.key, value, number), last)
            for at, value in zip(ats, values, strict=True)
        ]

    def _write(
        self,
        row: IndexValue,
        n: IndexValue,
        ats: Sequence[IndexValue],
        near: Sequence[IndexValue],
        keys: MemRef,
        places: MemRef | None,
    ) -> None:
        e, b, rows = self.e, self.b, self.rows
        stored = [i for i in rows.arrays if rows.results[i] is not None]
        found = [_record(e, rows, stored, row, at, keys, places) for at in near]
        for at, record in zip(ats, found, strict=True):
            with b.if_(at < n):
                write_last(e, rows, row, at, dict(zip(stored, record, strict=True)))


def _record(
    e: Elemental,
    rows: Rows,
    stored: Sequence[int],
    row: IndexValue,
    at: IndexValue,
    keys: MemRef,
    places: MemRef | None,
) -> list[Register]:
    """The `stored` arrays of the record that is at `at` in the tile."""
    assert rows.radix is not None
    found = []
    for i in stored:
        if i == rows.radix.array:
            found.append(keys.load(at, readonly=False))
            continue
        assert places is not None
        place = e.b.to_index("arith.index_castui", places.load(at, readonly=False))
        found.append(rows.read(e, i, row, place))
    return found
