"""Transposes between a long factor of the tile space and a short one.

Lanes run over the long factor. All elements along the short factor follow for each vector, so every
cache line of the operand is read once, and every line of the result written once.

============= ====================== ===========================================================
scheme        the short factor is    the elements that a vector of places has along it
============= ====================== ===========================================================
`COLUMNS`     innermost, constant    are computed together and stored interleaved
`ROWS`        another one, constant  are loaded from the same lines and stored row by row
`ELEMENTS`    innermost, of any size are stored one by one, in few lines
============= ====================== ===========================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cpu.interleaved import load_vectors, store_vectors
from shlo_disc.lower.cpu.strips import vector_loop
from shlo_disc.lower.cpu.tasks import odometer
from shlo_disc.lower.cpu.transposed_staging import Staged, in_tiles
from shlo_disc.lower.plan import Input, Output
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.mlir import ir

__all__ = ["CHUNK", "SHORT", "Factors", "Scheme", "Stores", "Values", "constant_scheme", "write"]

CHUNK = 1024
"""Places of a task along the long factor."""

SHORT = 8
"""The longest constant factor whose elements have code of their own."""


MOST_OPS = 256
"""Ops of a kernel at most, those along a constant factor counted one by one."""


class Scheme(Enum):
    """How the elements along the short factor are written; see the module."""

    COLUMNS = auto()
    ROWS = auto()
    ELEMENTS = auto()


@dataclass(frozen=True)
class Factors:
    """The positions of both factors in the tile space."""

    scheme: Scheme
    long: int
    short: int
    operands: tuple[Staged, ...] = ()
    """What is read across the lanes, contiguous along the short factor."""

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
            same = tuple(other for other in crossed if other.along == along)
            return Factors(Scheme.ROWS, inner, along, same)
    return None


def _is_short(size: Expr, ops: int) -> bool:
    return size.is_const and 1 < size.value <= SHORT and size.value * ops <= MOST_OPS


def write(e: Elemental, how: Factors, stores: Stores) -> None:
    """Write the task loop of a kernel."""
    b, space, factors = e.b, e.space, e.space.factors
    others = [k for k in range(len(factors)) if k not in (how.long, how.short)]
    count, short = b.param(factors[how.long]), factors[how.short]
    if how.scheme is Scheme.ROWS:
        for item in how.operands:
            e.overrides[item.value] = functools.partial(_of_row, e, item, short.value)

    def task(_: IndexValue, digits: list[IndexValue]) -> None:
        first = digits[-1] * CHUNK
        last = b.min(first + CHUNK, count)

        def go_to(ix: Ix, at: IndexValue) -> None:
            space.tiles = [Ix(at)] * len(factors)
            space.tiles[how.long] = ix
            for k, digit in zip(others, digits, strict=False):
                space.tiles[k] = Ix(digit)

        def strip(ix: Ix, mask: Mask | None, _: list[Register]) -> None:
            if how.scheme is Scheme.ELEMENTS:
                with b.loop(0, b.param(short), 1, hint="column") as loop:
                    go_to(ix, loop.index)
                    stores.write(stores.values(mask), mask)
                return
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


def _of_row(
    e: Elemental, item: Staged, count: int, index: Index, mask: Mask | None
) -> Register | None:
    """The operand in row `e.piece`, if its rows of the current places are one run of memory.

    They are loaded when the first row is asked for, and sorted.
    """
    if mask is not None or in_tiles(e, index) != item.index:
        return None
    known = e.b.recall((e, item))
    if known is None:
        at = e.space.linear(index)
        if at.vector is not None or at.stride != count:
            return None
        element = element_of(item.value)
        memory = e.b.memref(e.arguments.slot(Input(e.inputs[item.value])), element.storage)
        known = load_vectors(e, memory, element, at.base - e.piece, count)
        e.b.remember((e, item), known, known[-1].depth)
    return cast("list[Register]", known)[e.piece]
