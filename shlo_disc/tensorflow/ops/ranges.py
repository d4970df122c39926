"""Numbers in a row, and shapes."""

from __future__ import annotations

from shlo_disc.ingest.arrays import broadcast_to, converted, iota
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    minus,
    plus,
    quotient,
    reshaped,
    sizes_of,
    times,
)
from shlo_disc.ingest.size_values import Sizes, binary, extent, vector
from shlo_disc.ir.builders import convert, create, element_of, number_of
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.values import elements, result

Values = list[ir.Value]


def numbers(sizes: Sizes, op: ir.Operation) -> Values:
    """`Range(start, limit, delta)`: none where TensorFlow raises an error for the sign."""
    start, limit, delta = op.operands
    element = element_of(start)
    kind = result(op)
    count: Size
    if not kind.is_dynamic_dim(0):
        count = int(kind.get_dim_size(0))
    elif isinstance(element, ir.IntegerType):
        count = _count(*(elements(sizes, value)[0] for value in (start, limit, delta)))
    else:
        steps = binary("divide", binary("subtract", limit, start), delta)
        size = converted(create("stablehlo.ceil", [steps], steps.type), "i64")
        count = larger(size, 0)
    own = [count]
    first, step = number_of(start), number_of(delta)
    if isinstance(count, int) and first is not None and step is not None:
        return [_constant([first + k * step for k in range(count)], element)]
    index = converted(iota(own, 0, "i64"), element)
    by = broadcast_to(delta, [], own)
    return [binary("add", broadcast_to(start, [], own), binary("multiply", index, by))]


def _constant(values: list[int], element: ir.Type) -> ir.Value:
    """A vector that later rules know the elements of, such as the order of a transpose."""
    kind = ir.RankedTensorType.get([len(values)], element)
    value = ir.Attribute.parse(f"dense<{values if values else ''}> : {kind}")
    return create("stablehlo.constant", [], kind, value=value)


def _count(start: Size, limit: Size, delta: Size) -> Size:
    """`ceil((limit - start) / delta)`, or 0."""
    span = minus(limit, start)
    if isinstance(delta, int):
        if delta < 0:
            span, delta = minus(start, limit), -delta
        return larger(quotient(plus(larger(span, 0), delta - 1), max(delta, 1)), 0)
    sign = create("stablehlo.sign", [delta], delta.type)
    size = create("stablehlo.abs", [delta], delta.type)
    span = larger(times(span, sign), 0)
    return quotient(plus(span, minus(size, 1)), larger(size, 1))


def broadcast_arguments(sizes: Sizes, op: ir.Operation) -> Values:
    """`BroadcastArgs(s0, s1)`: the shape that two shapes have together."""
    return [_vector(sizes.broadcast(op, list(op.operands)), result(op).element_type)]


def shapes(sizes: Sizes, op: ir.Operation) -> Values:
    """`ShapeN(inputs...)`: the shape of each."""
    return [
        _vector(
            [extent(array, k) for k in range(ir.RankedTensorType(array.type).rank)],
            ir.RankedTensorType(given.type).element_type,
        )
        for array, given in zip(op.operands, op.results, strict=True)
    ]


def _vector(values: list[ir.Value], element: ir.Type) -> ir.Value:
    """Sizes as a vector of another integer type."""
    if not values:
        return _constant([], element)
    scalar = ir.RankedTensorType.get([], element)
    return vector([convert(value, scalar) for value in values])


def tile(sizes: Sizes, op: ir.Operation) -> Values:
    """`Tile(input, multiples)`: entries one after the other, so often in each dimension."""
    array, given = op.operands
    kind = result(op)
    own, counts = sizes_of(array), elements(sizes, given)
    full = [size for pair in zip(counts, own, strict=True) for size in pair]
    wide = broadcast_to(array, [2 * k + 1 for k in range(len(own))], full)
    wanted = [
        times(count, size) if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, (count, size) in enumerate(zip(counts, own, strict=True))
    ]
    return [reshaped(wide, wanted)]
