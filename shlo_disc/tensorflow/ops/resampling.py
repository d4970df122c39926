"""Images resized by kernels of several pixels: each axis is a product with a matrix of weights.

    %y = ResizeBicubic %x, [h, w]     ==>     weights[h, H] . %x . weights[W, w]

Source: TensorFlow's kernels `resize_area_op.cc`, `resize_bicubic_op.cc`,
`scale_and_translate_op.cc` and `sampling_kernels.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, converted, iota
from shlo_disc.ingest.size_arithmetic import Size, size_of, sizes_of, static, value_of
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import create, summed
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.arithmetic import Array, chosen
from shlo_disc.tensorflow.ops.images import places_of, scale_of, wanted_sizes
from shlo_disc.tensorflow.ops.values import items

Values = list[ir.Value]

_STEPS = 1024.0
"""TensorFlow's bicubic weights are those of the nearest 1024th of a pixel."""

_LEAST = 1000 * 1.1754944e-38
"""Sums of weights from here on are made 1."""


def resize_bicubic(sizes: Sizes, op: ir.Operation) -> Values:
    """`ResizeBicubic(images, size)`, as f32. Pixels beyond an edge count with half pixels only as
    those at the edge do not.
    """
    is_half = flag(op, "half_pixel_centers")
    image = converted(op.operands[0], "f32")
    for axis, wanted in zip((1, 2), wanted_sizes(sizes, op), strict=True):
        size = size_of(image, axis)
        place = Array(places_of(op, size, wanted, shift=0.5))
        low = place.of("floor")
        part = ((place - low) * _STEPS).of("round_nearest_even") / _STEPS
        full = [wanted, size]
        source = Array(iota(full, 1, "f32"))
        first, rest = (Array(broadcast_to(a.value, [0], full)) for a in (low, part))
        total: Array | None = None
        for step in (-1, 0, 1, 2):
            weight = _cubic((rest - float(step)).of("abs"), -0.5 if is_half else -0.75)
            index = first + float(step)
            if not is_half:  # what is beyond an edge is the pixel at it
                index = index.most(0.0).least(_real(size, index) - 1.0)
            own = chosen(source.compared("EQ", index), weight, 0.0)
            total = own if total is None else total + own
        assert total is not None
        image = _weighted(image, _normal(total) if is_half else total, axis)
    return [image]


def resize_area(sizes: Sizes, op: ir.Operation) -> Values:
    """`ResizeArea(images, size)`, as f32: the mean of the pixels that one of the result covers.

    What is beyond the last pixel counts as that pixel.
    """
    image = converted(op.operands[0], "f32")
    for axis, wanted in zip((1, 2), wanted_sizes(sizes, op), strict=True):
        size = size_of(image, axis)
        full = [wanted, size]
        low = Array(broadcast_to(places_of(op, size, wanted, shift=0.0), [0], full))
        span = Array(broadcast_to(scale_of(op, size, wanted), [], full))
        source = Array(iota(full, 1, "f32"))
        high = low + span
        is_last = source.compared("EQ", _real(size, source) - 1.0)
        end = chosen(is_last, high, (source + 1.0).least(high))
        covered = (end - source.most(low)).most(0.0)
        weight = chosen(span.compared("GT", 0.0), covered / span, 1.0)  # 0: of one pixel
        image = _weighted(image, weight, axis)
    return [image]


def scale_and_translate(sizes: Sizes, op: ir.Operation) -> Values:
    """`ScaleAndTranslate(images, size, scale, translation)`, as f32."""
    name = str(ir.StringAttr(op.attributes["kernel_type"]).value)
    if name not in _KERNELS:
        raise UnsupportedError(f"the kernel {name}")
    radius, kernel = _KERNELS[name]
    image = converted(op.operands[0], "f32")
    scales, shifts = (items(sizes, converted(op.operands[k], "f32")) for k in (2, 3))
    for axis, wanted in zip((1, 2), wanted_sizes(sizes, op), strict=True):
        size = size_of(image, axis)
        full = [wanted, size]
        target, source = (Array(iota(full, k, "f32")) for k in (0, 1))
        scale, shift = (Array(broadcast_to(v[axis - 1], [], full)) for v in (scales, shifts))
        inverse = target.filled(1.0) / scale
        place = (target + 0.5) * inverse - inverse * shift
        width = inverse.most(1.0) if flag(op, "antialias") else inverse.filled(1.0)
        distance = (source + 0.5 - place).of("abs")
        weight = kernel(distance / width)
        weight = chosen(distance.compared("LE", width * radius), weight, 0.0)
        weight = chosen(place.compared("GE", 0.0), weight, 0.0)
        weight = chosen(place.compared("LE", _real(size, place)), weight, 0.0)
        image = _weighted(image, _normal(weight), axis)
    return [image]


def _real(size: Size, like: Array) -> Array:
    return Array(broadcast_to(converted(value_of(size), "f32"), [], sizes_of(like.value)))


def _normal(weight: Array) -> Array:
    """`weight` with rows that sum to 1, but for those of no weight."""
    total = Array(summed(weight.value, [1]))
    total = chosen(total.of("abs").compared("GE", _LEAST), total, 1.0)
    return weight / Array(broadcast_to(total.value, [0], sizes_of(weight.value)))


def _weighted(image: ir.Value, weight: Array, axis: int) -> ir.Value:
    """The products of the entries of a dimension of an image with a matrix [result, entries]."""
    numbers = ir.Attribute.parse(
        f"#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [{axis}]>"
    )
    own = sizes_of(image)
    wanted = size_of(weight.value, 0)
    rest = [k for k in range(4) if k != axis]
    kind = ir.RankedTensorType.get(static([wanted, *(own[k] for k in rest)]), ir.F32Type.get())
    found = create("stablehlo.dot_general", [weight.value, image], kind,
                   dot_dimension_numbers=numbers)  # fmt: skip
    back = [[axis, *rest].index(k) for k in range(4)]
    final = [wanted if k == axis else own[k] for k in range(4)]
    return create(
        "stablehlo.transpose",
        [found],
        ir.RankedTensorType.get(static(final), ir.F32Type.get()),
        permutation=back,
    )


# -- kernels: the weight at a distance from 0 ------------------------------------------------------


def _cubic(x: Array, a: float) -> Array:
    """Keys's cubic with the slope `a`; 0 from 2 on."""
    near = (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0
    far = ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    return chosen(x.compared("LT", 1.0), near, chosen(x.compared("LT", 2.0), far, 0.0))


def _mitchell(x: Array) -> Array:
    near = ((x * (7.0 / 6.0) - 2.0) * x) * x + 16.0 / 18.0
    far = ((x * (-7.0 / 18.0) + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
    return chosen(x.compared("LT", 1.0), near, chosen(x.compared("LT", 2.0), far, 0.0))


def _lanczos(radius: float) -> Callable[[Array], Array]:
    def kernel(x: Array) -> Array:
        sine = (x * math.pi).of("sine") * (x * (math.pi / radius)).of("sine")
        weight = sine * radius / ((x * math.pi) * (x * math.pi))
        weight = chosen(x.compared("LE", 1e-3), weight.filled(1.0), weight)
        return chosen(x.compared("LE", radius), weight, 0.0)

    return kernel


def _gaussian(x: Array) -> Array:
    return chosen(x.compared("LT", 1.5), (x * x * (-1 / (2 * 0.5**2))).of("exponential"), 0.0)


def _box(x: Array) -> Array:
    edge = chosen(x.compared("EQ", 0.5), x.filled(0.5), 0.0)
    return chosen(x.compared("LT", 0.5), x.filled(1.0), edge)


_KERNELS: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "box": (1.0, _box),
    "gaussian": (1.5, _gaussian),
    "keyscubic": (2.0, lambda x: _cubic(x, -0.5)),
    "lanczos1": (1.0, _lanczos(1.0)),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
    "mitchellcubic": (2.0, _mitchell),
    "triangle": (1.0, lambda x: (1.0 - x).most(0.0)),
}
"""Name of a kernel -> its radius, and its weights."""
