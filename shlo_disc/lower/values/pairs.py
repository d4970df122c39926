"""Arrays of pairs, such as complex numbers: both elements of a pair are loaded at once.

The elements of neighbouring pairs are two vectors in memory, from which shuffles take the first and
the second ones. Pairs that are anywhere are gathered as wider elements, one access each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.plan import Buffer
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register, vector_type

if TYPE_CHECKING:
    from shlo_disc.lower.values.elemental import Elemental

GATHERED = 32
"""Bits of an element whose pairs are gathered: a pair is an element of a gather, too."""

_NEAR = 2
"""Steps between pairs up to which whole vectors hold them: `Elemental` loads those."""


def load_pairs(
    e: Elemental, buffer: Buffer, element: ElementType, at: Ix, mask: Mask | None
) -> list[Register] | None:
    """The first and the second elements of the pairs number `at`, one pair a lane.

    None where they are better loaded by themselves. Masked-off lanes read nothing.
    """
    if at.is_uniform or element.kind == "b":
        return None
    if at.vector is None and at.stride in (1, -1):
        return _neighbours(e, buffer, element, at, mask)
    far = at.offsets is None if at.vector is not None else abs(at.stride) > _NEAR
    return _gathered(e, buffer, element, at, mask) if far and element.bits == GATHERED else None


def _neighbours(
    e: Elemental, buffer: Buffer, element: ElementType, at: Ix, mask: Mask | None
) -> list[Register]:
    b, lanes = e.b, e.lanes
    memory = b.memref(e.arguments.slot(buffer), element.storage)
    first = at.base if at.stride == 1 else at.base - (lanes - 1)
    order = range(lanes)[:: at.stride]
    if mask is not None:
        mask = b.broadcast(mask, lanes)
    nothing = b.constant(0, vector_type(lanes, element.storage))
    halves = []
    for half in range(2):
        place = first * 2 + half * lanes
        if mask is None:
            halves.append(memory.vector_load(place, lanes))
        else:
            on = b.shuffle(mask, mask, [order[(half * lanes + k) // 2] for k in range(lanes)])
            halves.append(memory.masked_load(place, on, nothing))
    low, high = halves
    return [b.shuffle(low, high, [2 * k + plane for k in order]) for plane in range(2)]


def _gathered(
    e: Elemental, buffer: Buffer, element: ElementType, at: Ix, mask: Mask | None
) -> list[Register]:
    b, lanes = e.b, e.lanes
    memory = b.memref(e.arguments.slot(buffer), f"i{2 * element.bits}")
    on = b.flags(True, lanes) if mask is None else b.broadcast(mask, lanes)
    nothing = b.constant(0, vector_type(lanes, memory.element))
    base: IndexValue | int
    if at.vector is None:
        base, offsets = at.base, b.dense_index([at.stride * k for k in range(lanes)])
    else:
        base, offsets = 0, at.vector
    raw = b.gather(memory, base, offsets, on, nothing)
    both = b.bitcast(raw, vector_type(2 * lanes, element.storage))
    return [b.shuffle(both, both, range(plane, 2 * lanes, 2)) for plane in range(2)]
