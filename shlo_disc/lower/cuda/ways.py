"""Ways to compute a product by warpgroups, and the time that each takes: the host takes the least.

    time = turns * (steps along K * time of a step + time before and behind them)

A turn is the time in which every multiprocessor computes a tile, or two at once. Large tiles read
operands less often. Small ones leave fewer multiprocessors without work, or without a second tile
whose products hide what another does before and behind its own.

Times are those of an H200: products of 16 to 12288 rows, of 768 to 8192 columns and steps, by CUDA
graphs. Estimates are within a fifth of what was measured there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.box_products import most_index
from shlo_disc.lower.cuda.swizzle import LINE
from shlo_disc.lower.cuda.warpgroup_products import WarpgroupTile

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

MULTIPROCESSORS = 132
"""Of an H100 and an H200."""

PARTS = 4
"""Parts of K where blocks share a tile."""

MOST_SPLIT = 66
"""Tiles up to which blocks share them: more tiles leave half of the multiprocessors no work."""


LEAST_TIME = "its estimated time is least"
"""What conditions between ways ask, for `explain()`: in formulas of the sizes they are long."""


@dataclass(frozen=True)
class Turn:
    """Times in nanoseconds."""

    step: int
    """Of a step along K: a line of shared memory."""
    around: int
    """Before the first step and behind the last one."""


@dataclass(frozen=True)
class Way:
    """A tile, and what it takes."""

    tile: WarpgroupTile
    one: Turn
    """Where a multiprocessor has one tile."""
    two: Turn | None = None
    """Where it has two; None: there is no room for them."""
    parts: int = 1
    """Blocks that share a tile; each has a part of K."""
    stays: bool = False
    """Blocks compute one tile after another (`persistent_products.py`)."""

    @property
    def blocks(self) -> int:
        """Tiles that a multiprocessor has room for."""
        return 1 if self.two is None else 2

    def time(self, plan: MatrixProduct) -> Expr:
        """What the product takes."""
        turns = ceil_div(self.tile.count(plan) * self.parts, MULTIPROCESSORS)
        steps = ceil_div(plan.p.depth, LINE // plan.p.a.bytes * self.parts)
        one = steps * self.one.step + self.one.around
        if self.two is None:
            return turns * one
        return turns // 2 * (steps * self.two.step + self.two.around) + turns % 2 * one


WIDE = Way(WarpgroupTile(2, 256, 4, has_producer=False), Turn(655, 4000))
NARROW = Way(WarpgroupTile(2, 128, 3, has_producer=False), Turn(360, 3000), Turn(820, 2000))
STAYING = Way(WarpgroupTile(2, 128, 6), Turn(340, 2500), stays=True)
"""For products with nothing behind them: other warps do not hide what is."""
LITTLE = Way(WarpgroupTile(1, 64, 6), Turn(165, 2400), Turn(230, 2600))
FEW_ROWS = Way(WarpgroupTile(1, 16, 10, is_turned=True), Turn(150, 1900), Turn(210, 2000))
"""For up to 16 rows; B is read once for these."""

TF32_WIDE = Way(WarpgroupTile(2, 256, 4, has_producer=False), Turn(740, 6000))
TF32_NARROW = Way(WarpgroupTile(2, 128, 3, has_producer=False), Turn(530, 3200), Turn(880, 3500))
TF32_LITTLE = Way(WarpgroupTile(1, 64, 6), Turn(385, 2300), Turn(410, 2700))
"""Times are those without a producer, with which it was not measured."""
TF32_FEW_ROWS = Way(FEW_ROWS.tile, Turn(190, 2200), Turn(260, 2300))

TOTAL = 4000
"""Time of the launch that adds parts of sums, in nanoseconds, and of the parts' way there."""

EPILOGUE = 2000
"""What the work behind the sums adds to a turn of blocks that nothing hides, at least."""


def ways(plan: MatrixProduct) -> list[Way]:
    """The ways to compute a product of one band; the layout is one of warpgroups."""
    has_boxes = most_index(plan) is not None
    is_plain = plan.request.finish is None and plan.request.finish_bands is None
    if plan.element == "tf32":
        is_turned = plan.contiguous("b") == "br"
        wide, narrow, little = (
            replace(x, tile=replace(x.tile, is_turned=is_turned))
            for x in (TF32_WIDE, TF32_NARROW, TF32_LITTLE)
        )
        few, split = TF32_FEW_ROWS, narrow
    else:
        wide, narrow = WIDE, STAYING if is_plain and has_boxes else NARROW
        few, little = FEW_ROWS, LITTLE
        split = LITTLE
    if not is_plain:
        wide = replace(wide, one=_later(wide.one, EPILOGUE))
    two = None if split.two is None else _later(split.two, TOTAL)
    split = replace(split, parts=PARTS, one=_later(split.one, TOTAL), two=two)
    takes_few_rows = has_boxes and plan.contiguous("a") == "ak"
    return [split, *([few] if takes_few_rows else []), wide, narrow, little]


def _later(turn: Turn, more: int) -> Turn:
    return replace(turn, around=turn.around + more)


def largest_tile(plan: MatrixProduct) -> WarpgroupTile:
    """The tile of the largest products."""
    return next(x.tile for x in ways(plan) if x.tile.across == WIDE.tile.across)
