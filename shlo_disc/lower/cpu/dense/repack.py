"""Copies a block of a matrix into another layout and element type, inside a kernel.

The block has two axes: `u` is consecutive at the destination, `w` is not. The destination has room
for whole vectors along `u`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elements import ELEMENTS, Element
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type

__all__ = ["PREFETCH_ROWS", "Source", "as_number", "load_as", "repack", "transpose"]

PREFETCH_ROWS = 24
"""Rows from a prefetch to its use. Each row is in a page of its own, where the hardware's prefetch
starts anew. With it, 16 rows times a matrix in place take 0.6 of the time."""


@dataclass(frozen=True)
class Source:
    """Where the block comes from."""

    memory: MemRef
    """A memref of `element.storage`."""
    element: Element
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


def repack(
    b: KernelBuilder,
    source: Source,
    memory: MemRef,
    base: IndexValue,
    w_stride: IndexValue | int,
    u_count: IndexValue,
    u_room: IndexValue | int,
    w_count: IndexValue,
    lanes: int,
    compute: Element,
) -> None:
    """Write source[u, w] to memory[base + w * w_stride + u] as `compute` elements.

    Columns from `u_count` to `u_room` (a multiple of `lanes`) get finite values of no
    meaning; nothing outside the block is read.
    """
    if source.u_unit:
        _copy(b, source, memory, base, w_stride, u_count, u_room, w_count, lanes, compute)
    elif source.w_unit:
        _transposed(b, source, memory, base, w_stride, u_count, u_room, w_count, lanes, compute)
    elif source.u_table is not None and source.element.bits >= 32:
        _gathered(b, source, memory, base, w_stride, u_count, u_room, w_count, lanes, compute)
    else:
        zero = b.index(0)
        _one_by_one(b, source, memory, base, w_stride, u_count, u_room, zero, w_count, compute)


def _copy(
    b: KernelBuilder,
    source: Source,
    memory: MemRef,
    base: IndexValue,
    w_stride: IndexValue | int,
    u_count: IndexValue,
    u_room: IndexValue | int,
    w_count: IndexValue,
    lanes: int,
    compute: Element,
) -> None:
    with b.loop(0, w_count, 1, hint="w") as w:
        line = source.base + source.w_offset(w.index)
        ahead = source.base + source.w_offset(b.min(w.index + PREFETCH_ROWS, w_count - 1))
        to = base + w.index * w_stride
        with b.loop(0, u_room, lanes, hint="u") as u:
            mask = b.mask(u_count - u.index, lanes)
            at = line + u.index
            source.memory.prefetch(ahead + u.index)
            value = load_as(b, source.memory, source.element, at, lanes, compute, mask)
            memory.vector_store(value, to + u.index)


def _gathered(
    b: KernelBuilder,
    source: Source,
    memory: MemRef,
    base: IndexValue,
    w_stride: IndexValue | int,
    u_count: IndexValue,
    u_room: IndexValue | int,
    w_count: IndexValue,
    lanes: int,
    compute: Element,
) -> None:
    """Through the table of offsets: as vectors where they follow each other, else lane by lane.

    The pixels of a line of an image are such runs.
    """
    assert source.u_table is not None
    if isinstance(u_room, int):
        u_room = b.param(Expr.const(u_room), opaque=True)
    storage = source.element.storage
    nothing = b.constant(0, vector_type(lanes, storage))
    zeros = b.constant(0, vector_type(lanes, "i64"))
    with b.loop(0, u_room, lanes, hint="u") as u:
        mask = b.mask(u_count - u.index, lanes)
        raw = source.u_table.masked_load(u.index, mask, zeros, readonly=False)
        offsets = b.to_index("arith.index_cast", raw)
        first = b.extract(offsets, 0)
        run = offsets.equals(b.broadcast(first, lanes) + b.iota(lanes))

        def line(w: IndexValue) -> tuple[IndexValue, IndexValue]:
            at = source.base + source.w_offset(w)
            return at, base + u.index + w * w_stride

        with b.if_(run.all()) as branch:
            with b.loop(0, w_count, 1, hint="w") as w:
                at, to = line(w.index)
                whole = source.memory.vector_load(at + first, lanes)
                memory.vector_store(convert(b, whole, as_number(source.element), compute), to)
            with branch.otherwise(), b.loop(0, w_count, 1, hint="w") as w:
                at, to = line(w.index)
                each = b.gather(source.memory, at, offsets, mask, nothing)
                memory.vector_store(convert(b, each, as_number(source.element), compute), to)


def _transposed(
    b: KernelBuilder,
    source: Source,
    memory: MemRef,
    base: IndexValue,
    w_stride: IndexValue | int,
    u_count: IndexValue,
    u_room: IndexValue | int,
    w_count: IndexValue,
    lanes: int,
    compute: Element,
) -> None:
    whole = w_count.round_down(lanes)
    last = u_count - 1
    used = u_count.round_up(lanes)
    with b.loop(0, used, lanes, hint="u") as u:
        # Beyond the last column the last one is read again.
        columns = [b.min(u.index + i, last) for i in range(lanes)]
        starts = [source.base + source.u_offset(c) for c in columns]
        with b.loop(0, whole, lanes, hint="w") as w:
            offset = source.w_offset(w.index)
            rows = [
                load_as(b, source.memory, source.element, s + offset, lanes, compute)
                for s in starts
            ]
            for j, row in enumerate(transpose(b, rows)):
                to = base + (w.index + j) * w_stride
                memory.vector_store(row, to + u.index)
    zeros = b.constant(0, vector_type(lanes, compute.register))
    with b.loop(0, whole, 1, hint="w") as w:
        to = base + w.index * w_stride
        with b.loop(used, u_room, lanes, hint="u") as u:
            memory.vector_store(zeros, to + u.index)
    _one_by_one(b, source, memory, base, w_stride, u_count, u_room, whole, w_count, compute)


def _one_by_one(
    b: KernelBuilder,
    source: Source,
    memory: MemRef,
    base: IndexValue,
    w_stride: IndexValue | int,
    u_count: IndexValue,
    u_room: IndexValue | int,
    w_first: IndexValue,
    w_count: IndexValue,
    compute: Element,
) -> None:
    with b.loop(0, u_count, 1, hint="u") as u:
        line = source.base + source.u_offset(u.index)
        to = base + u.index
        with b.loop(w_first, w_count, 1, hint="w") as w:
            raw = source.memory.load(line + source.w_offset(w.index))
            value = convert(b, raw, as_number(source.element), compute)
            memory.store(value, to + w.index * w_stride)
    # Whatever lay there may be a denormal, which costs as much as a hundred additions.
    zero = b.constant(0, compute.register)
    with b.loop(w_first, w_count, 1, hint="w") as w:
        to = base + w.index * w_stride
        with b.loop(u_count, u_room, 1, hint="u") as u:
            memory.store(zero, to + u.index)


def load_as(
    b: KernelBuilder,
    memory: MemRef,
    element: Element,
    at: IndexValue,
    lanes: int,
    compute: Element,
    mask: Mask | None = None,
) -> Register:
    """`lanes` consecutive elements as `compute`; lanes off in `mask` are 0."""
    if mask is None:
        raw = memory.vector_load(at, lanes)
    else:
        raw = memory.masked_load(at, mask, b.constant(0, vector_type(lanes, element.storage)))
    return convert(b, raw, as_number(element), compute)


def as_number(element: Element) -> Element:
    """In memory i1 is a byte that holds 0 or 1."""
    return ELEMENTS["ui8"] if element.kind == "b" else element


def transpose(b: KernelBuilder, rows: list[Register]) -> list[Register]:
    """The columns of a square of registers: one exchange of halves per power of two.

    After step h, bit h of the row number and of the lane number have changed places.
    """
    count = len(rows)
    rows = list(rows)
    half = count // 2
    while half:
        low = [j if not j & half else count + j - half for j in range(count)]
        high = [j + half if not j & half else count + j for j in range(count)]
        for i in range(count):
            if not i & half:
                x, y = rows[i], rows[i + half]
                rows[i], rows[i + half] = b.shuffle(x, y, low), b.shuffle(x, y, high)
        half //= 2
    return rows
