"""Ops that move elements, or take parts of arrays."""

from __future__ import annotations

import itertools

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import (
    broadcast_to,
    constant,
    converted,
    iota,
    joined,
    padded,
    reversed_along,
    taken,
)
from shlo_disc.ingest.size_arithmetic import (
    Size,
    minus,
    must_be_equal,
    plus,
    product,
    quotient,
    reshaped,
    shape_vector,
    size_of,
    sizes_of,
    static,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, binary
from shlo_disc.ir.builders import compare, create, element_of, select, transposed
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.shapes import part_of
from shlo_disc.tensorflow.ops.values import elements, known_integer, known_integers, unless_open

Values = list[ir.Value]


def slice_(sizes: Sizes, op: ir.Operation) -> Values:
    """`Slice(input, begin, size)`; a size of -1 is the rest."""
    array, begin, size = op.operands
    starts, counts = elements(sizes, begin), elements(sizes, size)
    for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
        own = size_of(array, axis)
        limit = own if count == -1 else plus(start, unless_open(count, minus(own, start)))
        array = part_of(array, axis, start, limit)
    return [array]


def split(sizes: Sizes, op: ir.Operation) -> Values:
    """`Split(split_dim, value)`: equal parts."""
    array = op.operands[1]
    axis = known_integer(op.operands[0], "the axis") % ir.RankedTensorType(array.type).rank
    size = quotient(size_of(array, axis), len(op.results))
    ends = [times(size, k) for k in range(len(op.results) + 1)]
    _check_end(op, ends[-1], size_of(array, axis))
    return [part_of(array, axis, *pair) for pair in itertools.pairwise(ends)]


def split_sizes(sizes: Sizes, op: ir.Operation) -> Values:
    """`SplitV(value, size_splits, split_dim)`; one size may be -1, the rest."""
    array = op.operands[0]
    axis = known_integer(op.operands[2], "the axis") % ir.RankedTensorType(array.type).rank
    counts = elements(sizes, op.operands[1])
    rest = size_of(array, axis)
    for count in counts:
        rest = rest if count == -1 else minus(rest, unless_open(count, 0))
    ends: list[Size] = [0]
    for count in counts:
        ends.append(plus(ends[-1], rest if count == -1 else unless_open(count, rest)))
    if -1 not in counts:
        _check_end(op, ends[-1], size_of(array, axis))
    return [part_of(array, axis, *pair) for pair in itertools.pairwise(ends)]


def _check_end(op: ir.Operation, end: Size, size: Size) -> None:
    """Every call checks that the parts make up the dimension."""
    text = f"{source_line(op)}: the parts have {{0}} entries, the dimension has {{1}}"
    must_be_equal(end, size, text)


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
        if not isinstance(axis, int):
            raise UnsupportedError("the axis must be a number, not computed")
        place = axis % rank
        size = size_of(array, place)
        if size == 0:
            continue
        if isinstance(size, int) and isinstance(by, int):
            middle = -by % size
            parts = [part_of(array, place, middle, size), part_of(array, place, 0, middle)]
            array = joined(parts, place)
        else:
            array = taken(array, _rolled(size, by), place)
    return [array]


def _rolled(size: Size, by: Size) -> ir.Value:
    """The index that each entry comes from: of -1 the last one."""
    count = broadcast_to(value_of(size), [], [size])
    index = binary("subtract", iota([size], 0, "i64"), broadcast_to(value_of(by), [], [size]))
    # The remainder has the sign of the index.
    rest = binary("remainder", index, count)
    return binary("remainder", binary("add", rest, count), count)


def reverse_sequence(sizes: Sizes, op: ir.Operation) -> Values:
    """`ReverseSequence(input, seq_lengths)`: the first entries of each row, another number each."""
    array, lengths = op.operands
    axis, batch = (int(ir.IntegerAttr(op.attributes[n]).value) for n in ("seq_dim", "batch_dim"))
    rank = ir.RankedTensorType(array.type).rank
    axis, batch = axis % rank, batch % rank
    order = [batch, axis, *(k for k in range(rank) if k not in (batch, axis))]
    turned = transposed(array, order)
    own = sizes_of(turned)
    rows, count = own[:2]
    index = iota([rows, count], 1, "i32")
    length = broadcast_to(converted(lengths, "i32"), [0], [rows, count])
    one = broadcast_to(constant(1, "i32"), [], [rows, count])
    is_turned = compare("LT", index, length)
    mirrored = binary("subtract", binary("subtract", length, one), index)
    place = select(is_turned, mirrored, index)
    row = iota([rows, count], 0, "i32")
    both = joined([reshaped(each, [rows, count, 1]) for each in (row, place)], 2)
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {list(range(2, rank))}, collapsed_slice_dims = [0, 1], "
        "start_index_map = [0, 1], index_vector_dim = 2>"
    )
    found = create(
        "stablehlo.dynamic_gather",
        [turned, both, shape_vector([1, 1, *own[2:]])],
        turned.type,
        dimension_numbers=numbers,
    )
    return [transposed(found, [order.index(k) for k in range(rank)])]


def gather(sizes: Sizes, op: ir.Operation) -> Values:
    """`GatherV2(params, indices, axis)`: entries of a dimension; an index outside is clamped."""
    array, indices, axis_ = op.operands
    rank, depth = (ir.RankedTensorType(v.type).rank for v in (array, indices))
    axis = known_integer(axis_, "the axis") % rank
    batch = int(ir.IntegerAttr(op.attributes["batch_dims"]).value)
    batch += depth if batch < 0 else 0
    own, given = sizes_of(array), sizes_of(indices)
    rows, count = product(own[:batch]), product(given[batch:])
    if batch == 0:
        flat = indices if depth == 1 else reshaped(indices, [count])
        found = taken(array, flat, axis)
    else:
        outer, rest = product(own[batch:axis]), product(own[axis + 1 :])
        array = reshaped(array, [rows, outer, own[axis], rest])
        found = _taken_by_row(array, reshaped(indices, [rows, count]))
    if batch == 0 and depth == 1:
        return [found]
    return [reshaped(found, [*own[:axis], *given[batch:], *own[axis + 1 :]])]


def _taken_by_row(array: ir.Value, indices: ir.Value) -> ir.Value:
    """`array[r, :, indices[r, k], :]` as [rows, outer, k, rest]."""
    rows, outer, _, rest = sizes_of(array)
    count = size_of(indices, 1)
    row = iota([rows, count], 0, element_of(indices))
    both = joined([reshaped(each, [rows, count, 1]) for each in (row, indices)], 2)
    numbers = ir.Attribute.parse(
        "#stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [0, 2], "
        "start_index_map = [0, 2], index_vector_dim = 2>"
    )
    kind = ir.RankedTensorType.get(static([rows, count, outer, rest]), element_of(array))
    found = create(
        "stablehlo.dynamic_gather",
        [array, both, shape_vector([1, outer, 1, rest])],
        kind,
        dimension_numbers=numbers,
    )
    return transposed(found, [0, 2, 1, 3])


def concatenate(sizes: Sizes, op: ir.Operation) -> Values:
    """`ConcatV2(values..., axis)`."""
    *parts, axis = op.operands
    rank = ir.RankedTensorType(parts[0].type).rank
    return [joined(parts, known_integer(axis, "the axis") % rank)]


def pad(sizes: Sizes, op: ir.Operation) -> Values:
    """`Pad(input, paddings)`, `PadV2(input, paddings, constant_values)`."""
    array, pairs, *value = op.operands
    return [padded(array, _pairs(sizes, pairs), value=value[0] if value else None)]


def mirror_pad(sizes: Sizes, op: ir.Operation) -> Values:
    """`MirrorPad(input, paddings)`: with the edge (`SYMMETRIC`) or without it (`REFLECT`)."""
    array = op.operands[0]
    mode = str(ir.StringAttr(op.attributes["mode"]).value)
    skipped = 1 if mode == "REFLECT" else 0
    for axis, (low, high) in enumerate(_pairs(sizes, op.operands[1])):
        size = size_of(array, axis)
        if not isinstance(low, int) or not isinstance(high, int):
            array = taken(array, _mirrored(size, low, high, skipped), axis)
            continue
        parts = [array]
        if low:
            parts.insert(0, reversed_along(part_of(array, axis, skipped, low + skipped), [axis]))
        if high:
            limit = minus(size, skipped)
            parts.append(reversed_along(part_of(array, axis, minus(limit, high), limit), [axis]))
        array = joined(parts, axis) if len(parts) > 1 else array
    return [array]


def _mirrored(size: Size, low: Size, high: Size, skipped: int) -> ir.Value:
    """The index that each entry comes from, where `low` are in front and `high` behind."""
    full: list[Size] = [plus(plus(low, size), high)]

    def of(number: Size) -> ir.Value:
        return broadcast_to(value_of(number), [], full)

    index = binary("subtract", iota(full, 0, "i64"), of(low))
    before = binary("subtract", of(skipped - 1), index)
    behind = binary("subtract", of(minus(times(size, 2), 1 + skipped)), index)
    is_behind = compare("GE", index, of(size))
    index = select(is_behind, behind, index)
    is_before = compare("LT", index, of(0))
    # `behind` is not negative where no more is mirrored than there is.
    return select(is_before, before, index)


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
