"""Rows of an operand of an attention in shared memory, for `ldmatrix`.

A stage has `lines` rows of `length` elements of 16 bits. Elements that do not exist are 0. Lines
are 16 bytes longer than their elements, so that eight of them lie in different banks: `length` is
a multiple of 16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_disc.lower.cuda.instructions import copy_16_bytes, load_matrices
from shlo_disc.lower.gpu.products import ProductBuilder
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

__all__ = ["Lines", "Source"]

_CHUNK = 8


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


class Lines:
    """Stages of one operand."""

    def __init__(self, b: ProductBuilder, lines: int, length: int, stages: int) -> None:
        self.b, self.lines, self.length = b, lines, length
        self.line_bytes = 2 * length + 16
        self.stage_bytes = self.line_bytes * lines
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
        chunks = self.length // _CHUNK
        count = lines * chunks
        if not by_chunks:
            # A loop at run time: so many loads at once would take all registers.
            with b.loop(b.thread, count, b.threads, hint="chunk", barrier=True) as loop:
                line, at = loop.index // chunks, loop.index % chunks * _CHUNK
                self._elements(source, first + line, line, at, stage)
            return
        for e in range(-(-count // b.threads)):
            number = b.thread + e * b.threads
            line, at = number // chunks, number % chunks * _CHUNK
            if (e + 1) * b.threads <= count:
                self._chunk(source, first + line, line, at, stage)
            else:
                with b.if_(number < count):
                    self._chunk(source, first + line, line, at, stage)

    def _chunk(
        self,
        source: Source,
        row: IndexValue,
        line: IndexValue,
        at: IndexValue,
        stage: IndexValue,
    ) -> None:
        b = self.b
        inside = b.min(b.max(source.length - at, 0), _CHUNK) * 2
        if source.length == self.length:
            inside = b.index(2 * _CHUNK)
        count = b.select(row < source.size, inside, b.index(0))
        place = source.begin + row * source.stride + at
        # Nothing is read at a place that is no element's.
        place = b.select(count > 0, place, b.index(0))
        bytes_ = b.cast("arith.index_cast", count, "i32")
        to = self.address(line, at * 2) + self.stage(stage)
        copy_16_bytes(b, to, b.element_pointer(source.memory, place), bytes_)

    def _elements(
        self,
        source: Source,
        row: IndexValue,
        line: IndexValue,
        at: IndexValue,
        stage: IndexValue,
    ) -> None:
        """Loads and stores of single elements, of any layout."""
        b = self.b
        zero = b.constant(0, source.memory.element)
        to = self.address(line, at * 2) + self.stage(stage)
        begin = source.begin + row * source.stride
        for e in range(_CHUNK):
            with b.if_((row < source.size) & (at + e < source.length)) as branch:
                branch.yield_(source.memory.load(begin + (at + e) * source.unit))
                with branch.otherwise():
                    branch.yield_(zero)
            b.store_shared(branch.results[0], to + 2 * e)

    # ---------------------------------------------------------------- fragments

    def left(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int], list[Register]]:
        """What gives 16 rows from `first` on, 16 elements from a given one on, as left fragment."""
        matrix, row = lane // 8, lane % 8
        start = self.address(first + (matrix % 2 * 8 + row), matrix // 2 * 16) + self.stage(stage)
        return lambda k: load_matrices(self.b, start + 2 * k, False)

    def right(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int, int], list[Register]]:
        """What gives two right fragments, of 8 lines each behind line `first` plus a number, which
        run along K.
        """
        matrix, row = lane // 8, lane % 8
        start = self.address(first + (matrix // 2 * 8 + row), matrix % 2 * 16) + self.stage(stage)
        return lambda line, k: load_matrices(
            self.b, start + (line * self.line_bytes + 2 * k), False
        )

    def right_across(
        self, stage: IndexValue, first: IndexValue, lane: IndexValue
    ) -> Callable[[int, int], list[Register]]:
        """The same with lines across K: of 8 columns each behind a given one."""
        matrix, row = lane // 8, lane % 8
        start = self.address(first + (matrix % 2 * 8 + row), matrix // 2 * 16) + self.stage(stage)
        return lambda line, at: load_matrices(
            self.b, start + (line * self.line_bytes + 2 * at), True
        )
