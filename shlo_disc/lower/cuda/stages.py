"""An operand of matrix units in shared memory: copies to stages, and fragments from them.

A stage holds `lines` runs of elements. Runs lie along K where the operand has neighbours along K,
or along its rows. Elements are of 2 or 4 bytes; all places in shared memory are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shlo_disc.lower.cuda.instructions import (
    copy_16_bytes,
    load_matrices,
    load_word,
    round_to_tf32,
)
from shlo_disc.lower.values.typed import IndexValue, MemRef, Pointer, Register

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import _MatrixWriter

Copy = Callable[[IndexValue, IndexValue, "IndexValue | None"], None]
"""Fills a stage from a step of K on: (step, stage, number of steps; None: the stage is whole)."""


class Stages:
    """The stages of one operand; `size` rows of it, `depth` elements along K."""

    def __init__(
        self,
        w: _MatrixWriter,
        array: str,
        memory: MemRef,
        size: int,
        stages: int,
        depth: int,
        by_chunks: bool,
    ) -> None:
        self.w, self.array, self.memory, self.by_chunks = w, array, memory, by_chunks
        self.bytes = w.plan.p.a.bytes
        self.chunk = 16 // self.bytes
        walk = w.plan.contiguous(array) or f"{array}k"
        self.along_k = walk.endswith("k")
        self.lines, self.length = (size, depth) if self.along_k else (depth, size)
        # Lines that a fragment is read from lie in different banks: eight of 16 bytes, or four of
        # eight words each.
        is_word = self.bytes == 4 and not self.along_k
        self.line_bytes = self.bytes * self.length + (32 if is_word else 16)
        self.stage_bytes = self.line_bytes * self.lines
        self.offset = w.b.shared_offset(self.stage_bytes * stages)

    def _address(self, line: IndexValue, at: IndexValue) -> Register:
        """The address (i32) of byte `at` of a line in the first stage."""
        b = self.w.b
        place = line * self.line_bytes + at + self.offset
        return b.shared_base + b.cast("arith.index_cast", place, "i32")

    def _stage(self, number: IndexValue) -> Register:
        """Bytes (i32) from the first stage to a stage."""
        b = self.w.b
        return b.cast("arith.index_cast", number * self.stage_bytes, "i32")

    # ---------------------------------------------------------------- copies

    def copies(self, origin: IndexValue, first: IndexValue, size: IndexValue) -> Copy:
        """What fills stages with rows `first`, ... of `size` of the matrix at `origin`."""
        b, w = self.w.b, self.w
        chunks = self.length // self.chunk
        places = []
        for e in range(self.lines * chunks // w.threads):
            number = b.thread + e * w.threads
            places.append((number // chunks, number % chunks * self.chunk))
        make = self._by_chunks if self.by_chunks else self._by_elements
        each = [make(line, at, origin, first, size) for line, at in places]

        def copy(k: IndexValue, stage: IndexValue, depth: IndexValue | None) -> None:
            for one in each:
                one(k, stage, depth)

        return copy

    def _by_chunks(
        self,
        line: IndexValue,
        at: IndexValue,
        origin: IndexValue,
        first: IndexValue,
        size: IndexValue,
    ) -> Copy:
        """Copies of 16 bytes: one address is kept, and what is outside is not read."""
        b, w = self.w.b, self.w
        to = self._address(line, at * self.bytes)
        if self.along_k:
            # A row that does not exist is the last one: nobody stores its sums.
            row = b.min(first + line, size - 1)
            start = origin + w.walk(f"{self.array}r", row) + at
            inside = None
        else:
            start = origin + first + at
            inside = b.min(b.max(size - (first + at), 0), self.chunk) * self.bytes

        def pointer(index: IndexValue) -> Pointer:
            return b.element_pointer(self.memory, index)

        def copy(k: IndexValue, stage: IndexValue, depth: IndexValue | None) -> None:
            there = k if self.along_k else w.walk(f"{self.array}k", k + line)
            index = start + there
            count = b.index(16) if inside is None else inside
            if depth is not None and self.along_k:
                count = b.min(b.max(depth - (k + at), 0), self.chunk) * self.bytes
            elif depth is not None:
                count = b.select(k + line < depth, count, b.index(0))
            if depth is not None or not self.along_k:
                # Nothing is read at a place that is no element's.
                index = b.select(count > 0, index, b.index(0))
            bytes_ = b.cast("arith.index_cast", count, "i32")
            copy_16_bytes(b, to + self._stage(stage), pointer(index), bytes_)

        return copy

    def _by_elements(
        self,
        line: IndexValue,
        at: IndexValue,
        origin: IndexValue,
        first: IndexValue,
        size: IndexValue,
    ) -> Copy:
        """Loads and stores of single elements, of any layout."""
        b, w = self.w.b, self.w
        to = self._address(line, at * self.bytes)
        line_walk, run_walk = (f"{self.array}{x}" for x in ("rk" if self.along_k else "kr"))
        zero = b.constant(0, self.memory.element)

        def copy(k: IndexValue, stage: IndexValue, depth: IndexValue | None) -> None:
            most = w.depth if depth is None else depth
            lines_from, run_from = (first, k) if self.along_k else (k, first)
            lines_to, run_to = (size, most) if self.along_k else (most, size)
            there, start = lines_from + line, run_from + at
            left = b.select(there < lines_to, run_to - start, b.index(0))
            base, address = origin + w.walk(line_walk, there), to + self._stage(stage)
            for e in range(self.chunk):
                with b.if_(left > e) as branch:
                    branch.yield_(self.memory.load(base + w.walk(run_walk, start + e)))
                    with branch.otherwise():
                        branch.yield_(zero)
                b.store_shared(branch.results[0], address + self.bytes * e)

        return copy

    # ---------------------------------------------------------------- fragments

    def fragments(
        self, stage: IndexValue, first: IndexValue, k_bytes: IndexValue, *, is_left: bool
    ) -> Callable[[int, int], list[Register]]:
        """What gives four registers of the fragment at (row, bytes along K), from row `first` on.

        A fragment has 16 rows by 32 bytes. Of the right operand it is two, of 8 rows each.
        """
        if self.bytes == 4 and not self.along_k:
            return self._words(stage, first, k_bytes, is_left)
        b, lane = self.w.b, self.w.lane
        matrix, row = lane // 8, lane % 8
        # A fragment of A has rows first, then K, and one of B the other way round.
        outer, inner = (matrix % 2, matrix // 2) if is_left else (matrix // 2, matrix % 2)
        if self.along_k:
            start = self._address(first + (outer * 8 + row), k_bytes + inner * 16)
        else:
            line = k_bytes // self.bytes + (inner * 8 + row)
            start = self._address(line, (first + outer * 8) * self.bytes)
        start = start + self._stage(stage)

        def fragment(rows: int, k: int) -> list[Register]:
            if self.along_k:
                step = rows * self.line_bytes + k
            else:
                step = k // self.bytes * self.line_bytes + rows * self.bytes
            found = load_matrices(b, start + step, not self.along_k)
            return self._rounded(found)

        return fragment

    def _words(
        self, stage: IndexValue, first: IndexValue, k_bytes: IndexValue, is_left: bool
    ) -> Callable[[int, int], list[Register]]:
        """Fragments of 4-byte elements that lie along rows: a load for each."""
        b, lane = self.w.b, self.w.lane
        line = k_bytes // self.bytes + lane % 4
        start = self._address(line, (first + lane // 4) * self.bytes) + self._stage(stage)
        # Of A rows, then K; of B K, then rows.
        places = [(0, 0), (8, 0), (0, 4), (8, 4)] if is_left else [(0, 0), (0, 4), (8, 0), (8, 4)]

        def fragment(rows: int, k: int) -> list[Register]:
            step = k // self.bytes * self.line_bytes + rows * self.bytes
            found = [
                load_word(b, start + (step + down * self.bytes + deep * self.line_bytes))
                for down, deep in places
            ]
            return self._rounded(found)

        return fragment

    def _rounded(self, found: list[Register]) -> list[Register]:
        return [round_to_tf32(self.w.b, word) for word in found] if self.bytes == 4 else found
