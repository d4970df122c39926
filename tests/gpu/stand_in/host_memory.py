"""How far memory of this process reaches that kernels use and the stand-in did not allocate."""

from __future__ import annotations

import bisect
import ctypes
import mmap
from collections.abc import Iterator, Mapping

_PAGE = mmap.PAGESIZE
_MOST = 1 << 26
"""Bytes that memory of others has at most: interpreted kernels use no more."""
_mincore = ctypes.CDLL(None).mincore
_pages_in_memory = ctypes.create_string_buffer(_MOST // _PAGE + 2)
_usable_size = ctypes.CDLL(None).malloc_usable_size
_usable_size.argtypes, _usable_size.restype = [ctypes.c_void_p], ctypes.c_size_t

_WORD = 8
_IN_USE_BEFORE, _IS_MAPPED, _FLAGS = 1, 2, 7
"""Bits of the word in front of what malloc of glibc gives; the others are the chunk's bytes."""


def of_others(
    pointers: set[int], own: set[tuple[int, int]], arrays: Mapping[int, int], asks_malloc: bool
) -> Iterator[tuple[int, int]]:
    """Address and bytes of memory that pointers begin, but for the driver's `own`.

    Any numbers may be among `pointers`.

    `arrays` has the bytes of some, by address. Others reach as far as malloc says, if it is asked
    and knows them; else to the next known place, or to the end of what is mapped.
    """
    inside = [p for p in pointers if any(at <= p < at + size for at, size in own)]
    foreign = sorted(pointers.difference(inside))
    stops = sorted([*foreign, *(at for at, _ in own)])
    for pointer in foreign:
        stop = next((at for at in stops if at > pointer), pointer + _MOST)
        size = arrays.get(pointer, 0) or (allocated(pointer) if asks_malloc else 0)
        if size := size or mapped(pointer, min(stop - pointer, _MOST)):
            yield pointer, size


def mapped(address: int, most: int) -> int:
    """How many bytes from `address` on are mapped, up to `most`."""

    def is_mapped(size: int) -> bool:
        first = address - address % _PAGE
        length = ctypes.c_size_t(address + size - first)
        return _mincore(ctypes.c_void_p(first), length, _pages_in_memory) == 0

    if is_mapped(most):
        return most
    pages = range(most // _PAGE + 1)  # to the end of so many pages more than that of `address`
    rest = _PAGE - address % _PAGE
    count = bisect.bisect_left(pages, True, key=lambda n: not is_mapped(rest + n * _PAGE))
    return min(rest + (count - 1) * _PAGE, most) if count else 0


def allocated(address: int) -> int:
    """The bytes that malloc of glibc gave at `address`, to a word; 0 if it gave none there.

    The words around are looked at: inside of an array they may mislead, though rarely.
    """
    if address % 16 or mapped(address - _WORD, _WORD + 1) <= _WORD:
        return 0
    word = ctypes.c_size_t.from_address(address - _WORD).value
    size = word & ~_FLAGS
    if size < 2 * 16 or size % 16 or size > _MOST or mapped(address, size) < size:
        return 0
    if not word & _IS_MAPPED:
        behind = ctypes.c_size_t.from_address(address - _WORD + size).value
        if not behind & _IN_USE_BEFORE:
            return 0
    return int(_usable_size(address))
