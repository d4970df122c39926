"""Results whose neighbours in memory are computed in different ways: complex numbers as pairs.

Such results are concatenations of a few values along a last dimension of size 1 each. A vector
holds one of these values of neighbouring places; those of all values are stored interleaved. Were
the lanes those of the result, every value would be computed in all lanes and most of them dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.plan import Buffer
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type

COUNTS = (2, 4)
"""Numbers of values: powers of two, so that exchanges of halves order their lanes."""

_BLOCK_BYTES = 16
"""Half a vector of AVX2."""


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
    element = element_of(root)
    first = e.space.scale(at, len(values))
    if at.is_uniform or at.vector is not None or at.stride != 1:
        for k, value in enumerate(values):
            e.store(buffer, element, value, e.space.add(first, k), mask)
        return
    store_vectors(e, buffer, root, values, first.base, mask)


def store_vectors(
    e: Elemental,
    buffer: Buffer,
    root: ir.Value,
    values: Sequence[Register],
    first: IndexValue,
    mask: Mask | None,
) -> None:
    """Write the lanes of all `values` by turns, from element `first` of `root` on."""
    element, lanes = element_of(root), e.lanes
    values = [e.b.broadcast(value, lanes) for value in values]
    for k, (value, here) in enumerate(by_turns(e.b, values, mask)):
        e.store(buffer, element, value, Ix(first + k * lanes, 1), here)


def by_turns(
    b: KernelBuilder, values: Sequence[Register], mask: Mask | None
) -> Iterator[tuple[Register, Mask | None]]:
    """The lanes of all `values` by turns, as vectors that follow each other, with their masks."""
    count, lanes = len(values), values[0].lanes
    masks = [None] * count if mask is None else _each(b, mask, count, lanes)
    return zip(_interleave(b, [*values]), masks, strict=True)


def _each(b: KernelBuilder, mask: Mask, count: int, lanes: int) -> list[Mask]:
    """The masks of the vectors that hold `count` values of each lane behind each other."""
    mask = b.broadcast(mask, lanes)
    orders = ([(k * lanes + lane) // count for lane in range(lanes)] for k in range(count))
    return [b.shuffle(mask, mask, order) for order in orders]


def _interleave(b: KernelBuilder, values: list[Register]) -> list[Register]:
    """The lanes of all `values` by turns, as vectors that follow each other."""
    count = len(values)
    if count == 1:
        return values
    ways = _least_factor(count)
    parts = [_interleave(b, values[way::ways]) for way in range(ways)]
    return [vector for group in zip(*parts, strict=True) for vector in _next_by_turns(b, group)]


def load_vectors(
    b: KernelBuilder, memory: MemRef, lanes: int, first: IndexValue, count: int, mask: Mask | None
) -> list[Register]:
    """`count` values of each lane, which lie behind each other from element `first` on."""
    if mask is not None:
        nothing = b.constant(0, vector_type(lanes, memory.element))
        vectors = [
            memory.masked_load(first + k * lanes, on, nothing)
            for k, on in enumerate(_each(b, mask, count, lanes))
        ]
        return _deinterleave(b, vectors)
    in_block = count * memory.element_bits == 8 * _BLOCK_BYTES
    if count in COUNTS and lanes == 2 * count and in_block:
        return _from_blocks(b, [memory.vector_load(first + k * count, count) for k in range(lanes)])
    return _deinterleave(b, [memory.vector_load(first + k * lanes, lanes) for k in range(count)])


def _from_blocks(b: KernelBuilder, blocks: Sequence[Register]) -> list[Register]:
    """The values of each lane, whose block has them all; a vector holds two blocks.

    Exchanges within the halves of a vector are one instruction of AVX2, those across them two.
    """
    count = len(blocks) // 2
    halves = zip(blocks[:count], blocks[count:], strict=True)
    vectors = [b.shuffle(low, high, range(2 * count)) for low, high in halves]
    unit = 1
    while unit < count:
        for k in range(count):
            if not k & unit:
                one, other = vectors[k], vectors[k + unit]
                vectors[k] = b.shuffle(one, other, _by_units(count, unit, 0))
                vectors[k + unit] = b.shuffle(one, other, _by_units(count, unit, count // 2))
        unit *= 2
    return vectors if count == 2 else [vectors[k] for k in (0, 2, 1, 3)]


def _by_units(count: int, unit: int, first: int) -> list[int]:
    """By turns `unit` lanes of two vectors, from lane `first` on in blocks of `count`."""
    return [
        vector * 2 * count + block * count + lane
        for block in (0, 1)
        for start in range(first, first + count // 2, unit)
        for vector in (0, 1)
        for lane in range(start, start + unit)
    ]


def _deinterleave(b: KernelBuilder, vectors: list[Register]) -> list[Register]:
    """The inverse of `_interleave`."""
    count, lanes = len(vectors), vectors[0].lanes
    if count == 1:
        return vectors
    ways = _least_factor(count)
    parts: list[list[Register]] = [[] for _ in range(ways)]
    for first in range(0, count, ways):
        for way, part in enumerate(parts):
            places = [divmod(lane * ways + way, lanes) for lane in range(lanes)]
            part.append(_merged(b, vectors[first : first + ways], places))
    values: list[Register] = [*vectors]
    for way, part in enumerate(parts):
        values[way::ways] = _deinterleave(b, part)
    return values


def _next_by_turns(b: KernelBuilder, values: Sequence[Register]) -> Iterator[Register]:
    """`_interleave` of a prime number of vectors."""
    lanes, count = values[0].lanes, len(values)
    for k in range(count):
        turns = (divmod(k * lanes + lane, count) for lane in range(lanes))
        yield _merged(b, values, [(turn, at) for at, turn in turns])


def _merged(
    b: KernelBuilder, values: Sequence[Register], places: Sequence[tuple[int, int]]
) -> Register:
    """Lanes of several vectors; `places`: the vector of each lane, and the lane there."""
    lanes, found = values[0].lanes, values[0]
    for way in range(1, len(values)):
        order = [
            lanes + at if vector == way else at if way == 1 else lane
            for lane, (vector, at) in enumerate(places)
        ]
        found = b.shuffle(found, values[way], order)
    return found


def _least_factor(count: int) -> int:
    return next(n for n in range(2, count + 1) if count % n == 0)
