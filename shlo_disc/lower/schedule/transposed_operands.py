"""Operands that a kernel reads across its innermost factor: transposed ones.

Neighbours along the innermost factor of the tile space are far from each other in such an operand,
one cache line an element. The operand is contiguous along another factor u. A tile of it can be
staged in fast memory: filled along u, and read along the innermost factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.typed import Mask, Register

LEAST_ALONG = 8
"""Elements of u, fewer than this many: a cache line serves a few of the elements of another."""


@dataclass(frozen=True)
class Staged:
    """An operand read at one index, contiguous along factor `along`."""

    value: ir.Value
    index: Index
    along: int
    is_close: bool
    """Its reads are few whole vectors: it is not worth a tile."""


def find(e: Elemental) -> list[Staged]:
    """The operands read across the lanes, from the reads seen while a kernel was written."""
    found: list[Staged] = []
    inner = len(e.space.factors) - 1
    for read in e.reads:
        place = in_tiles(e, read.index)
        if place is None:
            continue
        tiles = [g.at.tile for g in place if g.at.tile is not None]
        along = tiles[-1][1] - 1
        crosses = any(i <= inner < j for i, j in tiles) and along != inner
        if crosses:
            found.append(Staged(read.value, place, along, read.is_close))
    return list(dict.fromkeys(found))


def worthwhile(found: Sequence[Staged], factors: Sequence[Expr]) -> list[Staged]:
    """Those of `found` that are faster through a tile, along one factor."""

    def is_faster(item: Staged) -> bool:
        size = factors[item.along]
        return not item.is_close and not (size.is_const and size.value < LEAST_ALONG)

    faster = [item for item in found if is_faster(item)]
    return [item for item in faster if item.along == faster[0].along]


def in_tiles(e: Elemental, index: Index) -> Index | None:
    """`index` in factors of the tile space only, without names of the kernel it was seen in."""
    groups = e.space.joined(index)
    if not groups or any(g.at.tile is None for g in groups):
        return None
    return tuple(Group(g.sizes, Ix(None, tile=g.at.tile)) for g in groups)


def use(
    e: Elemental, staged: Sequence[Staged], load: Callable[[int, Mask | None], Register]
) -> None:
    """From now on `load(k, mask)` is operand k of `staged` at the current place, as it lies in
    memory.
    """

    def reader(value: ir.Value) -> Callable[[Index, Mask | None], Register | None]:
        def read(index: Index, mask: Mask | None) -> Register | None:
            place = in_tiles(e, index)
            for k, item in enumerate(staged):
                if item.value == value and item.index == place:
                    return e.as_register(load(k, mask), element_of(value))
            return None

        return read

    for item in staged:
        e.overrides[item.value] = reader(item.value)
