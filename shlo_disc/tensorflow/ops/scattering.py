"""Rows that are written at computed places, and the places of the elements that are true."""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, converted, iota, padded, reversed_along
from shlo_disc.ingest.region_ops import running
from shlo_disc.ingest.size_arithmetic import (
    Size,
    must_be_equal,
    reshaped,
    same_size,
    size_of,
    sizes_of,
)
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir import builders
from shlo_disc.ir.builders import create
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.shapes import front
from shlo_disc.tensorflow.ops.values import elements, result


def scattered(base: ir.Value, places: ir.Value, rows: ir.Value, name: str | None) -> ir.Value:
    """`base` with `rows[k]` joined to row `places[k]` by `stablehlo.NAME`, or in its place.

    `places` is a vector of integers; rows outside of `base` are dropped.
    """
    rank = ir.RankedTensorType(base.type).rank
    places = reshaped(places, [size_of(places, 0), 1])
    return builders.scattered(base, places, rows, name, windows=range(1, rank), axes=[0])


def scatter_nd(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
    """`ScatterNd(indices, updates, shape)`: sums of updates; those outside are dropped.

    Every call checks the sizes of what is written at an index.
    """
    indices, updates, shape = op.operands
    kind = result(op)
    wanted: list[Size] = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(elements(sizes, shape))
    ]
    count = size_of(indices, ir.RankedTensorType(indices.type).rank - 1)
    if not isinstance(count, int):
        raise UnsupportedError("the last size of the indices must be a number, not computed")
    base = broadcast_to(constant(0, kind.element_type), [], wanted)
    batch = ir.RankedTensorType(indices.type).rank - 1
    given = sizes_of(updates)
    for own, size in zip(wanted[count:], given[batch:], strict=True):
        text = f"{source_line(op)}: the result has {{0}} entries along a dimension, updates {{1}}"
        if not same_size(sizes, own, size):
            must_be_equal(own, size, text)
    windows = range(batch, len(given))
    return [builders.scattered(base, indices, updates, "add", windows=windows, axes=range(count))]


def places_of(module: ir.Operation, mask: ir.Value) -> ir.Value:
    """The indices of the elements of a vector that are true, as i32; data tells how many.

    Element k goes to place `ends[k] - 1`. Those that are not true go outside, and are dropped.
    """
    i32 = ir.IntegerType.get_signless(32)
    total = size_of(mask, 0)
    zero = constant(0, i32)
    ends = running(module, converted(mask, i32), 0, "add", zero)
    # One more in front: there is a last one, also of no elements.
    last = reversed_along(padded(ends, [(1, 0)]), [0])
    count = converted(reshaped(front(last, 0, 1), []), "i64")
    outside = broadcast_to(converted(count, i32), [], [total])
    one = broadcast_to(constant(1, i32), [], [total])
    before = create("stablehlo.subtract", [ends, one], ends.type)
    places = create("stablehlo.select", [mask, before, outside], ends.type)
    found = broadcast_to(zero, [], [count])
    return scattered(found, places, iota([total], 0, i32), None)
