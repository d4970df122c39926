"""Transposed convolutions and the gradients of convolutions, at sizes that no type gives.

    x: [N, I, ...]    weight: [O, I / groups, k...]    y = convolution(x, weight): [N, O, ...]

The gradient of `x` is a convolution of that of `y`, dilated by the strides, with the mirrored
weight. Where a stride leaves pixels at the end, it is computed a little too large and cut. The
gradient of the weight is one of `x` with that of `y`, over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shlo_disc.builders import create, pad
from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, element_of, summed_to

__all__ = ["convolution_backward", "is_transposed", "transposed_convolution"]


def is_transposed(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of an `aten.convolution` that is transposed."""
    return bool(arguments["transposed"])


def transposed_convolution(call: BodyCall) -> list[ir.Value]:
    """`aten.convolution` that is transposed: the weight is [I, O / groups, k...]."""
    x, weight, groups = call["input"], call["weight"], call["groups"]
    stride, padding, dilation = (
        _spread(call[name], x) for name in ("stride", "padding", "dilation")
    )
    more = _spread(call["output_padding"], x)
    window = _window(weight)
    low = [d * (k - 1) - p for d, k, p in zip(dilation, window, padding, strict=True)]
    high = [a + b for a, b in zip(low, more, strict=True)]
    y = _towards_input(x, weight, low, high, stride, dilation, groups)
    if call["bias"] is not None:
        bias = call["bias"]
        shape = ir.RankedTensorType(y.type)
        sizes = vector([extent(y, k) for k in range(shape.rank)])
        bias = create(
            "stablehlo.dynamic_broadcast_in_dim", [bias, sizes], y.type,
            broadcast_dimensions=ir.DenseI64ArrayAttr.get([1]),
        )  # fmt: skip
        y = create("stablehlo.add", [y, bias], y.type)
    return [y]


def convolution_backward(call: BodyCall) -> list[ir.Value]:
    """`aten.convolution_backward`: those of its three results that its mask asks for.

    A transposed convolution is the gradient of a convolution with the same weight. Its gradient
    towards `x` is that convolution. Towards the weight, `x` and `grad_output` are exchanged.
    """
    grad, x, weight, groups = (call[n] for n in ("grad_output", "input", "weight", "groups"))
    stride, padding, dilation = (
        _spread(call[name], x) for name in ("stride", "padding", "dilation")
    )
    window = _window(weight)
    if not isinstance(groups, int):
        raise UnsupportedError("the number of groups must be a number")
    results = []
    of_input, of_weight, of_bias = call["output_mask"]
    x_sizes = [extent(x, k) for k in range(len(stride) + 2)]
    if of_input and call["transposed"]:
        outputs = ir.RankedTensorType(weight.type).shape[0]
        sizes = _reached(grad, window, stride, padding, dilation)
        made = _convolve(
            grad, weight, [ir.RankedTensorType(grad.type).shape[0], outputs, *sizes],
            numbers=("b, f", "o, i", "b, f"), padding=[(p, p) for p in padding],
            strides=stride, rhs_dilation=dilation, feature_groups=groups,
        )  # fmt: skip
        results.append(_cut(made, x_sizes, x.type))  # pads of the output may add places
    elif of_input:
        low = [d * (k - 1) - p for d, k, p in zip(dilation, window, padding, strict=True)]
        high = [a + s - 1 for a, s in zip(low, stride, strict=True)]
        made = _towards_input(grad, weight, low, high, stride, dilation, groups)
        results.append(_cut(made, x_sizes, x.type))
    if of_weight:
        y, source = (x, grad) if call["transposed"] else (grad, x)
        results.append(_towards_weight(y, source, weight, stride, padding, dilation, groups))
    if of_bias:
        results.append(summed_to(grad, 1))
    return results


def _reached(
    x: ir.Value,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """The spatial sizes of a convolution of `x`; unknown ones stay unknown."""
    sizes = list(ir.RankedTensorType(x.type).shape[2:])
    for i, n in enumerate(sizes):
        if n >= 0:
            free = n + 2 * padding[i] - dilation[i] * (window[i] - 1) - 1
            sizes[i] = free // stride[i] + 1
    return sizes


def _spread(given: Sequence[int], x: ir.Value) -> list[int]:
    """One number for each spatial dimension."""
    count = ir.RankedTensorType(x.type).rank - 2
    return list(given) * count if len(given) == 1 else list(given)


def _window(weight: ir.Value) -> list[int]:
    shape = list(ir.RankedTensorType(weight.type).shape)[2:]
    if any(n < 0 for n in shape):
        raise UnsupportedError("the sizes of the window must be numbers")
    return shape


def _towards_input(
    y: ir.Value,
    weight: ir.Value,
    low: Sequence[int],
    high: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> ir.Value:
    """The transposed convolution of `y`, with its edges padded by `low` and `high`."""
    kind, window = ir.RankedTensorType(y.type), _window(weight)
    outer, inner = ir.RankedTensorType(weight.type).shape[:2]
    weight = create(
        "stablehlo.reverse", [weight], weight.type,
        dimensions=ir.DenseI64ArrayAttr.get(list(range(2, 2 + len(window)))),
    )  # fmt: skip
    if groups > 1:  # [O, I / g, k...] -> [O / g, I, k...]
        weight = _reshaped(weight, [groups, outer // groups, inner, *window])
        order = [1, 0, *range(2, 3 + len(window))]
        shape = [outer // groups, groups, inner, *window]
        weight = create(
            "stablehlo.transpose", [weight],
            ir.RankedTensorType.get(shape, kind.element_type),
            permutation=ir.DenseI64ArrayAttr.get(order),
        )  # fmt: skip
        weight = _reshaped(weight, [outer // groups, groups * inner, *window])
    sizes = list(kind.shape[2:])
    for i, n in enumerate(sizes):
        if n >= 0:
            reach = dilation[i] * (window[i] - 1)
            sizes[i] = (n - 1) * stride[i] + 1 + low[i] + high[i] - reach
    return _convolve(
        y, weight, [kind.shape[0], groups * inner, *sizes],
        numbers=("b, f", "i, o", "b, f"), padding=list(zip(low, high, strict=True)),
        lhs_dilation=stride, rhs_dilation=dilation, feature_groups=groups,
    )  # fmt: skip


def _towards_weight(
    grad: ir.Value,
    x: ir.Value,
    weight: ir.Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> ir.Value:
    """The sums of products of `x` and `grad` at each place of the window.

    Pixels that no window reaches are cut off at the end of `x`, else they make places of their own.
    """
    window, count = _window(weight), len(stride)
    pads = [(p, p) for p in padding]
    if any(s != 1 for s in stride):
        none, ends = constant(0, [], "i64"), []
        for k in range(count):
            reach = dilation[k] * (window[k] - 1) + 1 - stride[k] - padding[k]
            steps = binary("multiply", extent(grad, 2 + k), constant(stride[k], [], "i64"))
            needed = binary("add", steps, constant(reach, [], "i64"))
            ends.append(binary("subtract", needed, extent(x, 2 + k)))
        starts = [constant(p, [], "i64") for p in padding]
        zero = constant(0, [], element_of(x))
        x = pad(x, zero, [none, none, *starts], [none, none, *ends], [none] * (2 + count))
        pads = [(0, 0)] * count
    return _convolve(
        x, grad, ir.RankedTensorType(weight.type).shape,
        numbers=("f, b", "i, o", "f, b"), padding=pads,
        strides=dilation, rhs_dilation=stride, batch_groups=groups,
    )  # fmt: skip


def _convolve(
    x: ir.Value,
    weight: ir.Value,
    shape: Sequence[int],
    *,
    numbers: tuple[str, str, str],
    padding: Sequence[tuple[int, int]],
    strides: Sequence[int] = (),
    lhs_dilation: Sequence[int] = (),
    rhs_dilation: Sequence[int],
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> ir.Value:
    """A `stablehlo.convolution`; `numbers` are the first dimensions of operands and result."""
    count = len(padding)
    spatial = ", ".join(map(str, range(count)))
    lhs, rhs, out = (f"[{first}, {spatial}]" for first in numbers)
    i64 = ir.IntegerType.get_signless(64)
    pairs = ", ".join(f"[{a}, {b}]" for a, b in padding)
    return create(
        "stablehlo.convolution",
        [x, weight],
        ir.RankedTensorType.get(list(shape), element_of(x)),
        window_strides=ir.DenseI64ArrayAttr.get(list(strides) or [1] * count),
        padding=ir.Attribute.parse(f"dense<[{pairs}]> : tensor<{count}x2xi64>"),
        lhs_dilation=ir.DenseI64ArrayAttr.get(list(lhs_dilation) or [1] * count),
        rhs_dilation=ir.DenseI64ArrayAttr.get(list(rhs_dilation)),
        dimension_numbers=ir.Attribute.parse(f"#stablehlo.conv<{lhs}x{rhs}->{out}>"),
        feature_group_count=ir.IntegerAttr.get(i64, feature_groups),
        batch_group_count=ir.IntegerAttr.get(i64, batch_groups),
    )


def _reshaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    kind = ir.RankedTensorType.get(list(shape), element_of(value))
    return create("stablehlo.reshape", [value], kind)


def _cut(value: ir.Value, sizes: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
    """The first elements of every dimension, as many as `sizes` say."""
    if value.type == kind and ir.RankedTensorType(kind).has_static_shape:
        return value
    rank = len(sizes)
    none, one = (constant(n, [rank], "i64") for n in (0, 1))
    return create("stablehlo.real_dynamic_slice", [value, none, vector(sizes), one], kind)
