"""Windows with sizes or padding known only at run time, in terms of ops that have a normal form.

    custom_call @stablehlo.dynamic_reduce_window(%x, %init, %window, ..., %padding)
        {called_computations = [@add]}
    ==>
    dynamic_pad, then stablehlo.reduce_window    where the window itself is constant
    disc.reduce_window of one axis after the other
                                                 where windows or strides are known at run time
                                                 (`cumsum` along a dynamic axis)

    stablehlo.dynamic_conv %x, %w, %padding           ==>  dynamic_pad, then stablehlo.convolution

Why     JAX writes both; the padding is a matrix and the reducer a function, and neither exists
        behind this stage.
Needs   calls inlined, so that the rows of the padding can be seen.
Keeps   every result. A reduction is associative, so axes may follow each other; the specification
        lets the initial value occur any number of times.
Cost    O(windows).
Source  StableHLO spec, reduce_window and convolution; JAX's `mlir.reduce_window`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace as replace_fields
from typing import Any

import numpy as np

from shlo_disc.base.records import dataclass
from shlo_disc.ingest.accumulators import promoted
from shlo_disc.ingest.computations import (
    called_by,
    computations,
    drop_computations,
    fill_region,
)
from shlo_disc.ingest.present import DYNAMIC_REDUCE_WINDOW, target_of
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir import dialect
from shlo_disc.ir.builders import (
    broadcast,
    convert,
    create,
    dimension,
    integer,
    number_of,
    pad,
    shape_of,
    vector,
    zero,
)
from shlo_disc.ir.convolutions import conv_numbers
from shlo_disc.ir.mlir import at, ir, ops_of, producer, replace

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def expand_windows(module: ir.Module) -> int:
    """No `dynamic_reduce_window` or `dynamic_conv` is left; how many there were."""
    functions = computations(module)
    windows = [
        op
        for op in ops_of(module, "stablehlo.custom_call")
        if target_of(op) == DYNAMIC_REDUCE_WINDOW
    ]
    for op in windows:
        with at(op):
            replace(op, *_expand(op, _Window.of(op, functions)))
    drop_computations(module, functions)
    convolutions = ops_of(module, "stablehlo.dynamic_conv")
    for op in convolutions:
        with at(op):
            replace(op, _expand_convolution(op))
    return len(windows) + len(convolutions)


@dataclass(frozen=True)
class _Window:
    """The operands of a dynamic_reduce_window."""

    inputs: list[ir.Value]
    inits: list[ir.Value]
    window: list[ir.Value]
    """One rank-0 value an axis."""
    strides: list[ir.Value]
    base_dilations: list[ir.Value]
    window_dilations: list[ir.Value]
    low: list[ir.Value]
    high: list[ir.Value]
    reducer: Any
    """The function that combines two scalars (or tuples of them)."""

    @staticmethod
    def of(op: ir.Operation, functions: dict[str, Any]) -> _Window:
        values, count = list(op.operands), len(op.results)
        low, high = _padding_columns(values[-1])
        elements = [ir.RankedTensorType(result.type).element_type for result in op.results] * 2
        accumulated = [
            promoted(value, element, op)
            for value, element in zip(values[: 2 * count], elements, strict=True)
        ]
        return _Window(
            inputs=accumulated[:count],
            inits=accumulated[count:],
            window=_elements(values[2 * count]),
            strides=_elements(values[2 * count + 1]),
            base_dilations=_elements(values[2 * count + 2]),
            window_dilations=_elements(values[2 * count + 3]),
            low=low,
            high=high,
            reducer=called_by(op, functions),
        )


def _expand(op: ir.Operation, w: _Window) -> list[ir.Value]:
    sizes, strides, dilations = (
        [number_of(v) for v in values] for values in (w.window, w.strides, w.window_dilations)
    )
    known = zip(sizes, strides, dilations, strict=True)
    axes = [k for k, numbers in enumerate(known) if None in numbers]
    for axis in axes:
        w = (_one_axis if dilations[axis] == 1 else _spread_axis)(op, w, axis)
    window = [1 if k in axes else n for k, n in enumerate(sizes)]
    step = [1 if k in axes else n for k, n in enumerate(strides)]
    between = [1 if k in axes else n for k, n in enumerate(dilations)]
    results = list(w.inputs)
    if not axes or any(n != 1 for n in (*window, *step)) or not _is_unpadded(w):
        # Without an axis of run-time size there is no None.
        results = _reduce_window(op, w, *([n or 0 for n in v] for v in (window, step, between)))
    for result, declared in zip(results, op.results, strict=True):
        result.set_type(declared.type)
    return results


def _is_unpadded(w: _Window) -> bool:
    ends = all(number_of(v) == 0 for v in (*w.low, *w.high))
    return ends and all(number_of(v) == 1 for v in w.base_dilations)


def _padded(w: _Window) -> list[ir.Value]:
    between = [_minus_one(d) for d in w.base_dilations]
    pairs = zip(w.inputs, w.inits, strict=True)
    return [pad(x, init, w.low, w.high, between) for x, init in pairs]


def _one_axis(op: ir.Operation, w: _Window, axis: int) -> _Window:
    """What is left to do when windows over `axis` are reduced.

    Its padding stays with the op, so that a window over all that comes before an element can be
    told.
    """
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    zero = integer(0, i32)
    inputs, ends = list(w.inputs), [w.low[axis], w.high[axis]]
    if number_of(w.base_dilations[axis]) != 1:
        inputs = _padded_axis(w, axis)
        ends = [zero, zero]
    kinds = [_open(x.type, axis) for x in inputs]
    scalars = [convert(v, i32) for v in (w.window[axis], *ends)]
    new = dialect.ReduceWindow([*inputs, *w.inits, *scalars], kinds, axis)
    fill_region(new, w.reducer, op.location)
    return _without(w, axis, [_every(x, axis, w.strides[axis]) for x in new.results])


def _spread_axis(op: ir.Operation, w: _Window, axis: int) -> _Window:
    """As `_one_axis` for elements `dilation` apart: the windows are gathered, then reduced.

    %places[i, k] = i * stride + k * dilation
    reduce (gather %x at %places along the axis) over k
    """
    inputs = _padded_axis(w, axis)
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    one = integer(1, i32)
    window, stride, dilation = (
        convert(values[axis], i32) for values in (w.window, w.strides, w.window_dilations)
    )

    reach = binary("add", binary("multiply", _minus_one(window), dilation), one)
    room = binary("add", binary("subtract", dimension(inputs[0], axis), reach), stride)
    count = binary("divide", binary("maximum", room, integer(0, i32)), stride)
    shape = vector([count, window])
    kind = ir.RankedTensorType.get([_DYNAMIC, _DYNAMIC], i32.element_type)

    def steps(along: int, step: ir.Value) -> ir.Value:
        iota = create("stablehlo.dynamic_iota", [shape], kind, iota_dimension=along)
        return binary("multiply", iota, broadcast(step, [], kind, lambda: shape))

    places = binary("add", steps(0, stride), steps(1, dilation))
    new = ir.Operation.create(
        "stablehlo.reduce",
        results=[_open(x.type, axis) for x in inputs],
        operands=[*(_gathered(x, axis, places) for x in inputs), *w.inits],
        attributes={"dimensions": ir.DenseI64ArrayAttr.get([axis + 1])},
        regions=1,
    )
    fill_region(new, w.reducer, op.location)
    return _without(w, axis, list(new.results))


def _gathered(x: ir.Value, axis: int, places: ir.Value) -> ir.Value:
    """`x` at the places along an axis, which becomes the two dimensions of `places`."""
    kind = ir.RankedTensorType(x.type)
    others = [d for d in range(kind.rank) if d != axis]
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {[d + (d > axis) for d in others]}, "
        f"collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = 2>"
    )
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    sizes = vector([integer(1, i32) if d == axis else dimension(x, d) for d in range(kind.rank)])
    shape = [*kind.shape[:axis], _DYNAMIC, _DYNAMIC, *kind.shape[axis + 1 :]]
    result = ir.RankedTensorType.get(shape, kind.element_type)
    return create("stablehlo.dynamic_gather", [x, places, sizes], result, dimension_numbers=numbers)


def _padded_axis(w: _Window, axis: int) -> list[ir.Value]:
    """The inputs with the padding of one axis."""
    zero = integer(0, ir.RankedTensorType.get([], ir.IntegerType.get_signless(32)))
    ends = (w.low[axis], w.high[axis], _minus_one(w.base_dilations[axis]))
    low, high, between = ([v if k == axis else zero for k in range(len(w.low))] for v in ends)
    return [pad(x, init, low, high, between) for x, init in zip(w.inputs, w.inits, strict=True)]


def _minus_one(value: ir.Value) -> ir.Value:
    if (number := number_of(value)) is not None:
        return integer(number - 1, value.type)
    one = integer(1, ir.RankedTensorType(value.type))
    return create("stablehlo.subtract", [value, one], value.type)


def _without(w: _Window, axis: int, inputs: list[ir.Value]) -> _Window:
    """What is left to do when `inputs` have been reduced along an axis."""
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    zero, one = integer(0, i32), integer(1, i32)

    def done(values: Sequence[Any], value: Any) -> list[Any]:
        return [value if k == axis else v for k, v in enumerate(values)]

    return replace_fields(
        w,
        inputs=inputs,
        low=done(w.low, zero),
        high=done(w.high, zero),
        base_dilations=done(w.base_dilations, one),
    )


def _open(kind: ir.Type, axis: int) -> ir.RankedTensorType:
    """`kind` with a dynamic size of `axis`."""
    tensor = ir.RankedTensorType(kind)
    shape = list(tensor.shape)
    shape[axis] = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get(shape, tensor.element_type)


def _every(x: ir.Value, axis: int, stride: ir.Value) -> ir.Value:
    """The elements 0, stride, 2 * stride, ... of an axis."""
    if number_of(stride) == 1:
        return x
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    kind = ir.RankedTensorType(x.type)
    rank = range(kind.rank)
    starts = vector([integer(0, i32) for _ in rank])
    steps = vector([stride if k == axis else integer(1, i32) for k in rank])
    return create("stablehlo.real_dynamic_slice", [x, starts, shape_of(x), steps], kind)


def _reduce_window(
    op: ir.Operation,
    w: _Window,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[ir.Value]:
    new = ir.Operation.create(
        "stablehlo.reduce_window",
        results=[r.type for r in op.results],
        operands=[*_padded(w), *w.inits],
        attributes={
            "window_dimensions": ir.DenseI64ArrayAttr.get(list(sizes)),
            "window_strides": ir.DenseI64ArrayAttr.get(list(strides)),
            "window_dilations": ir.DenseI64ArrayAttr.get(list(dilations)),
        },
        regions=1,
    )
    fill_region(new, w.reducer, op.location)
    return list(new.results)


# --- convolution --------------------------------------------------------------------------------


def _expand_convolution(op: ir.Operation) -> ir.Value:
    x, weights, padding = op.operands
    spatial = conv_numbers(op).input.spatial
    rank = ir.RankedTensorType(x.type).rank
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    low, high, interior = ([integer(0, i32)] * rank for _ in range(3))
    columns = _padding_columns(padding)
    dilation = [1] * len(spatial)
    if "lhs_dilation" in op.attributes:
        dilation = list(ir.DenseI64ArrayAttr(op.attributes["lhs_dilation"]))
    for k, axis in enumerate(spatial):
        low[axis], high[axis] = columns[0][k], columns[1][k]
        interior[axis] = integer(dilation[k] - 1, i32)
    element = ir.RankedTensorType(x.type).element_type
    attributes = dict(op.attributes.items())
    attributes.pop("lhs_dilation", None)
    attributes.pop("padding", None)
    new = ir.Operation.create(
        "stablehlo.convolution",
        results=[op.results[0].type],
        operands=[pad(x, zero(element), low, high, interior), weights],
        attributes=attributes,
    )
    return new.results[0]


# --- paddings and constants ---------------------------------------------------------------------


def _padding_columns(padding: ir.Value) -> tuple[list[ir.Value], list[ir.Value]]:
    """The two columns of a padding of type tensor<n x 2>, as rank-0 values."""
    elements = _elements(padding)
    return elements[0::2], elements[1::2]


def _elements(value: ir.Value) -> list[ir.Value]:
    """The elements of a small integer tensor in row-major order, as rank-0 values.

    Looks through concatenations along the first axis, reshapes and constants; others are sliced.
    """
    kind = ir.RankedTensorType(value.type)
    op = producer(value)
    scalar = ir.RankedTensorType.get([], kind.element_type)
    if kind.rank == 0:
        return [value]
    if op is not None and op.name == "stablehlo.constant":
        numbers = np.array(op.attributes["value"]).reshape(-1)
        return [integer(int(n), scalar) for n in numbers]
    if op is not None and op.name == "stablehlo.reshape":
        return _elements(op.operands[0])
    rows = op is not None and op.name == "stablehlo.concatenate"
    if op is not None and rows and int(ir.IntegerAttr(op.attributes["dimension"]).value) == 0:
        return [e for operand in op.operands for e in _elements(operand)]
    count = math.prod(kind.shape)
    if kind.rank != 1:
        value = create(
            "stablehlo.reshape", [value], ir.RankedTensorType.get([count], kind.element_type)
        )
    return [_element(value, k, scalar) for k in range(count)]


def _element(value: ir.Value, index: int, scalar: ir.Type) -> ir.Value:
    one = ir.RankedTensorType.get([1], ir.RankedTensorType(scalar).element_type)
    part = create(
        "stablehlo.slice",
        [value],
        one,
        start_indices=[index],
        limit_indices=[index + 1],
        strides=[1],
    )
    return create("stablehlo.reshape", [part], scalar)
