"""Tensor maps (CUtensorMap) as the interpreter reads them: its own 128 bytes, not NVIDIA's.

Source: CUDA driver API, cuTensorMapEncodeTiled, for what is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_MAGIC = 0x4D54584C
SWIZZLES = (0, 32, 64, 128)
"""Bytes, in the order of CUtensorMapSwizzle."""


@dataclass(frozen=True)
class TensorMap:
    """A parameter of `launch`: a map over the array that is its argument number `argument`.

    `sizes` and `box` count elements, the innermost dimension first; `strides` count bytes, from
    the second dimension on.
    """

    argument: int
    element_bytes: int
    sizes: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    swizzle: int = 128
    first: int = 0
    """Bytes in front of the tensor in the array."""
    rounds: bool = False
    """Copies round f32 to tf32, ties to even."""

    def encoded(self, address: int) -> bytes:
        """Its 128 bytes, for an array at `address`."""
        at, size = address + self.first, self.element_bytes
        shape = self.sizes, self.strides, self.box, self.swizzle
        return encode_tensor_map(at, size, *shape, rounds=self.rounds)


def encode_tensor_map(
    address: int,
    element_bytes: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    rounds: bool = False,
) -> bytes:
    """A tiled map without interleaving. Elements outside of the tensor are zeros.

    Raises ValueError where the driver answers CUDA_ERROR_INVALID_VALUE.
    """
    rank = len(sizes)
    if not 1 <= rank <= 5 or len(strides) != rank - 1 or len(box) != rank:
        raise ValueError(f"a tensor map of sizes {sizes}, strides {strides}, box {box}")
    row = box[0] * element_bytes
    for what, is_wrong in {
        f"the address {address:#x} is no multiple of 16": address % 16,
        f"strides {strides} are no multiples of 16 below 2^40": any(
            s % 16 or not 0 < s < 1 << 40 for s in strides
        ),
        f"sizes {sizes} are not from 1 to 2^32": any(not 0 < s <= 1 << 32 for s in sizes),
        f"the box {box} is not from 1 to 256": any(not 0 < b <= 256 for b in box),
        f"a row of the box has {row} bytes, no multiple of 16": row % 16,
        f"a row of the box has {row} bytes, more than the swizzle": swizzle and row > swizzle,
    }.items():
        if is_wrong:
            raise ValueError(f"tensor map: {what}")
    five = [0] * 5
    return struct.pack(
        "<I4BQ5I5I4Q",
        *(_MAGIC, rank, element_bytes, SWIZZLES.index(swizzle), rounds, address),
        *[*sizes, *five][:5],
        *[*box, *five][:5],
        *[*strides, *five][:4],
    ).ljust(128, b"\0")


def address_of(encoded: bytes) -> int | None:
    """The address of the tensor that 128 bytes describe; None if they are no tensor map."""
    magic, _, address = struct.unpack_from("<IIQ", encoded)
    return int(address) if magic == _MAGIC else None
