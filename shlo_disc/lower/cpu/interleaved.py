"""Results whose neighbours in memory are computed in different ways: complex numbers as pairs.

Such results are concatenations of a few values along a last dimension of size 1 each. A vector
holds one of these values of neighbouring places; those of all values are stored interleaved. Were
the lanes those of the result, every value would be computed in all lanes and most of them dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.plan import Buffer
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import Mask, Register
from shlo_disc.mlir import ir, producer

__all__ = ["interleaved_parts", "store"]

COUNTS = (2, 4)
"""Numbers of values: powers of two, so that exchanges of halves order their lanes."""


def interleaved_parts(
    roots: Sequence[ir.Value], shapes: ShapeAnalysis, inputs: frozenset[ir.Value]
) -> list[list[ir.Value]]:
    """The values that each of `roots` interleaves, equally many; [] if they are no such results.

    `inputs` are in memory already.
    """
    found = [_parts(root, shapes, inputs) for root in roots]
    return found if len({len(parts) for parts in found}) == 1 and found[0] else []


def _parts(root: ir.Value, shapes: ShapeAnalysis, inputs: frozenset[ir.Value]) -> list[ir.Value]:
    op = None if root in inputs else producer(root)
    if op is None or op.name != "stablehlo.concatenate" or len(op.operands) not in COUNTS:
        return []
    parts, axis = list(op.operands), ir.IntegerAttr(op.attributes["dimension"]).value
    last = len(shapes.shape(root)) - 1
    return parts if axis == last and all(shapes.shape(v)[-1].is_one for v in parts) else []


def store(
    e: Elemental,
    buffer: Buffer,
    root: ir.Value,
    values: Sequence[Register],
    at: Ix,
    mask: Mask | None,
) -> None:
    """Write the elements of `root` at place `at` of its parts; `values`: one register of each."""
    b, element, count, lanes = e.b, element_of(root), len(values), e.lanes
    first = e.space.scale(at, count)
    if at.is_uniform or at.vector is not None or at.stride != 1:
        for k, value in enumerate(values):
            e.store(buffer, element, value, e.space.add(first, k), mask)
        return
    vectors = _interleave(e, [b.broadcast(value, lanes) for value in values])
    for k, value in enumerate(vectors):
        here = mask
        if mask is not None:
            order = [(k * lanes + lane) // count for lane in range(lanes)]
            here = b.shuffle(mask, mask, order)
        e.store(buffer, element, value, Ix(first.base + k * lanes, 1), here)


def _interleave(e: Elemental, values: list[Register]) -> list[Register]:
    """The lanes of all `values` by turns, as vectors that follow each other."""
    if len(values) == 1:
        return values
    lanes = e.lanes
    low = [lane // 2 + lanes * (lane % 2) for lane in range(lanes)]
    high = [lane + lanes // 2 for lane in low]
    out: list[Register] = []
    for x, y in zip(_interleave(e, values[::2]), _interleave(e, values[1::2]), strict=True):
        out += [e.b.shuffle(x, y, low), e.b.shuffle(x, y, high)]
    return out
