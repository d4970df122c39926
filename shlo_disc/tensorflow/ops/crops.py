"""Parts of images, each resized: the pixels around each place are gathered.

    image: f32[b, H, W, c]   boxes: f32[n, 4]   indices: i32[n]   ==>   f32[n, h, w, c]

Source: TensorFlow's kernel `crop_and_resize_op.cc`.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, converted, iota, joined
from shlo_disc.ingest.size_arithmetic import (
    Size,
    minus,
    must_be_equal,
    reshaped,
    shape_vector,
    size_of,
    sizes_of,
    static,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.builders import create
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.arithmetic import Array, chosen
from shlo_disc.tensorflow.ops.images import wanted_sizes
from shlo_disc.tensorflow.ops.shapes import part_of

Values = list[ir.Value]


def crop_and_resize(sizes: Sizes, op: ir.Operation) -> Values:
    """`CropAndResize(image, boxes, box_ind, crop_size)`, as f32.

    The box of an image that is not there gives `extrapolation_value`, where TensorFlow raises an
    error. Raises UnsupportedError for a method other than "bilinear" and "nearest".
    """
    image, boxes, indices, _ = op.operands
    method = str(ir.StringAttr(op.attributes["method"]).value)
    if method not in ("bilinear", "nearest"):
        raise UnsupportedError(f"the method {method}")
    image = converted(image, "f32")
    batch, height, width, channels = sizes_of(image)
    text = f"{source_line(op)}: {{0}} boxes, but {{1}} numbers of images"
    must_be_equal(size_of(boxes, 0), size_of(indices, 0), text)
    full = [size_of(boxes, 0), *wanted_sizes(sizes, op, place=3)]
    places = [_places(boxes, axis, n, full) for axis, n in ((0, height), (1, width))]
    number = Array(broadcast_to(converted(indices, "f32"), [0], full))
    methods = ("floor", "ceil") if method == "bilinear" else ("round_nearest_afz",)
    rows, columns = ([place.of(name) for name in methods] for place in places)
    pixels = [[_gathered(image, (number, y, x), channels) for x in columns] for y in rows]
    result = pixels[0][0]
    if method == "bilinear":
        down, across = (
            _wide(place - low, channels)
            for place, low in zip(places, (rows[0], columns[0]), strict=True)
        )
        top, bottom = (left + (right - left) * across for left, right in pixels)
        result = top + (bottom - top) * down
    outside = float(ir.FloatAttr(op.attributes["extrapolation_value"]).value)
    for place, size in zip((*places, number), (height, width, batch), strict=True):
        last = _real(minus(size, 1), full)
        for is_inside in (place.compared("GE", 0.0), place.compared("LE", last)):
            condition = broadcast_to(is_inside, [0, 1, 2], [*full, channels])
            result = chosen(condition, result, outside)
    return [result.value]


def _wide(array: Array, channels: Size) -> Array:
    """The same in every channel."""
    return Array(broadcast_to(array.value, [0, 1, 2], [*sizes_of(array.value), channels]))


def _places(boxes: ir.Value, axis: int, size: Size, full: list[Size]) -> Array:
    """Where each entry of the result is along the height (0) or the width (1) of the image."""
    first, last = (
        Array(broadcast_to(reshaped(part_of(boxes, 1, k, k + 1), full[:1]), [0], full))
        for k in (axis, axis + 2)
    )
    span = _real(minus(size, 1), full)
    steps = _real(minus(full[axis + 1], 1), full)
    scale = (last - first) * span / steps.most(1.0)
    index = Array(iota(full, axis + 1, "f32"))
    return chosen(
        steps.compared("GT", 0.0), first * span + index * scale, (first + last) * 0.5 * span
    )


def _real(size: Size, full: list[Size]) -> Array:
    return Array(broadcast_to(converted(value_of(size), "f32"), [], full))


def _gathered(image: ir.Value, index: tuple[Array, ...], channels: Size) -> Array:
    """The pixels at an image, a row and a column each; those outside are clamped."""
    full = sizes_of(index[0].value)
    parts = [reshaped(converted(part.value, "i32"), [*full, 1]) for part in index]
    kind = ir.RankedTensorType.get(static([*full, channels]), ir.F32Type.get())
    numbers = ir.Attribute.parse(
        "#stablehlo.gather<offset_dims = [3], collapsed_slice_dims = [0, 1, 2], "
        "start_index_map = [0, 1, 2], index_vector_dim = 3>"
    )
    operands = [image, joined(parts, 3), shape_vector([1, 1, 1, channels])]
    return Array(create("stablehlo.dynamic_gather", operands, kind, dimension_numbers=numbers))
