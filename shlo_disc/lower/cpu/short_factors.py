"""Kernels whose tile space has short constant factors behind or before a long one.

Lanes run over the long factor. All elements along the short factors follow for each vector. So
every cache line of an operand is read once, and every line of the result is written once. What a
concatenation, a padding or a gather has at a place along them is known while the kernel is written.

=========== ==================== ===============================================================
scheme      the short factors    the elements that a vector of places has along them
=========== ==================== ===============================================================
`COLUMNS`   are the innermost    are computed together and stored interleaved
`ROWS`      are another one      are loaded from the same lines and stored row by row
=========== ==================== ===============================================================
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import cast

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.seen import LONGEST_RUN, SHORT
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.cpu.interleaved import load_vectors, store_vectors
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.strips import vector_loop
from shlo_disc.lower.plan import Input, Output
from shlo_disc.lower.schedule.transposed_operands import Staged
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

CHUNK = 1024
"""Places of a task along the long factor."""

LIKELY = (1, 2, 3, 4)
"""Sizes that short factors have in images (channels) and in points (coordinates)."""

FEW_OPS = 16
"""Ops of a kernel at most that gets variants for these sizes."""

MOST_OPS = 256
"""Ops of a kernel at most, those along a constant factor counted one by one."""


MOVING = frozenset(
    f"stablehlo.{name}" for name in ("concatenate", "pad", "dynamic_pad", "reverse", "gather")
)
"""Ops whose lanes would come from different places."""


_GATHERS = ("stablehlo.gather", "stablehlo.dynamic_gather")


class Scheme(Enum):
    """How the elements along the short factor are written; see the module."""

    COLUMNS = auto()
    ROWS = auto()


@dataclass(frozen=True)
class Factors:
    """The positions of both kinds of factors in the tile space."""

    scheme: Scheme
    long: int
    short: range

    def tasks(self, factors: Sequence[Expr]) -> Expr:
        """The number of tasks."""
        others = (f for k, f in enumerate(factors) if k != self.long and k not in self.short)
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


def constant_scheme(
    block: ir.Block, factors: Sequence[Expr], crossed: Sequence[Staged], lanes: int
) -> Factors | None:
    """The scheme of a kernel; None: it has no use for one.

    `crossed`: operands read across the lanes.
    """
    inner, ops = len(factors) - 1, len(block.operations)
    first = len(factors)
    while first and _is_short(Expr.product(factors[first - 1 :]), ops, LONGEST_RUN):
        first -= 1
    if 0 < first <= inner:
        count = Expr.product(factors[first:]).value
        if crossed or lanes % count or any(v.operation.name in MOVING for v in block.operations):
            return Factors(Scheme.COLUMNS, first - 1, range(first, len(factors)))
    for item in crossed:
        if _is_short(factors[item.along], ops, SHORT):
            return Factors(Scheme.ROWS, inner, range(item.along, item.along + 1))
    return None


def _is_short(size: Expr, ops: int, longest: int) -> bool:
    return size.is_const and 1 < size.value <= longest and size.value * ops <= MOST_OPS


def looks_up(block: ir.Block) -> bool:
    """True if a kernel of `block` reads whole rows at computed places: those are runs of memory."""
    inputs = {argument: i for i, argument in enumerate(block.arguments)}

    def is_computed(value: ir.Value) -> bool:
        op = producer(block.owner.operands[inputs[value]] if value in inputs else value)
        return op is None or op.name != "stablehlo.constant"

    ops = (view.operation for view in block.operations)
    return any(is_computed(op.operands[1]) for op in ops if op.name in _GATHERS)


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
    others = [k for k in range(len(factors)) if k != how.long and k not in how.short]
    count = b.param(factors[how.long])
    for operand in e.inputs:
        e.overrides[operand] = functools.partial(of_run, e, operand, how.long)

    def task(_: IndexValue, digits: list[IndexValue]) -> None:
        first = digits[-1] * CHUNK
        last = b.min(first + CHUNK, count)

        def go_to(ix: Ix, places: Sequence[int]) -> None:
            space.tiles = [ix] * len(factors)
            for k, place in zip(how.short, places, strict=True):
                space.tiles[k] = Ix(b.index(place), multiple=place)
            for k, digit in zip(others, digits, strict=False):
                space.tiles[k] = Ix(digit)

        def strip(ix: Ix, mask: Mask | None, _: list[Register]) -> None:
            found: list[Values] = []
            for places in itertools.product(*(range(factors[k].value) for k in how.short)):
                e.piece = len(found)
                go_to(ix, places)
                found.append(stores.values(mask))
                if how.scheme is Scheme.ROWS:
                    stores.write(found[-1], mask)
            e.piece = 0
            if how.scheme is Scheme.COLUMNS:
                go_to(ix, [0] * len(how.short))
                place = space.force(space.flat_lazy(0, len(factors)))
                for k, root in enumerate(stores.roots):
                    values = [of_all[k][0] for of_all in found]
                    store_vectors(e, Output(k), root, values, place.base, mask)

        vector_loop(b, space, first, last, factors[how.long], space.lanes, strip)

    pieces = b.param(ceil_div(factors[how.long], CHUNK))
    odometer(b, [*(b.param(factors[k]) for k in others), pieces], task)


def of_run(
    e: Elemental, value: ir.Value, long: int, index: Index, mask: Mask | None
) -> Register | None:
    """An operand at a place along its trailing dimensions that is known now; lanes run over factor
    `long`, which is in front of them.

    The elements of all lanes are one run of memory: it is loaded for the first place, and sorted.
    None: the operand is not read like this.
    """
    found = _run(e, long, index)
    if found is None:
        return None
    run, offset, count = found
    at = e.space.linear(index)
    if at.vector is not None or at.stride != count:
        return None
    known = e.b.recall((e, value, run, count, mask))
    if known is None:
        element = element_of(value)
        memory = e.b.memref(e.arguments.slot(Input(e.inputs[value])), element.storage)
        raw = load_vectors(e.b, memory, e.lanes, at.base - offset, count, mask)
        known = [e.as_register(vector, element) for vector in raw]
        e.b.remember((e, value, run, count, mask), known, known[-1].depth)
    return cast("list[Register]", known)[offset]


def _run(e: Elemental, long: int, index: Index) -> tuple[tuple[Ix, ...], int, int] | None:
    """Where the group of the lanes and those before it are, the place in those behind it, and of
    how many elements.
    """
    space, offset, count = e.space, 0, Expr.const(1)
    groups = space.joined(index)
    for number, group in reversed([*enumerate(groups)]):
        tile = group.at.tile
        is_cut = tile is not None and tile[0] <= long < tile[1] - 1
        inner = space.flat(long + 1, tile[1]) if tile and is_cut else space.force(group.at)
        if inner.is_uniform:
            if inner.base.known is None or not count.is_const:
                return None
            offset += inner.base.known * count.value
            sizes = space.factors[long + 1 : tile[1]] if tile and is_cut else group.sizes
            count = count * Expr.product(sizes)
        if is_cut or not inner.is_uniform:
            if not count.is_const or not 1 < count.value <= LONGEST_RUN:
                return None
            head = space.flat(tile[0], long + 1) if tile and is_cut else inner
            # Short factors may be in front of the lanes, too: their places are part of the answer.
            return (*(space.force(g.at) for g in groups[:number]), head), offset, count.value
    return None
