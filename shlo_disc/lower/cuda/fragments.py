"""Sums in the registers of a warp, as NVIDIA's matrix instructions leave them, on their way out.

Of 8 columns lane l has rows `l // 4` and `l // 4 + 8`, columns `2 * (l % 4)` and the next: four
sums. Source: NVIDIA's PTX ISA, sections 9.7.14.5.8 (`mma.m16n8k16`) and 9.7.15.5.1 (`wgmma`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.values.typed import IndexValue, Register, vector_type

__all__ = ["LANES", "store_sums"]

LANES = 8
"""Columns that a thread finishes and stores at once, at most: 16 bytes of a 16-bit result."""

_PAD, _PAD_TURNED = 8, 4
"""Elements behind a row in shared memory: rows that a warp writes at once lie in other banks.

These are four neighbours; where rows and columns change places, each second of eight.
"""


def store_sums(
    w: ProductWriter,
    place: list[IndexValue],
    row: IndexValue,
    column: IndexValue,
    sums: Sequence[Register],
    first: tuple[IndexValue, IndexValue | int],
    across: int,
    parts: int = 1,
    part: IndexValue | int = 0,
    bands: int = 1,
    is_turned: bool = False,
) -> None:
    """Store the tile at `row` and `column` of batch `place`, of which each warp has a part.

    The part begins at row and column `first` of the tile and has `across` columns. `sums`: those of
    16 rows and 8 columns after each other, along columns first; 16 rows of each of `bands`.

    `is_turned`: what is said of rows is true of columns, and of columns of rows, but for `first`.

    Sums come in `parts`, of which a warp has number `part`; they are added first to last.

    They go through shared memory, so that neighbouring threads store neighbouring columns. No
    thread may still read that memory. Behind this it may be written again.
    """
    b, line = w.b, w.columns + (_PAD_TURNED if is_turned else _PAD)
    lane = b.thread % w.plan.machine.warp
    band_size = line * w.rows
    size = band_size * bands
    memory = b.shared_at("f32", 0, size * parts)
    pair = vector_type(2, "f32")
    down, right = first[0] + lane // 4, first[1] + lane % 4 * 2
    own = b.index(part) * size + (right * line + down if is_turned else down * line + right)
    for at in range(0, len(sums), 2):
        fragment, half = divmod(at // 2, 2)
        group, j = divmod(fragment, across // 8)
        i, band = divmod(group, bands)
        if is_turned:
            there = own + (8 * j * line + 16 * i + 8 * half)
            memory.store(sums[at], there)
            memory.store(sums[at + 1], there + line)
            continue
        made = f"vector.from_elements {sums[at]}, {sums[at + 1]} : {pair}"
        both = b.define(Register, made, pair, sums[at : at + 2])
        there = own + (band * band_size + (16 * i + 8 * half) * line + 8 * j)
        memory.vector_store(both, there, aligned=True)
    w.barrier()
    vectors, step = w.columns // w.lanes, w.storing_threads
    with b.loop(b.thread, w.rows * vectors, step, hint="vector", barrier=True) as vector:
        down, right = vector.index // vectors, vector.index % vectors * w.lanes
        r, c = row + down, column + right
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
