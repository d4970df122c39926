"""Rows of an operand of an attention in shared memory, and fragments of them.

A stage has `lines` rows of `length` elements of 16 bits, or of f32. Elements that do not exist are
0. `length` is a multiple of 16, and lines are 16 bytes longer than their elements. So 16 bytes of
eight lines lie in different banks (`ldmatrix`), and so do 8 words of lines 0, 2, 4 and 6.

f32 is rounded to tf32 where a fragment is read. A fragment has 32 bytes along K, which are 16
elements, or 8 of f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_disc.base.records import dataclass
from shlo_disc.lower.cuda.instructions import (
    STEP_BYTES,
    copy_rows,
    global_address,
    load_matrices,
    load_word,
    round_to_tf32,
)
from shlo_disc.lower.gpu.builder import ACCESS_BYTES
from shlo_disc.lower.gpu.products import ProductBuilder
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

_ACROSS = 8
"""Neighbouring threads that copy neighbouring chunks of a line, at most."""


@dataclass(frozen=True)
class Source:
    """Rows in memory."""

    memory: MemRef
    begin: IndexValue
    """Where row 0 begins, in elements."""
    size: IndexValue
    """How many rows exist."""
    stride: IndexValue
    """Elements from one row to the next."""
    unit: IndexValue
    """Elements from one element of a row to the next."""
    length: int
    """Elements of a row."""


def line_bytes(length: int, element_bytes: int) -> int:
    """Shared memory of a line."""
    return length * element_bytes + 16


class Lines:
    """Stages of one operand."""

    def __init__(
        self, b: ProductBuilder, lines: int, length: int, element_bytes: int, stages: int
    ) -> None:
        self.b, self.lines, self.length, self.bytes = b, lines, length, element_bytes
        self.line_bytes = line_bytes(length, element_bytes)
        self.stage_bytes = self.line_bytes * lines
        self.chunk = ACCESS_BYTES // element_bytes
        """Elements of one copy."""
        self.step = STEP_BYTES // element_bytes
        """Elements of a fragment along K."""
        self.offset = b.shared_offset(self.stage_bytes * stages)

    def address(self, line: IndexValue, at: IndexValue) -> Register:
        """The address (i32) of byte `at` of a line in the first stage."""
        place = line * self.line_bytes + at + self.offset
        return self.b.shared_base + self.b.cast("arith.index_cast", place, "i32")

    def stage(self, number: IndexValue) -> Register:
        """Bytes (i32) from the first stage to a stage."""
        return self.b.cast("arith.index_cast", number * self.stage_bytes, "i32")

    # ---------------------------------------------------------------- copies

    def copy(
        self, source: Source, first: IndexValue, stage: IndexValue, lines: int, *, by_chunks: bool
    ) -> None:
        """Fill `lines` lines of a stage with rows from `first` on."""
        b = self.b
        if by_chunks:
            across = math.gcd(self.length // self.chunk, _ACROSS)
            line, chunk = b.thread // across, b.thread % across
            if b.threads // across <= lines:
                self._chunks(source, first, stage, lines, across, line, chunk)
                return
            with b.if_(line < lines):
                self._chunks(source, first, stage, lines, across, line, chunk)
            return
        chunks = self.length // self.chunk
        # A loop at run time: so many loads at once would take all registers.
        with b.loop(b.thread, lines * chunks, b.threads, hint="chunk", barrier=True) as loop:
            line, at = loop.index // chunks, loop.index % chunks * self.chunk
            self._elements(source, first + line, line, at, stage)

    def _chunks(
        self,
        source: Source,
        first: IndexValue,
        stage: IndexValue,
        lines: int,
        across: int,
        line: IndexValue,
        chunk: IndexValue,
    ) -> None:
        """Begin to copy what a thread has: every `across`-th chunk of some lines.

        Its first chunk is number `chunk` of `line`.
        """
        b = self.b
        at_once = b.threads // across
        begin, row = chunk * self.chunk, first + line
        left = b.cast("arith.index_cast", b.min(source.size - row, lines), "i32")
        nothing = b.constant(0, "i32")
        whole, ends = b.constant(ACCESS_BYTES, "i32"), range(0, self.length, across * self.chunk)
        sizes = [whole] * len(ends)
        if source.length != self.length:
            inside = [b.min(b.max(source.length - begin - end, 0), self.chunk) for end in ends]
            sizes = [b.cast("arith.index_cast", size * self.bytes, "i32") for size in inside]
        at = global_address(b, source.memory)
        at = at + (source.begin + row * source.stride + begin) * self.bytes
        sources, exist = [], []
        for down in range(0, lines, at_once):
            sources.append(at)
            exist.append(left > down)
            at = at + source.stride * (at_once * self.bytes)
        step = across * ACCESS_BYTES
        places = [
            [k * step + n * at_once * self.line_bytes for n in range(len(sources))]
            for k in range(len(sizes))
        ]
        counts = [[b.select(one, size, nothing) for one in exist] for size in sizes]
        to = self.address(line, begin * self.bytes) + self.stage(stage)
        copy_rows(b, to, places, sources, step, counts)

    def _elements(
        self, source: Source, row: IndexValue, line: IndexValue, at: IndexValue, stage: IndexValue
    ) -> None:
        """Loads and stores of single elements, of any layout."""
        b = self.b
        zero = b.constant(0, source.memory.element)
        to = self.address(line, at * self.bytes) + self.stage(stage)
        begin = source.begin + row * source.stride
        for e in range(self.chunk):
            with b.if_((row < source.size) & (at + e < source.length)) as branch:
                branch.yield_(source.memory.load(begin + (at + e) * source.unit))
                with branch.otherwise():
                    branch.yield_(zero)
            b.store_shared(branch.results[0], to + self.bytes * e)

    # ---------------------------------------------------------------- fragments

    def left(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int], list[Register]]:
        """What gives the left fragment of 16 rows from `first` on, from an element on."""
        matrix, row = lane // 8, lane % 8
        start = self.address(first + (matrix % 2 * 8 + row), matrix // 2 * 16) + self.stage(stage)
        return lambda k: self._matrices(start + self.bytes * k)

    def right(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int, int], list[Register]]:
        """What gives two right fragments, of 8 lines each behind line `first` plus a number, which
        run along K.
        """
        matrix, row = lane // 8, lane % 8
        start = self.address(first + (matrix // 2 * 8 + row), matrix % 2 * 16) + self.stage(stage)
        return lambda line, k: self._matrices(start + (line * self.line_bytes + self.bytes * k))

    def right_across(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int, int], list[Register]]:
        """The same with lines across K: of 8 columns each behind a given one.

        Steps `k` and `k + 4` of a fragment of f32 are the lines `2 * k` and `2 * k + 1`: a thread
        has weights of such neighbours (`fragments.py`).
        """
        if self.bytes == 4:
            return self._words_across(stage, first, lane)
        matrix, row = lane // 8, lane % 8
        start = self.address(first + (matrix % 2 * 8 + row), matrix // 2 * 16) + self.stage(stage)
        return lambda line, at: load_matrices(
            self.b, start + (line * self.line_bytes + 2 * at), True
        )

    def _words_across(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int, int], list[Register]]:
        b = self.b
        start = self.address(first + lane % 4 * 2, lane // 4 * 4) + self.stage(stage)

        def fragments(line: int, at: int) -> list[Register]:
            place = line * self.line_bytes + 4 * at
            steps = [place + right + down for right in (0, 32) for down in (0, self.line_bytes)]
            return [round_to_tf32(b, load_word(b, start + step)) for step in steps]

        return fragments

    def _matrices(self, at: Register) -> list[Register]:
        """Four matrices of 8 rows of 16 bytes, as a fragment."""
        found = load_matrices(self.b, at, False)
        return [round_to_tf32(self.b, word) for word in found] if self.bytes == 4 else found
