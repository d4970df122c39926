"""Ops that resize images, or take patches: NHWC, by indices along the height and the width."""

from __future__ import annotations

import itertools

from shlo_disc.ingest.arrays import broadcast_to, constant, converted, iota, joined, padded, taken
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    minus,
    plus,
    quotient,
    size_of,
    sizes_of,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.shapes import every
from shlo_disc.tensorflow.ops.values import elements, result
from shlo_disc.tensorflow.ops.windows import Layout, padding_of

Values = list[ir.Value]


def resize_nearest(sizes: Sizes, op: ir.Operation) -> Values:
    """`ResizeNearestNeighbor(images, size)`."""
    image = op.operands[0]
    for axis, wanted in zip((1, 2), wanted_sizes(sizes, op), strict=True):
        place = places_of(op, size_of(image, axis), wanted, shift=0.0)
        if flag(op, "align_corners"):
            place = create("stablehlo.round_nearest_afz", [place], place.type)
        else:
            place = create("stablehlo.floor", [place], place.type)
        image = taken(image, _index(place, size_of(image, axis)), axis)
    return [image]


def resize_bilinear(sizes: Sizes, op: ir.Operation) -> Values:
    """`ResizeBilinear(images, size)`, as f32."""
    image = converted(op.operands[0], "f32")
    # TensorFlow joins columns first.
    for axis, wanted in reversed(list(zip((1, 2), wanted_sizes(sizes, op), strict=True))):
        size = size_of(image, axis)
        place = places_of(op, size, wanted, shift=0.5)
        low = create("stablehlo.floor", [place], place.type)
        high = create("stablehlo.add", [low, _filled(1.0, low)], low.type)
        part = create("stablehlo.subtract", [place, low], low.type)
        a, b = (taken(image, _index(edge, size), axis) for edge in (low, high))
        weight = broadcast_to(part, [axis], sizes_of(a))
        step = create("stablehlo.subtract", [b, a], a.type)
        image = create(
            "stablehlo.add", [a, create("stablehlo.multiply", [step, weight], a.type)], a.type
        )
    return [image]


def patches(sizes: Sizes, op: ir.Operation) -> Values:
    """`ExtractImagePatches(images)`: those of each place become its channels, row by row."""
    image = op.operands[0]
    layout = Layout.of(op)
    window, strides, rates = (layout.numbers(op, name) for name in ("ksizes", "strides", "rates"))
    extents = [(size - 1) * rate + 1 for size, rate in zip(window, rates, strict=True)]
    own = [size_of(image, axis) for axis in layout.spatial]
    pads = padding_of(op, layout, own, extents, strides)
    if any(pair != (0, 0) for pair in pads):
        image = padded(image, [(0, 0), *pads, (0, 0)])
    counts = [
        quotient(larger(plus(minus(size_of(image, axis), extent), stride), 0), stride)
        for axis, extent, stride in zip(layout.spatial, extents, strides, strict=True)
    ]
    parts = []
    for offsets in itertools.product(*map(range, window)):
        starts = [offset * rate for offset, rate in zip(offsets, rates, strict=True)]
        rows = list(zip(starts, counts, strides, strict=True))
        parts.append(every(image, layout.spatial, rows))
    return [joined(parts, layout.features)]


def wanted_sizes(sizes: Sizes, op: ir.Operation, place: int = 1) -> list[Size]:
    """The height and the width of the result, which the operand at `place` gives."""
    kind = result(op)
    return [
        size if kind.is_dynamic_dim(axis) else int(kind.get_dim_size(axis))
        for axis, size in zip((1, 2), elements(sizes, op.operands[place]), strict=True)
    ]


def places_of(op: ir.Operation, size: Size, wanted: Size, shift: float) -> ir.Value:
    """Where each entry of the result is in the image, as f32.

    `shift`: what the middle of a pixel has, where `half_pixel_centers` asks for these.
    """
    index = iota([wanted], 0, "f32")
    scale = scale_of(op, size, wanted)
    if flag(op, "half_pixel_centers"):
        index = create("stablehlo.add", [index, _filled(0.5, index)], index.type)
    place = create("stablehlo.multiply", [index, broadcast_to(scale, [], [wanted])], index.type)
    if flag(op, "half_pixel_centers") and shift:
        place = create("stablehlo.subtract", [place, _filled(shift, place)], place.type)
    return place


def scale_of(op: ir.Operation, size: Size, wanted: Size) -> ir.Value:
    """How many entries of the image one of the result stands for, as a rank-0 f32."""
    if flag(op, "align_corners"):
        return _aligned_scale(size, wanted)
    return create("stablehlo.divide", [_real(size), _real(wanted)], _real(size).type)


def _aligned_scale(size: Size, wanted: Size) -> ir.Value:
    """`(size - 1) / (wanted - 1)`, or `size / wanted` for a single entry."""
    one = constant(1.0, "f32")
    span, steps = (create("stablehlo.subtract", [_real(n), one], one.type) for n in (size, wanted))
    aligned = create("stablehlo.divide", [span, steps], one.type)
    plain = create("stablehlo.divide", [_real(size), _real(wanted)], one.type)
    is_one = create(
        "stablehlo.compare",
        [_real(wanted), one],
        ir.RankedTensorType.get([], ir.IntegerType.get_signless(1)),
        comparison_direction=ir.Attribute.parse("#stablehlo<comparison_direction LE>"),
    )
    return create("stablehlo.select", [is_one, plain, aligned], one.type)


def _real(size: Size) -> ir.Value:
    return converted(value_of(size), "f32")


def _filled(number: float, like: ir.Value) -> ir.Value:
    return broadcast_to(constant(number, "f32"), [], sizes_of(like))


def _index(place: ir.Value, size: Size) -> ir.Value:
    """A place as an index of a dimension: within 0 to `size - 1`."""
    last = create("stablehlo.subtract", [_real(size), constant(1.0, "f32")], _real(size).type)
    own = sizes_of(place)
    inside = create("stablehlo.minimum", [place, broadcast_to(last, [], own)], place.type)
    inside = create("stablehlo.maximum", [inside, _filled(0.0, place)], place.type)
    return converted(inside, "i32")
