"""An artifact as a shared library, which programs link with and loaders of plug-ins open.

It has one function, which tells where the artifact is in memory. A function and no variable: a
program that reads a variable of a library may get a copy of it, weights included. The artifact is a
segment of its own, mapped read-only, and the end of the file, so tools for ZIP files list it.

The file is written here, without a compiler and a linker. Readers of artifacts find the segment in
the file and run nothing of it; the C++ one is in `ral/src/core/container.cpp`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

from shlo_disc.artifacts.header import function_name
from shlo_disc.base.errors import ArtifactError, UnsupportedError
from shlo_disc.base.records import dataclass

_MAGIC = b"\x7fELF"
_ELF = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_NAME = 14
"""The tag of the name of a library."""
_X, _W, _R = 1, 2, 4
_PAGE = 4096
_GRANULE = 1 << 16
"""The largest page of a machine: segments of different rights are in different ones."""


def _code_of_x86(to_artifact: int, size: int) -> bytes:
    endbr64, mov_rax, store_rax, lea_rax, ret = (
        b"\xf3\x0f\x1e\xfa", b"\x48\xb8", b"\x48\x89\x07", b"\x48\x8d\x05", b"\xc3",
    )  # fmt: skip
    before = endbr64 + mov_rax + struct.pack("<Q", size) + store_rax + lea_rax
    return before + struct.pack("<i", to_artifact - len(before) - 4) + ret


def _code_of_arm(to_artifact: int, size: int) -> bytes:
    """`size` goes through x1."""
    halves = [size >> shift & 0xFFFF for shift in (0, 16, 32)]
    distance = to_artifact - 20
    return struct.pack(
        "<7I",
        0xD503245F,  # bti c
        0xD2800001 | halves[0] << 5,  # mov
        0xF2A00001 | halves[1] << 5,  # movk
        0xF2C00001 | halves[2] << 5,
        0xF9000001,  # str x1, [x0]
        0x10000000 | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5,  # adr x0
        0xD65F03C0,  # ret
    )


@dataclass(frozen=True)
class _Machine:
    number: int
    """As ELF has it."""
    code: Callable[[int, int], bytes]
    """The function, by the distance to the artifact and its size."""


_MACHINES: Mapping[str, _Machine] = {
    "x86-64": _Machine(62, _code_of_x86),
    "aarch64": _Machine(183, _code_of_arm),
}
"""By processor family."""


_HASH_AT = _ELF.size + 5 * _SEGMENT.size
_SYMBOLS_AT = _HASH_AT + 24
_CODE_AT = _SYMBOLS_AT + 2 * _SYMBOL.size
_TEXTS_AT = _CODE_AT + 32
_SECTIONS = ("", ".hash", ".dynsym", ".text", ".dynstr", ".dynamic", ".disc", ".shstrtab")
"""For linkers and `strip`; the first one is none."""
_TEXTS = 4
"""The section with names for the loader."""


def head(program: str, family: str, file_name: str, size: int) -> bytes:
    """What is in front of an artifact of `size` bytes to make the file a shared library.

    `family`: of the processors that load it. `file_name`: what programs linked with it ask for.
    Raises UnsupportedError for names that are too long.
    """
    texts, (_, function, library) = _texts("", function_name(program), file_name)
    section_texts, names = _texts(*_SECTIONS)
    dynamic_at = _up(_TEXTS_AT + len(texts), 8)
    dynamic = _dynamic(library, len(texts))
    table_at = dynamic_at + len(dynamic)
    names_at = table_at + len(_SECTIONS) * _SECTION.size
    artifact_at = _up(names_at + len(section_texts), _PAGE)
    if artifact_at > _GRANULE:
        raise UnsupportedError(f"the name {program[:40]!r}... is too long for a shared library")
    dynamic_address, address = _GRANULE + dynamic_at, 2 * _GRANULE + artifact_at
    machine = _MACHINES[family]
    code = machine.code(address - _CODE_AT, size)
    symbol = _SYMBOL.pack(function, 0x12, 0, 3, _CODE_AT, len(code))
    segments = [
        (_LOAD, _R | _X, 0, 0, _TEXTS_AT + len(texts), _GRANULE),
        (_LOAD, _R | _W, dynamic_at, dynamic_address, len(dynamic), _GRANULE),
        (_LOAD, _R, artifact_at, address, size, _GRANULE),
        (_DYNAMIC, _R | _W, dynamic_at, dynamic_address, len(dynamic), 8),
        (_STACK, _R | _W, 0, 0, 0, 16),
    ]
    # Kind, flags, address, offset, size, link, information, alignment, size of an entry.
    sections = [
        (0,) * 9,
        (5, 2, _HASH_AT, _HASH_AT, 20, 2, 0, 8, 4),
        (11, 2, _SYMBOLS_AT, _SYMBOLS_AT, 2 * _SYMBOL.size, _TEXTS, 1, 8, _SYMBOL.size),
        (1, 6, _CODE_AT, _CODE_AT, len(code), 0, 0, 16, 0),
        (3, 2, _TEXTS_AT, _TEXTS_AT, len(texts), 0, 0, 1, 0),
        (6, 3, dynamic_address, dynamic_at, len(dynamic), _TEXTS, 0, 8, 16),
        (1, 2, address, artifact_at, size, 0, 0, _PAGE, 0),
        (3, 0, 0, names_at, len(section_texts), 0, 0, 1, 0),
    ]
    pieces = {
        0: _ELF.pack(_MAGIC + b"\2\1\1", 3, machine.number, 1, 0, _ELF.size, table_at, 0,
                     _ELF.size, _SEGMENT.size, len(segments), _SECTION.size, len(sections),
                     len(sections) - 1),
        _ELF.size: b"".join(_SEGMENT.pack(kind, rights, at, to, to, length, length, alignment)
                            for kind, rights, at, to, length, alignment in segments),
        _HASH_AT: struct.pack("<5I", 1, 2, 1, 0, 0),  # one bucket, which has the one symbol
        _SYMBOLS_AT + _SYMBOL.size: symbol,
        _CODE_AT: code,
        _TEXTS_AT: texts,
        dynamic_at: dynamic,
        table_at: b"".join(_SECTION.pack(name, *row)
                           for name, row in zip(names, sections, strict=True)),
        names_at: section_texts,
    }  # fmt: skip
    out = bytearray(artifact_at)
    for offset, data in pieces.items():
        out[offset : offset + len(data)] = data
    return bytes(out)


def _dynamic(file_name: int, texts_size: int) -> bytes:
    """What the loader reads: tags and values."""
    values = {_NAME: file_name, 4: _HASH_AT, 5: _TEXTS_AT, 6: _SYMBOLS_AT, 10: texts_size,
              11: _SYMBOL.size, 0: 0}  # fmt: skip
    return b"".join(struct.pack("<QQ", *item) for item in values.items())


def _texts(*names: str) -> tuple[bytes, list[int]]:
    """A table of names, and the place of each."""
    encoded = [os.fsencode(name) + b"\0" for name in names]
    return b"".join(encoded), [0, *accumulate(map(len, encoded[:-1]))]


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def end_of_artifact(file: Any) -> int:
    """Where the artifact ends in the bytes of a file: an artifact, or a library that has one.

    Raises ArtifactError for another library.
    """
    if file[:4] != _MAGIC:
        return len(file)
    try:
        _, _, _, _, _, begin, _, _, _, row, count, _, _, _ = _ELF.unpack_from(file)
        for place in range(begin, begin + count * row, row) if row == _SEGMENT.size else ():
            kind, _, offset, _, _, size, _, _ = _SEGMENT.unpack_from(file, place)
            end = int(offset + size)
            if kind == _LOAD and end <= len(file) and file[offset : offset + 4] == b"PK\3\4":
                return end
    except (struct.error, OverflowError):
        pass  # its table of segments is outside the file
    raise ArtifactError("a shared library without an artifact")
