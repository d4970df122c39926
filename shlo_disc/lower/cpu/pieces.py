"""Concatenations along the lanes: a loop for every piece.

A vector at any place of a concatenation may have lanes of several pieces: it would be loaded from
all of them, masked, and selected. In a loop that ends where a piece ends every vector is of one
piece.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

MOST = 4
"""Pieces that any work is copied for."""
MOST_COPIES = 64
"""Operations in the copies of the work on joined elements, if there are more pieces.

A vector at any place would load from all pieces. What computes a piece has no copies.
"""


@dataclass(frozen=True)
class Pieces:
    """Concatenations with pieces at the same places of the innermost factor."""

    values: tuple[ir.Value, ...]
    sizes: tuple[Expr, ...]

    @functools.cached_property
    def starts(self) -> tuple[Expr, ...]:
        """Where each piece begins; and where the last one ends."""
        return tuple(itertools.accumulate(self.sizes, initial=Expr.const(0)))


def find_pieces(block: ir.Block, shapes: ShapeAnalysis, inner: Expr, lanes: int) -> Pieces | None:
    """The concatenations along dimensions of size `inner`; None where one loop does better."""
    found: dict[tuple[Expr, ...], list[ir.Value]] = {}
    work = _work_on_joined(block)
    for view in block.operations:
        op = view.operation
        if op.name != "stablehlo.concatenate":
            continue
        axis, parts = _joined(op)
        shape = shapes.shape(op.results[0])
        if shape[axis] == inner and all(size.is_one for size in shape[axis + 1 :]):
            sizes = tuple(shapes.shape(v)[axis] for v in parts)
            if 1 < len(sizes) <= max(MOST, MOST_COPIES // work):
                found.setdefault(sizes, []).append(op.results[0])
    if len(found) != 1 or (inner.is_const and inner.value < 2 * lanes):
        return None
    ((sizes, values),) = found.items()
    return Pieces(tuple(values), sizes)


def _work_on_joined(block: ir.Block) -> int:
    """The number of operations that depend on a concatenation, with the terminator."""
    joined: set[ir.Value] = set()
    count = 0
    for view in block.operations:
        op = view.operation
        reads_joined = not joined.isdisjoint(op.operands)
        if op.name == "stablehlo.concatenate" or reads_joined:
            joined.update(op.results)
        count += reads_joined and op.name != "stablehlo.concatenate"
    return max(count, 1)


def _joined(op: ir.Operation) -> tuple[int, list[ir.Value]]:
    """The dimension of a concatenation, and its pieces; JAX joins 16 at once, then the results."""
    axis, parts = op.attributes["dimension"], []
    for value in op.operands:
        inner = producer(value)
        if inner is None or inner.name != op.name or inner.attributes["dimension"] != axis:
            parts.append(value)
        else:
            parts += _joined(inner)[1]
    return ir.IntegerAttr(axis).value, parts


def each_piece(
    e: Elemental,
    pieces: Pieces,
    first: IndexValue,
    last: IndexValue,
    body: Callable[[Ix, Mask | None, list[Register]], Sequence[Register] | None],
) -> None:
    """Write `body` for the columns `first` to `last` of the innermost factor, piece by piece."""
    b = e.b
    starts = [b.param(start) for start in pieces.starts]

    def columns(at: IndexValue, mask: Mask | None, _: list[Register]) -> None:
        body(Ix(at, 1), mask, [])

    for number, start in enumerate(starts[:-1]):
        low = first if number == 0 else b.max(first, start)
        high = b.max(low, b.min(last, starts[number + 1]))
        e.piece = number
        for value in pieces.values:
            e.overrides[value] = _Piece(e, value, number, pieces).read
        if pieces.sizes[number].is_one:  # lanes that are known are loaded and stored without a mask
            with b.if_(low < high):
                columns(low, b.mask(1, e.lanes), [])
        else:
            strips(b, low, high, e.lanes, columns)
    e.piece = 0
    for value in pieces.values:
        del e.overrides[value]


@dataclass(frozen=True)
class _Piece:
    e: Elemental
    value: ir.Value
    number: int
    pieces: Pieces

    def read(self, index: Index, mask: Mask | None) -> Register | None:
        """The piece at `index`, where that runs along the innermost factor."""
        e, space = self.e, self.e.space
        axis, parts = _joined(self.value.owner)
        *outer, along = space.cut(index, [axis]) if axis else index
        inner = len(space.factors) - 1
        if along.at.tile != (inner, inner + 1):
            return None
        start = self.pieces.starts[self.number]
        here = space.force(along.at)
        at = Ix(here.base, here.stride)  # no factor of the tile space: rows are shorter
        if self.number:
            at = space.add(at, 0 - e.b.param(start))
        piece = parts[self.number]
        return e.value_at(piece, (*outer, Group(e.shape(piece)[axis:], at)), mask)
