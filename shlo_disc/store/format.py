"""What a file of the store holds: a header, the key it was stored under, the content."""

from __future__ import annotations

import hashlib
import struct

MAGIC = b"\x93shlodsc"
VERSION = 1
"""Of this layout. Files of another version are not read."""
KEY_BYTES = 32
MOST_BYTES = 256 << 20
"""Of a file; the largest kernels take 100 kB."""

MOST_CONSTANT_BYTES = 1 << 30
"""Of a program that is kept: more take as long to digest as a program to lower and compile."""
TOO_MANY_CONSTANTS = f"has constants of more than {MOST_CONSTANT_BYTES >> 20} MiB in all"

_HEAD = struct.Struct(f"<8sIIQ{KEY_BYTES}s{hashlib.blake2b().digest_size}s")
"""Magic, version, 0, bytes of the content, key, digest."""


def key_of(*parts: str | bytes) -> bytes:
    """The key that `parts` make; no two rows of parts are the same bytes."""
    key = hashlib.blake2b(digest_size=KEY_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        key.update(len(data).to_bytes(8, "little"))
        key.update(data)
    return key.digest()


def name_of(elements: bytes | memoryview) -> str:
    """What a large constant is called on disk: equal elements have equal names."""
    return hashlib.sha256(elements).hexdigest()  # CPUs have instructions: twice as fast as BLAKE2


class DamagedError(ValueError):
    """A file is not what was written."""


def _digest(key: bytes, content: bytes) -> bytes:
    """Of all of a file but the digest itself: the other fields follow from these two."""
    return hashlib.blake2b(key + content).digest()


def packed(key: bytes, content: bytes) -> bytes:
    """The file that stores `content`."""
    digest = _digest(key, content)
    return _HEAD.pack(MAGIC, VERSION, 0, len(content), key, digest) + content


def unpacked(key: bytes, file: bytes) -> bytes:
    """What is stored in `file`, which was stored under `key`.

    Raises DamagedError for bytes that are not `packed(key, content)`.
    """
    if len(file) < _HEAD.size:
        raise DamagedError("truncated")
    magic, version, zero, length, stored_key, digest = _HEAD.unpack_from(file)
    if magic != MAGIC or version != VERSION or zero != 0:
        raise DamagedError("another format or version")
    if stored_key != key:
        raise DamagedError("the entry of another key")
    content = file[_HEAD.size :]
    if length != len(content):
        raise DamagedError("truncated")
    if digest != _digest(key, content):
        raise DamagedError("a wrong checksum")
    return content
