"""Ops that give the elements of an array another shape, or take some of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.ingest.arrays import broadcast_to, padded, reversed_along, windowed
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    less,
    minus,
    must_be_equal,
    plus,
    product,
    quotient,
    reshaped,
    shape_vector,
    sizes_of,
    smaller,
    static,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, vector
from shlo_disc.ir.builders import assert_sizes, compare, convert, create, element_of, with_element
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.values import elements, may_be_open, result, unless_open

Values = list[ir.Value]


def reshape(sizes: Sizes, op: ir.Operation) -> Values:
    """`Reshape(tensor, shape)`: -1, also one that a call computes, is the size that fits.

    Beside a size of 0 every size fits. TensorFlow chooses it of the sizes of the array that are
    not 0, so `x[0, 3, 4]` in the shape `[-1, 0]` is `[12, 0]`.
    """
    array, shape = op.operands
    kind = result(op)
    wanted = elements(sizes, shape)
    own = sizes_of(array)
    if len(wanted) != kind.rank:
        raise UnsupportedError("the shape has another length than the result has dimensions")
    known: list[Size] = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(wanted)
    ]
    open_axes = [k for k, size in enumerate(known) if size == -1]
    if len(open_axes) > 1:
        raise UnsupportedError("more than one size is -1")
    if open_axes:
        (axis,) = open_axes
        known[axis] = _fitting(sizes, op, own, [n for k, n in enumerate(known) if k != axis])
        return [reshaped(array, known)]
    return [reshaped(array, _filled_in(own, known))]


def _filled_in(own: list[Size], wanted: list[Size]) -> list[Size]:
    """`wanted`, with the size that fits where a call finds -1. It stays -1 beside another -1."""
    unsure = [k for k, size in enumerate(wanted) if may_be_open(size)]
    found = list(wanted)
    for axis in unsure:
        fitting = _quotient_of(own, [n for k, n in enumerate(wanted) if k != axis])
        for other in unsure:
            if other != axis:
                more = times(plus(wanted[other], 1), plus(fitting, 1))
                fitting = smaller(fitting, minus(more, 1))
        found[axis] = unless_open(wanted[axis], fitting)
    return found


def _fitting(sizes: Sizes, op: ir.Operation, own: list[Size], others: list[Size]) -> Size:
    """The size beside `others` of an array that has the sizes `own`.

    A size that is in both is left out. Every call checks that it is not 0 beside another 0 in
    `own`, where TensorFlow's choice would be another size.
    """
    left, right, both = list(own), [], []
    for size in others:
        if isinstance(size, int):
            right.append(size)
            continue
        origin = sizes.origin(size)
        same = [
            k for k, n in enumerate(left) if not isinstance(n, int) and sizes.origin(n) == origin
        ]
        if same:
            left.pop(same[0])
            both.append(size)
        else:
            right.append(size)
    for a, b in itertools.product(left, both):
        if not isinstance(a, int) or a == 0:
            holds = compare("GE", value_of(plus(a, b)), value_of(1))
            text = (
                f"{source_line(op)}: -1 beside a size of 0, of an array with two: {{0}} and {{1}}"
            )
            assert_sizes(holds, text, [value_of(a), value_of(b)])
    return _quotient_of(left, right)


def _quotient_of(left: Sequence[Size], right: Sequence[Size]) -> Size:
    """What of `left` is not in `right`. Sizes of 0 count as 1, those of `left` beside another."""
    is_zero: Size = 0
    for size in right:
        flag = minus(1, smaller(size, 1))
        is_zero = flag if is_zero == 0 else is_zero if flag == 0 else larger(is_zero, flag)
    if is_zero != 0:
        left = [n if isinstance(n, int) and n > 0 else larger(n, is_zero) for n in left]
    right = [larger(n, 1) for n in right]
    above = math.prod(n for n in left if isinstance(n, int))
    below = math.prod(n for n in right if isinstance(n, int))
    common = math.gcd(above, below)
    dividend = product([above // common, *(n for n in left if not isinstance(n, int))])
    divisor = product([below // common, *(n for n in right if not isinstance(n, int))])
    return quotient(dividend, divisor)


def broadcast(sizes: Sizes, op: ir.Operation) -> Values:
    """`BroadcastTo(input, shape)`."""
    array, shape = op.operands
    kind = result(op)
    wanted: list[Size] = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(elements(sizes, shape))
    ]
    rank = ir.RankedTensorType(array.type).rank
    return [broadcast_to(array, range(kind.rank - rank, kind.rank), wanted)]


def cast(sizes: Sizes, op: ir.Operation) -> Values:
    """`Cast(x)`; those to bfloat16 alone come here."""
    return [convert(op.operands[0], with_element(op.operands[0].type, result(op).element_type))]


def ensured(sizes: Sizes, op: ir.Operation) -> Values:
    """`EnsureShape(input)`: the attribute `shape` narrows the type; every call checks it."""
    (array,) = op.operands
    kind = result(op)
    wanted: list[Size] = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(sizes_of(array))
    ]
    for axis, (own, one) in enumerate(zip(sizes_of(array), wanted, strict=True)):
        if isinstance(one, int):
            text = f"{source_line(op)}: dimension {axis} must have {{1}} entries, it has {{0}}"
            must_be_equal(own, one, text)
    return [reshaped(array, wanted)]


# -- StridedSlice ----------------------------------------------------------------------------------


@dataclass
class Part:
    """What is taken of one dimension, forwards: behind a reversal for a negative stride."""

    start: Size
    limit: Size
    stride: int
    is_reversed: bool
    is_dropped: bool

    @property
    def count(self) -> Size:
        """How many entries."""
        if self.is_dropped:
            return 1
        return quotient(plus(minus(self.limit, self.start), self.stride - 1), self.stride)


def strided_slice(sizes: Sizes, op: ir.Operation) -> Values:
    """`StridedSlice(input, begin, end, strides)`, as Python slices: `x[1:, None, ..., -1]`."""
    array, *given = op.operands
    rank = ir.RankedTensorType(array.type).rank
    parts, kept = parts_of(sizes, op, given, sizes_of(array))
    if (found := _of_vector(sizes, array, parts, kept)) is not None:
        return [found]
    taken = _sliced(array, parts)
    own = sizes_of(taken)
    kind = result(op)
    final = [1 if place is None else own[place] for place in kept]
    final = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(final)
    ]
    return [taken if kept == list(range(rank)) else reshaped(taken, final)]


def strided_slice_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`StridedSliceGrad(shape, begin, end, strides, dy)`: `dy` in the place of the slice."""
    shape, *given, gradient = op.operands
    own = elements(sizes, shape)
    parts, _ = parts_of(sizes, op, given, own)
    counts = [part.count for part in parts]
    pads = []
    for size, part, count in zip(own, parts, counts, strict=True):
        span = larger(plus(times(minus(count, 1), part.stride), 1), 0)
        pads.append((part.start, minus(minus(size, part.start), span)))
    array = padded(reshaped(gradient, counts), pads, [part.stride - 1 for part in parts])
    return [reversed_along(array, [k for k, part in enumerate(parts) if part.is_reversed])]


def parts_of(
    sizes: Sizes, op: ir.Operation, given: Sequence[ir.Value], own: Sequence[Size]
) -> tuple[list[Part], list[int | None]]:
    """What a slice takes of each dimension of an array of sizes `own`.

    `given`: begin, end and strides. Also, for each dimension of the result, the one it is; None for
    a new one.
    """
    begin, end, strides = (elements(sizes, values) for values in given)
    masks = {
        name: int(ir.IntegerAttr(op.attributes[f"{name}_mask"]).value)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    rank = len(own)
    added = sum(
        (masks["new_axis"] >> k & 1) and not masks["ellipsis"] >> k & 1 for k in range(len(begin))
    )
    parts: list[Part] = []
    kept: list[int | None] = []
    for k, stride in enumerate(strides):
        bit = 1 << k
        if masks["ellipsis"] & bit:
            for _ in range(rank - (len(begin) - 1 - added)):
                kept.append(len(parts))
                parts.append(Part(0, own[len(parts)], 1, False, False))
        elif masks["new_axis"] & bit:
            kept.append(None)
        else:
            axis = len(parts)
            if masks["shrink_axis"] & bit:
                parts.append(_one(op, own[axis], axis, begin[k]))
                continue
            if not isinstance(stride, int) or stride == 0:
                raise UnsupportedError("the stride must be a number, not computed")
            first = None if masks["begin"] & bit else begin[k]
            last = None if masks["end"] & bit else end[k]
            kept.append(axis)
            parts.append(_part(own[axis], first, last, stride))
    while len(parts) < rank:
        kept.append(len(parts))
        parts.append(Part(0, own[len(parts)], 1, False, False))
    return parts, kept


def _one(op: ir.Operation, size: Size, axis: int, index: Size) -> Part:
    """One entry of a dimension, which the result has not."""
    if isinstance(index, int):
        least = index + 1 if index >= 0 else -index
        if isinstance(size, int) and size < least:
            raise UnsupportedError(f"there is no entry {index} in dimension {axis} of size {size}")
        if not isinstance(size, int):
            holds = compare("GE", size, value_of(least))
            text = f"{source_line(op)}: dimension {axis} of size {{0}} has no entry {index}"
            assert_sizes(holds, text, [size])
    start = less(index, 0, plus(index, size), index)
    return Part(start, plus(start, 1), 1, False, True)


def _part(size: Size, first: Size | None, last: Size | None, stride: int) -> Part:
    if stride > 0:
        start: Size = 0 if first is None else _clamped(first, size)
        limit = size if last is None else _clamped(last, size)
        return Part(start, limit if start == 0 else larger(limit, start), stride, False, False)
    # Entry k is entry size - 1 - k of the reversed dimension.
    start = 0 if first is None else _clamped_behind(first, size)
    limit = size if last is None else _clamped_behind(last, size)
    return Part(start, limit if start == 0 else larger(limit, start), -stride, True, False)


def _clamped(index: Size, size: Size) -> Size:
    """`index`, which counts from the end if it is negative, within 0 to `size`."""
    if isinstance(index, int):
        if index == 0:
            return 0
        return smaller(index, size) if index > 0 else larger(plus(size, index), 0)
    counted = less(index, 0, plus(index, size), index)
    return smaller(larger(counted, 0), size)


def _clamped_behind(index: Size, size: Size) -> Size:
    """`size - 1 - index` within 0 to `size`; `index` counts from the end if it is negative."""
    if isinstance(index, int):
        if index >= 0:
            return larger(minus(size, index + 1), 0)
        return smaller(-index - 1, size)
    counted = less(index, 0, minus(-1, index), minus(minus(size, 1), index))
    return smaller(larger(counted, 0), size)


def _of_vector(
    sizes: Sizes, array: ir.Value, parts: list[Part], kept: list[int | None]
) -> ir.Value | None:
    """Elements of a vector of integers, such as a shape, by themselves."""
    kind = ir.RankedTensorType(array.type)
    is_integer = isinstance(kind.element_type, ir.IntegerType) and kind.element_type.width >= 32
    if kind.rank != 1 or not kind.has_static_shape or not is_integer or kind.shape[0] > 16:
        return None
    (part,) = parts
    if not isinstance(part.start, int) or not isinstance(part.limit, int) or None in kept:
        return None
    order = list(range(kind.shape[0]))[:: -1 if part.is_reversed else 1]
    chosen = order[part.start : part.limit : part.stride]
    scalar = ir.RankedTensorType.get([], kind.element_type)
    every = elements(sizes, array)
    values = [convert(value_of(every[k]), scalar) for k in chosen]
    if part.is_dropped:
        return values[0]
    return vector(values) if values else None


def _sliced(array: ir.Value, parts: list[Part]) -> ir.Value:
    array = reversed_along(array, [k for k, part in enumerate(parts) if part.is_reversed])
    own = sizes_of(array)
    if all(map(_is_whole, parts, own)):
        return array
    sizes = [part.count for part in parts]
    kind = ir.RankedTensorType.get(static(sizes), element_of(array))
    numbers = [n for p in parts for n in (p.start, p.limit)]
    if all(isinstance(n, int) for n in (*numbers, *own)):
        return create(
            "stablehlo.slice",
            [array],
            kind,
            start_indices=static([p.start for p in parts]),
            limit_indices=static([p.limit for p in parts]),
            strides=[p.stride for p in parts],
        )
    if all(p.stride == 1 for p in parts) and not all(isinstance(p.start, int) for p in parts):
        return windowed(array, shape_vector([p.start for p in parts]), sizes)
    rows = ([p.start for p in parts], [p.limit for p in parts], [p.stride for p in parts])
    operands = [vector([value_of(n) for n in row]) for row in rows]
    return create("stablehlo.real_dynamic_slice", [array, *operands], kind)


def _is_whole(part: Part, size: Size) -> bool:
    """True if nothing of a dimension of this size is left out."""
    if part.start != 0 or part.stride != 1 or part.is_dropped:
        return False
    if isinstance(part.limit, int) or isinstance(size, int):
        return part.limit == size
    return Sizes().origin(part.limit) == Sizes().origin(size)


def part_of(array: ir.Value, axis: int, start: Size, limit: Size) -> ir.Value:
    """The entries of a dimension from `start`, up to `limit`."""
    parts = [
        Part(start, limit, 1, False, False) if k == axis else Part(0, size, 1, False, False)
        for k, size in enumerate(sizes_of(array))
    ]
    return _sliced(array, parts)


def every(array: ir.Value, axes: Sequence[int], rows: Sequence[tuple[Size, Size, int]]) -> ir.Value:
    """Of each of `axes` some entries: `rows` has the first, how many, and the stride."""
    parts = [Part(0, size, 1, False, False) for size in sizes_of(array)]
    for axis, (start, count, stride) in zip(axes, rows, strict=True):
        limit = plus(start, plus(times(minus(count, 1), stride), 1))
        parts[axis] = Part(start, limit, stride, False, False)
    return _sliced(array, parts)


def front(array: ir.Value, axis: int, count: Size) -> ir.Value:
    """The first `count` entries of a dimension."""
    return part_of(array, axis, 0, count)
