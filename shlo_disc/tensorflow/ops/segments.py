"""Rows joined by what an array of integers says of each: segments, counts, parts."""

from __future__ import annotations

import math

from shlo_disc.ingest.arrays import broadcast_to, constant, converted, identity, iota, taken
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    plus,
    product,
    reshaped,
    size_of,
    sizes_of,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, binary, vector
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import compare, create, element_of, reduced, select
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.scattering import places_of, scattered
from shlo_disc.tensorflow.ops.shapes import front
from shlo_disc.tensorflow.ops.values import elements, items, module_of, result

Values = list[ir.Value]


def unsorted_segments(name: str) -> Rule:
    """`UnsortedSegmentSum(data, segment_ids, num_segments)` and the like.

    Rows of other segments are dropped: TensorFlow raises an error for those that are not negative.
    """

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        data, ids, given = op.operands
        (count,) = elements(sizes, given)
        kind = result(op)
        known = count if kind.is_dynamic_dim(0) else int(kind.get_dim_size(0))
        return [_joined(name, data, ids, known, _identity(name, element_of(data)))]

    return rule


def segments(name: str, *, is_mean: bool = False) -> Rule:
    """`SegmentSum(data, segment_ids)` and the like: sorted ids, the last one tells how many.

    Segments without rows are 0, or 1 of a product.
    """

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        data, ids = op.operands
        element = element_of(data)
        count = _count_of(ids)
        found = _joined(name, data, ids, count, _identity(name, element))
        if name in ("add", "multiply") and not is_mean:
            return [found]
        own = sizes_of(found)
        ones = broadcast_to(constant(1, element), [], [size_of(ids, 0)])
        rows = _joined("add", ones, ids, count, constant(0, element))
        wide = broadcast_to(rows, [0], own)
        none = broadcast_to(constant(0, element), [], own)
        if is_mean:
            one = broadcast_to(constant(1, element), [], own)
            wide = create("stablehlo.maximum", [wide, one], wide.type)
            return [create("stablehlo.divide", [found, wide], found.type)]
        is_empty = compare("EQ", wide, none)
        return [select(is_empty, none, found)]

    return rule


def _identity(name: str, element: ir.Type) -> ir.Value:
    """What TensorFlow has where there is no row: the extremes are finite."""
    return identity(name, element, is_finite=True)


def _joined(name: str, data: ir.Value, ids: ir.Value, count: Size, start: ir.Value) -> ir.Value:
    """The rows of `data` joined by segment; `ids` has the first dimensions of `data`."""
    own, places = sizes_of(data), sizes_of(ids)
    total = product(places)
    rest = own[len(places) :]
    rows = data if len(places) == 1 else reshaped(data, [total, *rest])
    base = broadcast_to(start, [], [count, *rest])
    flat = ids if len(places) == 1 else reshaped(ids, [total])
    return scattered(base, flat, rows, name)


def _count_of(ids: ir.Value) -> ir.Value:
    """One more than the largest number of a vector; 0 of none, as a size."""
    wide = converted(ids, "i64")
    return converted(_one_more(reduced(wide, [0], "maximum", constant(-1, "i64"))), "i64")


def _one_more(number: ir.Value) -> ir.Value:
    return create("stablehlo.add", [number, constant(1, element_of(number))], number.type)


def bincount(sizes: Sizes, op: ir.Operation) -> Values:
    """`DenseBincount(input, size, weights)`: of a vector, or of each row of a matrix.

    Numbers that are not below `size` are not counted.
    """
    array, given, weights = op.operands
    kind = result(op)
    element = kind.element_type
    own = sizes_of(array)
    (count,) = elements(sizes, given)
    if not kind.is_dynamic_dim(kind.rank - 1):
        count = int(kind.get_dim_size(kind.rank - 1))
    if size_of(weights, 0) == 0 or flag(op, "binary_output"):
        updates = broadcast_to(constant(1, element), [], own)
    else:
        updates = weights
    name = None if flag(op, "binary_output") else "add"
    if len(own) == 1:
        base = broadcast_to(constant(0, element), [], [count])
        return [scattered(base, array, updates, name)]
    # Row k counts from k * count; one more number a row takes what is not counted.
    inner = element_of(array)
    line = plus(count, 1)
    last = broadcast_to(converted(value_of(count), inner), [], own)
    is_counted = binary("and", compare("LT", array, last), compare("LT", _filled(-1, array), array))
    place = select(is_counted, array, last)
    start = binary(
        "multiply", iota(own, 0, inner), broadcast_to(converted(value_of(line), inner), [], own)
    )
    flat, rows = (reshaped(each, [product(own)]) for each in (binary("add", start, place), updates))
    base = broadcast_to(constant(0, element), [], [times(own[0], line)])
    found = reshaped(scattered(base, flat, rows, name), [own[0], line])
    return [front(found, 1, count)]


def _filled(number: int, like: ir.Value) -> ir.Value:
    return broadcast_to(constant(number, element_of(like)), [], sizes_of(like))


def dynamic_partition(sizes: Sizes, op: ir.Operation) -> Values:
    """`DynamicPartition(data, partitions)`: the rows of each partition; data tells how many."""
    data, parts = op.operands
    own, given = sizes_of(data), sizes_of(parts)
    total = product(given)
    rows = data if len(given) == 1 else reshaped(data, [total, *own[len(given) :]])
    flat = parts if len(given) == 1 else reshaped(parts, [total])
    found = []
    for number in range(len(op.results)):
        mask = compare("EQ", flat, _filled(number, flat))  # fmt: skip
        found.append(taken(rows, places_of(module_of(op), mask), 0))
    return found


def dynamic_stitch(sizes: Sizes, op: ir.Operation) -> Values:
    """`DynamicStitch(indices, data)`: rows of several arrays, each at its place; later ones win.

    One more than the largest index is how many there are. Places that no index names are 0.
    """
    count = len(op.operands) // 2
    indices, arrays = list(op.operands)[:count], list(op.operands)[count:]
    known = _known_places(sizes, indices)
    if known is not None and ir.RankedTensorType(op.results[0].type).rank == 1:
        return [_stitched_vector(sizes, known, indices, arrays)]
    flat, rows, ends = [], [], []
    for index, array in zip(indices, arrays, strict=True):
        places = sizes_of(index)
        total = product(places)
        rest = sizes_of(array)[len(places) :]
        flat.append(index if len(places) == 1 else reshaped(index, [total]))
        rows.append(array if len(places) == 1 else reshaped(array, [total, *rest]))
        ends.append(_count_of(flat[-1]))
    size: Size = ends[0]
    for end in ends[1:]:
        size = larger(size, end)
    if not result(op).is_dynamic_dim(0):
        size = int(result(op).get_dim_size(0))
    base = broadcast_to(constant(0, element_of(rows[0])), [], [size, *sizes_of(rows[0])[1:]])
    for places_, array in zip(flat, rows, strict=True):
        base = scattered(base, places_, array, None)
    return [base]


def _known_places(sizes: Sizes, indices: list[ir.Value]) -> list[list[int]] | None:
    """The numbers of vectors of indices, where all are known and few."""
    found = []
    for index in indices:
        kind = ir.RankedTensorType(index.type)
        if not kind.has_static_shape or kind.rank > 1 or math.prod(kind.shape) > _FEW:
            return None
        told = elements(sizes, index)
        numbers = [n for n in told if isinstance(n, int)]
        if len(numbers) < len(told):
            return None
        found.append(numbers)
    return found


_FEW = 16
"""A shape has no more sizes."""


def _stitched_vector(
    sizes: Sizes, places: list[list[int]], indices: list[ir.Value], arrays: list[ir.Value]
) -> ir.Value:
    """The same for numbers, such as the sizes of a shape, one by one."""
    element = element_of(arrays[0])
    count = max((n for row in places for n in row), default=-1) + 1
    values = [constant(0, element)] * count
    for row, array in zip(places, arrays, strict=True):
        told = items(sizes, array)
        for place, value in zip(row, told, strict=True):
            values[place] = value
    return vector(values) if values else reshaped(arrays[0], [0])
