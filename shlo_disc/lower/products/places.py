"""Places in the arrays of a product as the element-wise emitter wants them."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import outermost_first
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.index import Ix, Space


def tile_space(
    b: KernelBuilder, shapes: ShapeAnalysis, axes: Sequence[tuple[Expr, Expr, Ix]], lanes: int
) -> tuple[Space, int]:
    """The tile space of one array at one place, and how many factors it has.

    `axes`: size, stride in the array, and index of each axis, in any order.
    """
    present = [x for x in axes if not x[0].is_one]
    order = outermost_first([axis[:2] for axis in present], shapes.constraints)
    present = [present[k] for k in order]
    space = Space(b, shapes.constraints, [size for size, _, _ in present], lanes)
    space.tiles = [at for _, _, at in present]
    return space, len(present)
