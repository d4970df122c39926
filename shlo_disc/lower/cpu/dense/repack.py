"""Copies a block of a matrix into another layout and element type, inside a kernel.

The block has two axes: `u` is consecutive at the destination, `w` is not. The destination has room
for whole vectors along `u`.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.element_types import ELEMENT_TYPES, ElementType
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    MemRef,
    Register,
    vector_type,
)

PAIR = 2
"""Parts of a complex number, which are neighbours in memory."""

PREFETCH_ROWS = 24
"""Rows from a prefetch to its use. Each row is in a page of its own, where the hardware's prefetch
starts anew. With it, 16 rows times a matrix in place take 0.6 of the time."""


RUN = 8
"""Neighbours of a table that are read at once: larger squares take twice the time to compile."""


@dataclass(frozen=True)
class Source:
    """Where the block comes from."""

    memory: MemRef
    """A memref of `element.storage`."""
    element: ElementType
    base: IndexValue
    """Offset of the first element, in elements."""
    u_offset: Callable[[IndexValue], IndexValue]
    """From an index along `u` to its offset; likewise `w_offset`."""
    w_offset: Callable[[IndexValue], IndexValue]
    u_unit: bool
    """Neighbours along `u` are neighbours in memory; likewise `w_unit`."""
    w_unit: bool
    u_table: MemRef | None = None
    """A memref<?xi64> that holds `u_offset`, when it is a table."""
    w_table: MemRef | None = None
    """The same of `w_offset`, when most neighbours along `w` are neighbours in memory."""
    pairs: bool = False
    """Along `u` there are pairs, which follow each other along `w`: complex numbers."""


@dataclass(frozen=True)
class Block:
    """Where the block goes, and its sizes."""

    memory: MemRef
    base: IndexValue
    """Offset of the first element, in elements."""
    w_stride: IndexValue | int
    u_count: IndexValue
    """Columns along `u`."""
    u_room: IndexValue | int
    """Columns there is room for, a multiple of `lanes`."""
    w_count: IndexValue
    lanes: int

    def row(self, w: IndexValue) -> IndexValue:
        """Offset of the first column of row `w`."""
        return self.base + w * self.w_stride

    def clear(
        self,
        b: KernelBuilder,
        rows: tuple[IndexLike, IndexValue],
        column: IndexValue,
        element: str,
        lanes: int,
    ) -> None:
        """Write zeros of the type `element` to all columns from `column` on; `lanes` 0: one by one.

        Whatever lay there may be a denormal, which costs as much as a hundred additions.
        """
        zero = b.constant(0, vector_type(lanes, element) if lanes else element)
        store = self.memory.vector_store if lanes else self.memory.store
        with b.loop(*rows, 1, hint="w") as w:
            to = self.row(w.index)
            with b.loop(column, self.u_room, lanes or 1, hint="u") as u:
                store(zero, to + u.index)


def repack(b: KernelBuilder, source: Source, block: Block, compute: ElementType) -> None:
    """Write every source[u, w] to the block as `compute` elements.

    Columns from `u_count` to `u_room` get finite values of no meaning; nothing outside the block is
    read.
    """
    if source.u_unit:
        _copy(b, source, block, compute)
    elif source.w_unit:
        _transposed(b, source, block, compute, 1)
    elif source.pairs and block.lanes > PAIR:
        _transposed(b, source, block, compute, PAIR)
    elif source.u_table is not None and source.element.bits >= 32:
        _gathered(b, source, block, compute)
    elif source.w_table is not None:
        _transposed(b, source, block, compute, 1)
    else:
        _one_by_one(b, source, block, b.index(0), compute)


def _copy(b: KernelBuilder, source: Source, block: Block, compute: ElementType) -> None:
    with b.loop(0, block.w_count, 1, hint="w") as w:
        line = source.base + source.w_offset(w.index)
        ahead = source.base + source.w_offset(b.min(w.index + PREFETCH_ROWS, block.w_count - 1))
        to = block.row(w.index)

        def copy(u: IndexValue) -> None:
            mask = b.mask(block.u_count - u, block.lanes)
            source.memory.prefetch(ahead + u)
            value = load_as(b, source.memory, source.element, line + u, block.lanes, compute, mask)
            block.memory.vector_store(value, to + u)

        if isinstance(block.u_room, int):  # a panel: its masks are made once
            for first in range(0, block.u_room, block.lanes):
                copy(b.index(first))
            return
        with b.loop(0, block.u_room, block.lanes, hint="u") as u:
            copy(u.index)


def _gathered(b: KernelBuilder, source: Source, block: Block, compute: ElementType) -> None:
    """Through the table of offsets: as vectors where they follow each other, else lane by lane.

    The pixels of a line of an image are such runs.
    """
    assert source.u_table is not None
    lanes, u_room = block.lanes, block.u_room
    if isinstance(u_room, int):
        u_room = b.param(Expr.const(u_room), opaque=True)
    nothing = b.constant(0, vector_type(lanes, source.element.storage))
    zeros = b.constant(0, vector_type(lanes, "i64"))
    with b.loop(0, u_room, lanes, hint="u") as u:
        mask = b.mask(block.u_count - u.index, lanes)
        raw = source.u_table.masked_load(u.index, mask, zeros, readonly=False)
        offsets = b.to_index("arith.index_cast", raw)
        first = b.extract(offsets, 0)
        run = offsets.equals(b.broadcast(first, lanes) + b.iota(lanes))

        def line(w: IndexValue) -> tuple[IndexValue, IndexValue]:
            at = source.base + source.w_offset(w)
            return at, block.base + u.index + w * block.w_stride

        def put(value: Register, to: IndexValue) -> None:
            number = convert(b, value, as_number(source.element), compute)
            block.memory.vector_store(number, to)

        with b.if_(run.all()) as branch:
            with b.loop(0, block.w_count, 1, hint="w") as w:
                at, to = line(w.index)
                put(source.memory.vector_load(at + first, lanes), to)
            with branch.otherwise(), b.loop(0, block.w_count, 1, hint="w") as w:
                at, to = line(w.index)
                put(b.gather(source.memory, at, offsets, mask, nothing), to)


def _transposed(
    b: KernelBuilder, source: Source, block: Block, compute: ElementType, group: int
) -> None:
    """By squares of groups of so many neighbours along `u`.

    Places of a table are read so where they follow each other.
    """
    lanes = block.lanes if source.w_table is None else min(block.lanes, RUN)
    side = lanes // group
    whole = block.w_count.round_down(side)
    last = block.u_count - group
    used = block.u_count.round_up(lanes)
    number = as_number(source.element)
    with b.loop(0, used, lanes, hint="u") as u:
        # Beyond the last column the last one is read again.
        columns = [b.min(u.index + i * group, last) for i in range(side)]
        starts = [b.place_in(source.memory, source.base + source.u_offset(c)) for c in columns]

        def square(w: IndexValue) -> None:
            offset = source.w_offset(w)
            rows = [
                convert(b, b.load_at(s, offset, source.element.storage, lanes), number, compute)
                for s in starts
            ]
            to = block.row(w) + u.index
            for row in transpose(b, rows, group):
                block.memory.vector_store(row, to)
                to = to + block.w_stride

        def lines(first: IndexValue) -> None:
            to = block.row(first) + u.index
            with b.loop(0, side, 1, hint="w") as w, b.loop(0, lanes, 1, hint="u") as column:
                at = source.u_offset(b.min(u.index + column.index, last))
                raw = source.memory.load(source.base + source.w_offset(first + w.index) + at)
                value = convert(b, raw, number, compute)
                block.memory.store(value, to + w.index * block.w_stride + column.index)

        with b.loop(0, whole, side, hint="w") as w:
            if source.w_table is None:
                square(w.index)
            else:
                is_run = _is_run(b, source.w_table, w.index, side)
                b.either(is_run, lambda: square(w.index), lambda: lines(w.index))
    block.clear(b, (0, whole), used, compute.register, lanes)
    _one_by_one(b, source, block, whole, compute)


def _is_run(b: KernelBuilder, table: MemRef, first: IndexValue, count: int) -> Mask:
    """True if `count` places from `first` on follow each other."""
    places = b.to_index("arith.index_cast", table.vector_load(first, count, readonly=False))
    return places.equals(b.broadcast(b.extract(places, 0), count) + b.iota(count)).all()


def _one_by_one(
    b: KernelBuilder, source: Source, block: Block, first: IndexValue, compute: ElementType
) -> None:
    """Rows from `first` on."""
    with b.loop(0, block.u_count, 1, hint="u") as u:
        line = source.base + source.u_offset(u.index)
        to = block.base + u.index
        with b.loop(first, block.w_count, 1, hint="w") as w:
            raw = source.memory.load(line + source.w_offset(w.index))
            value = convert(b, raw, as_number(source.element), compute)
            block.memory.store(value, to + w.index * block.w_stride)
    block.clear(b, (first, block.w_count), block.u_count, compute.register, 0)


def load_as(
    b: KernelBuilder,
    memory: MemRef,
    element: ElementType,
    at: IndexValue,
    lanes: int,
    compute: ElementType,
    mask: Mask | None = None,
    readonly: bool = True,
) -> Register:
    """`lanes` consecutive elements as `compute`; lanes off in `mask` are 0."""
    if mask is None:
        raw = memory.vector_load(at, lanes, readonly)
    else:
        nothing = b.constant(0, vector_type(lanes, element.storage))
        raw = memory.masked_load(at, mask, nothing, readonly)
    return convert(b, raw, as_number(element), compute)


def as_number(element: ElementType) -> ElementType:
    """In memory i1 is a byte that holds 0 or 1."""
    return ELEMENT_TYPES["ui8"] if element.kind == "b" else element


def transpose(b: KernelBuilder, rows: list[Register], group: int = 1) -> list[Register]:
    """The columns of a square of registers: one exchange of halves per power of two.

    After step h, bit h of the row number and of the lane number have changed places. `group`: so
    many neighbouring lanes stay together, and are one column.
    """
    count = len(rows)
    rows = list(rows)

    def exchanged(x: Register, y: Register, columns: list[int]) -> Register:
        return b.shuffle(x, y, [c * group + i for c in columns for i in range(group)])

    half = count // 2
    while half:
        low = [j if not j & half else count + j - half for j in range(count)]
        high = [j + half if not j & half else count + j for j in range(count)]
        for i in range(count):
            if not i & half:
                x, y = rows[i], rows[i + half]
                rows[i], rows[i + half] = exchanged(x, y, low), exchanged(x, y, high)
        half //= 2
    return rows
