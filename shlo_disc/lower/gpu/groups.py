"""Accumulators of the threads of a group, combined: a warp shuffles, warps use shared memory.

Order: the threads of a warp as a balanced tree, and then the warps one after the other. Every
thread has the total.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.gpu.builder import GroupBuilder
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.reduction import Reducer
from shlo_disc.lower.values.typed import IndexLike, MemRef, Register


def across_threads(
    b: GroupBuilder,
    reducer: Reducer,
    own: Sequence[Register],
    *,
    in_order: bool,
    repeated: bool = False,
) -> list[Register]:
    """The total of the accumulators `own` of all threads of a group, scalars or vectors.

    `in_order`: thread i has what is in front of thread i + 1, and only associativity is used.
    `repeated`: a thread comes here again in the same kernel.
    """
    parts, distance = list(own), 1
    while distance < min(b.group, b.machine.warp):
        others = [b.from_lane(part, distance) for part in parts]
        if in_order:
            is_later = (b.thread // distance % 2).equals(1)
            pairs = list(zip(parts, others, strict=True))
            left = [b.select(is_later, other, mine) for mine, other in pairs]
            right = [b.select(is_later, mine, other) for mine, other in pairs]
            parts = reducer.merge(left, right)
        else:
            parts = reducer.combine(parts, others)
        distance *= 2
    if b.group <= b.machine.warp:
        return parts
    return _across_warps(b, reducer, parts, in_order, repeated)


def _across_warps(
    b: GroupBuilder, reducer: Reducer, parts: list[Register], in_order: bool, repeated: bool
) -> list[Register]:
    warps = b.group // b.machine.warp
    rooms = [b.shared(stored(part), warps * max(1, part.lanes)) for part in parts]
    if repeated:
        b.barrier_of_block()  # what was in this memory has been read
    with b.if_((b.thread % b.machine.warp).equals(0)):
        for part, room in zip(parts, rooms, strict=True):
            put(b, part, room, b.thread // b.machine.warp)
    b.barrier_of_block()
    total: list[Register] = []
    for warp in range(warps):
        found = [get(b, part, room, warp) for part, room in zip(parts, rooms, strict=True)]
        if not total:
            total = found
        else:
            total = (reducer.merge if in_order else reducer.combine)(total, found)
    return total


def stored(part: Register) -> str:
    """The element type of a register in shared memory."""
    return "i8" if part.element == "i1" else part.element


def put(b: KernelBuilder, part: Register, room: MemRef, place: IndexLike) -> None:
    """Store `part` as the value number `place` of `room`."""
    value = b.cast("arith.extui", part, "i8") if part.element == "i1" else part
    if part.lanes:
        room.vector_store(value, b.index(place) * part.lanes)
    else:
        room.store(value, place)


def get(b: KernelBuilder, like: Register, room: MemRef, place: IndexLike) -> Register:
    """The value number `place` of `room`, of the type of `like`."""
    if like.lanes:
        found = room.vector_load(b.index(place) * like.lanes, like.lanes, readonly=False)
    else:
        found = room.load(place, readonly=False)
    return found.differs(0) if like.element == "i1" else found
