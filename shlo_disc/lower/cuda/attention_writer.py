"""What kernels of attention share: a block has rows of queries, and goes through tiles of keys.

Scores, weights and results stay in registers: weights are the left operand of the second product as
the first one leaves them. All sums are f32.

Source: T. Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.fragments import store_sums
from shlo_disc.lower.cuda.instructions import packed_pair, round_to_tf32, true_for_any
from shlo_disc.lower.cuda.lines import Source
from shlo_disc.lower.cuda.online_softmax import OnlineSoftmax, RowState
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register

LANES = 8
"""Columns that a thread finishes and stores at once."""

ZERO_FROM = 150.0
"""Differences from the maximum from which on an exponential is 0 in f32."""


def softmax_of(w: ProductWriter) -> OnlineSoftmax:
    """The row work of the attention that `w` writes a kernel of."""
    plan = w.plan
    assert isinstance(plan, AttentionPlan)
    parts = plan.softmax, plan.attention, plan.visible, plan.block, plan.shapes
    return OnlineSoftmax(w.b, *parts, w.arguments)


class AttentionWriter(ProductWriter):
    """What kernels share that go through keys for a tile of rows."""

    plan: AttentionPlan

    def __init__(
        self, plan: AttentionPlan, rows: int, columns: int, threads: int, keys: int
    ) -> None:
        """`keys`: those of a tile."""
        super().__init__(plan, rows=rows, columns=columns, threads=threads, lanes=LANES)
        b = self.b
        self.lane = b.thread % plan.machine.warp
        self.warp = b.thread // plan.machine.warp
        self.tile_keys = keys
        self.key_array = self.memory(plan.key_buffer, plan.p.a)
        self.softmax = softmax_of(self)

    def _tile_of(
        self, number: IndexValue, down: IndexValue, across: IndexValue
    ) -> tuple[IndexValue, IndexValue]:
        """See `ProductWriter._tile_of`: rows that see most keys come first."""
        row, column = super()._tile_of(number, down, across)
        return (row if self.plan.visible is None else down - 1 - row), column

    # ---------------------------------------------------------------- rows

    @property
    def first_row(self) -> IndexValue:
        """The first row of this warp in the tile."""
        return self.warp * 16

    def rows_of_thread(self, row: IndexValue) -> list[IndexValue]:
        """The two rows of this thread, or the last one where they do not exist."""
        b = self.b
        own = row + self.first_row + self.lane // 4
        return [b.min(own + 8 * half, self.m - 1) for half in range(2)]

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        state, sums = self.results(place, row, *self.tiles_of_keys(row))
        rows = self.rows_of_thread(row)
        factors = [
            self.softmax.factor(maximum, total, place, at, self.depth)
            for maximum, total, at in zip(state.maximum, state.total, rows, strict=True)
        ]
        sums = [x * factors[k // 2 % 2] for k, x in enumerate(sums)]
        store_sums(self, place, row, column, sums, (self.first_row, 0), self.columns)

    def results(
        self, place: list[IndexValue], row: IndexValue, seen: IndexValue, end: IndexValue
    ) -> tuple[RowState, list[Register]]:
        """The state of the rows behind all keys, with whole sums, and their unscaled results.

        `seen`: tiles of keys that rows see, of `end` tiles.
        """
        b = self.b
        self.begin(place, row)
        start = self.start()
        if not self.reads_hidden:
            found = self.through(place, row, b.index(0), seen, start)
        else:
            with b.loop(0, 2, 1, start, hint="phase", barrier=True) as phase:
                is_first = phase.index.equals(0)
                hidden = b.select(self.hidden_count(phase.args[:2]), end, seen)
                first = b.select(is_first, b.index(0), seen)
                last = b.select(is_first, seen, hidden)
                phase.yield_(*self.through(place, row, first, last, phase.args))
            found = phase.results
        return self.whole_state(found[:4]), found[4:]

    def start(self) -> list[Register]:
        """State and results in front of the first key."""
        zero = self.b.constant(0.0, "f32")
        return [*self.softmax.start().registers, *[zero] * (self.columns // 2)]

    def whole_state(self, registers: Sequence[Register]) -> RowState:
        """The state of a row from those of its four threads."""
        state = RowState.of(registers)
        low, high = (self.softmax.across_quad(one) for one in state.total)
        return RowState(state.maximum, (low, high))

    def begin(self, place: list[IndexValue], row: IndexValue) -> None:
        """Write what loads the queries of a tile."""
        raise NotImplementedError

    def through(
        self,
        place: list[IndexValue],
        row: IndexValue,
        first: IndexValue,
        last: IndexValue,
        start: Sequence[Register],
    ) -> list[Register]:
        """State and results behind the tiles of keys from `first` to `last`.

        All threads have read shared memory behind it.
        """
        raise NotImplementedError

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

    def is_inner(self, row: IndexValue, key: IndexValue) -> Mask:
        """True if all keys of the tile at `key` exist, and all rows from `row` on see them."""
        b, last = self.b, key + self.tile_keys
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
        scores = partial(self.softmax.scores, sums, place, rows, column, self.depth)
        return b.either(inner, lambda: scores(is_inner=True), lambda: scores(is_inner=False))

    def tiles_of_keys(self, row: IndexValue) -> tuple[IndexValue, IndexValue]:
        """How many tiles of keys the rows from `row` on see (`visible_keys.py`), and all tiles."""
        b, keys = self.b, self.tile_keys
        end = self.depth.ceil_div(keys)
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
        """Weights as left fragments of the second product: four registers for each of them.

        A thread has weights of two neighbouring keys, of a row and of the eighth behind it. Of f32
        these are steps `lane % 4` and 4 behind it (`Lines.right_across`).
        """
        b, name = self.b, self.plan.element
        if name != "tf32":
            return [packed_pair(b, name, *weights[k : k + 2]) for k in range(0, len(weights), 2)]
        rounded = [round_to_tf32(b, b.bitcast(x, "i32")) for x in weights]
        return [rounded[k + at] for k in range(0, len(rounded), 4) for at in (0, 2, 1, 3)]
