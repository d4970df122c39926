"""Products of few tiles and many steps along K: blocks share a tile, each has a part of K.

Parts of the sums go to a workspace in f32. A second launch adds them, first part first, and does
what is behind the sums. So sizes and strides alone decide a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.fragments import LANES
from shlo_disc.lower.gpu.builder import THREADS
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.plan import Workspace
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

_COLUMNS = 256
"""Columns of a tile of the second launch, in which each thread has one vector."""


@dataclass(frozen=True)
class Parts:
    """Into how many parts K is cut, and where their sums are."""

    count: int
    workspace: Workspace

    def bytes(self, plan: MatrixProduct) -> Expr:
        """Size of the workspace."""
        p = plan.p
        return p.batches * p.rows * (ceil_div(p.columns, LANES) * (4 * LANES * self.count))

    def memory(self, w: ProductWriter) -> MemRef:
        """The workspace, in a launch."""
        return w.memory(self.workspace, w.plan.p.compute)

    def place(
        self,
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
        return ((matrix * self.count + part) * w.m + row) * line + column


class TotalWriter(ProductWriter):
    """Writes the second launch: each thread finishes a vector of columns."""

    units = "total"

    def __init__(self, plan: MatrixProduct, parts: Parts) -> None:
        rows = THREADS * LANES // _COLUMNS
        super().__init__(plan, rows=rows, columns=_COLUMNS, threads=THREADS, lanes=LANES)
        self.parts, self.sums = parts, parts.memory(self)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, across = self.b, _COLUMNS // LANES
        r, c = row + b.thread // across, column + b.thread % across * LANES
        with b.if_((r < self.m) & (c < self.n)):
            found: list[Register] = [
                self.sums.vector_load(
                    self.parts.place(self, place, part, r, c), LANES, readonly=True, aligned=True
                )
                for part in range(self.parts.count)
            ]
            total = found[0]
            for part in found[1:]:
                total = total + part
            self.store(place, r, c, [total], b.mask(self.n - c, LANES))
