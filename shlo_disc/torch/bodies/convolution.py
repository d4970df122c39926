"""Convolutions that torch-mlir lacks: with windows of any size, transposed ones, and gradients.

    x: [N, I, ...]    weight: [O, I / groups, k...]    y = convolution(x, weight): [N, O, ...]

The gradient of `x` is a convolution of that of `y`, dilated by the strides, with the mirrored
weight. Where a stride leaves pixels at the end, it is computed a little too large and cut. The
gradient of the weight is one of `x` with that of `y`, over the batch. A padding that depends on a
window whose size is not known makes a `dynamic_conv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array, convolved
from shlo_disc.ingest.size_arithmetic import Size, static
from shlo_disc.ir.builders import assert_sizes, pad
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall


def is_special_convolution(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of an `aten.convolution` that torch-mlir does not take.

    These are transposed ones, windows of sizes that no type gives, and padding by computed sizes.
    """
    steps = (*arguments["stride"], *arguments["dilation"], arguments["groups"])
    numbers = (*arguments["weight"].meta["val"].shape[2:], *arguments["padding"], *steps)
    return bool(arguments["transposed"]) or not all(isinstance(n, int) for n in numbers)


def convolution(call: BodyCall) -> list[Array]:
    """`aten.convolution`; the weight of a transposed one is [I, O / groups, k...]."""
    x, weight = call["input"], call["weight"]
    steps = _steps(call)
    if call["transposed"]:
        low = _edges(weight, steps)
        more = _each(call["output_padding"], x)
        high = [a + b for a, b in zip(low, more, strict=True)]
        y = _towards_input(x, weight, low, high, steps)
    else:
        y = _forward(x, weight, steps)
    return [y if call["bias"] is None else y + call["bias"].spread([1], y)]


def convolution_backward(call: BodyCall) -> list[ir.Value]:
    """`aten.convolution_backward`: those of its three results that its mask asks for.

    A transposed convolution is the gradient of a convolution with the same weight. Its gradient
    towards `x` is that convolution. Towards the weight, `x` and `grad_output` are exchanged.
    """
    grad, x, weight = (call[n] for n in ("grad_output", "input", "weight"))
    steps = _steps(call)
    results = []
    of_input, of_weight, of_bias = call["output_mask"]
    if of_input and call["transposed"]:
        results.append(_cut(_forward(grad, weight, steps), x))  # output pads may add places
    elif of_input:
        low = _edges(weight, steps)
        high = [a + (s - 1) for a, s in zip(low, steps.stride, strict=True)]
        results.append(_cut(_towards_input(grad, weight, low, high, steps), x))
    if of_weight:
        y, source = (x, grad) if call["transposed"] else (grad, x)
        results.append(_towards_weight(y, source, weight, steps))
    if of_bias:
        results.append(grad.reduce("add", [k for k in range(grad.rank) if k != 1]))
    return results


class _Steps(NamedTuple):
    """Stride, padding and dilation, one for each spatial dimension, and the number of groups."""

    stride: list[int]
    padding: list[Any]
    dilation: list[int]
    groups: int


def _steps(call: BodyCall) -> _Steps:
    """Those of a call.

    Raises UnsupportedError for those but the padding that are sizes.
    """
    x, groups = call["input"], call["groups"]
    stride, padding, dilation = (_each(call[n], x) for n in ("stride", "padding", "dilation"))
    if not all(isinstance(n, int) for n in (*stride, *dilation, groups)):
        raise UnsupportedError("strides, dilations and the number of groups must be numbers")
    return _Steps(stride, padding, dilation, groups)


def _each(given: Sequence[Any], x: Array) -> list[Any]:
    """One number for each spatial dimension."""
    return list(given) * (x.rank - 2) if len(given) == 1 else list(given)


def _edges(weight: Array, steps: _Steps) -> list[Any]:
    """How far the windows of a transposed convolution reach beyond its input."""
    each = zip(weight.sizes[2:], steps.padding, steps.dilation, strict=True)
    return [(k - 1) * d - p for k, p, d in each]


def _forward(x: Array, weight: Array, steps: _Steps) -> Array:
    """The convolution of `x`. Every call checks that a window fits."""
    stride, padding, dilation, groups = steps
    n, features, *sizes = (*x.sizes[:1], *weight.sizes[:1], *x.sizes[2:])
    for k, window in enumerate(weight.sizes[2:]):
        reach, padded = (window - 1) * dilation[k] + 1, sizes[k] + padding[k] * 2
        sizes[k] = (padded - reach) // stride[k] + 1
        if not isinstance(sizes[k], int):
            least, found = Array.size(reach), Array.size(padded)
            text = f"a window of {{0}} does not fit in {{1}} along spatial dimension {k}"
            assert_sizes(least <= found, text, [least, found])
    return _convolve(
        x, weight, [n, features, *sizes],
        numbers=("b, f", "o, i", "b, f"), padding=[(p, p) for p in padding],
        strides=stride, rhs_dilation=dilation, feature_groups=groups,
    )  # fmt: skip


def _towards_input(
    y: Array, weight: Array, low: Sequence[Any], high: Sequence[Any], steps: _Steps
) -> Array:
    """The transposed convolution of `y`, with its edges padded by `low` and `high`."""
    stride, _, dilation, groups = steps
    n, _, *sizes = y.sizes
    outer, inner, *window = weight.sizes
    weight = weight.apply("reverse", dimensions=range(2, 2 + len(window)))
    features = inner * groups
    if groups > 1:  # [O, I / g, k...] -> [O / g, I, k...]
        share = outer // groups
        weight = weight.reshape([groups, share, inner, *window])
        weight = weight.transpose([1, 0, *range(2, 3 + len(window))])
        weight = weight.reshape([share, features, *window])
    for k, size in enumerate(sizes):
        ends = low[k] + high[k] - (window[k] - 1) * dilation[k]
        sizes[k] = (size - 1) * stride[k] + 1 + ends
    return _convolve(
        y, weight, [n, features, *sizes],
        numbers=("b, f", "i, o", "b, f"), padding=list(zip(low, high, strict=True)),
        lhs_dilation=stride, rhs_dilation=dilation, feature_groups=groups,
    )  # fmt: skip


def _towards_weight(grad: Array, x: Array, weight: Array, steps: _Steps) -> ir.Value:
    """The sums of products of `x` and `grad` at each place of the window.

    Pixels that no window reaches are cut off at the end of `x`, else they make places of their own.
    """
    stride, padding, dilation, groups = steps
    window, count = weight.sizes[2:], len(stride)
    pads: list[tuple[Any, Any]] = [(p, p) for p in padding]
    if any(s != 1 for s in stride):
        ends = []
        for k in range(count):
            reach = (window[k] - 1) * dilation[k] + (1 - stride[k])
            ends.append(grad.sizes[2 + k] * stride[k] + (reach - padding[k]) - x.sizes[2 + k])
        low, high = (list(map(Array.size, (0, 0, *own))) for own in (padding, ends))
        zero = Array.constant(0, x.element)
        x = Array(pad(x, zero, low, high, [Array.size(0)] * (2 + count)))
        pads = [(0, 0)] * count
    made = _convolve(
        x, grad, weight.sizes,
        numbers=("f, b", "i, o", "f, b"), padding=pads,
        strides=dilation, rhs_dilation=stride, batch_groups=groups,
    )  # fmt: skip
    return _cut(made, weight)


def _convolve(
    x: Array,
    weight: Array,
    shape: Sequence[Size],
    *,
    numbers: tuple[str, str, str],
    padding: Sequence[tuple[Size, Size]],
    **more: Any,
) -> Array:
    """A convolution; `numbers` are the first dimensions of operands and result."""
    spatial = ", ".join(map(str, range(len(padding))))
    lhs, rhs, out = (f"[{first}, {spatial}]" for first in numbers)
    kind = ir.RankedTensorType.get(static(shape), x.element)
    return Array(convolved(x, weight, kind, f"{lhs}x{rhs}->{out}", padding, **more))


def _cut(value: Array, like: Array) -> ir.Value:
    """The first elements of every dimension, as many as `like` has."""
    return BodyCall.cast(value.first(like.sizes), like.type)
