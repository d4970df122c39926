"""Rows that are written at computed places, and the places of the elements that are true."""

from __future__ import annotations

from shlo_disc import builders
from shlo_disc.builders import create
from shlo_disc.ingest.region_ops import running
from shlo_disc.mlir import ir
from shlo_disc.tensorflow.ops.shapes import front
from shlo_disc.tensorflow.ops.values import (
    broadcast_to,
    constant,
    converted,
    iota,
    padded,
    reshaped,
    reversed_along,
    size_of,
)

__all__ = ["places_of", "scattered"]


def scattered(base: ir.Value, places: ir.Value, rows: ir.Value, name: str | None) -> ir.Value:
    """`base` with `rows[k]` joined to row `places[k]` by `stablehlo.NAME`, or in its place.

    `places` is a vector of integers; rows outside of `base` are dropped.
    """
    rank = ir.RankedTensorType(base.type).rank
    places = reshaped(places, [size_of(places, 0), 1])
    return builders.scattered(base, places, rows, name, windows=range(1, rank), axes=[0])


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
