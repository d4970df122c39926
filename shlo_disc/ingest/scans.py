"""`chlo.scan` as a loop.

    %ys, %last = chlo.scan %xs, %init { (%x, %c) -> (%y, %next) }, dimension = 0
    ==>
    while (%i < size) { %x = %xs[%i]; %y, %next = body; %ys[%i] = %y; %i + 1 }

Why     Upstream's expansion fails at sizes that a type does not give.
Keeps   every result; of a scan over no element the carried values are the initial ones.
Source  `ScanOp` in StableHLO's ChloOps.td.
"""

from __future__ import annotations

from shlo_disc.ingest.computations import inlined
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import (
    broadcast,
    compare,
    create,
    dimension,
    integer,
    vector,
    while_loop,
    zero,
)
from shlo_disc.ir.mlir import ir


def expand_scan(op: ir.Operation) -> list[ir.Value]:
    """The values of a `chlo.scan`, built at the insertion point."""
    counts = [int(n) for n in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]
    stacked, carried = list(op.operands)[: counts[0]], list(op.operands)[counts[0] :]
    axis = int(ir.IntegerAttr(op.attributes["dimension"]).value)
    body = op.regions[0].blocks[0]
    slice_types = [argument.type for argument in body.arguments][: counts[0]]
    count = len(op.results) - len(carried)
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    one, none = integer(1, i32), integer(0, i32)
    if stacked:
        steps = dimension(stacked[0], axis)
    else:
        steps = integer(int(ir.IntegerAttr(op.attributes["scan_dim_size"]).value), i32)
    # Outputs have the sizes that the body gives them; only its shapes are computed here.
    empty = [_zeros(v, axis, k) for v, k in zip(stacked, slice_types, strict=True)]
    samples = inlined(body, [*empty, *carried])[:count]
    outputs = [
        _full(r.type, axis, steps, sample)
        for r, sample in zip(list(op.results)[:count], samples, strict=True)
    ]
    values = [none, *carried, *outputs]

    def is_left(index: ir.Value, *_: ir.Value) -> ir.Value:
        return compare("LT", index, steps)

    def step(index: ir.Value, *rest: ir.Value) -> list[ir.Value]:
        states, arrays = rest[: len(carried)], rest[len(carried) :]
        place = index
        if flag(op, "is_reverse"):
            last = create("stablehlo.subtract", [steps, one], one.type)
            place = create("stablehlo.subtract", [last, index], one.type)
        slices = [
            _slice(v, axis, place, a.type) for v, a in zip(stacked, body.arguments, strict=False)
        ]
        made = inlined(body, [*slices, *states])
        new = [_updated(a, y, axis, place) for a, y in zip(arrays, made[:count], strict=True)]
        after = create("stablehlo.add", [index, one], one.type)
        return [after, *made[count:], *new]

    done = while_loop(values, is_left, step)[1:]
    return [*done[len(carried) :], *done[: len(carried)]]


def _sizes(value: ir.Value) -> list[ir.Value]:
    return [dimension(value, k) for k in range(ir.RankedTensorType(value.type).rank)]


def _zeros(x: ir.Value, axis: int, kind: ir.Type) -> ir.Value:
    """Zeros in the shape that one slice of `x` has."""
    sizes = _sizes(x)
    del sizes[axis]
    slice_type = ir.RankedTensorType(kind)
    return broadcast(zero(slice_type.element_type), [], slice_type, lambda: vector(sizes))


def _full(kind: ir.Type, axis: int, steps: ir.Value, sample: ir.Value) -> ir.Value:
    """Zeros in the shape of `steps` slices like `sample`."""
    sizes = _sizes(sample)
    sizes.insert(axis, steps)
    stacked = ir.RankedTensorType(kind)
    return broadcast(zero(stacked.element_type), [], stacked, lambda: vector(sizes))


def _slice(x: ir.Value, axis: int, place: ir.Value, kind: ir.Type) -> ir.Value:
    """Slice `place` of `x`, without the dimension `axis`."""
    source, slice_type = ir.RankedTensorType(x.type), ir.RankedTensorType(kind)
    sizes = list(source.shape)
    sizes[axis] = 1
    window = ir.RankedTensorType.get(sizes, source.element_type)
    starts = [integer(0, ir.RankedTensorType(place.type))] * source.rank
    starts[axis] = place
    if window.has_static_shape:
        taken = create("stablehlo.dynamic_slice", [x, *starts], window, slice_sizes=sizes)
        return create("stablehlo.reshape", [taken], slice_type)
    lengths = _sizes(x)
    lengths[axis] = integer(1, ir.RankedTensorType(place.type))
    axes = list(range(source.rank))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {axes}, start_index_map = {axes}>"
    )
    taken = create(
        "stablehlo.dynamic_gather",
        [x, vector(starts), vector(lengths)],
        window,
        dimension_numbers=numbers,
    )
    del lengths[axis]
    return create("stablehlo.dynamic_reshape", [taken, vector(lengths)], slice_type)


def _updated(array: ir.Value, slice_: ir.Value, axis: int, place: ir.Value) -> ir.Value:
    """`array` with this slice at `place` of the dimension `axis`."""
    kind = ir.RankedTensorType(slice_.type)
    sizes, lengths = list(kind.shape), _sizes(slice_)
    sizes.insert(axis, 1)
    lengths.insert(axis, integer(1, ir.RankedTensorType(place.type)))
    wide = ir.RankedTensorType.get(sizes, kind.element_type)
    if wide.has_static_shape:
        update = create("stablehlo.reshape", [slice_], wide)
    else:
        update = create("stablehlo.dynamic_reshape", [slice_, vector(lengths)], wide)
    starts = [integer(0, ir.RankedTensorType(place.type))] * wide.rank
    starts[axis] = place
    return create("stablehlo.dynamic_update_slice", [array, update, *starts], array.type)
