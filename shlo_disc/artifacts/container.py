"""The container of an artifact: a ZIP file whose members are stored, aligned and digested.

Any tool lists it, and a process maps it. The C++ reader is `ral/src/core/container.cpp`; it accepts
no other ZIP files than those written here.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.artifacts import safetensors
from shlo_disc.artifacts.manifest import (
    Manifest,
    ManifestError,
    Member,
    Span,
    Tensor,
    packed,
    unpacked,
)
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import Workers

MANIFEST = "manifest.bin"
PAGE = 4096
ALIGNMENT = 64
"""Of members of less than a page; also of each constant, which kernels rely on."""
COMMENT = b"shlo_disc "
"""The comment of the ZIP file: this, then the digest of the manifest in hex."""
MOST_BYTES = 2**32 - 2**20
"""Of a file: offsets in a ZIP file have 32 bits."""

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_PADDING = struct.Struct("<HHH")
"""An extra field as Android's zipalign writes it: its number, bytes, the alignment."""
_VERSION, _DATE = 10, 0x0021
"""ZIP 1.0; 1 January 1980: equal programs have equal files."""


def digest_of(data: Any) -> bytes:
    """What the manifest keeps of a member, and the comment of the manifest."""
    return hashlib.blake2b(data, digest_size=32).digest()


def digests_of(parts: Iterable[Any]) -> list[bytes]:
    """The digest of each part; threads share the work, which takes as long as to read the parts."""
    with Workers() as workers:
        return [one.result() for one in [workers.begin(digest_of, part) for part in parts]]


@dataclass(frozen=True)
class _Placed:
    name: bytes
    crc: int
    size: int
    offset: int


class Contents:
    """Collects the members of an artifact. Then :meth:`write` makes the file."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}
        self._names: list[str] = []
        self._constants: dict[bytes, Span] = {}
        self._tensors: dict[bytes, tuple[Tensor, Any]] = {}

    def add(self, name: str, data: bytes | memoryview) -> Span:
        """Put `data` at the end of a member, which is made by its first part."""
        if name not in self._parts:
            self._names.append(name)
            self._parts[name], self._sizes[name] = [], 0
        offset = self._sizes[name]
        self._parts[name].append(data)
        self._sizes[name] += len(data)
        return Span(self._names.index(name), offset, len(data))

    def add_object(self, target: str, data: bytes) -> Span:
        """Put an object file into the code of a target."""
        return self.add(f"code/{target}.bin", data)

    def add_constant(self, array: npt.NDArray[Any], folder: str = "constants") -> Span:
        """Put the elements of a constant into a member of their own; equal ones share it."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        key = digest_of(data)
        if key not in self._constants:
            name = f"{folder}/{len(self._constants)}.bin"
            self._constants[key] = self.add(name, data)
        return self._constants[key]

    def add_tensor(self, array: npt.NDArray[Any], element: str, sizes: tuple[int, ...]) -> Span:
        """Put a constant into the weights file; equal ones share it.

        `element` is the name of its element type, and `sizes` are those of its dimensions.
        """
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        dtype, digest = safetensors.dtype_of(element), digest_of(data)
        key = repr((digest, dtype, sizes)).encode()
        if key not in self._tensors:
            name = f"constants/{len(self._tensors)}"
            self._tensors[key] = (Tensor(name, dtype, sizes, len(data), digest), data)
        return Span(-1 - [*self._tensors].index(key), 0, len(data))

    def tensors(self) -> tuple[Tensor, ...]:
        """The rows of the manifest for the weights file."""
        return tuple(row for row, _ in self._tensors.values())

    def members(self) -> tuple[Member, ...]:
        """The rows of the manifest."""
        rows = []
        for name in self._names:
            digest = hashlib.blake2b(digest_size=32)
            for part in self._parts[name]:
                digest.update(part)
            rows.append(Member(name, self._sizes[name], digest.digest()))
        return tuple(rows)

    def write(
        self,
        path: str | os.PathLike[str],
        manifest: Manifest,
        front: Callable[[int], bytes] | None = None,
    ) -> None:
        """Write the weights file, if there is one, then the file.

        Each replaces an old one in a single step, and a weights file that the old artifact had and
        this one has not is removed. The manifest's `members` and `tensors` are those
        of :meth:`members` and :meth:`tensors`. `front` gives what is in front of the container, of
        whole pages, for the container's size. Raises UnsupportedError for members of more than
        4 GB.
        """
        path, head = Path(path), packed(manifest)
        before = _weights_file_of(path)
        total = len(head) + sum(self._sizes.values())
        total += (len(self._names) + 1) * 2 * PAGE
        if total > MOST_BYTES:
            raise UnsupportedError(
                f"the artifact would take {total} bytes, and a file holds at most {MOST_BYTES}; "
                "save it with weights='separate', or pass the weights as arguments"
            )
        members = [(MANIFEST, [head]), *((name, self._parts[name]) for name in self._names)]
        pieces = [*_zip(members, digest_of(head))]
        if front is not None:
            pieces.insert(0, front(sum(map(len, pieces))))
        if manifest.weights_file:
            stored = {
                row.name: safetensors.Stored(row.dtype, row.sizes, data)
                for row, data in self._tensors.values()
            }
            _replace(path.parent / manifest.weights_file, safetensors.written(stored))
        _replace(path, pieces)
        if before not in ("", manifest.weights_file):
            (path.parent / before).unlink(missing_ok=True)


def _weights_file_of(path: Path) -> str:
    """The weights file of the artifact at `path`; "": there is none, or no artifact."""
    try:
        with zipfile.ZipFile(path) as old:
            name = unpacked(old.read(MANIFEST)).weights_file
    except (
        OSError,
        EOFError,
        KeyError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
        ManifestError,
    ):
        return ""  # somebody else's, which is replaced
    return name if name == f"{path.name}.safetensors" else ""


def _replace(path: Path, pieces: Iterable[Any]) -> None:
    """Write a file of `pieces` in place of an old one."""
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.chmod(made, 0o644)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def _zip(members: list[tuple[str, list[Any]]], digest: bytes) -> Iterator[Any]:
    at, placed = 0, []
    for text, parts in members:
        name = text.encode("ascii")
        size, crc = sum(len(part) for part in parts), 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        begin = at + _LOCAL.size + len(name) + _PADDING.size
        alignment = PAGE if size >= PAGE else ALIGNMENT
        extra = _PADDING.size + -begin % alignment
        yield _LOCAL.pack(
            0x04034B50, _VERSION, 0, 0, 0, _DATE, crc, size, size, len(name), extra
        )  # fmt: skip
        yield name
        yield _PADDING.pack(0xD935, extra - 4, alignment).ljust(extra, b"\0")
        yield from parts
        placed.append(_Placed(name, crc, size, at))
        at += _LOCAL.size + len(name) + extra + size
    begin = at
    for one in placed:
        yield _CENTRAL.pack(
            0x02014B50, _VERSION, _VERSION, 0, 0, 0, _DATE, one.crc, one.size, one.size,
            len(one.name), 0, 0, 0, 0, 0, one.offset,
        )  # fmt: skip
        yield one.name
        at += _CENTRAL.size + len(one.name)
    comment = COMMENT + digest.hex().encode()
    yield _END.pack(
        0x06054B50, 0, 0, len(placed), len(placed), at - begin, begin, len(comment)
    )  # fmt: skip
    yield comment
