"""Sums in the registers of a warp, as NVIDIA's matrix instructions leave them, on their way out.

Of 8 columns lane l has rows `l // 4` and `l // 4 + 8`, columns `2 * (l % 4)` and the next: four
sums. Source: NVIDIA's PTX ISA, sections 9.7.14.5.8 (`mma.m16n8k16`) and 9.7.15.5.1 (`wgmma`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.gpu.sums import Piece, store_pieces
from shlo_disc.lower.values.typed import IndexValue, Register

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

    `is_turned`: rows here are columns of the tile, and columns here are its rows.
    `parts`, `part`: see `sums.store_pieces`.
    """
    b, pieces = w.b, []
    lane = b.thread % w.plan.machine.warp
    for at in range(0, len(sums), 2):
        fragment, half = divmod(at // 2, 2)
        group, j = divmod(fragment, across // 8)
        i, band = divmod(group, bands)
        down, right = 16 * i + 8 * half, 8 * j
        if is_turned:
            pieces += [Piece(sums[at + k], right + k, down, band) for k in range(2)]
            continue
        pieces.append(Piece(b.joined(sums[at : at + 2]), down, right, band))
    own = lane // 4, lane % 4 * 2
    store_pieces(
        w, place, row, column, pieces,
        (b.index(first[1]), first[0]) if is_turned else first, own[::-1] if is_turned else own,
        pad=_PAD_TURNED if is_turned else _PAD, parts=parts, part=part, bands=bands,
    )  # fmt: skip
