"""Convolutions and pools over two or three dimensions of any size; channels are last or first.

`SAME` pads so that each stride gives one entry; how much depends on the size of the image.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.ingest.arrays import (
    broadcast_to,
    constant,
    convolved,
    identity,
    padded,
    reversed_along,
)
from shlo_disc.ingest.region_ops import joining_function
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    minus,
    pairs_of,
    plus,
    quotient,
    reshaped,
    shape_vector,
    size_of,
    sizes_of,
    static,
    times,
)
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.builders import compare, create, element_of, transposed, write_region
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.shapes import part_of
from shlo_disc.tensorflow.ops.typed import of_its_type
from shlo_disc.tensorflow.ops.values import elements, module_of, result

Values = list[ir.Value]

_Pair = tuple[Size, Size]


@dataclass(frozen=True)
class Layout:
    """Where the dimensions of an image are."""

    batch: int
    features: int
    spatial: tuple[int, ...]

    @classmethod
    def of(cls, op: ir.Operation) -> Layout:
        """That of the attribute `data_format`; NHWC without one."""
        name = "NHWC"
        if "data_format" in op.attributes:
            name = str(ir.StringAttr(op.attributes["data_format"]).value)
        if sorted(name) not in (sorted("NHWC"), sorted("NDHWC")):
            raise UnsupportedError(f"the data format {name}; use NHWC or NCHW")
        spatial = tuple(name.index(axis) for axis in name if axis in "DHW")
        return cls(name.index("N"), name.index("C"), spatial)

    def numbers(self, op: ir.Operation, name: str) -> tuple[int, ...]:
        """An attribute with a number for each dimension: those of the spatial ones."""
        ones = (1,) * len(self.spatial)
        if name not in op.attributes:
            return ones
        numbers = [int(ir.IntegerAttr(n).value) for n in ir.ArrayAttr(op.attributes[name])]
        if not numbers:
            return ones
        if len(numbers) != len(ones) + 2 or numbers[self.batch] != 1 or numbers[self.features] != 1:
            raise UnsupportedError(f"{name} {numbers}")
        return tuple(numbers[axis] for axis in self.spatial)

    @property
    def kernel(self) -> list[str]:
        """The dimensions of a filter: `0, 1, i, o`."""
        return [*map(str, range(len(self.spatial))), "i", "o"]


def padding_of(
    op: ir.Operation,
    layout: Layout,
    sizes: Sequence[Size],
    window: Sequence[int],
    strides: Sequence[int],
) -> list[_Pair]:
    """How much is put in front of and behind each spatial dimension."""
    kind = str(ir.StringAttr(op.attributes["padding"]).value)
    if kind == "EXPLICIT":
        numbers = [
            int(ir.IntegerAttr(n).value) for n in ir.ArrayAttr(op.attributes["explicit_paddings"])
        ]
        return [(numbers[2 * axis], numbers[2 * axis + 1]) for axis in layout.spatial]
    if kind == "VALID":
        return [(0, 0)] * len(layout.spatial)
    found: list[_Pair] = []
    for size, extent, stride in zip(sizes, window, strides, strict=True):
        if stride == 1:
            total: Size = extent - 1
        else:
            count = quotient(plus(size, stride - 1), stride)
            total = larger(minus(plus(times(minus(count, 1), stride), extent), size), 0)
        low = quotient(total, 2)
        found.append((low, minus(total, low)))
    return found


def convolution(sizes: Sizes, op: ir.Operation) -> Values:
    """`Conv2D(input, filter)`, `Conv3D`; a filter is HWIO, its I may be a part of the features."""
    image, kernel = op.operands
    layout = Layout.of(op)
    features, per_group = sizes_of(image)[layout.features], sizes_of(kernel)[-2]
    if not isinstance(features, int) or not isinstance(per_group, int):
        raise UnsupportedError("the number of channels must be known")
    return [_convolved(op, layout, image, kernel, features // per_group)]


def depthwise(sizes: Sizes, op: ir.Operation) -> Values:
    """`DepthwiseConv2dNative(input, filter)`; the filter is HWCM, M results a channel."""
    image, kernel = op.operands
    layout = Layout.of(op)
    channels, several = _channels(kernel, sizes_of(image)[layout.features])
    kernel = _of_channels(kernel, channels)
    flat = reshaped(kernel, [*sizes_of(kernel)[:2], 1, channels * several])
    return [_convolved(op, layout, image, flat, channels)]


def _channels(kernel: ir.Value, features: Size | None) -> tuple[int, int]:
    """The number of channels of a filter HWCM, which images have too, and that of results of each.

    Raises UnsupportedError if neither the filter nor the image tells them.
    """
    own, several = sizes_of(kernel)[2:]
    channels = own if isinstance(own, int) else features
    if not isinstance(channels, int) or not isinstance(several, int):
        raise UnsupportedError("the number of channels must be known")
    return channels, several


def _of_channels(kernel: ir.Value, channels: int) -> ir.Value:
    """A filter HWCM of so many channels, which every call checks."""
    kind = ir.RankedTensorType(kernel.type)
    sizes = list(kind.shape)
    sizes[2] = channels
    return of_its_type(kernel, ir.RankedTensorType.get(sizes, kind.element_type))


def _convolved(
    op: ir.Operation, layout: Layout, image: ir.Value, kernel: ir.Value, groups: int
) -> ir.Value:
    own = [sizes_of(image)[axis] for axis in layout.spatial]
    strides, dilations = layout.numbers(op, "strides"), layout.numbers(op, "dilations")
    window = _window(kernel, dilations)
    padding = padding_of(op, layout, own, window, strides)
    return _emitted(
        image,
        kernel,
        result(op),
        layout,
        padding,
        strides,
        (1,) * len(own),
        dilations,
        layout.kernel,
        groups,
    )


def _window(kernel: ir.Value, dilations: Sequence[int]) -> list[int]:
    """The extent of a filter along each spatial dimension."""
    found = []
    for size, dilation in zip(sizes_of(kernel), dilations, strict=False):
        if not isinstance(size, int):
            raise UnsupportedError("the size of the filter must be known")
        found.append((size - 1) * dilation + 1)
    return found


def transposed_convolution(sizes: Sizes, op: ir.Operation) -> Values:
    """`Conv2DBackpropInput(input_sizes, filter, out_backprop)`, `Conv3DBackpropInputV2`."""
    return [_transposed_convolution(sizes, op, op.operands[1], ["o", "i"], 1)]


def _transposed_convolution(
    sizes: Sizes, op: ir.Operation, kernel: ir.Value, last: list[str], groups: int
) -> ir.Value:
    """`last`: what the last dimensions of the filter are."""
    shape, _, image = op.operands
    layout = Layout.of(op)
    kind = result(op)
    given = elements(sizes, shape)
    wanted = [
        int(kind.get_dim_size(axis)) if not kind.is_dynamic_dim(axis)
        else given[position if len(given) == len(layout.spatial) else axis]
        for position, axis in enumerate(layout.spatial)
    ]  # fmt: skip
    own = [sizes_of(image)[axis] for axis in layout.spatial]
    strides, dilations = layout.numbers(op, "strides"), layout.numbers(op, "dilations")
    window = _window(kernel, dilations)
    padding: list[_Pair] = []
    forward = padding_of(op, layout, wanted, window, strides)
    for k, (before, _) in enumerate(forward):
        low = minus(window[k] - 1, before)
        spread = plus(times(minus(own[k], 1), strides[k]), 1)
        high = minus(minus(plus(wanted[k], window[k] - 1), spread), low)
        padding.append((low, high))
    turned = reversed_along(kernel, range(len(own)))
    out_kind = ir.RankedTensorType.get(
        [
            n if axis not in layout.spatial else static([wanted[layout.spatial.index(axis)]])[0]
            for axis, n in enumerate(kind.shape)
        ],
        kind.element_type,
    )
    return _emitted(
        image,
        turned,
        out_kind,
        layout,
        padding,
        (1,) * len(own),
        strides,
        dilations,
        [*layout.kernel[:-2], *last],
        groups,
    )


def _emitted(
    image: ir.Value,
    kernel: ir.Value,
    kind: ir.RankedTensorType,
    layout: Layout,
    padding: Sequence[_Pair],
    strides: Sequence[int],
    image_dilation: Sequence[int],
    kernel_dilation: Sequence[int],
    kernel_layout: Sequence[str],
    groups: int,
) -> ir.Value:
    places = {layout.batch: "b", layout.features: "f"}
    places |= {axis: str(k) for k, axis in enumerate(layout.spatial)}
    dims = ", ".join(places[axis] for axis in range(len(places)))
    numbers = f"[{dims}]x[{', '.join(kernel_layout)}]->[{dims}]"
    return convolved(
        image, kernel, kind, numbers, padding, strides=strides,
        lhs_dilation=image_dilation, rhs_dilation=kernel_dilation, feature_groups=groups,
    )  # fmt: skip


def filter_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`Conv2DBackpropFilter(input, filter_sizes, out_backprop)`, `Conv3DBackpropFilterV2`.

    A convolution of the image with the gradient: batches are joined, channels are the batches.
    """
    image, _, gradient = op.operands
    layout = Layout.of(op)
    kind = _filter_type(sizes, op)
    if sizes_of(image)[layout.features] != int(kind.shape[-2]):
        raise UnsupportedError("the gradient of a filter of groups")
    return [_filter_gradient(op, layout, image, gradient, kind, batches=1)]


def _filter_type(sizes: Sizes, op: ir.Operation) -> ir.RankedTensorType:
    """The type of the gradient of a filter, whose sizes are operand 1."""
    own = elements(sizes, op.operands[1])
    kind = result(op)
    known = [n if kind.is_dynamic_dim(k) else int(kind.shape[k]) for k, n in enumerate(own)]
    if not all(isinstance(n, int) for n in known):
        raise UnsupportedError("the size of the filter must be known")
    return ir.RankedTensorType.get(static(known), kind.element_type)


def _filter_gradient(
    op: ir.Operation,
    layout: Layout,
    image: ir.Value,
    gradient: ir.Value,
    kind: ir.RankedTensorType,
    batches: int,
) -> ir.Value:
    """`batches`: groups of channels of the image, which are read as batches."""
    kernel = [int(n) for n in kind.shape]
    count = len(layout.spatial)
    own, given = ([sizes_of(v)[axis] for axis in layout.spatial] for v in (image, gradient))
    strides, dilations = layout.numbers(op, "strides"), layout.numbers(op, "dilations")
    window = [(n - 1) * by + 1 for n, by in zip(kernel[:count], dilations, strict=True)]
    forward = padding_of(op, layout, own, window, strides)
    padding: list[_Pair] = []
    for k, (low, _) in enumerate(forward):
        spread = plus(times(minus(given[k], 1), strides[k]), 1)
        padding.append((low, minus(minus(plus(spread, window[k] - 1), own[k]), low)))
    places = {layout.batch: "f", layout.features: "b"}
    places |= {axis: str(k) for k, axis in enumerate(layout.spatial)}
    dims = [places[axis] for axis in range(count + 2)]
    turned = ["i" if d == "f" else "o" if d == "b" else d for d in dims]
    numbers = (
        f"[{', '.join(dims)}]x[{', '.join(turned)}]->[{', '.join(map(str, range(count)))}, b, f]"
    )
    return convolved(
        image, gradient, kind, numbers, padding, strides=dilations,
        rhs_dilation=strides, batch_groups=batches,
    )  # fmt: skip


def depthwise_filter_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`DepthwiseConv2dNativeBackpropFilter(input, filter_sizes, out_backprop)`."""
    image, _, gradient = op.operands
    layout = Layout.of(op)
    kind = _filter_type(sizes, op)
    height, width, channels, several = (int(n) for n in kind.shape)
    flat = ir.RankedTensorType.get([height, width, 1, channels * several], kind.element_type)
    found = _filter_gradient(op, layout, image, gradient, flat, batches=channels)
    return [reshaped(found, [height, width, channels, several])]


def depthwise_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`DepthwiseConv2dNativeBackpropInput(input_sizes, filter, out_backprop)`."""
    kernel, kind = op.operands[1], result(op)
    axis = Layout.of(op).features
    features = None if kind.is_dynamic_dim(axis) else int(kind.get_dim_size(axis))
    channels, _ = _channels(kernel, features)
    kernel = _of_channels(kernel, channels)
    # A filter of each channel: its results are what is read here.
    turned = transposed(kernel, [0, 1, 3, 2])
    return [_transposed_convolution(sizes, op, turned, ["i", "o"], channels)]


# -- pools -----------------------------------------------------------------------------------------


def max_pool(sizes: Sizes, op: ir.Operation) -> Values:
    """`MaxPool(input)`, `MaxPool3D`."""
    image = op.operands[0]
    return [_pooled(op, image, "maximum", identity("maximum", element_of(image)), result(op))]


def max_pool_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`MaxPoolGrad(orig_input, orig_output, grad)`: to the first of the largest in each window."""
    image, _, gradient = op.operands
    layout = Layout.of(op)
    window, strides = layout.numbers(op, "ksize"), layout.numbers(op, "strides")
    own = sizes_of(image)
    spatial = [own[axis] for axis in layout.spatial]
    pads: list[_Pair] = [(0, 0)] * len(own)
    full, by = [1] * len(own), [1] * len(own)
    forward = padding_of(op, layout, spatial, window, strides)
    for k, axis in enumerate(layout.spatial):
        pads[axis], full[axis], by[axis] = forward[k], window[k], strides[k]
    is_padded = any(pair != (0, 0) for pair in pads)
    element = element_of(image)
    wide = padded(image, pads, value=identity("maximum", element)) if is_padded else image
    array = ir.DenseI64ArrayAttr.get
    scattered = ir.Operation.create(
        "stablehlo.select_and_scatter",
        results=[wide.type],
        operands=[wide, gradient, constant(0, element)],
        attributes={"window_dimensions": array(full), "window_strides": array(by)},
        regions=2,
    )
    scalar = ir.RankedTensorType.get([], element)
    select, scatter = scattered.regions
    write_region(select, [scalar] * 2, lambda a, b: [compare("GE", a, b)])
    write_region(scatter, [scalar] * 2, lambda a, b: [create("stablehlo.add", [a, b], scalar)])
    (result_,) = scattered.results
    for axis, (low, _) in enumerate(pads):
        if pads[axis] != (0, 0):
            result_ = part_of(result_, axis, low, plus(low, own[axis]))
    return [result_]


def average_pool(sizes: Sizes, op: ir.Operation) -> Values:
    """`AvgPool(value)`, `AvgPool3D`: of the elements in the image, not of the padding."""
    image = op.operands[0]
    zero = constant(0, element_of(image))
    total = _pooled(op, image, "add", zero, result(op))
    count = _counted(op, element_of(image), sizes_of(image), result(op))
    return [create("stablehlo.divide", [total, count], total.type)]


def _counted(
    op: ir.Operation, element: ir.Type, own: Sequence[Size], kind: ir.RankedTensorType
) -> ir.Value:
    """How many elements of an image of sizes `own` are in each window."""
    ones = broadcast_to(constant(1, element), [], own)
    return _pooled(op, ones, "add", constant(0, element), kind)


def average_pool_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`AvgPoolGrad(orig_input_shape, grad)`: each pixel has the parts of its windows."""
    shape, gradient = op.operands
    layout = Layout.of(op)
    window, strides = layout.numbers(op, "ksize"), layout.numbers(op, "strides")
    kind = result(op)
    own: list[Size] = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(elements(sizes, shape))
    ]
    count = _counted(op, element_of(gradient), own, ir.RankedTensorType(gradient.type))
    part = create("stablehlo.divide", [gradient, count], gradient.type)
    spatial = [own[axis] for axis in layout.spatial]
    forward = padding_of(op, layout, spatial, window, strides)
    pads: list[_Pair] = [(0, 0)] * len(own)
    inside, extents = [0] * len(own), [1] * len(own)
    for k, axis in enumerate(layout.spatial):
        low = minus(window[k] - 1, forward[k][0])
        spread = plus(times(minus(size_of(gradient, axis), 1), strides[k]), 1)
        pads[axis] = (low, minus(minus(plus(own[axis], window[k] - 1), spread), low))
        inside[axis], extents[axis] = strides[k] - 1, window[k]
    ones = [1] * len(own)
    zero = constant(0, element_of(part))
    none: list[_Pair] = [(0, 0)] * len(own)
    return [_reduced(op, padded(part, pads, inside), "add", zero, kind, extents, ones, none)]


def _pooled(
    op: ir.Operation, image: ir.Value, name: str, start: ir.Value, kind: ir.RankedTensorType
) -> ir.Value:
    layout = Layout.of(op)
    window, strides = layout.numbers(op, "ksize"), layout.numbers(op, "strides")
    own = [sizes_of(image)[axis] for axis in layout.spatial]
    pads = dict(zip(layout.spatial, padding_of(op, layout, own, window, strides), strict=True))
    extents = dict(zip(layout.spatial, window, strict=True))
    steps = dict(zip(layout.spatial, strides, strict=True))
    rank = len(layout.spatial) + 2
    full = [extents.get(axis, 1) for axis in range(rank)]
    by = [steps.get(axis, 1) for axis in range(rank)]
    every = [pads.get(axis, (0, 0)) for axis in range(rank)]
    return _reduced(op, image, name, start, kind, full, by, every)


def _reduced(
    op: ir.Operation,
    image: ir.Value,
    name: str,
    start: ir.Value,
    kind: ir.RankedTensorType,
    full: list[int],
    by: list[int],
    pads: Sequence[_Pair],
) -> ir.Value:
    """The elements of each window joined by `stablehlo.NAME`."""
    rank = len(full)
    numbers = [n for pair in pads for n in pair]
    if not all(isinstance(n, int) for n in numbers):
        ones = shape_vector([1] * rank)
        return create(
            "stablehlo.custom_call",
            [image, start, shape_vector(full), shape_vector(by), ones, ones, pairs_of(numbers)],
            kind,
            call_target_name=ir.StringAttr.get("stablehlo.dynamic_reduce_window"),
            called_computations=ir.ArrayAttr.get(
                [joining_function(module_of(op), name, element_of(image))]
            ),
        )
    array = ir.DenseI64ArrayAttr.get
    rows = ", ".join(f"[{numbers[2 * k]}, {numbers[2 * k + 1]}]" for k in range(rank))
    pooled = ir.Operation.create(
        "stablehlo.reduce_window",
        results=[kind],
        operands=[image, start],
        attributes={
            "window_dimensions": array(full),
            "window_strides": array(by),
            "padding": ir.Attribute.parse(f"dense<[{rows}]> : tensor<{rank}x2xi64>"),
        },
        regions=1,
    )
    pair = [start.type] * 2
    made = pooled.regions[0]
    write_region(made, pair, lambda *both: [create(f"stablehlo.{name}", both, start.type)])
    return pooled.results[0]
