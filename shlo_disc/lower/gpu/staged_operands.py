"""An operand of matrix units: from memory to registers, to shared memory, to fragments.

Lines of shared memory are rows of the operand; they run along K. Where the operand is contiguous
along its rows, a thread loads chunks from several steps of K and transposes them in registers.

Room behind lines, as the instruction asks for, and 16 bytes more behind every eighth line, spread
lines over the banks. That holds for the chunks of a fragment, and for neighbouring threads that
transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shlo_disc.lower.values.typed import IndexValue, MemRef, Register, vector_type

if TYPE_CHECKING:
    from shlo_disc.lower.gpu.fragment_products import FragmentWriter

STAGES = 2
"""One is multiplied while the next one is written."""

_BANKS, _CHUNK = 128, 16
"""Bytes of shared memory that are read at once, and of an access."""

_LINES = 8
"""Lines with room for a chunk behind them."""

Load = Callable[[IndexValue], list[Register]]
"""Loads the elements that this thread brings, from a step of K on."""


class Operand:
    """One operand; `size` rows of each of `bands`, `depth` elements along K of a stage."""

    def __init__(
        self, w: FragmentWriter, array: str, memory: MemRef, size: int, depth: int, bands: int = 1
    ) -> None:
        self.w, self.array, self.memory, self.size, self.bands = w, array, memory, size, bands
        b = w.b
        self.chunk = w.plan.chunk
        self.element = w.plan.p.a.storage
        self.along_k = (w.plan.along(array) or f"{array}k").endswith("k")
        self.lines, self.depth = size * bands, depth
        self.line = depth + _room_behind(w.instruction.spread, depth, w.plan.p.a.bytes)
        self.stage = self._place_of_line(self.lines)
        self.room = b.shared(self.element, self.stage * STAGES)
        self.count = self.lines * depth // self.chunk // b.threads
        """Chunks that a thread brings to a stage."""
        self.deep = 1 if self.along_k else _power_of_two(self.count, self.chunk)
        """Steps of K from which a thread loads a chunk each, side by side."""
        blocks = range(self.count // self.deep)
        self.places = [self._place(b.thread + e * b.threads) for e in blocks]
        """(line, step of K) where each block of chunks begins."""

    def _place_of_line(self, line: int) -> int:
        return line * self.line + line // _LINES * self.chunk

    def _at(self, line: IndexValue, k: IndexValue) -> IndexValue:
        """The element of shared memory for a line and a step of K, in the first stage."""
        return line * self.line + line // _LINES * self.chunk + k

    def _place(self, number: IndexValue) -> tuple[IndexValue, IndexValue]:
        if self.along_k:
            chunks = self.depth // self.chunk
            return number // chunks, number % chunks * self.chunk
        chunks = self.lines // self.chunk
        return number % chunks * self.chunk, number // chunks * self.deep

    # ---------------------------------------------------------------- from memory

    def loads(self, place: Sequence[IndexValue], first: IndexValue, size: IndexValue) -> Load:
        """What loads from rows `first`, ... of `size` of the matrix `place`.

        Rows that do not exist are copies of others: nobody stores their sums. Steps that do not
        exist are 0.
        """
        w, b, array = self.w, self.w.b, self.array
        origin, zero = w.origin(place, array), b.constant(0, vector_type(self.chunk, self.element))
        make = self._chunk if w.by_chunks else self._elements
        found = []
        for line, k in self.places:
            row = first + line % self.size if self.bands > 1 else first + line
            skipped = line // self.size * size if self.bands > 1 else b.index(0)
            found += [(make(origin, row, size, skipped), k + d) for d in range(self.deep)]

        def load(k: IndexValue) -> list[Register]:
            return [one(k + at, zero) for one, at in found]

        return load

    def _chunk(
        self, origin: IndexValue, row: IndexValue, size: IndexValue, skipped: IndexValue
    ) -> Callable[[IndexValue, Register], Register]:
        """What loads the chunk at a step of K by one access; it exists, or nothing of it does."""
        w, b, array = self.w, self.w.b, self.array
        row_there = b.min(row, size - (1 if self.along_k else self.chunk)) + skipped
        start = origin + w.walk(f"{array}r", row_there)
        last = w.depth - (self.chunk if self.along_k else 1)

        def load(k: IndexValue, zero: Register) -> Register:
            at = start + w.walk(f"{array}k", b.min(k, last))
            found = self.memory.vector_load(at, self.chunk, aligned=True)
            return b.select(k < w.depth, found, zero)

        return load

    def _elements(
        self, origin: IndexValue, row: IndexValue, size: IndexValue, skipped: IndexValue
    ) -> Callable[[IndexValue, Register], Register]:
        """What loads a chunk element by element, of any layout."""
        w, b, array = self.w, self.w.b, self.array
        rows = [
            origin + w.walk(f"{array}r", b.min(row + e, size - 1) + skipped)
            for e in range(1 if self.along_k else self.chunk)
        ]

        def load(k: IndexValue, zero: Register) -> Register:
            found = []
            for e in range(self.chunk):
                step = k + e if self.along_k else k
                start = rows[0] if self.along_k else rows[e]
                one = self.memory.load(start + w.walk(f"{array}k", b.min(step, w.depth - 1)))
                found.append(b.select(step < w.depth, one, b.constant(0, one.type)))
            return b.joined(found)

        return load

    # ---------------------------------------------------------------- to shared memory

    def store(self, loaded: Sequence[Register], stage: IndexValue) -> None:
        """Write what was loaded to a stage."""
        start = stage * self.stage
        for number, (line, k) in enumerate(self.places):
            to, block = start + self._at(line, k), loaded[number * self.deep :][: self.deep]
            if self.along_k:
                self.room.vector_store(block[0], to, aligned=True)
                continue
            for e in range(self.chunk):
                # A chunk of rows begins at a multiple of its size.
                there = to + self._place_of_line(e)
                turned = [self.w.b.extract(x, e) for x in block]
                if self.deep == 1:
                    self.room.store(turned[0], there)
                else:
                    self.room.vector_store(self.w.b.joined(turned), there, aligned=True)

    # ---------------------------------------------------------------- fragments

    def fragments(
        self, row: IndexValue, k: IndexValue, count: int
    ) -> Callable[[IndexValue], Callable[[int, int], Register]]:
        """What gives, for a stage, `count` elements along K of a lane.

        The lane's own row is `row`, its own step `k`. The function of a stage takes further rows, a
        multiple of 8, and further steps.
        """
        own = self._at(row, k)

        def of(stage: IndexValue) -> Callable[[int, int], Register]:
            start = own + stage * self.stage

            def fragment(rows: int, steps: int) -> Register:
                assert rows % _LINES == 0
                at = start + (self._place_of_line(rows) + steps)
                return self.room.vector_load(at, count, False, aligned=True)

            return fragment

        return of


def _room_behind(spread: int, depth: int, bytes_: int) -> int:
    """Elements behind a line of `depth` elements; see `MatrixInstruction.spread`."""
    return ((spread - depth * bytes_) % _BANKS if spread else _CHUNK) // bytes_


def _power_of_two(count: int, most: int) -> int:
    """The largest power of two that divides `count`, up to `most`."""
    return min(count & -count, most)
