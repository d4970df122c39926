"""Products of few tiles and many steps along K: blocks share a tile, each has a part of K.

Parts of the sums go to a workspace in f32. A second launch adds them, first part first, and does
what is behind the sums. So sizes and strides alone decide a rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.warpgroup_products import LANES, CopiedWriter, WarpgroupTile
from shlo_disc.lower.gpu.builder import THREADS
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.plan import Launch, Workspace
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shlo_disc.lower.cuda.products import MatrixProduct

__all__ = ["PARTS", "PartWriter", "TotalWriter", "bytes_of_parts"]

PARTS = 4
"""Parts of K."""

_COLUMNS = 256
"""Columns of a tile of the second launch, in which each thread has one vector."""


def bytes_of_parts(plan: MatrixProduct) -> Expr:
    """Size of the workspace."""
    p = plan.p
    return p.batches * p.rows * (ceil_div(p.columns, LANES) * (4 * LANES * PARTS))


def _place_of(
    w: ProductWriter,
    place: Sequence[IndexValue],
    part: IndexValue | int,
    row: IndexValue,
    column: IndexValue,
) -> IndexValue:
    """Where the sum of a part is, in elements; every row begins at a multiple of LANES."""
    b, matrix = w.b, w.b.index(0)
    for i, index in enumerate(place):
        matrix = matrix * b.size(f"batch{i}") + index
    line = w.n.round_up(LANES)
    return ((matrix * PARTS + part) * w.m + row) * line + column


class PartWriter(CopiedWriter):
    """Writes the first launch: neighbouring blocks have the parts of a tile."""

    units = "warpgroups_parts"

    def __init__(self, plan: MatrixProduct, tile: WarpgroupTile, parts: Workspace) -> None:
        super().__init__(plan, tile)
        self.parts = self.memory(parts, plan.p.compute)
        self.part = self.b.index(0)

    def launch(self) -> Launch:
        """See `ProductWriter.launch`."""
        launch = super().launch()
        return replace(launch, extent=launch.extent * PARTS)

    def task(self, number: IndexValue) -> None:
        """See `ProductWriter.task`."""
        self.part = number % PARTS
        super().task(number // PARTS)

    def range_of_steps(self) -> tuple[IndexValue, IndexValue]:
        """See `WarpgroupWriter.range_of_steps`."""
        return self.steps * self.part // PARTS, self.steps * (self.part + 1) // PARTS

    def store(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        sums: Sequence[Register],
        mask: Mask,
    ) -> None:
        """Store sums as they are."""
        at = _place_of(self, place, self.part, row, column)
        self.parts.vector_store(sums[0], at, aligned=True)


class TotalWriter(ProductWriter):
    """Writes the second launch: each thread finishes a vector of columns."""

    units = "total"

    def __init__(self, plan: MatrixProduct, parts: Workspace) -> None:
        rows = THREADS * LANES // _COLUMNS
        super().__init__(plan, rows=rows, columns=_COLUMNS, threads=THREADS, lanes=LANES)
        self.parts = self.memory(parts, plan.p.compute)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, across = self.b, _COLUMNS // LANES
        r, c = row + b.thread // across, column + b.thread % across * LANES
        with b.if_((r < self.m) & (c < self.n)):
            found = [
                self.parts.vector_load(
                    _place_of(self, place, part, r, c), LANES, readonly=True, aligned=True
                )
                for part in range(PARTS)
            ]
            total = found[0]
            for part in found[1:]:
                total = total + part
            self.store(place, r, c, [total], b.mask(self.n - c, LANES))
