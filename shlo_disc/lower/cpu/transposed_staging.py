"""Operands read across the lanes (transposes): a tile of them is turned in registers first.

A lane that steps through an operand with a large stride touches one cache line an element. Where
such an operand is contiguous along another factor u of the tile space, a task takes BLOCK values of
u at once. It loads square blocks along u, transposes them with shuffles and puts them into scratch
memory, one row per value of u. The loop over the lanes then reads scratch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import Input
from shlo_disc.lower.schedule import transposed_operands
from shlo_disc.lower.schedule.transposed_operands import Staged
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type

BLOCK = 16
"""Values of u in a tile: a cache line of f32."""

COLUMNS = 128
"""Values of the innermost factor in a tile: 8 KiB of f32 stay in L1 with their source lines."""

AHEAD = 48
"""Lines asked for in advance: each is in a page of its own, where the hardware sees no stream."""


def _row_bytes(staged: Staged) -> int:
    return COLUMNS * element_of(staged.value).bytes


def scratch_bytes(staged: list[Staged]) -> Expr:
    """Scratch memory of all tiles."""
    return Expr.const(sum(BLOCK * _row_bytes(s) for s in staged))


def _memory(e: Elemental, staged: list[Staged], k: int) -> MemRef:
    offset = sum(BLOCK * _row_bytes(s) for s in staged[:k])
    return e.b.scratch(element_of(staged[k].value).storage, offset)


def fill(
    e: Elemental,
    machine: Machine,
    staged: list[Staged],
    set_tile: Callable[[IndexValue, IndexValue], None],
    first: IndexValue,
    last: IndexValue,
    start: IndexValue,
    count: IndexValue,
) -> None:
    """Turn columns first..last-1 of `count` rows from `start` on (of factor `along`) into scratch.

    `set_tile(u, v)` makes u and v the current indices of the two factors.
    """
    b = e.b
    widths = [_width(machine, element_of(item.value).bytes) for item in staged]
    columns = max(widths)
    most = b.param(e.space.factors[-1]) - 1

    def turn(k: int, column: IndexValue) -> None:
        """Blocks of operand k at `columns` columns from `column` on."""
        item, width = staged[k], widths[k]
        element = element_of(item.value)
        source = b.memref(e.arguments.slot(Input(e.inputs[item.value])), element.storage)
        nothing = b.constant(0, vector_type(width, element.storage))
        memory = _memory(e, staged, k)

        def place(u: IndexValue, v: IndexValue) -> IndexValue:
            set_tile(u, v)
            return e.space.linear(item.index).base

        for v0, u0 in itertools.product(range(0, columns, width), range(0, BLOCK, width)):
            rows = b.mask(count - u0, width)
            block = []
            for i in range(v0, v0 + width):
                v = column + i
                if not u0:
                    # Behind the operand is memory of nobody: its pages cost more than the lines.
                    ahead = place(start, b.min(v + AHEAD, most))
                    source.prefetch(ahead)
                    source.prefetch(ahead + (BLOCK - 1))
                inside = b.broadcast(v < last, width)
                mask = rows & inside
                block.append(source.masked_load(place(start + u0, b.min(v, most)), mask, nothing))
            to = column - first + v0
            for i, row in enumerate(_transposed(e, block)):
                memory.vector_store(row, to + (u0 + i) * COLUMNS)

    with b.loop(first, last, columns, hint="turn") as loop:
        for k in range(len(staged)):
            turn(k, loop.index)


def _width(machine: Machine, element_bytes: int) -> int:
    """Lanes of a block turned in registers: all of its rows must fit into them."""
    return min(BLOCK, max(4, machine.vector_bytes // element_bytes))


def _transposed(e: Elemental, rows: list[Register]) -> list[Register]:
    """N vectors of n lanes, a power of two, exchanged by recursive halving (Eklundh 1972)."""
    n, step = len(rows), 1
    while step < n:
        for i in range(n):
            if i & step:
                continue
            a, c = rows[i], rows[i + step]
            low = [k if not k & step else n + k - step for k in range(n)]
            high = [k + step if not k & step else n + k for k in range(n)]
            rows[i], rows[i + step] = e.b.shuffle(a, c, low), e.b.shuffle(a, c, high)
        step *= 2
    return rows


def use(e: Elemental, staged: list[Staged], row: IndexValue, first: IndexValue) -> None:
    """From now on the turned operands are read from scratch, at `row` of the tile."""

    def load(k: int, mask: Mask | None) -> Register:
        inner = e.space.tiles[-1]
        base = row * COLUMNS + (inner.base - first)
        return e.load_from(_memory(e, staged, k), Ix(base, inner.stride), mask, readonly=False)

    transposed_operands.use(e, staged, load)
