"""Attention by `mma.sync`: a warp has 16 rows, in all warps of a block or of its own.

    keys of a warp      all of a tile, and rows of its own      (`down` warps)
                        a part of a tile, and the rows of all   (`deep` warps)

Queries are fragments in registers, or lines of shared memory where registers are too few. Tiles of
keys and values pass through a ring of stages in shared memory, which `cp.async` fills ahead.

f32 is rounded to tf32 as operand of both products; scores, softmax and sums have all digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.attention_tiles import AttentionTile
from shlo_disc.lower.cuda.attention_writer import AttentionWriter
from shlo_disc.lower.cuda.instructions import commit_copies, multiply, wait_for_copies
from shlo_disc.lower.cuda.lines import Lines
from shlo_disc.lower.cuda.online_softmax import RowState
from shlo_disc.lower.values.typed import IndexValue, Register


class WarpWriter(AttentionWriter):
    """Writes one variant by `mma.sync`; `by_chunks`: operands are copied 16 bytes at once."""

    units: ClassVar[str] = "warps"

    def __init__(self, plan: AttentionPlan, tile: AttentionTile, *, by_chunks: bool) -> None:
        warps = tile.down * tile.deep
        super().__init__(plan, tile.rows, plan.heads.width, warps * plan.machine.warp, tile.keys)
        self.tile_, self.by_chunks = tile, by_chunks
        size = plan.p.a.bytes
        self.key_lines = Lines(self.b, tile.keys, plan.heads.depth, size, tile.stages)
        self.value_lines = Lines(self.b, tile.keys, plan.heads.width, size, tile.stages)
        self.query_lines = self.key_lines
        if not tile.keeps_queries:
            self.query_lines = Lines(self.b, tile.rows, plan.heads.depth, size, 1)
        self.down = self.warp // tile.deep
        self.deep = self.warp % tile.deep
        self.query: Callable[[int], list[Register]]
        """The left fragment of this warp's queries from an element on."""

    @property
    def first_row(self) -> IndexValue:
        """See `AttentionWriter.first_row`."""
        return self.down * 16

    def begin(self, place: list[IndexValue], row: IndexValue) -> None:
        """See `AttentionWriter.begin`: fragments of this warp's rows."""
        b, zero = self.b, self.b.index(0)
        lines = self.query_lines
        lines.copy(self.queries(place), row, zero, self.rows, by_chunks=self.by_chunks)
        commit_copies(b)
        wait_for_copies(b, 0)
        b.barrier_of_block()
        load = lines.left(zero, self.first_row, self.lane)
        if not self.tile_.keeps_queries:
            self.query = load
            return
        kept = {k: load(k) for k in range(0, self.plan.heads.depth, lines.step)}
        self.query = kept.__getitem__
        b.barrier_of_block()  # all have read them: keys take their place

    def through(
        self,
        place: list[IndexValue],
        row: IndexValue,
        first: IndexValue,
        last: IndexValue,
        start: Sequence[Register],
    ) -> list[Register]:
        """See `AttentionWriter.through`."""
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
            loop.yield_(*self._tile(place, row, stage, key, list(loop.args)))
        wait_for_copies(b, 0)
        b.barrier_of_block()  # all have read the last stage
        return loop.results

    def _tile(
        self,
        place: list[IndexValue],
        row: IndexValue,
        stage: IndexValue,
        key: IndexValue,
        carried: list[Register],
    ) -> list[Register]:
        """State and results behind one more tile of keys, which begins at `key`."""
        b, name, own = self.b, self.plan.element, self.tile_.own_keys
        inner = self.is_inner(row, key)
        first = self.deep * own
        zero = b.constant(0.0, "f32")
        sums = [zero] * (own // 8 * 4)
        right = self.key_lines.right(stage, first, self.lane)
        for k in range(0, self.plan.heads.depth, self.key_lines.step):
            left = self.query(k)
            for group in range(0, own, 16):
                both = right(group, k)
                for half in range(2):
                    at = 4 * (group // 8 + half)
                    pair = both[2 * half : 2 * half + 2]
                    sums[at : at + 4] = multiply(b, name, left, pair, sums[at : at + 4])
        scores = self.scores(sums, place, self.rows_of_thread(row), key + first, inner)
        weights, scales, state = self.softmax.step(scores, RowState.of(carried[:4]))
        results = [x * scales[k // 2 % 2] for k, x in enumerate(carried[4:])]
        fragments = self.packed(weights)
        across = self.value_lines.right_across(stage, first, self.lane)
        for number, line in enumerate(range(0, own, self.value_lines.step)):
            left = fragments[4 * number : 4 * number + 4]
            for column in range(0, self.columns, 16):
                both = across(line, column)
                for half in range(2):
                    at = 4 * (column // 8 + half)
                    pair = both[2 * half : 2 * half + 2]
                    results[at : at + 4] = multiply(b, name, left, pair, results[at : at + 4])
        return [*state.registers, *results]
