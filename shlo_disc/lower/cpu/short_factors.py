"""Transposes between a long factor of the tile space and a short constant one.

Lanes run over the long factor. All elements along the short factor follow for each vector. So
every cache line of the operand is read once, and every line of the result is written once.

=========== ==================== ===============================================================
scheme      the short factor is  the elements that a vector of places has along it
=========== ==================== ===============================================================
`COLUMNS`   innermost            are computed together and stored interleaved
`ROWS`      another one          are loaded from the same lines and stored row by row
=========== ==================== ===============================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.seen import SHORT
from shlo_disc.lower.cpu.interleaved import load_vectors, store_vectors
from shlo_disc.lower.plan import Input, Output
from shlo_disc.lower.schedule.transposed_operands import Staged, in_tiles
from shlo_disc.lower.tasks.odometer import odometer
from shlo_disc.lower.tasks.strips import vector_loop
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.mlir import ir

__all__ = [
    "CHUNK",
    "LIKELY",
    "MOST_OPS",
    "SHORT",
    "Factors",
    "Scheme",
    "Stores",
    "Values",
    "better_at",
    "constant_scheme",
    "of_run",
    "write",
]

CHUNK = 1024
"""Places of a task along the long factor."""

LIKELY = (1, 2, 3, 4)
"""Sizes that short factors have in images (channels) and in points (coordinates)."""

FEW_OPS = 16
"""Ops of a kernel at most that gets variants for these sizes."""

MOST_OPS = 256
"""Ops of a kernel at most, those along a constant factor counted one by one."""


class Scheme(Enum):
    """How the elements along the short factor are written; see the module."""

    COLUMNS = auto()
    ROWS = auto()


@dataclass(frozen=True)
class Factors:
    """The positions of both factors in the tile space."""

    scheme: Scheme
    long: int
    short: int

    def tasks(self, factors: Sequence[Expr]) -> Expr:
        """The number of tasks."""
        others = (f for k, f in enumerate(factors) if k not in (self.long, self.short))
        return Expr.product(others) * ceil_div(factors[self.long], CHUNK)


Values = list[list[Register]]
"""Registers of each root: one, or those of the parts it interleaves."""


@dataclass(frozen=True)
class Stores:
    """What a loop kernel stores at the current place of its tile space."""

    roots: Sequence[ir.Value]
    values: Callable[[Mask | None], Values]
    """Computes them."""
    write: Callable[[Values, Mask | None], None]
    """Stores them where they belong."""


def constant_scheme(factors: Sequence[Expr], crossed: Sequence[Staged], ops: int) -> Factors | None:
    """The scheme of a kernel of `ops` ops that has a transpose with a short constant factor.

    `crossed`: operands read across the lanes. None: there is no such transpose.
    """
    inner = len(factors) - 1
    for item in crossed:
        along = item.along
        if _is_short(factors[inner], ops) and along == inner - 1:
            return Factors(Scheme.COLUMNS, along, inner)
        if _is_short(factors[along], ops):
            return Factors(Scheme.ROWS, inner, along)
    return None


def _is_short(size: Expr, ops: int) -> bool:
    return size.is_const and 1 < size.value <= SHORT and size.value * ops <= MOST_OPS


def better_at(factors: Sequence[Expr], ops: int) -> tuple[tuple[str, int], ...]:
    """Values of symbols for which one of `factors` is a constant that images and points have.

    None for a kernel of many `ops`, where moving is not most of the work.
    """
    if ops > FEW_OPS:
        return ()
    names = [name for factor in factors for name in factor.symbols() if factor == Expr.symbol(name)]
    return tuple((name, value) for name in names for value in LIKELY)


def write(e: Elemental, how: Factors, stores: Stores) -> None:
    """Write the task loop of a kernel."""
    b, space, factors = e.b, e.space, e.space.factors
    others = [k for k in range(len(factors)) if k not in (how.long, how.short)]
    count, short = b.param(factors[how.long]), factors[how.short]
    for operand in e.inputs:
        e.overrides[operand] = functools.partial(of_run, e, operand, how.short, short.value)

    def task(_: IndexValue, digits: list[IndexValue]) -> None:
        first = digits[-1] * CHUNK
        last = b.min(first + CHUNK, count)

        def go_to(ix: Ix, at: IndexValue) -> None:
            space.tiles = [Ix(at)] * len(factors)
            space.tiles[how.long] = ix
            for k, digit in zip(others, digits, strict=False):
                space.tiles[k] = Ix(digit)

        def strip(ix: Ix, mask: Mask | None, _: list[Register]) -> None:
            found: list[Values] = []
            for at in range(short.value):
                e.piece = at
                go_to(ix, b.index(at))
                found.append(stores.values(mask))
                if how.scheme is Scheme.ROWS:
                    stores.write(found[-1], mask)
            e.piece = 0
            if how.scheme is Scheme.COLUMNS:
                go_to(ix, b.index(0))
                place = space.force(space.flat_lazy(0, len(factors)))
                for k, root in enumerate(stores.roots):
                    values = [of_all[k][0] for of_all in found]
                    store_vectors(e, Output(k), root, values, place.base, mask)

        vector_loop(b, space, first, last, factors[how.long], space.lanes, strip)

    pieces = b.param(ceil_div(factors[how.long], CHUNK))
    odometer(b, [*(b.param(factors[k]) for k in others), pieces], task)


def of_run(
    e: Elemental, value: ir.Value, short: int, count: int, index: Index, mask: Mask | None
) -> Register | None:
    """The element `e.piece` along factor `short` of an operand contiguous along that factor.

    The elements of all lanes are one run of memory: it is loaded for the first, and sorted. None:
    the operand is not of this kind.
    """
    place = in_tiles(e, index)
    if mask is not None or place is None or place[-1].at.tile is None:
        return None
    if place[-1].at.tile[1] - 1 != short:
        return None
    known = e.b.recall((e, value, place))
    if known is None:
        at = e.space.linear(index)
        if at.vector is not None or at.stride != count:
            return None
        element = element_of(value)
        memory = e.b.memref(e.arguments.slot(Input(e.inputs[value])), element.storage)
        known = load_vectors(e, memory, element, at.base - e.piece, count)
        e.b.remember((e, value, place), known, known[-1].depth)
    return cast("list[Register]", known)[e.piece]
