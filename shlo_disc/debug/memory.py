"""Arrays that end where inaccessible memory begins."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

FILL = 0xA5
"""Every byte of fresh memory: neither zero nor a plausible number."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """`size` bytes between two inaccessible pages, shared with forked children.

    The last byte lies directly in front of the second page: reading or writing behind the end
    faults. A write in front of the first byte faults, too, or is found by :meth:`is_intact`.
    """

    def __init__(self, size: int, align: int = 1) -> None:
        page = mmap.PAGESIZE
        room = (size + align + page - 1) // page * page
        self._map = mmap.mmap(-1, room + 2 * page)
        whole = np.frombuffer(self._map, np.uint8)
        start = whole.ctypes.data + page
        for guard in (start - page, start + room):
            if _libc.mprotect(guard, page, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = (room - size) // align * align
        inside = whole[page : page + room]
        inside[:] = FILL
        self.bytes: npt.NDArray[np.uint8] = inside[offset : offset + size]
        self.address: int = start + offset
        self._around = (inside[:offset], inside[offset + size :])

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Guarded:
        """A copy of `array`, dense and row-major."""
        made = cls(array.nbytes)
        made.bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return made

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """A copy of the bytes as an array."""
        return self.bytes.view(dtype).reshape(shape).copy()

    def is_intact(self) -> bool:
        """True if nothing was written around the bytes."""
        return all(bool((side == FILL).all()) for side in self._around)
