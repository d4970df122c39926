"""Sums in the registers of warps, on their way out of a matrix unit.

They go through shared memory, so that neighbouring threads store neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.values.typed import IndexValue, Register


@dataclass(frozen=True)
class Piece:
    """Sums of a thread in neighbouring columns, as a vector; or one."""

    sums: Register
    down: int
    """Rows from the first row of the thread."""
    right: int
    """Columns from the first column of the thread."""
    band: int = 0


def store_pieces(
    w: ProductWriter,
    place: list[IndexValue],
    row: IndexValue,
    column: IndexValue,
    pieces: Sequence[Piece],
    warp: tuple[IndexValue, IndexValue | int],
    lane: tuple[IndexValue, IndexValue],
    *,
    pad: int,
    parts: int = 1,
    part: IndexValue | int = 0,
    bands: int = 1,
    warp_rows: int = 0,
    at_once: int = 0,
) -> None:
    """Store the tile at `row` and `column` of batch `place`, of which each thread has `pieces`.

    `warp`: first row and column of the warp in the tile. `lane`: those of the thread in the warp.
    `pad`: elements behind a line of shared memory, which spread lines over the banks.

    Sums come in `parts`, of which a warp has number `part`; they are added first to last.

    Shared memory is written from its first byte on. It holds the whole tile; or `at_once` of the
    `warp_rows` rows of every warp, in rounds. No thread may still read that memory. Behind this it
    may be written again.
    """
    b, line = w.b, w.columns + pad
    in_rounds = 0 < at_once < warp_rows
    lines = w.rows // warp_rows * at_once if in_rounds else w.rows
    band_size = line * lines
    size = band_size * bands
    memory = b.shared_at(pieces[0].sums.element, 0, size * parts)
    warp_line = warp[0] // warp_rows * at_once if in_rounds else warp[0]
    own = b.index(part) * size + (warp_line + lane[0]) * line + warp[1] + lane[1]
    vectors = w.columns // w.lanes
    for first in range(0, warp_rows, at_once) if in_rounds else (0,):
        for piece in pieces:
            if in_rounds and not first <= piece.down < first + at_once:
                continue
            there = own + (piece.band * band_size + (piece.down - first) * line + piece.right)
            if piece.sums.lanes:
                memory.vector_store(piece.sums, there, aligned=True)
            else:
                memory.store(piece.sums, there)
        w.barrier()
        step = w.storing_threads
        with b.loop(b.thread, lines * vectors, step, hint="vector", barrier=True) as vector:
            down, right = vector.index // vectors, vector.index % vectors * w.lanes
            below = down // at_once * warp_rows + down % at_once + first if in_rounds else down
            r, c = row + below, column + right
            with b.if_((r < w.m) & (c < w.n)):
                found = []
                for band in range(bands):
                    start = down * line + right + band * band_size
                    total = memory.vector_load(start, w.lanes, False, aligned=True)
                    for k in range(1, parts):
                        more = memory.vector_load(start + k * size, w.lanes, False, aligned=True)
                        total = total + more
                    found.append(total)
                w.store(place, r, c, found, b.mask(w.n - c, w.lanes))
        w.barrier()
