"""Copies a block of a matrix into another layout and element type, inside a kernel.

The block has two axes: `u` is consecutive at the destination, `w` is not. The destination has room
for whole vectors along `u`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder, vector_type
from shlo_disc.lower.values.elements import ELEMENTS, Element
from shlo_disc.lower.values.elementwise import convert

__all__ = ["PREFETCH_ROWS", "Source", "as_number", "load_as", "repack", "transpose"]

PREFETCH_ROWS = 24
"""How far ahead rows are asked for. Each is in a page of its own, where the hardware's prefetch
starts anew: 16 rows times a matrix in place take 0.6 of the time."""


@dataclass(frozen=True)
class Source:
    """Where the block comes from."""

    memory: str
    """A memref of `element.storage`."""
    element: Element
    base: str
    """Offset of the first element, in elements."""
    u_offset: Callable[[str], str]
    """From an index along `u` to its offset; likewise `w_offset`."""
    w_offset: Callable[[str], str]
    u_unit: bool
    """Neighbours along `u` are neighbours in memory; likewise `w_unit`."""
    w_unit: bool
    u_table: str | None = None
    """A memref<?xi64> that holds `u_offset`, when it is a table."""


def repack(
    b: KernelBuilder,
    source: Source,
    memory: str,
    base: str,
    w_stride: str | int,
    u_count: str,
    u_room: str | int,
    w_count: str,
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
        zero = b.constant(0, "index")
        _one_by_one(b, source, memory, base, w_stride, u_count, u_room, zero, w_count, compute)


def _copy(
    b: KernelBuilder,
    source: Source,
    memory: str,
    base: str,
    w_stride: str | int,
    u_count: str,
    u_room: str | int,
    w_count: str,
    lanes: int,
    compute: Element,
) -> None:
    with b.loop(0, w_count, 1, hint="w") as w:
        line = b.add(source.base, source.w_offset(w.index))
        ahead = b.add(
            source.base, source.w_offset(b.min(b.add(w.index, PREFETCH_ROWS), b.sub(w_count, 1)))
        )
        to = b.add(base, b.mul(w.index, w_stride))
        with b.loop(0, u_room, lanes, hint="u") as u:
            mask = b.mask(b.sub(u_count, u.index), lanes)
            at = b.add(line, u.index)
            b.prefetch(source.memory, b.add(ahead, u.index))
            value = load_as(b, source.memory, source.element, at, lanes, compute, mask)
            b.vector_store(value, memory, b.add(to, u.index))


def _gathered(
    b: KernelBuilder,
    source: Source,
    memory: str,
    base: str,
    w_stride: str | int,
    u_count: str,
    u_room: str | int,
    w_count: str,
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
        mask = b.mask(b.sub(u_count, u.index), lanes)
        raw = b.masked_load(source.u_table, u.index, mask, zeros, readonly=False)
        offsets = b.cast("arith.index_cast", raw, "index")
        first = b.extract(offsets, 0)
        run = b.cmpi("eq", offsets, b.op("arith.addi", b.broadcast(first, lanes), b.iota(lanes)))
        flags = f"vector<{lanes}xi1>"
        together = b.define(f"vector.reduction <and>, {run} : {flags} into i1", "i1", [run])

        def line(w: str) -> tuple[str, str]:
            at = b.add(source.base, source.w_offset(w))
            return at, b.add(b.add(base, u.index), b.mul(w, w_stride))

        with b.if_(together) as branch:
            with b.loop(0, w_count, 1, hint="w") as w:
                at, to = line(w.index)
                whole = b.vector_load(source.memory, b.add(at, first), lanes)
                b.vector_store(convert(b, whole, as_number(source.element), compute), memory, to)
            with branch.otherwise(), b.loop(0, w_count, 1, hint="w") as w:
                at, to = line(w.index)
                each = b.gather(source.memory, at, offsets, mask, nothing)
                b.vector_store(convert(b, each, as_number(source.element), compute), memory, to)


def _transposed(
    b: KernelBuilder,
    source: Source,
    memory: str,
    base: str,
    w_stride: str | int,
    u_count: str,
    u_room: str | int,
    w_count: str,
    lanes: int,
    compute: Element,
) -> None:
    whole = b.sub(w_count, b.rem(w_count, lanes))
    last = b.sub(u_count, 1)
    used = b.mul(b.div(b.add(last, lanes), lanes), lanes)
    with b.loop(0, used, lanes, hint="u") as u:
        # Beyond the last column the last one is read again.
        columns = [b.min(b.add(u.index, i), last) for i in range(lanes)]
        starts = [b.add(source.base, source.u_offset(c)) for c in columns]
        with b.loop(0, whole, lanes, hint="w") as w:
            offset = source.w_offset(w.index)
            rows = [
                load_as(b, source.memory, source.element, b.add(s, offset), lanes, compute)
                for s in starts
            ]
            for j, row in enumerate(transpose(b, rows)):
                to = b.add(base, b.mul(b.add(w.index, j), w_stride))
                b.vector_store(row, memory, b.add(to, u.index))
    zeros = b.constant(0, vector_type(lanes, compute.register))
    with b.loop(0, whole, 1, hint="w") as w:
        to = b.add(base, b.mul(w.index, w_stride))
        with b.loop(used, u_room, lanes, hint="u") as u:
            b.vector_store(zeros, memory, b.add(to, u.index))
    _one_by_one(b, source, memory, base, w_stride, u_count, u_room, whole, w_count, compute)


def _one_by_one(
    b: KernelBuilder,
    source: Source,
    memory: str,
    base: str,
    w_stride: str | int,
    u_count: str,
    u_room: str | int,
    w_first: str,
    w_count: str,
    compute: Element,
) -> None:
    with b.loop(0, u_count, 1, hint="u") as u:
        line = b.add(source.base, source.u_offset(u.index))
        to = b.add(base, u.index)
        with b.loop(w_first, w_count, 1, hint="w") as w:
            raw = b.load(source.memory, b.add(line, source.w_offset(w.index)))
            value = convert(b, raw, as_number(source.element), compute)
            b.store(value, memory, b.add(to, b.mul(w.index, w_stride)))
    # Whatever lay there may be a denormal, which costs as much as a hundred additions.
    zero = b.constant(0, compute.register)
    with b.loop(w_first, w_count, 1, hint="w") as w:
        to = b.add(base, b.mul(w.index, w_stride))
        with b.loop(u_count, u_room, 1, hint="u") as u:
            b.store(zero, memory, b.add(to, u.index))


def load_as(
    b: KernelBuilder,
    memory: str,
    element: Element,
    at: str,
    lanes: int,
    compute: Element,
    mask: str | None = None,
) -> str:
    """`lanes` consecutive elements as `compute`; lanes off in `mask` are 0."""
    if mask is None:
        raw = b.vector_load(memory, at, lanes)
    else:
        raw = b.masked_load(memory, at, mask, b.constant(0, vector_type(lanes, element.storage)))
    return convert(b, raw, as_number(element), compute)


def as_number(element: Element) -> Element:
    """In memory i1 is a byte that holds 0 or 1."""
    return ELEMENTS["ui8"] if element.kind == "b" else element


def transpose(b: KernelBuilder, rows: list[str]) -> list[str]:
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
