"""Products of 8-bit integers and of bf16 by instructions that add up neighbours along K.

A word has 32 bits, of elements that follow each other along K. They are four integers (`vpdpbusd`)
or two bf16 (`vdpbf16ps`). Where there is no `vpdpbusd`, they are two integers as 16 bits, and every
x86-64 has `vpmaddwd`. One instruction multiplies the elements of two words in every lane, and adds
all products to the lane's sum; `vpmaddwd` leaves that to another. A block of A or B in words is
laid out like one of f32 with K / 4 or K / 2 steps. Elements beyond the last are zero. Behind the
words of a panel of B lies one more row, its note.

`vpdpbusd` multiplies unsigned by signed bytes, and is exact modulo 2^32. Where A and B have one
sign, A is stored with its top bit inverted, which moves it by 128 into the other. The note of B
holds what makes up for that in every column: 128 times the column's sum, or minus that.

`vdpbf16ps` adds the products one after the other, each time rounded to f32. It takes denormals for
zero and gives zero for them, which StableHLO does not allow. Let e and f be the exponents of two
bf16, biased by 127. Their product is a multiple of 2^(e + f - 268). So is each sum of such
products, rounded or not. With e + f >= 142 everywhere that is at least 2^-126: nothing can be a
denormal. The notes of A and B hold a lower bound of their exponents. A tile whose bounds are too
small widens both factors to f32 and multiplies and adds in the same order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from shlo_disc.base.records import dataclass
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.dense.repack import PREFETCH_ROWS, Block, Source, transpose
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.matrix_unit import SOFT
from shlo_disc.lower.products.prologue import runs_along_k
from shlo_disc.lower.schedule.contraction import Problem
from shlo_disc.lower.values.typed import IndexValue, Mask, Register, vector_type

WORD = "i32"
"""The type of a word in memory and in registers."""

SHALLOW = 16
"""Products in a sum below which words are not worth their copies."""

_TOP_BITS = -0x7F7F7F80
"""0x80 in every byte."""

_UPPER_HALF = -0x10000

_MULTIPLY_PAIRS = {
    16: "llvm.x86.sse2.pmadd.wd",
    32: "llvm.x86.avx2.pmadd.wd",
    64: "llvm.x86.avx512.pmaddw.d.512",
}
"""By bytes of a vector: integers of 16 bits times such, and the sums of neighbours."""

_LEAST_EXPONENTS = 142
"""Least sum of two biased exponents: see the module. No bound may be 0: that is a denormal's."""


@dataclass(frozen=True)
class Words:
    """How two words are multiplied."""

    count: int
    """Elements in a word: 4 integers, or 2 of 16 bits."""
    is_float: bool = False
    """Elements are bf16."""
    inverts_a: bool = False
    """A's top bits are inverted, and B's notes make up for that."""
    b_is_unsigned: bool = False
    """B has the unsigned factors, A (as it is stored) the signed ones."""
    tiles: str = ""
    """The instruction that multiplies tiles of words (`matrix_tiles.py`); "": vectors of them."""
    is_soft: bool = False
    """The tiles are in memory."""

    @property
    def has_notes(self) -> bool:
        """True if there is something to say of B."""
        return self.is_float or self.inverts_a

    @property
    def bits(self) -> int:
        """Of an element."""
        return 32 // self.count

    def multiply_add(self, b: CpuBuilder, x: Register, y: Register, total: Register) -> Register:
        """`total` plus the products of words of A and B."""
        size = total.lanes * 32
        kind = vector_type(total.lanes * self.count, "bf16" if self.is_float else f"i{self.bits}")
        x, y = b.bitcast(x, kind), b.bitcast(y, kind)
        if self.is_float:
            name = f"llvm.x86.avx512bf16.dpbf16ps.{size}"
            return b.intrinsic(name, total, x, y, type_=total.type)
        if self.count == 2:
            return total + b.intrinsic(_MULTIPLY_PAIRS[size // 8], x, y, type_=total.type)
        if self.b_is_unsigned:
            x, y = y, x
        return b.intrinsic(f"llvm.x86.avx512.vpdpbusd.{size}", total, x, y, type_=total.type)

    def multiply_add_widened(
        self, b: CpuBuilder, x: Register, y: Register, total: Register
    ) -> Register:
        """The same for bf16 of any size: the odd products first, as the instruction does."""
        total = b.op("math.fma", (x & _UPPER_HALF).floats(), (y & _UPPER_HALF).floats(), total)
        return b.op("math.fma", (x << 16).floats(), (y << 16).floats(), total)

    # ---------------------------------------------------------------- notes

    def no_note(self, b: CpuBuilder, lanes: int) -> Register:
        """The note of no words, in vectors of `lanes` words."""
        if self.is_float:
            return b.constant(-1, vector_type(lanes * 2, "i16"))
        return b.constant(0, vector_type(lanes, WORD))

    def noted(self, b: CpuBuilder, words: Register, note: Register) -> Register:
        """`note`, and what there is to say of `words`."""
        if not self.is_float:
            bits = b.constant(_TOP_BITS, words.type)
            return self.multiply_add(b, bits, words, note)
        # Zero becomes the largest unsigned number.
        magnitudes = b.bitcast(words, note.type) & 0x7FFF
        return b.op("arith.minui", magnitudes - 1, note)

    def closed(self, b: CpuBuilder, note: Register) -> Register:
        """The note as it is stored: what is added to sums, or a bound of all exponents."""
        if not self.is_float:
            return note.constant(0) - note
        lanes = note.lanes
        while lanes > 1:
            lanes //= 2
            low, high = range(lanes), range(lanes, 2 * lanes)
            note = b.op("arith.minui", b.shuffle(note, note, low), b.shuffle(note, note, high))
        return b.extract(note, 0).cast("arith.extui", WORD) >> 7

    def are_large(self, a: Register, other: Register) -> Mask:
        """True if no product and no sum can be a denormal, by the bounds of A and B."""
        return (a + other >= _LEAST_EXPONENTS) & (a > 0) & (other > 0)


def words_of(problem: Problem, machine: Machine) -> Words | None:
    """How `problem` is computed in words; None where the machine or its types have no such way."""
    p, features = problem, machine.features
    is_soft = SOFT in features
    depth = p.depth
    if len(p.k) != 1 or (depth.is_const and depth.value < SHALLOW):
        return None
    is_computed = p.b_value is not None
    if is_computed and runs_along_k(p):
        return None
    names = {p.a.name, p.b.name}
    if names == {"bf16"} and p.compute.name == "f32":
        if machine.has_tiles("amx_bf16"):
            return Words(2, is_float=True, tiles="tdpbf16ps", is_soft=is_soft)
        return Words(2, is_float=True) if machine.multiplies_bf16 and not is_computed else None
    if names <= {"i8", "ui8"} and p.compute.name == "i32":
        if machine.has_tiles("amx_int8"):
            signs = "".join("s" if x.is_signed else "u" for x in (p.a, p.b))
            return Words(4, tiles=f"tdpb{signs}d", is_soft=is_soft)
        if is_computed:
            return None
        wanted = {64: "avx512_vnni", 32: "avx_vnni"}.get(machine.vector_bytes)
        if wanted not in features:
            is_known = machine.instruction_set == "x86-64"
            has_pairs = is_known and (machine.vector_bytes < 64 or "avx512bw" in features)
            return Words(2) if has_pairs else None
        if p.a.is_signed == p.b.is_signed:
            return Words(4, inverts_a=True, b_is_unsigned=not p.b.is_signed)
        return Words(4, b_is_unsigned=not p.b.is_signed)
    return None


def repack_words(
    b: CpuBuilder, words: Words, source: Source, block: Block, *, k_is_u: bool, elements: IndexValue
) -> None:
    """Write words to the block; see `repack`.

    `k_is_u`: words follow each other along `u` (A), else along `w` (B). `elements`: how many there
    are along K. Words of A are inverted where `words` says so.
    """
    _Copy(b, words, source, block, k_is_u, elements).write()


def word_of(
    b: CpuBuilder,
    words: Words,
    word: IndexValue,
    elements: IndexValue,
    load: Callable[[IndexValue], Register],
) -> Register:
    """Word number `word` of several rows or columns; `load` gives the bits of an element of each.

    There are so many `elements`.
    """
    total: Register | None = None
    for i in range(words.count):
        k = word * words.count + i
        raw = load(b.min(k, elements - 1)).cast("arith.extui", WORD)
        raw = b.select(k < elements, raw, raw.constant(0)) << i * words.bits
        total = raw if total is None else total | raw
    return Register.of(total)


def bits_of(words: Words, value: Register) -> Register:
    """The bits of elements that are computed in f32 or i32."""
    if words.is_float:
        value = value.bits() >> words.bits
    return value.cast("arith.trunci", f"i{words.bits}")


@dataclass(frozen=True)
class _Copy:
    b: CpuBuilder
    words: Words
    source: Source
    block: Block
    k_is_u: bool
    elements: IndexValue

    def write(self) -> None:
        source = self.source
        if source.u_unit:
            self._rows()
        elif source.w_unit:
            self._transposed()
        else:
            self._one_by_one(self.b.index(0))

    # ---------------------------------------------------------------- words

    def _across(self, word: IndexValue, load: Callable[[IndexValue], Register]) -> Register:
        """Word number `word` of several rows or columns; `load` reads an element of each."""
        return word_of(self.b, self.words, word, self.elements, lambda k: self._widened(load(k)))

    def _along(self, at: IndexValue, lanes: int, left: IndexValue | None) -> Register:
        """Words that follow each other in memory; `left`: elements that there are (None: all)."""
        b, element, many = self.b, self.source.element, lanes * self.words.count
        if left is None:
            raw = self.source.memory.vector_load(at, many)
        else:
            nothing = b.constant(0, vector_type(many, element.storage))
            raw = self.source.memory.masked_load(at, b.mask(left, many), nothing)
        return b.bitcast(self._widened(raw), vector_type(lanes, WORD))

    def _widened(self, raw: Register) -> Register:
        """Elements of memory as those of words."""
        element, bits = self.source.element, self.words.bits
        if element.bits == bits:
            return raw
        return raw.cast("arith.extsi" if element.is_signed else "arith.extui", f"i{bits}")

    def _put(self, word: Register, to: IndexValue, lanes: int) -> None:
        if self.words.inverts_a and self.k_is_u:
            word = word ^ _TOP_BITS
        if lanes:
            self.block.memory.vector_store(word, to)
        else:
            self.block.memory.store(word, to)

    # ---------------------------------------------------------------- ways

    def _rows(self) -> None:
        """Neighbours along `u` are neighbours in memory."""
        b, source, lanes, count = self.b, self.source, self.block.lanes, self.words.count
        nothing = b.constant(0, vector_type(lanes, source.element.storage))

        def load(column: IndexValue, mask: Mask, k: IndexValue) -> Register:
            at = source.base + source.w_offset(k) + column
            return source.memory.masked_load(at, mask, nothing)

        with b.loop(0, self.block.w_count, 1, hint="w") as w:
            to = self.block.row(w.index)
            with b.loop(0, self.block.u_room, lanes, hint="u") as u:
                if self.k_is_u:
                    k = u.index * count
                    at = source.base + source.w_offset(w.index) + k
                    word = self._along(at, lanes, self.elements - k)
                else:
                    mask = b.mask(self.block.u_count - u.index, lanes)
                    far = b.min((w.index + PREFETCH_ROWS // count) * count, self.elements - 1)
                    for i in range(count):
                        last = b.min(far + i, self.elements - 1)
                        ahead = source.base + source.w_offset(last)
                        source.memory.prefetch(ahead + u.index)
                    word = self._across(w.index, functools.partial(load, u.index, mask))
                self._put(word, to + u.index, lanes)

    def _transposed(self) -> None:
        """Neighbours along `w` are neighbours in memory: squares of words."""
        b, source, lanes, count = self.b, self.source, self.block.lanes, self.words.count
        full = self.block.w_count if self.k_is_u else self.elements // count
        whole = full.round_down(lanes)
        last = self.block.u_count - 1
        used = self.block.u_count.round_up(lanes)

        def load(row: IndexValue, k: IndexValue) -> Register:
            at = source.base + source.u_offset(k) + row
            return source.memory.vector_load(at, lanes)

        with b.loop(0, used, lanes, hint="u") as u, b.loop(0, whole, lanes, hint="w") as w:
            rows = []
            for i in range(lanes):
                line = b.min(u.index + i, last)
                if self.k_is_u:
                    rows.append(self._across(line, functools.partial(load, w.index)))
                else:
                    at = source.base + source.u_offset(line) + w.index * count
                    rows.append(self._along(at, lanes, None))
            for j, row in enumerate(transpose(b, rows)):
                to = self.block.row(w.index + j)
                self._put(row, to + u.index, lanes)
        self.block.clear(b, (0, whole), used, WORD, lanes)
        self._one_by_one(whole)

    def _one_by_one(self, first: IndexValue) -> None:
        b, source = self.b, self.source

        def load(other: IndexValue, k: IndexValue) -> Register:
            x, y = (k, other) if self.k_is_u else (other, k)
            return source.memory.load(source.base + source.u_offset(x) + source.w_offset(y))

        with (
            b.loop(0, self.block.u_count, 1, hint="u") as u,
            b.loop(first, self.block.w_count, 1, hint="w") as w,
        ):
            at, other = (u.index, w.index) if self.k_is_u else (w.index, u.index)
            word = self._across(at, functools.partial(load, other))
            self._put(word, self.block.row(w.index) + u.index, 0)
        self.block.clear(b, (first, self.block.w_count), self.block.u_count, WORD, 0)
