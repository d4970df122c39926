"""Element-wise work on the sums while they are in cache: bias, activation, residual.

The finished sums of a register tile are read back from L1, one vector at a time, and everything up
to the result of the fusion is computed by the element-wise emitter at that place. A loop, not
the unrolled tile: an activation is 50 instructions, and they are in the kernel once.
"""

from __future__ import annotations

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import InternalError
from shlo_disc.lower.cpu.dense.problem import Axis, Dense, magnitude
from shlo_disc.lower.cpu.dense.text import SizedText
from shlo_disc.lower.cpu.elemental import Arguments, Elemental
from shlo_disc.lower.cpu.index import Index, Ix, Space
from shlo_disc.lower.cpu.scalar import convert
from shlo_disc.mlir import ir

__all__ = ["Epilogue"]


class Epilogue:
    """A `Finish`: computes `dense.root` from `dense.total`."""

    def __init__(
        self, dense: Dense, block: ir.Block, shapes: ShapeAnalysis, arguments: Arguments, lanes: int
    ) -> None:
        self.dense, self.block, self.shapes = dense, block, shapes
        self.arguments, self.lanes = arguments, lanes

    def __call__(
        self, b: SizedText, sums: str, place: list[str], row: str, column: str, mask: str
    ) -> str:
        """See `Finish`."""
        dense, p = self.dense, self.dense.problem
        axes: list[tuple[Axis, Ix]] = [
            (axis, Ix(at)) for axis, at in zip(p.batch, place, strict=True)
        ]
        axes.append((Axis(p.rows, c=p.m[-1].c), Ix(row)))
        axes.append((Axis(p.columns, c=p.n[-1].c), Ix(column, 1, multiple=self.lanes)))
        present = [x for x in axes if not (x[0].size.is_const and x[0].size.value == 1)]
        present.sort(key=lambda x: magnitude(x[0].c), reverse=True)
        space = Space(b, self.shapes.constraints, [x.size for x, _ in present], self.lanes)
        space.tiles = [at for _, at in present]
        emitter = Elemental(b, space, self.shapes, self.block, self.arguments)
        emitter.tail = mask
        shape = emitter.shape(dense.root)
        here: Index = space.root(shape, 0, len(present)) if shape else ()
        total = convert(b, sums, p.compute, p.c)

        def known(index: Index, _: str | None) -> str:
            if index != here:
                raise InternalError(f"an epilogue reads its dot at another place: {dense.root}")
            return total

        emitter.overrides[dense.total] = known
        return b.broadcast(emitter.value_at(dense.root, here, mask), self.lanes)
