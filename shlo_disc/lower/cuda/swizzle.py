"""Lines of shared memory with the 128-byte swizzle, as copies fill them and `wgmma` reads them.

A line has 128 bytes, eight chunks of 16. Chunk c of line l is at place `c ^ l % 8`. Lines are
counted from a multiple of 1024 bytes. Source: NVIDIA's PTX ISA, section 9.7.15.5 ("Asynchronous
warpgroup level matrix: shared memory layout, descriptors").
"""

from __future__ import annotations

from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.values.typed import IndexValue, Register

LINE = 128
"""Bytes of a line."""

CHUNK_BYTES = 16


def chunk_of_thread(b: GpuBuilder) -> tuple[IndexValue, IndexValue]:
    """Line and chunk of this thread, where the threads of the block take chunks one by one."""
    chunks = LINE // CHUNK_BYTES
    return b.thread // chunks, b.thread % chunks


def place_of_chunk(b: GpuBuilder, line: IndexValue, chunk: IndexValue, offset: int) -> Register:
    """The address (i32) of a chunk of a line; line 0 is `offset` bytes into shared memory."""
    swizzled = b.cast("arith.index_cast", chunk, "i32") ^ (
        b.cast("arith.index_cast", line % 8, "i32")
    )
    own = b.cast("arith.index_cast", line * LINE + offset, "i32")
    return b.shared_base + own + swizzled * CHUNK_BYTES


def start_of_lines(b: GpuBuilder, offset: int) -> IndexValue:
    """The part of a descriptor that says where lines begin; a chunk further it is one more."""
    start = b.cast("arith.index_cast", b.index(offset), "i32") + b.shared_base
    return b.to_index("arith.index_castui", start) // CHUNK_BYTES


def layout(leading: int) -> int:
    """The part of a descriptor that says how lines lie: eight of them follow each other.

    `leading`: bytes from 64 contiguous rows to the next.
    """
    # The highest bits: the swizzle of 128 bytes.
    return leading >> 4 << 16 | 8 * LINE >> 4 << 32 | 1 << 62
