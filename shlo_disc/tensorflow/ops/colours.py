"""Colours of images, whose last dimension is red, green and blue; and cross products of vectors.

Source: TensorFlow's kernels `colorspace_op.h`, `adjust_hue_op.cc`, `adjust_contrast_op.h`.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import broadcast_to, converted, joined
from shlo_disc.ingest.size_arithmetic import product, sizes_of, value_of
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.builders import element_of, summed
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.arithmetic import Array, chosen
from shlo_disc.tensorflow.ops.shapes import part_of

Values = list[ir.Value]


def to_hue(sizes: Sizes, op: ir.Operation) -> Values:
    """`RGBToHSV(images)`: hue, saturation and value, each from 0 to 1."""
    return [_joined(_hue(*_channels(op.operands[0])))]


def from_hue(sizes: Sizes, op: ir.Operation) -> Values:
    """`HSVToRGB(images)`."""
    return [_joined(_colour(*_channels(op.operands[0])))]


def adjust_hue(sizes: Sizes, op: ir.Operation) -> Values:
    """`AdjustHue(images, delta)`."""
    hue, saturation, value = _hue(*_channels(op.operands[0]))
    moved = hue + _spread(op.operands[1], hue)
    return [_joined(_colour(moved - moved.of("floor"), saturation, value))]


def adjust_saturation(sizes: Sizes, op: ir.Operation) -> Values:
    """`AdjustSaturation(images, scale)`."""
    hue, saturation, value = _hue(*_channels(op.operands[0]))
    scaled = saturation * _spread(op.operands[1], saturation)
    return [_joined(_colour(hue, scaled.most(0.0).least(1.0), value))]


def adjust_contrast(sizes: Sizes, op: ir.Operation) -> Values:
    """`AdjustContrastv2(images, contrast_factor)`: about the mean of each channel of an image."""
    given = Array(converted(op.operands[0], "f32"))
    own = sizes_of(given.value)
    rows, columns = len(own) - 3, len(own) - 2
    count = Array(converted(value_of(product(own[rows : columns + 1])), "f32"))
    total = Array(summed(given.value, [rows, columns]))
    mean = total / _spread(count.value, total)
    kept = [k for k in range(len(own)) if k not in (rows, columns)]
    middle = Array(broadcast_to(mean.value, kept, own))
    found = (given - middle) * _spread(op.operands[1], given) + middle
    return [converted(found.value, element_of(op.operands[0]))]


def cross(sizes: Sizes, op: ir.Operation) -> Values:
    """`Cross(a, b)`: the cross products of vectors of three dimensions."""
    a, b = (_channels(operand) for operand in op.operands)
    pairs = ((1, 2), (2, 0), (0, 1))
    return [_joined(tuple(a[j] * b[k] - a[k] * b[j] for j, k in pairs))]


def _channels(image: ir.Value) -> tuple[Array, Array, Array]:
    last = len(sizes_of(image)) - 1
    first, second, third = (Array(part_of(image, last, k, k + 1)) for k in range(3))
    return first, second, third


def _joined(channels: tuple[Array, ...]) -> ir.Value:
    return joined([channel.value for channel in channels], len(sizes_of(channels[0].value)) - 1)


def _spread(number: ir.Value, like: Array) -> Array:
    """A rank-0 number everywhere."""
    return Array(broadcast_to(converted(number, element_of(like.value)), [], sizes_of(like.value)))


def _hue(red: Array, green: Array, blue: Array) -> tuple[Array, Array, Array]:
    value = red.most(green).most(blue)
    span = value - red.least(green).least(blue)
    saturation = chosen(value.compared("GT", 0.0), span / value, 0.0)
    sixth = span.filled(1.0 / 6.0) / span
    hue = chosen(
        red.compared("EQ", value),
        (green - blue) * sixth,
        chosen(
            green.compared("EQ", value),
            (blue - red) * sixth + 2.0 / 6.0,
            (red - green) * sixth + 4.0 / 6.0,
        ),
    )
    hue = chosen(span.compared("GT", 0.0), hue, 0.0)
    return chosen(hue.compared("LT", 0.0), hue + 1.0, hue), saturation, value


def _colour(hue: Array, saturation: Array, value: Array) -> tuple[Array, Array, Array]:
    turned = hue * 6.0
    parts = (
        (turned - 3.0).of("abs") - 1.0,
        2.0 - (turned - 2.0).of("abs"),
        2.0 - (turned - 4.0).of("abs"),
    )
    grey = 1.0 - saturation
    red, green, blue = ((grey + saturation * part.most(0.0).least(1.0)) * value for part in parts)
    return red, green, blue
