"""Code objects of AMD's as a loader sees them: read by program headers and `.dynamic` alone.

Nothing of `shlo_disc.lower.rocm` is used, so that a mistake there shows here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

LOAD, DYNAMIC, NOTE = 1, 2, 4
_HASH, _STRTAB, _SYMTAB, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_METADATA: Final = 32
"""The type of the note that describes kernels."""


@dataclass(frozen=True)
class Segment:
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int
    alignment: int


@dataclass(frozen=True)
class Descriptor:
    """What the command processor reads of a kernel: 64 bytes."""

    shared_bytes: int
    private_bytes: int
    argument_bytes: int
    entry: int
    """Where the code begins, from the descriptor on."""
    resources: tuple[int, int, int]
    """`compute_pgm_rsrc3`, 1 and 2."""
    properties: int
    preload: int


class CodeObject:
    """A loaded image. Raises AssertionError where a rule of ELF or of AMD's ABI does not hold."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        head = struct.unpack_from("<16sHHIQQQIHHHHHH", image)
        ident, kind, machine, version, _, start, sections, self.flags = head[:8]
        size, entry_bytes, count, section_bytes, section_count, _ = head[8:]
        assert ident[:9] == b"\x7fELF\x02\x01\x01\x40\x03", ident  # 64 bits, HSA, ABI of version 5
        assert (kind, machine, version) == (3, 224, 1)
        assert (size, entry_bytes) == (64, 56)
        assert sections + section_bytes * section_count == len(image)
        rows = [struct.unpack_from("<IIQQQQQQ", image, start + 56 * i) for i in range(count)]
        self.segments = [Segment(*row[:4], *row[5:]) for row in rows]
        self.loaded = [s for s in self.segments if s.kind == LOAD]
        self.size = max(s.address + s.memory_bytes for s in self.loaded)
        self.memory = bytearray(self.size)
        for segment in self.loaded:
            data = image[segment.offset : segment.offset + segment.file_bytes]
            self.memory[segment.address : segment.address + segment.file_bytes] = data
        self.dynamic = dict(self._dynamic())

    def _segment(self, kind: int) -> Segment:
        (found,) = (s for s in self.segments if s.kind == kind)
        return found

    def _dynamic(self) -> Iterator[tuple[int, int]]:
        at = self._segment(DYNAMIC).address
        while (row := struct.unpack_from("<QQ", self.memory, at))[0]:
            yield row
            at += 16

    def _words(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}I", self.memory, at)

    # ---------------------------------------------------------------- symbols

    def symbol(self, name: str) -> tuple[int, int]:
        """Address and size of a symbol, which both tables of hashes find."""
        by_hash, by_gnu_hash = self._by_hash(name), self._by_gnu_hash(name)
        assert by_hash == by_gnu_hash, (name, by_hash, by_gnu_hash)
        assert by_hash is not None, f"no symbol {name}"
        return by_hash

    def _named(self, number: int, name: str) -> tuple[int, int] | None:
        row = struct.unpack_from("<IBBHQQ", self.memory, self.dynamic[_SYMTAB] + 24 * number)
        at = self.dynamic[_STRTAB] + row[0]
        found = self.memory[at : self.memory.index(b"\0", at)].decode()
        return (row[4], row[5]) if found == name else None

    def _by_hash(self, name: str) -> tuple[int, int] | None:
        value = 0
        for byte in name.encode():
            value = ((value << 4) + byte) & 0xFFFFFFFF
            value ^= value >> 24 & 0xF0
            value &= 0x0FFFFFFF
        at = self.dynamic[_HASH]
        buckets, _ = self._words(at, 2)
        (number,) = self._words(at + 8 + 4 * (value % buckets), 1)
        while number:
            if found := self._named(number, name):
                return found
            (number,) = self._words(at + 8 + 4 * (buckets + number), 1)
        return None

    def _by_gnu_hash(self, name: str) -> tuple[int, int] | None:
        value = 5381
        for byte in name.encode():
            value = (value * 33 + byte) & 0xFFFFFFFF
        at = self.dynamic[_GNU_HASH]
        buckets, first, words, shift = self._words(at, 4)
        (filter_,) = struct.unpack_from("<Q", self.memory, at + 16 + 8 * (value // 64 % words))
        if not filter_ >> value % 64 & filter_ >> (value >> shift) % 64 & 1:
            return None
        at += 16 + 8 * words
        (number,) = self._words(at + 4 * (value % buckets), 1)
        while number:
            (hash_,) = self._words(at + 4 * (buckets + number - first), 1)
            if hash_ | 1 == value | 1 and (found := self._named(number, name)):
                return found
            if hash_ & 1:
                break
            number += 1
        return None

    # ---------------------------------------------------------------- kernels

    def descriptor(self, kernel: str) -> Descriptor:
        """The descriptor of a kernel."""
        address, size = self.symbol(f"{kernel}.kd")
        assert size == 64
        assert address % 64 == 0
        shared, private, arguments, entry = struct.unpack_from("<III4xq", self.memory, address)
        third, first, second, properties, preload = struct.unpack_from(
            "<3I2H", self.memory, address + 44
        )
        return Descriptor(
            shared, private, arguments, entry, (third, first, second), properties, preload
        )

    def metadata(self) -> dict[str, Any]:
        """What the note says."""
        note = self._segment(NOTE)
        name_bytes, size, kind = struct.unpack_from("<III", self.image, note.offset)
        at = note.offset + 12
        assert self.image[at : at + name_bytes] == b"AMDGPU\0"
        assert kind == _METADATA
        at += -(-name_bytes // 4) * 4
        value, end = message_pack(self.image[at : at + size])
        assert end == size
        assert isinstance(value, dict)
        return value

    def kernels(self) -> dict[str, dict[str, Any]]:
        """What the note says of each kernel."""
        return {kernel[".name"]: kernel for kernel in self.metadata()["amdhsa.kernels"]}


def message_pack(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value at a place, and where it ends: the forms that LLVM writes (msgpack.org)."""
    kind, at = data[at], at + 1
    if kind < 0x80:
        return kind, at
    if kind < 0xA0:
        return _many(data, at, kind & 15, is_map=kind < 0x90)
    if kind < 0xC0:
        return data[at : at + (kind & 31)].decode(), at + (kind & 31)
    if kind in (0xC2, 0xC3):
        return kind == 0xC3, at
    form = {0xCC: "B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD9: "B", 0xDA: ">H", 0xDC: ">H",
            0xDE: ">H"}[kind]  # fmt: skip
    (value,), at = struct.unpack_from(form, data, at), at + struct.calcsize(form)
    if kind in (0xD9, 0xDA):
        return data[at : at + value].decode(), at + value
    if kind in (0xDC, 0xDE):
        return _many(data, at, value, is_map=kind == 0xDE)
    return value, at


def _many(data: bytes, at: int, count: int, *, is_map: bool) -> tuple[Any, int]:
    found = []
    for _ in range(2 * count if is_map else count):
        value, at = message_pack(data, at)
        found.append(value)
    return (dict(zip(found[::2], found[1::2], strict=True)) if is_map else found), at
