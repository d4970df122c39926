"""Products of up to 16 rows, and bands: operands go from memory straight to registers.

The warps of a block share a tile of C and take steps along K in turn. Each warp has its next steps
on their way while it multiplies (`mma.sync`). No warp waits for another before its last step. Then
shared memory takes the sums of the warps, which are added in the order of the warps.

A matrix instruction takes its columns and its steps along K in any order, if both operands have the
same one. So the lanes of a warp load whole vectors. Lane l, with g = l // 4 and t = l % 4, has

    k = VECTOR * t + 0, 1, ... of a step: all of a vector of A, which lies along K
    rows g and g + 8 of every 16
    columns: where B lies along K, g of every 8; else as many neighbours as it loads at once

Columns of several bands lie side by side in the tile. Sums are f32. The fragments are those of
NVIDIA's PTX ISA, sections 9.7.14.5.4 (`m16n8k8`) and 9.7.14.5.8 (`m16n8k16`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.instructions import (
    global_address,
    load_words,
    multiply,
    pair_of_halves,
    round_to_tf32,
)
from shlo_disc.lower.gpu.builder import ACCESS_BYTES
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.values.typed import IndexValue, Register

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

WARP_BYTES = 64
"""What a warp takes along K at once."""

_MOST_LANES = 4
"""Columns that a thread finishes and stores at once, at most."""

_PAD = 8
"""Elements behind a row of sums in shared memory: rows begin in different banks."""

Load = Callable[[IndexValue], list[Register]]
"""Words (i32) of an operand that a lane has of a step: of the step with that number."""


@dataclass(frozen=True)
class DirectTile:
    """How a block divides its work."""

    rows: int
    columns: int
    """Of each band."""
    deep: int
    """Warps that take steps along K in turn."""
    down: int = 1
    """Warps below each other."""
    across: int = 1
    """Warps side by side."""
    ahead: int = 2
    """Steps of a warp that are in registers, or on their way to them."""
    bands: int = 1

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.deep * self.down * self.across

    def for_depth(self, steps: Expr) -> DirectTile:
        """With no more warps along K than steps, where their number is known."""
        deep = self.deep
        while steps.is_const and deep > 1 and deep // 2 >= steps.value:
            deep //= 2
        return replace(self, deep=deep)

    def lanes(self, threads: int) -> int:
        """Columns that each of `threads` finishes at once: all of them have some."""
        return max(1, min(_MOST_LANES, self.rows * self.columns // threads))

    def count(self, plan: MatrixProduct) -> Expr:
        """Such tiles in a product."""
        p = plan.p
        return p.batches * ceil_div(p.rows, self.rows) * ceil_div(p.columns, self.columns)


SLIM = DirectTile(16, 16, 16, ahead=3)
FLAT = {2: DirectTile(16, 32, 16), 4: DirectTile(16, 32, 16, ahead=3)}
"""By bytes of an element."""
FLAT_WIDE = DirectTile(16, 64, 8, across=2, ahead=3)
"""A multiprocessor has room for 16 warps of 16 rows and 32 columns each."""

BANDED_DIRECTLY = {
    2: DirectTile(16, 16, 8, bands=2, ahead=3),
    3: DirectTile(16, 16, 8, bands=3),
    4: DirectTile(16, 8, 8, bands=4, ahead=3),
}
"""The tile of products that have so many bands."""


def is_direct(plan: MatrixProduct) -> bool:
    """True for layouts of which lanes load whole vectors: A lies along K, and K is one run of B."""
    return plan.contiguous("a") == "ak" and (
        plan.contiguous("b") == "bk"
        or (plan.contiguous("b") == "br" and len(plan.walks["bk"]) == 1)
    )


class DirectWriter(ProductWriter):
    """Writes the kernel of one tile."""

    plan: MatrixProduct
    units = "direct"

    def __init__(self, plan: MatrixProduct, tile: DirectTile) -> None:
        threads = tile.warps * plan.machine.warp
        super().__init__(
            plan,
            rows=tile.rows,
            columns=tile.columns,
            threads=threads,
            lanes=tile.lanes(threads),
        )
        self.tile_, self.bytes = tile, plan.p.a.bytes
        b, warp = self.b, plan.machine.warp
        self.vector = ACCESS_BYTES // self.bytes
        """Elements of a whole vector."""
        self.step = WARP_BYTES // self.bytes
        lane, number = b.thread % warp, b.thread // warp
        self.g, self.t = lane // 4, lane % 4
        self.deep, flat = number % tile.deep, number // tile.deep
        self.own_rows = tile.rows // tile.down
        self.own_columns = tile.columns * tile.bands // tile.across
        self.first_row = flat // tile.across * self.own_rows
        self.first_column = flat % tile.across * self.own_columns
        self.b_along_k = plan.contiguous("b") == "bk"
        self.neighbours = 1 if self.b_along_k else self._most_neighbours()
        """Neighbouring columns of a lane."""
        self.line = tile.columns * tile.bands + _PAD
        size = tile.deep * tile.rows * self.line
        self.sums = b.shared("f32", size)

    def _most_neighbours(self) -> int:
        """Those of a vector, or fewer where columns of a warp or of a band are no multiple."""
        count = self.vector
        while self.own_columns % (8 * count) or self.tile_.columns % count:
            count //= 2
        return count

    # ---------------------------------------------------------------- operands

    def _rows_of_a(self, place: list[IndexValue], row: IndexValue) -> Load:
        """Words of A: of each row that a lane has, a vector along K.

        Rows behind the last are the last one: nobody stores their sums.
        """
        b = self.b
        base = global_address(b, self.a) + self.origin(place, "a") * self.bytes
        own = self.t * self.vector
        starts = []
        for first in range(0, self.own_rows, 8):
            at = b.min(row + self.first_row + self.g + first, self.m - 1)
            starts.append(base + (self.walk("ar", at) + own) * self.bytes)

        def load(step: IndexValue) -> list[Register]:
            k = step * self.step
            exists = k + own < self.depth
            return [
                word
                for start in starts
                for word in load_words(b, start + k * self.bytes, 4, exists)
            ]

        return load

    def _columns(self, column: IndexValue, first: IndexValue | int) -> IndexValue:
        """The row of B, as `br` walks it, of column `first` of the tile at `column`."""
        b, p = self.b, self.p
        within = self.first_column + first
        size = self.n - self.neighbours
        if p.bands == 1:
            return b.min(column + within, size)
        band, within = within // self.columns, within % self.columns
        return band * self.n + b.min(column + within, size)

    def _columns_of_b(self, place: list[IndexValue], column: IndexValue) -> Load:
        """Words of B. Columns behind the last are others."""
        b, own = self.b, self.t * self.vector
        assert self.b_array is not None
        base = global_address(b, self.b_array) + self.origin(place, "b") * self.bytes
        each = self.neighbours
        starts = []
        for first in range(0, self.own_columns, 8 * each):
            at = self.walk("br", self._columns(column, self.g * each + first))
            starts.append(base + (at + self.walk("bk", own)) * self.bytes)

        def along_k(step: IndexValue) -> list[Register]:
            k = step * self.step
            exists = k + own < self.depth
            there = k * self.bytes
            return [w for s in starts for w in load_words(b, s + there, 4, exists)]

        def along_rows(step: IndexValue) -> list[Register]:
            k, stride = step * self.step, self.walk("bk", b.index(1)) * self.bytes
            there = k * stride
            left = self.depth - (k + own)
            count = each * self.bytes // 4
            return [
                word
                for start in starts
                for i in range(self.vector)
                for word in load_words(b, start + there + stride * i, count, left > i)
            ]

        return along_k if self.b_along_k else along_rows

    def _along_k(self, words: Sequence[Register]) -> list[list[Register]]:
        """For every eighth column that a lane has: its elements along K, as four words."""
        each = self.neighbours
        if self.b_along_k:
            return [list(words[i : i + 4]) for i in range(0, len(words), 4)]
        count = each * self.bytes // 4
        found = []
        for start in range(0, len(words), count * self.vector):
            rows = [words[start + i * count : start + (i + 1) * count] for i in range(self.vector)]
            for j in range(each):
                if self.bytes == 4:
                    found.append([row[j] for row in rows])
                    continue
                found.append(
                    [
                        pair_of_halves(self.b, low[j // 2], high[j // 2], j % 2)
                        for low, high in zip(rows[::2], rows[1::2], strict=True)
                    ]
                )
        return found

    # ---------------------------------------------------------------- sums

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, t = self.b, self.tile_
        operands = [self._rows_of_a(place, row), self._columns_of_b(place, column)]
        steps = self.depth.ceil_div(self.step)
        sizes: list[int] = []

        def begin(number: IndexValue | int) -> list[Register]:
            """Begin to load this warp's step of that number; behind the last one all is 0."""
            found = [load(b.index(number) * t.deep + self.deep) for load in operands]
            sizes[:] = map(len, found)
            return [*found[0], *found[1]]

        zero = b.constant(0.0, "f32")
        count = self.own_rows // 16 * (self.own_columns // 8) * 4
        start: list[Register] = [word for k in range(t.ahead - 1) for word in begin(k)]
        begun = len(start)
        start += [zero] * count
        rounds = steps.ceil_div(t.deep * t.ahead)
        with b.loop(0, rounds, 1, start, hint="k", barrier=True) as k:
            there, sums = list(k.args[:begun]), list(k.args[begun:])
            for e in range(t.ahead):
                there += begin(k.index * t.ahead + (t.ahead - 1 + e))
                left, right = there[: sizes[0]], there[sizes[0] : sum(sizes)]
                there = there[sum(sizes) :]
                sums = self._multiplied(left, right, sums)
            k.yield_(*there, *sums)
        self._keep(list(k.results[begun:]))
        b.barrier_of_block()
        self._finish(place, row, column)

    def _multiplied(
        self, left: Sequence[Register], right: Sequence[Register], sums: list[Register]
    ) -> list[Register]:
        b, element = self.b, self.plan.element
        assert element is not None
        if self.bytes == 4:
            left = [round_to_tf32(b, word) for word in left]
            right = [round_to_tf32(b, word) for word in right]
        rows = [left[i : i + 8] for i in range(0, len(left), 8)]
        columns = self._along_k(right)
        for half in (0, 2):
            for i, row in enumerate(rows):
                mine = [row[half], row[4 + half], row[half + 1], row[5 + half]]
                for j, one in enumerate(columns):
                    at = 4 * (i * len(columns) + j)
                    other = one[half : half + 2]
                    sums[at : at + 4] = multiply(b, element, mine, other, sums[at : at + 4])
        return sums

    def _keep(self, sums: list[Register]) -> None:
        """Store the sums of a warp to shared memory.

        Of 16 rows and 8 columns a lane has rows g and g + 8, columns 2 t and the next. With E
        neighbours, E such groups are 8 E columns: column c of group j is number c E + j.
        """
        b, each = self.b, self.neighbours
        groups = self.own_columns // 8
        row = (self.deep * self.rows + self.first_row + self.g) * self.line
        first = row + self.first_column + self.t * (2 * each)
        lanes = min(4, 2 * each)
        for i in range(self.own_rows // 16):
            for start in range(0, groups, each):
                for half in (0, 1):
                    places = [
                        4 * (i * groups + start + j) + 2 * half + c
                        for c in (0, 1)
                        for j in range(each)
                    ]
                    for k in range(0, 2 * each, lanes):
                        own = [sums[at] for at in places[k : k + lanes]]
                        value = b.joined(own)
                        at = (16 * i + 8 * half) * self.line + 8 * start + k
                        self.sums.vector_store(value, first + at, aligned=True)

    def _finish(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """Add the sums of all warps, first to last, and store what becomes of them."""
        b, t = self.b, self.tile_
        vectors = t.columns // self.lanes
        part = t.rows * self.line
        with b.loop(b.thread, t.rows * vectors, b.threads, hint="vector", barrier=True) as vector:
            down, right = vector.index // vectors, vector.index % vectors * self.lanes
            r, c = row + down, column + right
            with b.if_((r < self.m) & (c < self.n)):
                found = []
                for band in range(t.bands):
                    start = down * self.line + right + band * t.columns
                    total = self.sums.vector_load(start, self.lanes, False, aligned=True)
                    for k in range(1, t.deep):
                        at = start + k * part
                        more = self.sums.vector_load(at, self.lanes, False, aligned=True)
                        total = total + more
                    found.append(total)
                self.store(place, r, c, found, b.mask(self.n - c, self.lanes))
