"""How a block of an attention by `mma.sync` divides its work, by head sizes and element type.

A tile must fit in the shared memory that any device from sm_80 on has, and in the registers of a
thread. Many rows for each key that is read come first, then many keys for each barrier.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.lower.cuda.instructions import STEP_BYTES
from shlo_disc.lower.cuda.lines import line_bytes

FEW_ROWS = 16
"""Rows of a tile of few rows."""

_OWN_KEYS = 16
"""Keys of each warp of a tile of few rows: steps of the second product."""

ROOM = 99 << 10
"""Bytes of shared memory: sm_86, sm_89 and sm_120 have no more for a block."""

_REGISTERS = 160
"""Of results, scores, weights and queries of a thread; addresses and work on scores take others.

Of 255. `ptxas` spills at 192; with a cap on scores (`tanh`) 200 bytes at 184, and 48 at 160.
"""


@dataclass(frozen=True)
class Heads:
    """Sizes of heads, in whole steps of matrix instructions, and bytes of an element."""

    depth: int
    """Elements of a query and of a key."""
    width: int
    """Elements of a value."""
    element_bytes: int


@dataclass(frozen=True)
class AttentionTile:
    """How a block divides its work."""

    down: int
    """Warps below each other, 16 rows each."""
    deep: int
    """Warps that share rows; each has a part of the keys of a tile."""
    keys: int
    keeps_queries: bool = True
    """Queries stay in registers. Else in shared memory, from where they are read for each tile."""
    stages: int = 2

    @property
    def rows(self) -> int:
        """Rows of queries of a block."""
        return 16 * self.down

    @property
    def own_keys(self) -> int:
        """Keys of each warp."""
        return self.keys // self.deep

    def shared_bytes(self, heads: Heads) -> int:
        """Shared memory of queries, keys and values."""
        query, value = (line_bytes(n, heads.element_bytes) for n in (heads.depth, heads.width))
        of_queries = 0 if self.keeps_queries else self.rows * query
        return self.stages * self.keys * (query + value) + of_queries

    def registers(self, heads: Heads) -> int:
        """Registers of a thread for results, scores, weights and queries."""
        steps = heads.depth * heads.element_bytes // STEP_BYTES
        return heads.width // 2 + self.own_keys + (4 * steps if self.keeps_queries else 0)

    def fits(self, heads: Heads) -> bool:
        """True if there is room for all of it."""
        # Queries that registers keep pass through the lines of the keys.
        return (
            (not self.keeps_queries or self.rows <= self.stages * self.keys)
            and self.shared_bytes(heads) <= ROOM
            and self.registers(heads) <= _REGISTERS
        )


def tile_of(heads: Heads) -> AttentionTile:
    """The tile for many rows."""
    return _first(heads, ((down, 1, keys) for down in (4, 2) for keys in (64, 32, 16)))


def tile_of_few_rows(heads: Heads) -> AttentionTile:
    """The tile for up to `FEW_ROWS` rows."""
    return _first(heads, ((1, keys // _OWN_KEYS, keys) for keys in (64, 32, 16)))


def _first(heads: Heads, sizes: Iterator[tuple[int, int, int]]) -> AttentionTile:
    for down, deep, keys in sizes:
        for keeps_queries in (True, False):
            tile = AttentionTile(down, deep, keys, keeps_queries)
            if tile.fits(heads):
                return tile
    raise InternalError(f"no tile of an attention has room for {heads}")
