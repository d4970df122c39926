"""Ops whose results follow the order of elements, or of indices."""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, converted, iota, reversed_along
from shlo_disc.ingest.region_ops import running, sorted_with_places
from shlo_disc.ingest.size_arithmetic import Size, product, reshaped, size_of, sizes_of, value_of
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import compare, create, element_of, with_element
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.scattering import places_of
from shlo_disc.tensorflow.ops.shapes import front
from shlo_disc.tensorflow.ops.values import elements, known_integer, module_of, result

Values = list[ir.Value]


def cumulative_sum(sizes: Sizes, op: ir.Operation) -> Values:
    """`Cumsum(x, axis)`."""
    return [_cumulative(op, "add", 0)]


def cumulative_product(sizes: Sizes, op: ir.Operation) -> Values:
    """`Cumprod(x, axis)`."""
    return [_cumulative(op, "multiply", 1)]


def _cumulative(op: ir.Operation, name: str, start: int) -> ir.Value:
    """`exclusive`: without the element itself; `reverse`: from the end."""
    array = op.operands[0]
    rank = ir.RankedTensorType(array.type).rank
    axis = known_integer(op.operands[1], "the axis") % rank
    backwards = [axis] if flag(op, "reverse") else []
    first = constant(start, element_of(array))
    total = running(module_of(op), reversed_along(array, backwards), axis, name, first)
    if flag(op, "exclusive"):
        array_of = ir.DenseI64ArrayAttr.get
        edges = [[sign if k == axis else 0 for k in range(rank)] for sign in (1, -1)]
        total = create(
            "stablehlo.pad",
            [total, first],
            total.type,
            edge_padding_low=array_of(edges[0]),
            edge_padding_high=array_of(edges[1]),
            interior_padding=array_of([0] * rank),
        )
    return reversed_along(total, backwards)


def one_hot(sizes: Sizes, op: ir.Operation) -> Values:
    """`OneHot(indices, depth, on_value, off_value)`; an index outside of `depth` is off."""
    indices, depth, on, off = op.operands
    own = sizes_of(indices)
    place = int(ir.IntegerAttr(op.attributes["axis"]).value)
    axis = len(own) if place == -1 else place
    (count,) = elements(sizes, depth)
    full: list[Size] = [*own[:axis], count, *own[axis:]]
    counted = iota(full, axis, element_of(indices))
    dims = [k for k in range(len(full)) if k != axis]
    is_on = compare("EQ", counted, broadcast_to(indices, dims, full))
    values = [broadcast_to(value, [], full) for value in (on, off)]
    kind = with_element(counted.type, element_of(on))
    return [create("stablehlo.select", [is_on, *values], kind)]


def top_k(sizes: Sizes, op: ir.Operation) -> Values:
    """`TopKV2(input, k)`: the largest ones of the last dimension; of equal ones the first."""
    array, count = op.operands
    (k,) = elements(sizes, count)
    own = sizes_of(array)
    axis = len(own) - 1
    i32 = ir.IntegerType.get_signless(32)
    values, order = sorted_with_places(
        array, iota(own, axis, i32), axis, lambda a, b: compare("GT", a, b)
    )
    index = result(op, 1).element_type
    return [front(values, axis, k), converted(front(order, axis, k), index)]


def where(sizes: Sizes, op: ir.Operation) -> Values:
    """`Where(condition)`: the coordinates of the elements that are not 0, as i64[count, rank]."""
    (array,) = op.operands
    own = sizes_of(array)
    i64 = ir.IntegerType.get_signless(64)
    if not own:
        raise UnsupportedError("a scalar has no coordinates; reshape it to one dimension")
    element = element_of(array)
    if isinstance(element, ir.IntegerType) and element.width == 1:
        mask = array
    else:
        mask = compare("NE", array, broadcast_to(constant(0, element), [], own))
    places = places_of(module_of(op), reshaped(mask, [product(own)]))
    count = size_of(places, 0)
    index = converted(places, i64)
    columns = []
    for size in reversed(own):
        full = broadcast_to(value_of(size), [], [count])
        columns.append(create("stablehlo.remainder", [index, full], index.type))
        index = create("stablehlo.divide", [index, full], index.type)
    columns = [reshaped(column, [count, 1]) for column in reversed(columns)]
    if len(columns) == 1:
        return columns
    kind = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size(), len(columns)], i64)
    return [create("stablehlo.concatenate", columns, kind, dimension=1)]
