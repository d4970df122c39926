"""What a file of the store holds: a header, the key it was stored under, the object code."""

from __future__ import annotations

import hashlib
import struct

__all__ = ["KEY_BYTES", "MOST_BYTES", "VERSION", "DamagedError", "packed", "unpacked"]

MAGIC = b"\x93shlodsc"
VERSION = 1
"""Of this layout. Files of another version are not read."""
KEY_BYTES = 32
MOST_BYTES = 256 << 20
"""Of a file; the largest kernels take 100 kB."""

_HEAD = struct.Struct(f"<8sIIQ{KEY_BYTES}s{hashlib.blake2b().digest_size}s")
"""Magic, version, 0, bytes of the object code, key, digest."""


class DamagedError(ValueError):
    """A file is not what was written."""


def _digest(key: bytes, object_code: bytes) -> bytes:
    """Of all of a file but the digest itself: the other fields follow from these two."""
    return hashlib.blake2b(key + object_code).digest()


def packed(key: bytes, object_code: bytes) -> bytes:
    """The file of `object_code`."""
    digest = _digest(key, object_code)
    return _HEAD.pack(MAGIC, VERSION, 0, len(object_code), key, digest) + object_code


def unpacked(key: bytes, file: bytes) -> bytes:
    """The object code in `file`, which was stored under `key`.

    Raises DamagedError for bytes that are not `packed(key, object code)`.
    """
    if len(file) < _HEAD.size:
        raise DamagedError("truncated")
    magic, version, zero, length, stored_key, digest = _HEAD.unpack_from(file)
    if magic != MAGIC or version != VERSION or zero != 0:
        raise DamagedError("another format or version")
    if stored_key != key:
        raise DamagedError("the entry of another key")
    object_code = file[_HEAD.size :]
    if length != len(object_code):
        raise DamagedError("truncated")
    if digest != _digest(key, object_code):
        raise DamagedError("a wrong checksum")
    return object_code
