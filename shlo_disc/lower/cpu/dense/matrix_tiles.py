"""Products of words by AMX: tiles of 16 rows of 16 words.

One instruction adds to a tile of C the products of a tile of A and one of B. A's tiles are rows of
words in scratch memory, B's are two halves of a panel. C's are kept in scratch memory, where the
epilogue finds them. Four tiles of C, two of A and two of B is the one shape
with no more than one load a product. Rows beyond the last hold anything, and belong to no result.

There are two lowerings of the same kernel text. :class:`HardwareTiles` names registers in LLVM's
intrinsics; as SSA values LLVM spilled tiles in loops, and said nothing. :class:`SoftTiles` has the
eight tiles in memory, for machines without AMX and for what AMX does not do.

For every element of C there are 32 products of two tiles. `tdpbf16ps` adds up those of even and
of odd places, each in a chain of multiply-adds that begins with zero. It adds both sums, and that
to C. All of this rounds to nearest even, and takes denormals for zero, whatever MXCSR says. So the
notes of `words.py` guard it as they do `vdpbf16ps`: with them, no product and no sum can be a
denormal. Each block of K begins with zero, and vectors add it to what there is, since C may hold a
denormal of another block. Blocks with too small bounds are computed in the same order by soft tiles
that keep denormals. So the bits of a result depend on sizes and values alone. Integers are exact.

Source: Intel SDM volume 2, TDPBF16PS, TDPBSSD, LDTILECFG.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shlo_disc.base.records import dataclass
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.dense.gemm import Writer
from shlo_disc.lower.cpu.dense.tile_writer import Place
from shlo_disc.lower.cpu.dense.tiles import MATRIX_ROWS
from shlo_disc.lower.cpu.dense.words import WORD, Words
from shlo_disc.lower.plan import TILES
from shlo_disc.lower.values.typed import IndexValue, MemRef, Pointer, Register, vector_type

_ROWS = MATRIX_ROWS
_WORDS = 16
"""Words in a row of a tile."""
_TILE = _ROWS * _WORDS
_COUNT = 8
"""Tiles there are: C's are 0 to 3, A's 4 and 5, B's 6 and 7."""
_OF_A, _OF_B = 4, 6

_PALETTE, _ROW_BYTES = 1, 4 * _WORDS
_SIGN, _LEAST_NORMAL = -(1 << 31), 1 << 23


class Tiles(Protocol):
    """The tile registers; places and strides in memory are in words."""

    def begin(self) -> None:
        """All tiles get their shape."""

    def zero(self, tile: int) -> None:
        """Make a tile zero."""

    def load(self, tile: int, start: Pointer, at: IndexValue, stride: IndexValue) -> None:
        """Load a tile from memory."""

    def multiply(self, c: int, a: int, b: int) -> None:
        """Add the products of words of two tiles to a third one."""

    def store(self, tile: int, memory: MemRef, at: IndexValue, stride: IndexValue) -> None:
        """Store a tile to memory."""

    def end(self) -> None:
        """No tile is used any more."""


@dataclass(frozen=True)
class HardwareTiles:
    """Tiles in registers."""

    b: CpuBuilder
    memory: MemRef
    """Room for the configuration."""
    product: str
    """The instruction."""

    def begin(self) -> None:
        """See `Tiles`."""
        row_bytes = _ROW_BYTES | _ROW_BYTES << 16
        rows = _ROWS * 0x01010101
        config = [_PALETTE, 0, 0, 0, *[row_bytes] * 4, *[0] * 4, rows, rows, 0, 0]
        self.memory.vector_store(self.b.dense(config, WORD), 0)
        self.b.perform("llvm.x86.ldtilecfg", self.b.place_in(self.memory, 0))

    def zero(self, tile: int) -> None:
        """See `Tiles`."""
        self.b.perform("llvm.x86.tilezero", self._number(tile))

    def load(self, tile: int, start: Pointer, at: IndexValue, stride: IndexValue) -> None:
        """See `Tiles`."""
        place = self.b.place(start, at, WORD)
        self.b.perform("llvm.x86.tileloadd64", self._number(tile), place, self._bytes(stride))

    def multiply(self, c: int, a: int, b: int) -> None:
        """See `Tiles`."""
        self.b.perform(f"llvm.x86.{self.product}", *map(self._number, (c, a, b)))

    def store(self, tile: int, memory: MemRef, at: IndexValue, stride: IndexValue) -> None:
        """See `Tiles`."""
        place = self.b.place_in(memory, at)
        self.b.perform("llvm.x86.tilestored64", self._number(tile), place, self._bytes(stride))

    def end(self) -> None:
        """See `Tiles`."""
        self.b.perform("llvm.x86.tilerelease")

    def _number(self, tile: int) -> Register:
        return self.b.constant(tile, "i8")

    def _bytes(self, stride: IndexValue) -> Register:
        return self.b.cast("arith.index_cast", stride * 4, "i64")


@dataclass(frozen=True)
class SoftTiles:
    """Tiles in memory; products in the order and with the rounding of the hardware.

    A number is a denormal if it is one after it was rounded.
    """

    b: CpuBuilder
    memory: MemRef
    """All tiles, one after the other."""
    product: str
    keeps_denormals: bool = False
    """They are not taken for zero, unlike in the hardware."""

    def begin(self) -> None:
        """See `Tiles`."""

    def zero(self, tile: int) -> None:
        """See `Tiles`."""
        zero = self.b.constant(0, vector_type(_WORDS, WORD))
        self._each_row(lambda row: self.memory.vector_store(zero, self._at(tile, row)))

    def load(self, tile: int, start: Pointer, at: IndexValue, stride: IndexValue) -> None:
        """See `Tiles`."""

        def copy(row: IndexValue) -> None:
            words = self.b.load_at(start, at + row * stride, WORD, _WORDS, readonly=False)
            self.memory.vector_store(words, self._at(tile, row))

        self._each_row(copy)

    def multiply(self, c: int, a: int, b: int) -> None:
        """See `Tiles`."""
        add = self._floats if self.product == "tdpbf16ps" else self._integers
        self._each_row(lambda row: add(self._at(c, row), self._at(a, row), self._at(b, 0)))

    def store(self, tile: int, memory: MemRef, at: IndexValue, stride: IndexValue) -> None:
        """See `Tiles`."""

        def copy(row: IndexValue) -> None:
            words = self._row(self._at(tile, row))
            memory.vector_store(
                self.b.bitcast(words, words.like(memory.element)), at + row * stride
            )

        self._each_row(copy)

    def end(self) -> None:
        """See `Tiles`."""

    def _each_row(self, body: Callable[[IndexValue], None]) -> None:
        with self.b.loop(0, _ROWS, 1, hint="row") as row:
            body(row.index)

    def _at(self, tile: int, row: IndexValue | int) -> IndexValue:
        return self.b.index(row) * _WORDS + tile * _TILE

    def _row(self, at: IndexValue) -> Register:
        return self.memory.vector_load(at, _WORDS, readonly=False)

    def _floats(self, c: IndexValue, a: IndexValue, b: IndexValue) -> None:
        text, zero = self.b, self.b.constant(0, vector_type(_WORDS, "f32"))
        with text.loop(0, _WORDS, 1, [zero, zero], hint="k") as k:
            x = text.broadcast(self.memory.load(a + k.index, readonly=False), _WORDS)
            y = self._row(b + k.index * _WORDS)
            halves = [(w << 16, w & -0x10000) for w in (x, y)]
            k.yield_(*map(self._multiply_add, *halves, k.args))
        even, odd = k.results
        before = self._flushed(self._row(c).floats())
        total = self._flushed(before + self._flushed(even + odd))
        self.memory.vector_store(total.bits(), c)

    def _multiply_add(self, x: Register, y: Register, total: Register) -> Register:
        x, y = self._flushed(x.floats()), self._flushed(y.floats())
        return self._flushed(self.b.op("math.fma", x, y, total))

    def _flushed(self, value: Register) -> Register:
        """`value`, or zero with its sign for a denormal."""
        if self.keeps_denormals:
            return value
        bits = value.bits()
        is_small = (bits & ~_SIGN) < _LEAST_NORMAL
        return self.b.select(is_small, bits & _SIGN, bits).floats()

    def _integers(self, c: IndexValue, a: IndexValue, b: IndexValue) -> None:
        text, signs = self.b, self.product[4:6]
        with text.loop(0, _WORDS, 1, [self._row(c)], hint="k") as k:
            x = text.broadcast(self.memory.load(a + k.index, readonly=False), _WORDS)
            y = self._row(b + k.index * _WORDS)
            (total,) = k.args
            for place in range(4):
                parts = [w << 24 - 8 * place for w in (x, y)]
                shifted = zip(parts, signs, strict=True)
                factors = [w.sar(24) if sign == "s" else w >> 24 for w, sign in shifted]
                total = total + factors[0] * factors[1]
            k.yield_(total)
        self.memory.vector_store(k.results[0], c)


class MatrixWriter(Writer):
    """Writes a kernel whose register tiles are AMX's: 16 or 32 rows and a panel of 32 columns."""

    unit: Tiles

    @property
    def _words(self) -> Words:
        words = self.g.words
        assert words is not None, "its operands are words"
        return words

    def _tell_if_once(self) -> None:
        if not self._words.is_soft:
            self.b.attributes = f" attributes {TILES}"

    def enter(self) -> None:
        """See `Writer`."""
        words, room = self._words, self.b.scratch(WORD, self.size("tiles"))
        make = SoftTiles if words.is_soft else HardwareTiles
        self.unit = make(self.b, room, words.tiles)
        self.unit.begin()

    def leave(self) -> None:
        """See `Writer`."""
        self.unit.end()

    def _tile(self, height: int, at: Place) -> None:
        """See `TileWriter`: the sums of `height` rows are stored, or added to what there is."""
        b, words, unit = self.b, self._words, self.unit
        if not words.is_float:
            self._products_of_tiles(unit, height, at)
        else:
            exact = SoftTiles(b, b.scratch(WORD, self.size("tiles")), words.tiles, True)
            note = at.b_at + at.depth * self.g.tile.columns
            bounds = self.a_mem.load(self.a_note, False), self.b_mem.load(note, False)
            b.either(
                words.are_large(*bounds),
                lambda: self._products_of_tiles(unit, height, at),
                lambda: self._products_of_tiles(exact, height, at),
            )
        with b.if_(at.first ^ True):
            self._add_block(height, at)

    def _products_of_tiles(self, unit: Tiles, height: int, at: Place) -> None:
        """Write the sums of a block of K, from zero on, to where sums are, or beside the tiles."""
        b, strips = self.b, range(height // _ROWS)
        sums = [(2 * i + j, i, j) for i in strips for j in range(2)]
        for tile, *_ in sums:
            unit.zero(tile)
        row, columns = self.size("a_row"), b.index(self.g.tile.columns)
        rows = [b.place_in(self.a_mem, (at.m - at.m0 + i * _ROWS) * row) for i in strips]
        panel = b.place_in(self.b_mem, at.b_at)
        with b.loop(0, at.depth, _WORDS, hint="k") as k:
            line = k.index * columns
            for i in strips:
                unit.load(_OF_A + i, rows[i], k.index, row)
                for j in range(2):
                    if i == 0:
                        unit.load(_OF_B + j, panel, line + j * _WORDS, columns)
                    unit.multiply(2 * i + j, _OF_A + i, _OF_B + j)
            if at.ahead is not None:
                ahead = at.ahead.start + k.index * at.ahead.step
                with b.loop(0, at.ahead.step, hint="line") as each:
                    self.b_mem.prefetch(ahead + each.index * _WORDS)
        to = b.select(at.first, self._kept(at), self._beside)
        stride = b.select(at.first, self.size("c_row"), columns)
        for tile, i, j in sums:
            place = to + stride * (i * _ROWS) + j * _WORDS
            unit.store(tile, b.scratch(self.compute), place, stride)

    def _kept(self, at: Place) -> IndexValue:
        """Where the sums of a tile are in scratch memory."""
        return self.size("c_scratch") // 4 + self._sums_at([at.m], at)[0]

    @property
    def _beside(self) -> IndexValue:
        """Where those of a block of K are."""
        return self.size("tiles") // 4 + _COUNT * _TILE

    def _add_block(self, height: int, at: Place) -> None:
        b, lanes, kept = self.b, self.g.tile.lanes, self._kept(at)
        memory = b.scratch(self.compute)
        with b.loop(0, height, hint="row") as row:
            for v in range(self.g.tile.vectors):
                old = kept + row.index * self.size("c_row") + v * lanes
                new = self._beside + row.index * self.g.tile.columns + v * lanes
                values = [memory.vector_load(x, lanes, readonly=False) for x in (old, new)]
                memory.vector_store(values[0] + values[1], old)
