"""The parts of ELF that object files of AMD's GPUs are made of, and their reader.

Sources: "System V Application Binary Interface", chapters 4 and 5; LLVM's "User Guide for AMDGPU
Backend", sections "ELF Code Object" and "Relocation Records".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass

FILE_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER: Final = struct.Struct("<IIQQQQIIQQ")
PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
RELOCATION: Final = struct.Struct("<QQq")

ET_REL, ET_DYN = 1, 3
EM_AMDGPU = 224

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH = 1, 2, 3, 4, 5
SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = 6, 7, 8, 9, 11
SHT_GNU_HASH = 0x6FFFFFF6
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4

FIRST_RESERVED_SECTION = 0xFF00
"""Numbers of sections from here on mean something else: values, or memory that a kernel shares."""

STB_LOCAL = 0
STV_DEFAULT, STV_PROTECTED = 0, 3


@dataclass(frozen=True)
class Header:
    """A section header, the name as text."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int


@dataclass(frozen=True)
class Section:
    """A section with its bytes; none for SHT_NOBITS."""

    header: Header
    data: bytes


@dataclass(frozen=True)
class Symbol:
    """An entry of a symbol table."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        """STB_LOCAL or another one."""
        return self.info >> 4

    @property
    def visibility(self) -> int:
        """STV_DEFAULT or another one."""
        return self.other & 3


@dataclass(frozen=True)
class Relocation:
    """A place to write in section number `section`."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """A relocatable object."""

    identification: bytes
    flags: int
    """Architecture and features."""
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(code: bytes) -> ObjectFile:
    """The relocatable object `code`.

    Raises InternalError if it is none of AMD's, or is cut off.
    """
    try:
        return _read(code)
    except (struct.error, IndexError, ValueError) as error:
        raise InternalError(f"an object file is not as ELF says: {error}") from error


def _read(code: bytes) -> ObjectFile:
    head = FILE_HEADER.unpack_from(code)
    identification, kind, machine = head[:3]
    if identification[:6] != b"\x7fELF\x02\x01" or (kind, machine) != (ET_REL, EM_AMDGPU):
        raise InternalError("not a relocatable object file of an AMD GPU")
    start, flags, count, names = head[6], head[7], head[12], head[13]
    raw = [SECTION_HEADER.unpack_from(code, start + i * SECTION_HEADER.size) for i in range(count)]
    table = _bytes(code, raw[names])
    sections = tuple(
        Section(Header(_text(table, row[0]), *row[1:]), _bytes(code, row)) for row in raw
    )
    relocations: list[Relocation] = []
    for section in sections:
        if section.header.kind == SHT_REL:
            raise InternalError(f"relocations without addends: {section.header.name}")
        if section.header.kind == SHT_RELA:
            relocations += _relocations(section)
    return ObjectFile(
        identification, flags, sections, tuple(_symbols(sections)), tuple(relocations)
    )


def _bytes(code: bytes, row: tuple[int, ...]) -> bytes:
    kind, offset, size = row[1], row[4], row[5]
    if kind == SHT_NOBITS:
        return b""
    if offset + size > len(code):
        raise ValueError(f"a section ends behind the file, at {offset + size}")
    return code[offset : offset + size]


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _symbols(sections: tuple[Section, ...]) -> Iterator[Symbol]:
    for section in sections:
        if section.header.kind == SHT_SYMTAB:
            names = sections[section.header.link].data
            for name, *rest in SYMBOL.iter_unpack(section.data):
                yield Symbol(_text(names, name), *rest)


def _relocations(section: Section) -> Iterator[Relocation]:
    for offset, info, addend in RELOCATION.iter_unpack(section.data):
        yield Relocation(section.header.info, offset, info & 0xFFFFFFFF, info >> 32, addend)
