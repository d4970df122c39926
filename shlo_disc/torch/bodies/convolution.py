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
from shlo_disc.ingest.arrays import constant, convolved, first_of
from shlo_disc.ingest.size_arithmetic import (
    Size,
    minus,
    plus,
    quotient,
    reshaped,
    size_of,
    sizes_of,
    static,
    times,
    value_of,
)
from shlo_disc.ir.builders import assert_sizes, compare, create, element_of, pad, transposed
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread, summed_to


def is_special_convolution(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of an `aten.convolution` that torch-mlir does not take.

    These are transposed ones, windows of sizes that no type gives, and padding by computed sizes.
    """
    steps = (*arguments["stride"], *arguments["dilation"], arguments["groups"])
    numbers = (*arguments["weight"].meta["val"].shape[2:], *arguments["padding"], *steps)
    return bool(arguments["transposed"]) or not all(isinstance(n, int) for n in numbers)


def convolution(call: BodyCall) -> list[ir.Value]:
    """`aten.convolution`; the weight of a transposed one is [I, O / groups, k...]."""
    x, weight = call["input"], call["weight"]
    steps = _steps(call)
    if call["transposed"]:
        low = _edges(weight, steps)
        more = _each(call["output_padding"], x)
        high = [plus(a, b) for a, b in zip(low, more, strict=True)]
        y = _towards_input(x, weight, low, high, steps)
    else:
        y = _forward(x, weight, steps)
    if call["bias"] is not None:
        y = create("stablehlo.add", [y, spread(call["bias"], [1], y)], y.type)
    return [y]


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
        made = _forward(grad, weight, steps)
        results.append(_cut(made, x))  # pads of the output may add places
    elif of_input:
        low = _edges(weight, steps)
        high = [plus(a, s - 1) for a, s in zip(low, steps.stride, strict=True)]
        made = _towards_input(grad, weight, low, high, steps)
        results.append(_cut(made, x))
    if of_weight:
        y, source = (x, grad) if call["transposed"] else (grad, x)
        results.append(_towards_weight(y, source, weight, steps))
    if of_bias:
        results.append(summed_to(grad, 1))
    return results


class _Steps(NamedTuple):
    """Stride, padding and dilation, one for each spatial dimension, and the number of groups."""

    stride: list[int]
    padding: list[Size]
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


def _each(given: Sequence[Any], x: ir.Value) -> list[Any]:
    """One number for each spatial dimension."""
    count = ir.RankedTensorType(x.type).rank - 2
    return list(given) * count if len(given) == 1 else list(given)


def _edges(weight: ir.Value, steps: _Steps) -> list[Size]:
    """How far the windows of a transposed convolution reach beyond its input."""
    each = zip(sizes_of(weight)[2:], steps.padding, steps.dilation, strict=True)
    return [minus(times(minus(k, 1), d), p) for k, p, d in each]


def _forward(x: ir.Value, weight: ir.Value, steps: _Steps) -> ir.Value:
    """The convolution of `x`. Every call checks that a window fits."""
    stride, padding, dilation, groups = steps
    n, features, *sizes = (*sizes_of(x)[:1], *sizes_of(weight)[:1], *sizes_of(x)[2:])
    for k, window in enumerate(sizes_of(weight)[2:]):
        reach = plus(times(minus(window, 1), dilation[k]), 1)
        padded = plus(sizes[k], times(padding[k], 2))
        sizes[k] = plus(quotient(minus(padded, reach), stride[k]), 1)
        if not isinstance(sizes[k], int):
            least, found = value_of(reach), value_of(padded)
            text = f"a window of {{0}} does not fit in {{1}} along spatial dimension {k}"
            assert_sizes(compare("LE", least, found), text, [least, found])
    return _convolve(
        x, weight, [n, features, *sizes],
        numbers=("b, f", "o, i", "b, f"), padding=[(p, p) for p in padding],
        strides=stride, rhs_dilation=dilation, feature_groups=groups,
    )  # fmt: skip


def _towards_input(
    y: ir.Value,
    weight: ir.Value,
    low: Sequence[Size],
    high: Sequence[Size],
    steps: _Steps,
) -> ir.Value:
    """The transposed convolution of `y`, with its edges padded by `low` and `high`."""
    stride, _, dilation, groups = steps
    n, _, *sizes = sizes_of(y)
    outer, inner, *window = sizes_of(weight)
    weight = create(
        "stablehlo.reverse", [weight], weight.type,
        dimensions=range(2, 2 + len(window)),
    )  # fmt: skip
    features = times(inner, groups)
    if groups > 1:  # [O, I / g, k...] -> [O / g, I, k...]
        share = quotient(outer, groups)
        weight = reshaped(weight, [groups, share, inner, *window])
        weight = transposed(weight, [1, 0, *range(2, 3 + len(window))])
        weight = reshaped(weight, [share, features, *window])
    for k, size in enumerate(sizes):
        ends = minus(plus(low[k], high[k]), times(minus(window[k], 1), dilation[k]))
        sizes[k] = plus(plus(times(minus(size, 1), stride[k]), 1), ends)
    return _convolve(
        y, weight, [n, features, *sizes],
        numbers=("b, f", "i, o", "b, f"), padding=list(zip(low, high, strict=True)),
        lhs_dilation=stride, rhs_dilation=dilation, feature_groups=groups,
    )  # fmt: skip


def _towards_weight(grad: ir.Value, x: ir.Value, weight: ir.Value, steps: _Steps) -> ir.Value:
    """The sums of products of `x` and `grad` at each place of the window.

    Pixels that no window reaches are cut off at the end of `x`, else they make places of their own.
    """
    stride, padding, dilation, groups = steps
    window, count = sizes_of(weight)[2:], len(stride)
    pads: list[tuple[Size, Size]] = [(p, p) for p in padding]
    if any(s != 1 for s in stride):
        ends = []
        for k in range(count):
            reach = plus(times(minus(window[k], 1), dilation[k]), 1 - stride[k])
            needed = plus(times(size_of(grad, 2 + k), stride[k]), minus(reach, padding[k]))
            ends.append(minus(needed, size_of(x, 2 + k)))
        low, high = ([value_of(n) for n in (0, 0, *own)] for own in (padding, ends))
        zero = constant(0, element_of(x))
        x = pad(x, zero, low, high, [value_of(0)] * (2 + count))
        pads = [(0, 0)] * count
    made = _convolve(
        x, grad, sizes_of(weight),
        numbers=("f, b", "i, o", "f, b"), padding=pads,
        strides=dilation, rhs_dilation=stride, batch_groups=groups,
    )  # fmt: skip
    return _cut(made, weight)


def _convolve(
    x: ir.Value,
    weight: ir.Value,
    shape: Sequence[Size],
    *,
    numbers: tuple[str, str, str],
    padding: Sequence[tuple[Size, Size]],
    **more: Any,
) -> ir.Value:
    """A convolution; `numbers` are the first dimensions of operands and result."""
    spatial = ", ".join(map(str, range(len(padding))))
    lhs, rhs, out = (f"[{first}, {spatial}]" for first in numbers)
    kind = ir.RankedTensorType.get(static(shape), element_of(x))
    return convolved(x, weight, kind, f"{lhs}x{rhs}->{out}", padding, **more)


def _cut(value: ir.Value, like: ir.Value) -> ir.Value:
    """The first elements of every dimension, as many as `like` has."""
    return BodyCall.cast(first_of(value, sizes_of(like)), like.type)
