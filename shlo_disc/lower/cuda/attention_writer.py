"""Attention by `mma.sync`: a block has rows of queries, and goes through tiles of keys and values.

    keys of a warp      all of a tile, and 16 rows of its own    (`down` warps)
                        a part of a tile, and the rows of all    (`deep` warps)

Queries are fragments in registers. Tiles of keys and values pass through a ring of stages in shared
memory, which `cp.async` fills ahead. Scores, weights and results stay in registers: weights are the
left operand of the second product as the first one leaves them. All sums are f32.

Warps that share rows add their results in the order of the warps. So sizes alone decide a rounding.

Source: T. Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.fragments import store_sums
from shlo_disc.lower.cuda.instructions import (
    commit_copies,
    multiply,
    packed_pair,
    true_for_any,
    wait_for_copies,
)
from shlo_disc.lower.cuda.lines import Lines, Source
from shlo_disc.lower.cuda.online_softmax import OnlineSoftmax, RowState
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register

__all__ = ["FEW", "LANES", "TILE", "AttentionTile", "AttentionWriter", "WarpWriter"]

LANES = 8
"""Columns that a thread finishes and stores at once."""

ZERO_FROM = 150.0
"""Differences from the maximum from which on an exponential is 0 in f32."""


@dataclass(frozen=True)
class AttentionTile:
    """How a block divides its work."""

    down: int
    """Warps below each other, 16 rows each."""
    deep: int
    """Warps that share rows; each has a part of the keys of a tile."""
    keys: int
    stages: int

    @property
    def rows(self) -> int:
        """Rows of queries of a block."""
        return 16 * self.down


TILE = AttentionTile(4, 1, 64, 2)
FEW = AttentionTile(1, 4, 64, 3)
"""For up to 16 rows."""


class AttentionWriter(ProductWriter):
    """What kernels share that go through keys for a tile of rows."""

    plan: AttentionPlan

    def __init__(self, plan: AttentionPlan, rows: int, threads: int) -> None:
        super().__init__(plan, rows=rows, columns=plan.wide, threads=threads, lanes=LANES)
        b = self.b
        self.lane = b.thread % plan.machine.warp
        self.warp = b.thread // plan.machine.warp
        self.key_array = self.memory(plan.key_buffer, plan.p.a)
        self.softmax = OnlineSoftmax(
            b,
            plan.softmax,
            plan.attention,
            plan.visible,
            plan.block,
            plan.shapes,
            self.arguments,
        )

    # ---------------------------------------------------------------- operands

    def queries(self, place: Sequence[IndexValue]) -> Source:
        """The rows of queries of a batch entry."""
        depth = self.plan.attention.depth.value
        return self._source(self.a, self.origin(place, "a"), self.m, "query", "q_unit", depth)

    def keys(self, place: Sequence[IndexValue]) -> Source:
        """The keys of a batch entry."""
        b, depth = self.b, self.plan.attention.depth.value
        begin = b.size("k_first")
        for i, at in enumerate(place):
            begin = begin + at * b.size(f"batch{i}k")
        return self._source(self.key_array, begin, self.depth, "key", "k_unit", depth)

    def values(self, place: Sequence[IndexValue]) -> Source:
        """The values of a batch entry."""
        width = self.plan.attention.width.value
        assert self.b_array is not None
        begin = self.origin(place, "b")
        return self._source(self.b_array, begin, self.depth, "value", "v_unit", width)

    def _source(
        self,
        memory: MemRef,
        begin: IndexValue,
        size: IndexValue,
        stride: str,
        unit: str,
        length: int,
    ) -> Source:
        b = self.b
        return Source(memory, begin, size, b.size(stride), b.size(unit), length)

    # ---------------------------------------------------------------- keys

    def is_inner(self, row: IndexValue, key: IndexValue, count: int) -> Mask:
        """True if `count` keys from `key` on exist, and all rows from `row` on see them."""
        b, last = self.b, key + count
        found = last <= self.depth
        if self.plan.visible is not None:
            found = found & (last <= row + b.size("ahead") + 1)
        return found

    def scores(
        self,
        sums: Sequence[Register],
        place: Sequence[IndexValue],
        rows: Sequence[IndexValue],
        key: IndexValue,
        inner: Mask,
    ) -> list[Register]:
        """The scores of `sums`, of keys from `key` on."""
        b, column = self.b, key + self.lane % 4 * 2
        with b.if_(inner) as branch:
            found = self.softmax.scores(sums, place, rows, column, self.depth, is_inner=True)
            branch.yield_(*found)
            with branch.otherwise():
                found = self.softmax.scores(sums, place, rows, column, self.depth, is_inner=False)
                branch.yield_(*found)
        return branch.results

    def tiles_of_keys(self, row: IndexValue, keys: int) -> tuple[IndexValue, IndexValue]:
        """How many tiles of keys the rows from `row` on see (`visible_keys.py`), and all tiles."""
        b, end = self.b, self.depth.ceil_div(keys)
        if self.plan.visible is None:
            return end, end
        last = b.min(row + self.rows, self.m)
        seen = b.max(last + b.size("ahead"), 0).ceil_div(keys)
        return b.min(seen, end), end

    def hidden_count(self, maximum: Sequence[Register]) -> Mask:
        """True for all threads if hidden keys count for a row of the block."""
        b, visible = self.b, self.plan.visible
        assert visible is not None
        far = b.flags(True)
        for one in maximum:
            far = far & (one - one.constant(visible.hidden) > ZERO_FROM)
        return true_for_any(b, ~far)

    @property
    def reads_hidden(self) -> bool:
        """True if keys that a mask hides may count all the same."""
        visible = self.plan.visible
        return visible is not None and visible.hidden != -math.inf

    def packed(self, weights: Sequence[Register]) -> list[Register]:
        """Weights as left fragments of the second product: four registers for each 16 keys."""
        name = self.p.a.name
        return [packed_pair(self.b, name, *weights[k : k + 2]) for k in range(0, len(weights), 2)]


class WarpWriter(AttentionWriter):
    """Writes one variant by `mma.sync`; `by_chunks`: operands are copied 16 bytes at once."""

    units: ClassVar[str] = "warps"

    def __init__(self, plan: AttentionPlan, tile: AttentionTile, *, by_chunks: bool) -> None:
        warps = tile.down * tile.deep
        super().__init__(plan, tile.rows, warps * plan.machine.warp)
        self.tile_, self.by_chunks = tile, by_chunks
        self.key_lines = Lines(self.b, tile.keys, plan.head, tile.stages)
        self.value_lines = Lines(self.b, tile.keys, plan.wide, tile.stages)
        self.own_keys = tile.keys // tile.deep
        self.down = self.warp // tile.deep
        self.deep = self.warp % tile.deep

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        state, sums = self.rows_of_tile(place, row, *self.tiles_of_keys(row, self.tile_.keys))
        rows = self.rows_of_thread(row)
        factors = [
            self.softmax.factor(maximum, total, place, at, self.depth)
            for maximum, total, at in zip(state.maximum, state.total, rows, strict=True)
        ]
        sums = [x * factors[k // 2 % 2] for k, x in enumerate(sums)]
        store_sums(self, place, row, column, sums, (self.down * 16, 0), self.columns)

    def rows_of_thread(self, row: IndexValue) -> list[IndexValue]:
        """The two rows of this thread, or the last one where they do not exist."""
        b = self.b
        own = row + self.down * 16 + self.lane // 4
        return [b.min(own + 8 * half, self.m - 1) for half in range(2)]

    def rows_of_tile(
        self, place: list[IndexValue], row: IndexValue, seen: IndexValue, end: IndexValue
    ) -> tuple[RowState, list[Register]]:
        """The state of the rows behind all keys, with whole sums, and their unscaled results."""
        b = self.b
        queries = self._queries(place, row)
        zero = b.constant(0.0, "f32")
        count = self.columns // 8 * 4
        start = [*self.softmax.start().registers, *[zero] * count]
        if not self.reads_hidden:
            found = self._through(place, row, queries, b.index(0), seen, start)
        else:
            with b.loop(0, 2, 1, start, hint="phase", barrier=True) as phase:
                is_first = phase.index.equals(0)
                hidden = b.select(self.hidden_count(phase.args[:2]), end, seen)
                first = b.select(is_first, b.index(0), seen)
                last = b.select(is_first, seen, hidden)
                phase.yield_(*self._through(place, row, queries, first, last, phase.args))
            found = phase.results
        state = RowState.of(found[:4])
        total = [self.softmax.across_quad(one) for one in state.total]
        return RowState(state.maximum, (total[0], total[1])), found[4:]

    def _queries(self, place: list[IndexValue], row: IndexValue) -> list[list[Register]]:
        """The fragments of this warp's rows."""
        b, zero = self.b, self.b.index(0)
        self.key_lines.copy(self.queries(place), row, zero, self.rows, by_chunks=self.by_chunks)
        commit_copies(b)
        wait_for_copies(b, 0)
        b.barrier_of_block()
        load = self.key_lines.left(zero, self.down * 16, self.lane)
        found = [load(k) for k in range(0, self.plan.head, 16)]
        b.barrier_of_block()  # all have read them: keys take their place
        return found

    def _through(
        self,
        place: list[IndexValue],
        row: IndexValue,
        queries: Sequence[list[Register]],
        first: IndexValue,
        last: IndexValue,
        start: Sequence[Register],
    ) -> list[Register]:
        """State and results behind the tiles of keys from `first` to `last`."""
        b, t = self.b, self.tile_
        sources = (self.key_lines, self.keys(place)), (self.value_lines, self.values(place))

        def begin(number: IndexValue, stage: IndexValue) -> None:
            with b.if_(number < last):
                for lines, source in sources:
                    lines.copy(source, number * t.keys, stage, t.keys, by_chunks=self.by_chunks)
            commit_copies(b)  # groups are counted, empty ones too

        for ahead in range(t.stages - 1):
            begin(first + ahead, b.index(ahead))
        with b.loop(first, last, 1, list(start), hint="keys", barrier=True) as loop:
            wait_for_copies(b, t.stages - 2)
            b.barrier_of_block()  # the stage is there, and the one before has been read
            number = loop.index - first
            begin(loop.index + (t.stages - 1), (number + (t.stages - 1)) % t.stages)
            stage = number % t.stages
            key = loop.index * t.keys
            loop.yield_(*self._tile(place, row, queries, stage, key, list(loop.args)))
        wait_for_copies(b, 0)
        b.barrier_of_block()  # all have read the last stage
        return loop.results

    def _tile(
        self,
        place: list[IndexValue],
        row: IndexValue,
        queries: Sequence[list[Register]],
        stage: IndexValue,
        key: IndexValue,
        carried: list[Register],
    ) -> list[Register]:
        """State and results behind one more tile of keys, which begins at `key`."""
        b, name, own = self.b, self.p.a.name, self.own_keys
        inner = self.is_inner(row, key, self.tile_.keys)
        first = self.deep * own
        zero = b.constant(0.0, "f32")
        sums = [zero] * (own // 8 * 4)
        right = self.key_lines.right(stage, first, self.lane)
        for step, left in enumerate(queries):
            for group in range(0, own, 16):
                both = right(group, 16 * step)
                for half in range(2):
                    at = 4 * (group // 8 + half)
                    pair = both[2 * half : 2 * half + 2]
                    sums[at : at + 4] = multiply(b, name, left, pair, sums[at : at + 4])
        scores = self.scores(sums, place, self.rows_of_thread(row), key + first, inner)
        weights, scales, state = self.softmax.step(scores, RowState.of(carried[:4]))
        results = [x * scales[k // 2 % 2] for k, x in enumerate(carried[4:])]
        fragments = self.packed(weights)
        across = self.value_lines.right_across(stage, first, self.lane)
        for step in range(own // 16):
            left = fragments[4 * step : 4 * step + 4]
            for column in range(0, self.columns, 16):
                both = across(16 * step, column)
                for half in range(2):
                    at = 4 * (column // 8 + half)
                    pair = both[2 * half : 2 * half + 2]
                    results[at : at + 4] = multiply(b, name, left, pair, results[at : at + 4])
        return [*state.registers, *results]
