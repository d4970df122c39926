"""Ways to compute a product by warpgroups, and the time that each takes: the host takes the least.

    time = turns * (steps along K * time of a step + time before and behind them)

A turn is the time in which every multiprocessor computes as many tiles as it has room for. Large
tiles read operands less often. Small ones leave fewer multiprocessors without work, or without a
second tile whose products hide what another does before and behind its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.box_products import most_index
from shlo_disc.lower.cuda.warpgroup_products import LINE, WarpgroupTile

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

__all__ = ["LITTLE", "MOST_SPLIT", "PARTS", "Way", "largest_tile", "ways"]

MULTIPROCESSORS = 132
"""Of an H100 and an H200."""

PARTS = 4
"""Parts of K where blocks share a tile."""

MOST_SPLIT = 66
"""Tiles up to which blocks share them: more tiles leave half of the multiprocessors no work."""


@dataclass(frozen=True)
class Way:
    """A tile, and times of an H200 in nanoseconds."""

    tile: WarpgroupTile
    blocks: int
    """Tiles that a multiprocessor has room for."""
    step: int
    """Time of a step along K, a line of shared memory, of all these tiles."""
    around: int
    """Time of a turn before its first step and behind its last one."""
    parts: int = 1

    def time(self, plan: MatrixProduct) -> Expr:
        """What the product takes."""
        tiles = self.tile.count(plan) * self.parts
        turns = ceil_div(tiles, MULTIPROCESSORS * self.blocks)
        steps = ceil_div(plan.p.depth, LINE // plan.p.a.bytes * self.parts)
        return turns * (steps * self.step + self.around)


WIDE = Way(WarpgroupTile(2, 256, 4), 1, 850, 3500)
NARROW = Way(WarpgroupTile(2, 128, 3, has_producer=False), 2, 950, 3000)
LITTLE = Way(WarpgroupTile(1, 64, 6, has_producer=False), 2, 450, 2500)
FEW_ROWS = Way(WarpgroupTile(1, 16, 10, is_turned=True), 2, 320, 2000)
"""For up to 16 rows; B is read once for these."""

HALVES = (WIDE, NARROW, LITTLE)
"""Of elements of 16 bits, the largest tile first."""

TF32 = (
    Way(WarpgroupTile(2, 256, 4, has_producer=False), 1, 900, 3500),
    NARROW,
    LITTLE,
)
"""Registers that hold an operand leave no room for a producer beside the largest tile."""


def ways(plan: MatrixProduct) -> list[Way]:
    """The ways to compute a product of one band; the layout is one of warpgroups."""
    found = _by_tile(plan)
    if plan.contiguous("a") == "ak" and most_index(plan) is not None:
        found.append(FEW_ROWS)
    split = next(x for x in found if x.blocks == 2)
    return [replace(split, parts=PARTS, around=2 * split.around), *found]


def largest_tile(plan: MatrixProduct) -> WarpgroupTile:
    """The tile of the largest products."""
    return _by_tile(plan)[0].tile


def _by_tile(plan: MatrixProduct) -> list[Way]:
    """Ways for products of many rows, the largest tile first."""
    if plan.element != "tf32":
        return list(HALVES)
    is_turned = plan.contiguous("b") == "br"
    return [replace(x, tile=replace(x.tile, is_turned=is_turned)) for x in TF32]
