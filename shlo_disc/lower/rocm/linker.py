"""One relocatable object of AMD's to a code object that a HIP runtime loads, as ld.lld lays it out.

    PT_LOAD, read         headers, .note, .dynsym, .gnu.hash, .hash, .dynstr, constants
    PT_LOAD, execute      code
    PT_LOAD, write        .dynamic

Each of the three begins in memory a page behind where it is in the file, so that no page is in two
of them. All relocations are between places of the object, so none is left for the loader.
Sources: as in `elf.py`, and the layout of LLVM's linker `ld.lld -shared`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import field

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.lower.rocm import elf
from shlo_disc.lower.rocm.elf import ObjectFile, Relocation, Symbol

PAGE = 0x1000
_CODE_ALIGNMENT = 256
"""Of the first instruction of a kernel."""

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR = 1, 2, 4, 6
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4

DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_GNU_HASH = 4, 5, 6, 10, 11, 0x6FFFFEF5

_RELATIVE = {
    4: (4, 0, True),  # R_AMDGPU_REL32
    5: (8, 0, True),  # R_AMDGPU_REL64
    10: (4, 0, False),  # R_AMDGPU_REL32_LO
    11: (4, 32, False),  # R_AMDGPU_REL32_HI
}
"""Relocations S + A - P: bytes, bits that are shifted out, whether the rest has to fit."""

_SEGMENTS = 8
_HEADERS = elf.FILE_HEADER.size + _SEGMENTS * elf.PROGRAM_HEADER.size


@dataclass(eq=False)
class _Part:
    """A section of the code object."""

    name: str
    kind: int
    flags: int
    data: bytearray
    alignment: int
    entry_bytes: int = 0
    link: str = ""
    """The section that it refers to."""
    info: int = 0
    source: int = 0
    """The number of the section of the object that it is; 0: made here."""
    offset: int = field(default=0, init=False)
    address: int = field(default=0, init=False)

    @property
    def end(self) -> int:
        """Where the file goes on."""
        return self.offset + len(self.data)


def link(code: bytes) -> bytes:
    """The code object of one relocatable object.

    Raises InternalError for what is not linked here: undefined symbols, data that a kernel may
    write, relocations other than differences of places in the object.
    """
    return _Linker(elf.read_object(code)).linked()


class _Linker:
    def __init__(self, given: ObjectFile) -> None:
        self.given = given
        self._expect_linkable()
        self.exported = _in_hash_order(
            s
            for s in given.symbols
            if s.name
            and s.binding != elf.STB_LOCAL
            and 0 < s.section < elf.FIRST_RESERVED_SECTION
            and s.visibility in (elf.STV_DEFAULT, elf.STV_PROTECTED)
        )
        names, self._name_at = _string_table(s.name for s in self.exported)
        self.dynsym = _Part(
            ".dynsym", elf.SHT_DYNSYM, elf.SHF_ALLOC,
            bytearray(elf.SYMBOL.size * (len(self.exported) + 1)), 8, elf.SYMBOL.size,
            link=".dynstr", info=1,
        )  # fmt: skip
        self.gnu_hash = _Part(
            ".gnu.hash", elf.SHT_GNU_HASH, elf.SHF_ALLOC, _gnu_hash_table(self.exported), 8,
            link=".dynsym",
        )  # fmt: skip
        self.hash = _Part(
            ".hash", elf.SHT_HASH, elf.SHF_ALLOC, _hash_table(self.exported), 4, 4, link=".dynsym"
        )
        self.dynstr = _Part(".dynstr", elf.SHT_STRTAB, elf.SHF_ALLOC, names, 1)
        self.dynamic = _Part(
            ".dynamic", elf.SHT_DYNAMIC, elf.SHF_ALLOC | elf.SHF_WRITE, bytearray(7 * 16), 8, 16,
            link=".dynstr",
        )  # fmt: skip
        own = self._parts_of_object()
        self.notes = [p for p in own if p.kind == elf.SHT_NOTE]
        self.code = [p for p in own if p.flags & elf.SHF_EXECINSTR]
        constants = [p for p in own if p not in self.notes and p not in self.code]
        tables = [self.dynsym, self.gnu_hash, self.hash, self.dynstr]
        self.read_only = [*self.notes, *tables, *constants]
        if not self.notes or not self.code:
            raise InternalError("an object file without a kernel, or without the notes about it")
        self.parts = [*self.read_only, *self.code, self.dynamic]
        self._by_source = {part.source: part for part in own}

    def _expect_linkable(self) -> None:
        given = self.given
        for symbol in given.symbols:
            if symbol.name and symbol.section == 0:
                raise InternalError(f"the kernel refers to {symbol.name}, which nothing defines")
        for section in given.sections:
            head = section.header
            if head.flags & elf.SHF_ALLOC and head.size:
                if head.flags & elf.SHF_WRITE or head.kind == elf.SHT_NOBITS:
                    raise InternalError(f"a kernel has data that it may write: {head.name}")
                if head.kind not in (elf.SHT_PROGBITS, elf.SHT_NOTE):
                    raise InternalError(f"a section of kind {head.kind} in a kernel: {head.name}")

    def _parts_of_object(self) -> list[_Part]:
        """What of the object is in memory."""
        parts = []
        for number, section in enumerate(self.given.sections):
            head = section.header
            if not head.flags & elf.SHF_ALLOC or not head.size:
                continue
            is_code = bool(head.flags & elf.SHF_EXECINSTR)
            alignment = max(head.alignment, _CODE_ALIGNMENT if is_code else 1)
            flags = elf.SHF_ALLOC | (elf.SHF_EXECINSTR if is_code else 0)
            data = bytearray(section.data)
            parts.append(_Part(head.name, head.kind, flags, data, alignment, source=number))
        return parts

    # ---------------------------------------------------------------- places

    def linked(self) -> bytes:
        """The code object."""
        self._place()
        self._write_symbols()
        self._write_dynamic()
        for relocation in self.given.relocations:
            self._relocate(relocation)
        return self._file()

    def _place(self) -> None:
        at = _HEADERS
        for ahead, parts in enumerate((self.read_only, self.code, [self.dynamic])):
            for part in parts:
                at = -(-at // part.alignment) * part.alignment
                part.offset, part.address = at, at + ahead * PAGE
                at = part.end

    def _part_of(self, symbol: Symbol) -> _Part:
        """Where `symbol` is defined. Raises InternalError if that is not in memory."""
        part = self._by_source.get(symbol.section)
        if part is None:
            raise InternalError(f"symbol {symbol.name!r} has no place in memory")
        return part

    def _address(self, symbol: Symbol) -> int:
        return self._part_of(symbol).address + symbol.value

    def _write_symbols(self) -> None:
        for number, symbol in enumerate(self.exported):
            section = 1 + self.parts.index(self._part_of(symbol))
            name, value = self._name_at[symbol.name], self._address(symbol)
            row = name, symbol.info, symbol.other, section, value, symbol.size
            elf.SYMBOL.pack_into(self.dynsym.data, elf.SYMBOL.size * (number + 1), *row)

    def _write_dynamic(self) -> None:
        entries = (
            (DT_SYMTAB, self.dynsym.address),
            (DT_SYMENT, elf.SYMBOL.size),
            (DT_STRTAB, self.dynstr.address),
            (DT_STRSZ, len(self.dynstr.data)),
            (DT_GNU_HASH, self.gnu_hash.address),
            (DT_HASH, self.hash.address),
            (0, 0),
        )
        self.dynamic.data[:] = b"".join(struct.pack("<QQ", *entry) for entry in entries)

    def _relocate(self, relocation: Relocation) -> None:
        part = self._by_source.get(relocation.section)
        if part is None:
            return  # of debug information, which is not in memory
        if relocation.kind not in _RELATIVE:
            raise InternalError(f"{part.name} has a relocation of kind {relocation.kind}")
        size, shift, has_to_fit = _RELATIVE[relocation.kind]
        symbol = self.given.symbols[relocation.symbol]
        place = part.address + relocation.offset
        value = (self._address(symbol) + relocation.addend - place) >> shift
        bits = 8 * size
        if has_to_fit and not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise InternalError(f"{symbol.name} is too far from what refers to it: {value}")
        at = slice(relocation.offset, relocation.offset + size)
        part.data[at] = (value & (1 << bits) - 1).to_bytes(size, "little")

    # ---------------------------------------------------------------- the file

    def _file(self) -> bytes:
        names, name_at = _string_table([*(p.name for p in self.parts), ".shstrtab"])
        strings = _Part(".shstrtab", elf.SHT_STRTAB, 0, names, 1)
        strings.offset = self.parts[-1].end
        parts = [*self.parts, strings]
        start = -(-strings.end // 8) * 8
        number = {part.name: i + 1 for i, part in enumerate(parts)}
        rows = [bytes(elf.SECTION_HEADER.size)]
        for part in parts:
            row = name_at[part.name], part.kind, part.flags, part.address, part.offset
            refers = number[part.link] if part.link else 0
            rest = len(part.data), refers, part.info, part.alignment, part.entry_bytes
            rows.append(elf.SECTION_HEADER.pack(*row, *rest))
        made = bytearray(start)
        made[: elf.FILE_HEADER.size] = elf.FILE_HEADER.pack(
            self.given.identification, elf.ET_DYN, elf.EM_AMDGPU, 1, 0, elf.FILE_HEADER.size, start,
            self.given.flags, elf.FILE_HEADER.size, elf.PROGRAM_HEADER.size, _SEGMENTS,
            elf.SECTION_HEADER.size, len(rows), len(rows) - 1,
        )  # fmt: skip
        made[elf.FILE_HEADER.size : _HEADERS] = self._segments()
        for part in parts:
            made[part.offset : part.end] = part.data
        return bytes(made) + b"".join(rows)

    def _segments(self) -> bytes:
        head, read_only, code = elf.FILE_HEADER.size, self.read_only[-1].end, self.code
        dynamic, note = self.dynamic, self.notes[0]
        page_end = -(-(dynamic.address + len(dynamic.data)) // PAGE) * PAGE

        def row(
            kind: int, flags: int, part: tuple[int, int], size: int, in_memory: int, alignment: int
        ) -> bytes:
            offset, address = part
            fields = kind, flags, offset, address, address, size, in_memory, alignment
            return elf.PROGRAM_HEADER.pack(*fields)

        at_dynamic = dynamic.offset, dynamic.address
        size, whole = len(dynamic.data), page_end - dynamic.address
        headers = _HEADERS - head
        instructions = code[-1].end - code[0].offset
        notes = self.notes[-1].end - note.offset
        return b"".join(
            (
                row(PT_PHDR, PF_R, (head, head), headers, headers, 8),
                row(PT_LOAD, PF_R, (0, 0), read_only, read_only, PAGE),
                row(PT_LOAD, PF_R | PF_X, (code[0].offset, code[0].address), instructions,
                    instructions, PAGE),
                row(PT_LOAD, PF_R | PF_W, at_dynamic, size, whole, PAGE),
                row(PT_DYNAMIC, PF_R | PF_W, at_dynamic, size, size, 8),
                row(PT_GNU_RELRO, PF_R, at_dynamic, size, whole, 1),
                row(PT_GNU_STACK, PF_R | PF_W, (0, 0), 0, 0, 0),
                row(PT_NOTE, PF_R, (note.offset, note.address), notes, notes, 4),
            )
        )  # fmt: skip


# -------------------------------------------------------------------- tables of names


def _string_table(names: Iterable[str]) -> tuple[bytearray, dict[str, int]]:
    """The table, and where each name begins."""
    table, at = bytearray(1), {}
    for name in names:
        if name not in at:
            at[name] = len(table)
            table += name.encode() + b"\0"
    return table, at


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _buckets(count: int) -> int:
    return max(1, count // 4)


def _in_hash_order(symbols: Iterable[Symbol]) -> list[Symbol]:
    """`symbols` by bucket of the table that begins with their number."""
    found = list(symbols)
    return sorted(found, key=lambda symbol: _gnu_hash(symbol.name) % _buckets(len(found)))


def _gnu_hash_table(symbols: Sequence[Symbol]) -> bytearray:
    """`.gnu.hash` of symbols in the order of `_in_hash_order`: a filter, buckets, hashes."""
    hashes = [_gnu_hash(symbol.name) for symbol in symbols]
    buckets, shift = [0] * _buckets(len(hashes)), 26
    words = 1 << max(0, (12 * len(hashes) - 1) // 64).bit_length()
    bloom, chain = [0] * words, []
    for number, value in enumerate(hashes):
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        bucket = value % len(buckets)
        buckets[bucket] = buckets[bucket] or number + 1
        is_last = number + 1 == len(hashes) or hashes[number + 1] % len(buckets) != bucket
        chain.append(value & ~1 | is_last)
    head = struct.pack("<4I", len(buckets), 1, words, shift)
    parts = struct.pack(f"<{words}Q", *bloom), struct.pack(f"<{len(buckets)}I", *buckets)
    return bytearray(head + b"".join(parts) + struct.pack(f"<{len(chain)}I", *chain))


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def _hash_table(symbols: Sequence[Symbol]) -> bytearray:
    """`.hash`: buckets, and chains of the symbols in each."""
    count = len(symbols) + 1
    buckets, chains = [0] * count, [0] * count
    for number, symbol in enumerate(symbols):
        bucket = _hash(symbol.name) % count
        chains[number + 1], buckets[bucket] = buckets[bucket], number + 1
    return bytearray(struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains))
