"""How a block of an attention by `mma.sync` divides its work, by head sizes and element type.

A tile must fit in the shared memory that any device from sm_80 on has, and in the registers of a
thread. Many rows for each key that is read come first, then many keys for each barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shlo_disc.errors import InternalError
from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.instructions import STEP_BYTES
from shlo_disc.lower.cuda.lines import line_bytes

__all__ = ["FEW_ROWS", "AttentionTile", "tile_of", "tile_of_few_rows"]

FEW_ROWS = 16
"""Rows of a tile of few rows."""

_OWN_KEYS = 16
"""Keys of each warp of a tile of few rows: steps of the second product."""

_ROOM = 99 << 10
"""Bytes of shared memory: sm_86, sm_89 and sm_120 have no more for a block."""

_REGISTERS = 160
"""Of results, scores and queries of a thread. It has 255; addresses take some of them."""


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

    def fits(self, plan: AttentionPlan) -> bool:
        """True if the tile has room, in shared memory and in registers."""
        query, value = (line_bytes(size, plan.p.a.bytes) for size in (plan.head, plan.wide))
        ring = self.stages * self.keys
        if self.keeps_queries and self.rows > ring:
            return False  # they pass through the lines of the keys
        shared = ring * (query + value) + (0 if self.keeps_queries else self.rows * query)
        registers = plan.wide // 2 + self.own_keys // 2
        if self.keeps_queries:
            registers += plan.head * plan.p.a.bytes // STEP_BYTES * 4
        return shared <= _ROOM and registers <= _REGISTERS


def tile_of(plan: AttentionPlan) -> AttentionTile:
    """The tile for many rows."""
    return _first(plan, ((down, 1, keys) for down in (4, 2) for keys in (64, 32, 16)))


def tile_of_few_rows(plan: AttentionPlan) -> AttentionTile:
    """The tile for up to `FEW_ROWS` rows."""
    return _first(plan, ((1, keys // _OWN_KEYS, keys) for keys in (64, 32, 16)))


def _first(plan: AttentionPlan, sizes: Iterator[tuple[int, int, int]]) -> AttentionTile:
    for down, deep, keys in sizes:
        for keeps_queries in (True, False):
            tile = AttentionTile(down, deep, keys, keeps_queries)
            if tile.fits(plan):
                return tile
    raise InternalError(f"no tile has room for heads of {plan.head} and {plan.wide}")
