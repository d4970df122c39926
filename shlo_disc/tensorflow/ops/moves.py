"""Ops that move elements, or take parts of arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.builders import create, transposed
from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.mlir import ir, producer
from shlo_disc.tensorflow.ops.shapes import part_of
from shlo_disc.tensorflow.ops.values import (
    Size,
    element_of,
    elements,
    known_integer,
    known_integers,
    minus,
    padded,
    plus,
    product,
    quotient,
    reshaped,
    reversed_along,
    size_of,
    sizes_of,
    static,
    times,
)

__all__ = [
    "batch_to_space",
    "depth_to_space",
    "mirror_pad",
    "roll",
    "slice_",
    "space_to_batch",
    "space_to_depth",
    "split",
    "split_sizes",
    "unpack",
]

Values = list[ir.Value]


def slice_(sizes: Sizes, op: ir.Operation) -> Values:
    """`Slice(input, begin, size)`; a size of -1 is the rest."""
    array, begin, size = op.operands
    starts, counts = elements(sizes, begin), elements(sizes, size)
    for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
        own = size_of(array, axis)
        limit = own if count == -1 else plus(start, count)
        array = part_of(array, axis, start, limit)
    return [array]


def split(sizes: Sizes, op: ir.Operation) -> Values:
    """`Split(split_dim, value)`: equal parts."""
    array = op.operands[1]
    axis = known_integer(op.operands[0], "the axis") % ir.RankedTensorType(array.type).rank
    size = quotient(size_of(array, axis), len(op.results))
    ends = [times(size, k) for k in range(len(op.results) + 1)]
    return [part_of(array, axis, *pair) for pair in itertools.pairwise(ends)]


def split_sizes(sizes: Sizes, op: ir.Operation) -> Values:
    """`SplitV(value, size_splits, split_dim)`; one size may be -1, the rest."""
    array = op.operands[0]
    axis = known_integer(op.operands[2], "the axis") % ir.RankedTensorType(array.type).rank
    counts = elements(sizes, op.operands[1])
    rest = size_of(array, axis)
    for count in counts:
        rest = rest if count == -1 else minus(rest, count)
    found = []
    place: Size = 0
    for count in counts:
        limit = plus(place, rest if count == -1 else count)
        found.append(part_of(array, axis, place, limit))
        place = limit
    return found


def unpack(sizes: Sizes, op: ir.Operation) -> Values:
    """`Unpack(value)`: the entries of a dimension, each by itself."""
    (array,) = op.operands
    axis = int(ir.IntegerAttr(op.attributes["axis"]).value)
    axis %= ir.RankedTensorType(array.type).rank
    left = [size for k, size in enumerate(sizes_of(array)) if k != axis]
    return [reshaped(part_of(array, axis, k, k + 1), left) for k in range(len(op.results))]


def roll(sizes: Sizes, op: ir.Operation) -> Values:
    """`Roll(input, shift, axis)`: what leaves at an end comes in at the other."""
    array, shift, axes = op.operands
    rank = ir.RankedTensorType(array.type).rank
    for by, axis in zip(elements(sizes, shift), elements(sizes, axes), strict=True):
        if not isinstance(by, int) or not isinstance(axis, int):
            raise UnsupportedError("shift and axis must be numbers, not computed")
        place = axis % rank
        size = size_of(array, place)
        if not isinstance(size, int):
            raise UnsupportedError(f"dimension {place} that is rolled must have a known size")
        if size == 0:
            continue
        middle = -by % size
        parts = [part_of(array, place, middle, size), part_of(array, place, 0, middle)]
        array = _joined(parts, place)
    return [array]


def mirror_pad(sizes: Sizes, op: ir.Operation) -> Values:
    """`MirrorPad(input, paddings)`: with the edge (`SYMMETRIC`) or without it (`REFLECT`)."""
    array = op.operands[0]
    mode = str(ir.StringAttr(op.attributes["mode"]).value)
    skipped = 1 if mode == "REFLECT" else 0
    for axis, (low, high) in enumerate(_numbers(op.operands[1]).reshape(-1, 2).tolist()):
        size = size_of(array, axis)
        parts = [array]
        if low:
            parts.insert(0, reversed_along(part_of(array, axis, skipped, low + skipped), [axis]))
        if high:
            limit = minus(size, skipped)
            parts.append(reversed_along(part_of(array, axis, minus(limit, high), limit), [axis]))
        array = _joined(parts, axis) if len(parts) > 1 else array
    return [array]


def _numbers(value: ir.Value) -> npt.NDArray[Any]:
    """A constant. Raises UnsupportedError where the program computes it."""
    op = producer(value)
    if op is None or op.name != "stablehlo.constant":
        raise UnsupportedError("the paddings must be numbers, not computed")
    attribute = op.attributes["value"]
    if attribute.is_splat:
        shape = ir.RankedTensorType(value.type).shape
        return np.full(shape, int(attribute.get_splat_value().value))
    return np.array(attribute)


def _joined(parts: Sequence[ir.Value], axis: int) -> ir.Value:
    total: Size = 0
    for part in parts:
        total = plus(total, size_of(part, axis))
    shape: list[Size] = [total if k == axis else n for k, n in enumerate(sizes_of(parts[0]))]
    kind = ir.RankedTensorType.get(static(shape), element_of(parts[0]))
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    return create("stablehlo.concatenate", list(parts), kind, dimension=dimension)


def space_to_depth(sizes: Sizes, op: ir.Operation) -> Values:
    """`SpaceToDepth(input)`: blocks of an NHWC image become channels."""
    block, (batch, height, width, depth) = _blocked(op)
    array = reshaped(
        op.operands[0],
        [batch, quotient(height, block), block, quotient(width, block), block, depth],
    )
    array = transposed(array, [0, 1, 3, 2, 4, 5])
    shape = [batch, quotient(height, block), quotient(width, block), product([block**2, depth])]
    return [reshaped(array, shape)]


def depth_to_space(sizes: Sizes, op: ir.Operation) -> Values:
    """`DepthToSpace(input)`: channels of an NHWC image become blocks."""
    block, (batch, height, width, depth) = _blocked(op)
    left = quotient(depth, block**2)
    array = reshaped(op.operands[0], [batch, height, width, block, block, left])
    array = transposed(array, [0, 1, 3, 2, 4, 5])
    return [reshaped(array, [batch, times(height, block), times(width, block), left])]


def space_to_batch(sizes: Sizes, op: ir.Operation) -> Values:
    """`SpaceToBatchND(input, block_shape, paddings)`: places in a block become batches."""
    array, shape, paddings = op.operands
    blocks = known_integers(shape, "the block")
    pads = _pairs(sizes, paddings)
    rest = ir.RankedTensorType(array.type).rank - 1 - len(blocks)
    array = padded(array, [(0, 0), *pads, *[(0, 0)] * rest])
    batch, *own = sizes_of(array)
    spatial, others = own[: len(blocks)], own[len(blocks) :]
    counts = [quotient(n, block) for n, block in zip(spatial, blocks, strict=True)]
    split_sizes = [n for pair in zip(counts, blocks, strict=True) for n in pair]
    array = reshaped(array, [batch, *split_sizes, *others])
    inner = [2 + 2 * k for k in range(len(blocks))]
    outer = [1 + 2 * k for k in range(len(blocks))]
    last = 1 + 2 * len(blocks)
    array = transposed(array, [*inner, 0, *outer, *range(last, last + rest)])
    return [reshaped(array, [product([*blocks, batch]), *counts, *others])]


def batch_to_space(sizes: Sizes, op: ir.Operation) -> Values:
    """`BatchToSpaceND(input, block_shape, crops)`: the inverse of `SpaceToBatchND`."""
    array, shape, crops = op.operands
    blocks = known_integers(shape, "the block")
    total, *own = sizes_of(array)
    spatial, others = own[: len(blocks)], own[len(blocks) :]
    batch = quotient(total, product(blocks))
    array = reshaped(array, [*blocks, batch, *own])
    count = len(blocks)
    pairs = [axis for k in range(count) for axis in (count + 1 + k, k)]
    last = 2 * count + 1
    array = transposed(array, [count, *pairs, *range(last, last + len(others))])
    full = [times(n, block) for n, block in zip(spatial, blocks, strict=True)]
    array = reshaped(array, [batch, *full, *others])
    for k, (low, high) in enumerate(_pairs(sizes, crops)):
        array = part_of(array, k + 1, low, minus(full[k], high))
    return [array]


def _pairs(sizes: Sizes, array: ir.Value) -> list[tuple[Size, Size]]:
    """An integer[n, 2] as pairs of sizes."""
    (count, _) = ir.RankedTensorType(array.type).shape
    flat = elements(sizes, reshaped(array, [2 * count]))
    return [(flat[2 * k], flat[2 * k + 1]) for k in range(count)]


def _blocked(op: ir.Operation) -> tuple[int, list[Size]]:
    if "data_format" in op.attributes:
        name = str(ir.StringAttr(op.attributes["data_format"]).value)
        if name != "NHWC":
            raise UnsupportedError(f"the data format {name}; use NHWC")
    return int(ir.IntegerAttr(op.attributes["block_size"]).value), sizes_of(op.operands[0])
