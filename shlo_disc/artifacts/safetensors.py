"""Weights beside an artifact: a safetensors file, which other tools read.

The file is 8 bytes, the length of a header; the header, JSON; and the data. The C++ reader is
`ral/src/core/safetensors.cpp`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shlo_disc.base.errors import ArtifactError
from shlo_disc.base.records import dataclass

PAGE = 4096
"""The data begins at a multiple of this."""
ALIGNMENT = 64
"""Of a tensor that is read where it is; code may read as many bytes behind it."""
_PADDING = "padding"
"""A tensor behind all others, so that :data:`ALIGNMENT` bytes are behind these."""
_MOST_HEADER = 100_000_000
"""Bytes of a header, as in the library `safetensors`."""

_NAMES = {
    "bf16": "BF16", "f16": "F16", "f32": "F32", "f64": "F64", "i1": "BOOL", "f8E4M3FN": "F8_E4M3",
    "f8E5M2": "F8_E5M2", "f8E8M0FNU": "F8_E8M0",
    **{f"i{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip


def dtype_of(element: str) -> str:
    """The name of an element type; those that safetensors lacks have a byte each in memory."""
    return _NAMES.get(element, "U8")


@dataclass(frozen=True)
class Stored:
    """A tensor of a file."""

    dtype: str
    sizes: tuple[int, ...]
    data: Any
    """Its bytes."""


def written(tensors: Mapping[str, Stored]) -> Iterator[Any]:
    """The bytes of a file with `tensors`, in pieces.

    Tensors of a multiple of 64 bytes come first, so that all of these begin at such a multiple.
    """
    ordered = sorted(tensors.items(), key=lambda item: len(item[1].data) % ALIGNMENT != 0)
    ordered.append((_PADDING, Stored("U8", (ALIGNMENT,), bytes(ALIGNMENT))))
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.sizes,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(len(text) + -(8 + len(text)) % PAGE)
    yield len(text).to_bytes(8, "little")
    yield text
    for _, tensor in ordered:
        yield tensor.data


def stored(file: memoryview, wanted: Iterable[str]) -> dict[str, Stored]:
    """The tensors of `file` with the names `wanted`, with padding behind. Raises ArtifactError."""
    length = int.from_bytes(file[:8], "little")
    if len(file) < 8 or length > min(len(file) - 8, _MOST_HEADER):
        raise ArtifactError("no safetensors file, or a truncated one")
    data = file[8 + length :]
    try:
        header = json.loads(bytes(file[8 : 8 + length]))
        rows = {name: header[name] for name in wanted if name in header}
        found = {
            name: (str(row["dtype"]), tuple(row["shape"]), tuple(row["data_offsets"]))
            for name, row in rows.items()
        }
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ArtifactError(f"the header is damaged: {error}") from None
    out = {}
    for name, (dtype, sizes, offsets) in found.items():
        if len(offsets) != 2 or any(type(number) is not int for number in (*sizes, *offsets)):
            raise ArtifactError(f"the row of {name} is damaged")
        begin, end = offsets
        if not 0 <= begin <= end <= len(data):
            raise ArtifactError(f"{name} is outside the file, which may be truncated")
        part = data[begin:end]
        if len(data) - end < ALIGNMENT:
            part = memoryview(bytes(part) + bytes(ALIGNMENT))[: len(part)]
        out[name] = Stored(dtype, sizes, part)
    return out
