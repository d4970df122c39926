"""Attention by warpgroups of Hopper (`wgmma`, sm_90a): each warpgroup of a block has 64 rows.

Queries, keys and values are in shared memory, weights in registers. Products of a tile of keys run
while the softmax of the next one is computed:

    scores of tile i + 1, then results of tile i      by the matrix units
    softmax of tile i + 1                             as soon as its scores are there

Lines of shared memory (`swizzle.py`) have 64 elements of a row. Of wider rows the lines of the
second 64 elements are behind those of the first. Rows that do not exist are 0.

Source: J. Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
Low-precision", 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.attention_writer import AttentionWriter
from shlo_disc.lower.cuda.instructions import (
    commit_copies,
    copy_rows,
    fence_for_warpgroups,
    global_address,
    multiply_lines,
    multiply_registers,
    wait_for_copies,
    wait_for_sums,
)
from shlo_disc.lower.cuda.lines import Source
from shlo_disc.lower.cuda.online_softmax import RowState
from shlo_disc.lower.cuda.swizzle import (
    CHUNK_BYTES,
    LINE,
    chunk_of_thread,
    layout,
    place_of_chunk,
    start_of_lines,
)
from shlo_disc.lower.values.typed import IndexValue, Register

_WARPGROUPS = 2
ROWS = 64 * _WARPGROUPS
"""Rows of queries of a block."""

WIDEST = 128
"""The largest head size: results of 64 rows have 64 registers of each thread then."""

_KEYS = 128
"""Keys of a tile."""

_ELEMENTS = 64
"""Elements of a line, of 16 bits."""

CHUNK = 8
"""Elements of one copy."""


class _Lines:
    """Stages of one operand: `count` rows of `length` elements, in blocks of 64 elements."""

    def __init__(self, w: WarpgroupWriter, count: int, length: int, stages: int) -> None:
        b = self.b = w.b
        self.count, self.blocks = count, -(-length // _ELEMENTS)
        self.block_bytes = count * LINE
        self.stage_bytes = self.block_bytes * self.blocks
        offset = b.shared_offset(self.stage_bytes * stages)
        self.line, self.chunk = chunk_of_thread(b)
        self.lines_at_once = b.threads * CHUNK_BYTES // LINE
        self.to = place_of_chunk(b, self.line, self.chunk, offset)
        """Where this thread's first chunk of the first stage goes (i32)."""
        self.start = start_of_lines(b, offset)

    def copy(self, source: Source, first: IndexValue, stage: IndexValue) -> None:
        """Begin to fill a stage with rows from `first` on."""
        b = self.b
        row = first + self.line
        left = b.cast("arith.index_cast", source.size - row, "i32")
        whole, nothing = b.constant(2 * CHUNK, "i32"), b.constant(0, "i32")
        inside = [whole] * self.blocks
        if source.length != self.blocks * _ELEMENTS:
            ends = [source.length - self.chunk * CHUNK - k * _ELEMENTS for k in range(self.blocks)]
            bytes_ = [b.min(b.max(end, 0), CHUNK) * 2 for end in ends]
            inside = [b.cast("arith.index_cast", size, "i32") for size in bytes_]
        at = (
            global_address(b, source.memory)
            + (source.begin + row * source.stride + self.chunk * CHUNK) * 2
        )
        step = source.stride * (2 * self.lines_at_once)
        sources, exist = [], []
        for line in range(0, self.count, self.lines_at_once):
            sources.append(at)
            exist.append(left > line)
            at = at + step
        to = self.to + b.cast("arith.index_cast", stage * self.stage_bytes, "i32")
        places = [
            [k * self.block_bytes + n * self.lines_at_once * LINE for n in range(len(sources))]
            for k in range(self.blocks)
        ]
        counts = [[b.select(one, size, nothing) for one in exist] for size in inside]
        copy_rows(b, to, places, sources, LINE, counts)

    def described(self, stage: IndexValue | int, line: IndexValue | int, across: bool) -> Register:
        """The descriptor (i64) of a stage from a line on, a multiple of 8.

        `across`: lines are steps along K. Else they are rows, and run along K.
        """
        b = self.b
        described = layout(self.block_bytes if across else 16)
        at = self.start + b.index(stage) * (self.stage_bytes >> 4) + b.index(line) * (LINE >> 4)
        return b.cast("arith.index_cast", at + described, "i64")


class WarpgroupWriter(AttentionWriter):
    """Writes the kernel; operands are copied 16 bytes at once."""

    units: ClassVar[str] = "warpgroups"

    def __init__(self, plan: AttentionPlan) -> None:
        columns = -(-plan.heads.width // _ELEMENTS) * _ELEMENTS
        threads = 4 * _WARPGROUPS * plan.machine.warp
        super().__init__(plan, ROWS, columns, threads, _KEYS)
        b = self.b
        b.shared_alignment = 8 * LINE  # the swizzle counts lines from there
        self.query_lines = _Lines(self, ROWS, plan.heads.depth, 1)
        self.key_lines = _Lines(self, _KEYS, plan.heads.depth, 2)
        self.value_lines = _Lines(self, _KEYS, columns, 2)
        self.warpgroup = b.thread // (4 * plan.machine.warp)

    def begin(self, place: list[IndexValue], row: IndexValue) -> None:
        """See `AttentionWriter.begin`: they are there with the first keys."""
        self.query_lines.copy(self.queries(place), row, self.b.index(0))
        commit_copies(self.b)

    def through(
        self,
        place: list[IndexValue],
        row: IndexValue,
        first: IndexValue,
        last: IndexValue,
        start: Sequence[Register],
    ) -> list[Register]:
        """See `AttentionWriter.through`."""
        b = self.b
        some = partial(self._some, place, row, first, last, start)
        found = b.either(first < last, some, lambda: start)
        wait_for_copies(b, 0)
        b.barrier_of_block()
        return found

    def _some(
        self,
        place: list[IndexValue],
        row: IndexValue,
        first: IndexValue,
        last: IndexValue,
        start: Sequence[Register],
    ) -> list[Register]:
        """State and results behind one tile of keys or more."""
        b, name = self.b, self.p.a.name
        keys, values = self.keys(place), self.values(place)
        zero, one = b.index(0), b.index(1)

        def copy_keys(number: IndexValue, stage: IndexValue) -> None:
            self.key_lines.copy(keys, number * _KEYS, stage)

        def copy_values(number: IndexValue, stage: IndexValue) -> None:
            self.value_lines.copy(values, number * _KEYS, stage)

        copy_keys(first, zero)
        commit_copies(b)
        copy_values(first, zero)
        copy_keys(first + 1, one)
        commit_copies(b)
        wait_for_copies(b, 1)
        fence_for_warpgroups(b)
        b.barrier_of_block()
        scores = wait_for_sums(b, 0, self._scores(zero))
        carried = [*start, *scores]
        count = len(start)
        with b.loop(first, last, 1, carried, hint="keys", barrier=True) as loop:
            now = (loop.index - first) % 2
            then = 1 - now
            sums = loop.args[count:]
            key = loop.index * _KEYS
            inner = self.is_inner(row, key)
            scores = self.scores(sums, place, self.rows_of_thread(row), key, inner)
            weights, scales, state = self.softmax.step(scores, RowState.of(loop.args[:4]))
            # The registers of `left` are those that products on their way read.
            waited = wait_for_sums(b, 0, [*loop.args[4:count], *weights])
            left = self.packed(waited[count - 4 :])
            results = self._scaled(waited[: count - 4], scales)
            wait_for_copies(b, 0)
            fence_for_warpgroups(b)
            b.barrier_of_block()  # values of this tile and keys of the next one are there
            copy_values(loop.index + 1, then)
            copy_keys(loop.index + 2, now)
            commit_copies(b)
            sums = self._scores(then)
            right = self.value_lines.described(now, 0, across=True)
            results = multiply_registers(b, name, left, right, 16 * LINE, results)
            sums = wait_for_sums(b, 1, sums)
            loop.yield_(*state.registers, *results, *sums)
        results = wait_for_sums(b, 0, loop.results[4:count])
        return [*loop.results[:4], *results]

    def _scaled(self, results: Sequence[Register], scales: Sequence[Register]) -> list[Register]:
        """`results` scaled row by row: seldom, where maxima do not grow any more."""
        low, high = scales
        return self.b.either(
            low.differs(1.0) | high.differs(1.0),
            lambda: [x * scales[k // 2 % 2] for k, x in enumerate(results)],
            lambda: results,
        )

    def _scores(self, stage: IndexValue) -> list[Register]:
        """Begin the products of the queries with the keys of a stage."""
        mine, theirs = self.query_lines, self.key_lines
        offsets = []
        for k in range(0, self.plan.heads.depth, 16):
            block, within = divmod(k, _ELEMENTS)
            offsets.append((block * mine.block_bytes + 2 * within,
                            block * theirs.block_bytes + 2 * within))  # fmt: skip
        left = mine.described(0, self.warpgroup * 64, across=False)
        right = theirs.described(stage, 0, across=False)
        return multiply_lines(self.b, self.p.a.name, left, right, offsets, _KEYS)
