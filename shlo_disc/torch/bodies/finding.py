"""Ops whose number of results comes from data: where elements are not 0, and repeated rows.

    %n = reduce add of (%x != 0)
    %k = the running sum of (%x != 0) - 1        the row of each element that is found
    %y = scatter of the indices of %x at %k      [n, rank]; rows behind the last one are dropped

The compiler runs such a program in two parts, between which the size is read.
"""

from __future__ import annotations

from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.ir.builders import compare, create, reduced, scattered
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import (
    BodyCall,
    constant,
    converted,
    element_of,
    iota,
    spread,
    typed,
)
from shlo_disc.torch.bodies.totals import running_sum


def nonzero(call: BodyCall) -> list[ir.Value]:
    """`aten.nonzero`: the indices, as i64 [n, rank], in the order of the elements."""
    x = call["self"]
    kind = ir.RankedTensorType(x.type)
    i64 = ir.IntegerType.get_signless(64)
    dynamic = ir.ShapedType.get_dynamic_size()
    zero = constant(0, [], i64)
    none = spread(constant(0, [], element_of(x)), [], x)
    is_found = compare("NE", x, none, typed(x, ir.IntegerType.get_signless(1)))
    if 0 in kind.shape:
        return [constant(0, [0, kind.rank], i64)]
    flat = _flat(converted(is_found, i64))
    count = reduced(flat, [0], "add", zero)
    # An element that is not found goes behind all rows.
    places = binary("subtract", running_sum(call, flat, 0), spread(constant(1, [], i64), [], flat))
    yes = compare("NE", flat, spread(zero, [], flat), typed(flat, ir.IntegerType.get_signless(1)))
    places = create("stablehlo.select", [yes, places, spread(count, [], flat)], flat.type)
    columns = ir.RankedTensorType.get([dynamic, 1], i64)
    one = constant(1, [], "i64")
    if kind.rank == 0:
        empty = ir.RankedTensorType.get([dynamic, 0], i64)
        sizes = vector([count, zero])
        return [_broadcast(zero, sizes, empty)]
    found = []
    for axis in range(kind.rank):
        index = _flat(iota(x, axis, i64))
        start = _broadcast(zero, vector([count]), ir.RankedTensorType.get([dynamic], i64))
        rows = scattered(start, places, index, None)
        found.append(create("stablehlo.dynamic_reshape", [rows, vector([count, one])], columns))
    result = ir.RankedTensorType.get([dynamic, kind.rank], i64)
    axis = ir.IntegerAttr.get(i64, 1)
    return [create("stablehlo.concatenate", found, result, dimension=axis)]


def repeat_interleave(call: BodyCall) -> list[ir.Value]:
    """`aten.repeat_interleave.Tensor(repeats, output_size)`: i as often as `repeats[i]` says.

    At each place, that is how many rows end before it or there.
    """
    i64 = ir.IntegerType.get_signless(64)
    repeats, zero = converted(call["repeats"], i64), constant(0, [], i64)
    is_given = call.given("output_size") is not None
    count = call.size("output_size") if is_given else reduced(repeats, [0], "add", zero)
    kind = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size()], i64)
    start = _broadcast(zero, vector([count]), kind)
    one = spread(constant(1, [], i64), [], repeats)
    ends = scattered(start, running_sum(call, repeats, 0), one, "add")
    result = ir.RankedTensorType(call.results[0]).element_type
    return [converted(running_sum(call, ends, 0), result)]


def _broadcast(value: ir.Value, sizes: ir.Value, kind: ir.Type) -> ir.Value:
    return create(
        "stablehlo.dynamic_broadcast_in_dim", [value, sizes], kind,
        broadcast_dimensions=ir.DenseI64ArrayAttr.get([]),
    )  # fmt: skip


def _flat(value: ir.Value) -> ir.Value:
    """All elements in a row."""
    kind = ir.RankedTensorType(value.type)
    total = constant(1, [], "i64")
    for axis in range(kind.rank):
        total = binary("multiply", total, extent(value, axis))
    result = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size()], kind.element_type)
    return create("stablehlo.dynamic_reshape", [value, vector([total])], result)
