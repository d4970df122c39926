"""Windows with sizes or padding known only at run time, in terms of ops that have a normal form.

    custom_call @stablehlo.dynamic_reduce_window(%x, %init, %window, ..., %padding)
        {called_computations = [@add]}
    ==>
    dynamic_pad, then stablehlo.reduce_window         where the window itself is constant
    dynamic_pad, then a loop that doubles, a slice    where one axis has a window known at run time
                                                      (`cumsum` along a dynamic axis)

    stablehlo.dynamic_conv %x, %w, %padding           ==>  dynamic_pad, then stablehlo.convolution

Why     JAX writes both; the padding is a matrix and the reducer a function, and neither exists
        behind this stage.
Needs   calls inlined, so that the rows of the padding can be seen.
Keeps   every result; a window of n elements is combined in another order (a tree of depth log n).
Cost    O(n log n) element operations for a window of n elements; XLA's own takes O(n^2).
Source  StableHLO spec, reduce_window and convolution; JAX's `mlir.reduce_window`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_disc.errors import UnsupportedError
from shlo_disc.locations import source_line
from shlo_disc.mlir import at, ir, ops_of, producer, replace

__all__ = ["expand_windows"]

_DYNAMIC_REDUCE_WINDOW = "stablehlo.dynamic_reduce_window"


def expand_windows(module: ir.Module) -> int:
    """No `dynamic_reduce_window` or `dynamic_conv` is left; how many there were."""
    functions = {f.name.value: f for f in module.body.operations if f.operation.name == "func.func"}
    windows = [
        op
        for op in ops_of(module, "stablehlo.custom_call")
        if ir.StringAttr(op.attributes["call_target_name"]).value == _DYNAMIC_REDUCE_WINDOW
    ]
    for op in windows:
        with at(op):
            replace(op, *_expand(op, _Window.of(op, functions)))
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
    strides: list[int]
    base_dilations: list[int]
    window_dilations: list[int]
    low: list[ir.Value]
    high: list[ir.Value]
    reducer: Any
    """The function that combines two scalars (or tuples of them)."""

    @staticmethod
    def of(op: ir.Operation, functions: dict[str, Any]) -> _Window:
        values = list(op.operands)
        count = (len(values) - 5) // 2
        called = [
            ir.FlatSymbolRefAttr(a).value
            for a in ir.ArrayAttr(op.attributes["called_computations"])
        ]
        low, high = _padding_columns(values[-1], op)
        return _Window(
            inputs=values[:count],
            inits=values[count : 2 * count],
            window=_elements(values[2 * count]),
            strides=_constants(values[2 * count + 1], op, "strides"),
            base_dilations=_constants(values[2 * count + 2], op, "base dilations"),
            window_dilations=_constants(values[2 * count + 3], op, "window dilations"),
            low=low,
            high=high,
            reducer=functions[called[0]],
        )


def _expand(op: ir.Operation, w: _Window) -> list[ir.Value]:
    padded = [
        _pad(x, init, w.low, w.high, [d - 1 for d in w.base_dilations])
        for x, init in zip(w.inputs, w.inits, strict=True)
    ]
    sizes = [_number(v) for v in w.window]
    known = [s for s in sizes if s is not None]
    if len(known) == len(sizes):
        return _reduce_window(op, w, padded, known)
    axes = [k for k, s in enumerate(sizes) if s is None]
    others = [s for s in sizes if s is not None]
    if len(axes) > 1 or any(s != 1 for s in (*others, *w.strides, *w.window_dilations)):
        raise UnsupportedError(
            f"{source_line(op)}: a window whose size is known only at run time must span one axis, "
            "with stride and dilation 1; make the window size static"
        )
    return _doubling(op, w, padded, axes[0])


def _reduce_window(
    op: ir.Operation, w: _Window, padded: Sequence[ir.Value], sizes: Sequence[int]
) -> list[ir.Value]:
    new = ir.Operation.create(
        "stablehlo.reduce_window",
        results=[r.type for r in op.results],
        operands=[*padded, *w.inits],
        attributes={
            "window_dimensions": ir.DenseI64ArrayAttr.get(list(sizes)),
            "window_strides": ir.DenseI64ArrayAttr.get(w.strides),
            "window_dilations": ir.DenseI64ArrayAttr.get(w.window_dilations),
        },
        regions=1,
    )
    scalars = [i.type for i in (*w.inits, *w.inits)]
    block = new.regions[0].blocks.append(*scalars, arg_locs=[op.location] * len(scalars))
    with ir.InsertionPoint(block):
        results = _inlined(
            w.reducer, list(block.arguments), lambda scalar: scalar.clone().operation
        )
        ir.Operation.create("stablehlo.return", operands=results)
    return list(new.results)


def _inlined(
    function: Any, arguments: Sequence[ir.Value], clone: Callable[[ir.Operation], ir.Operation]
) -> list[ir.Value]:
    """What `function` returns for `arguments`, its ops copied to the insertion point by `clone`."""
    block = function.operation.regions[0].blocks[0]
    of: dict[ir.Value, ir.Value] = dict(zip(block.arguments, arguments, strict=True))
    ops = [view.operation for view in block.operations]
    for op in ops[:-1]:
        copy = clone(op)
        for k, operand in enumerate(op.operands):
            copy.operands[k] = of[operand]
        of.update(zip(op.results, copy.results, strict=True))
    return [of[v] for v in ops[-1].operands]


# --- a window that spans one axis, of a size known at run time --------------------------------
#
# part[i] combines the `power` elements from i on, total[i] the `done` elements from i on, where
# power = 2**k and done = the lower k bits of the size. Indices that leave the array are clamped:
# they only reach elements behind the last full window, which the slice at the end drops.


def _doubling(op: ir.Operation, w: _Window, padded: list[ir.Value], axis: int) -> list[ir.Value]:
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    size = _convert(w.window[axis], i32)
    length = _dimension(padded[0], axis)
    shape = _shape(padded[0])
    totals = [
        _op(
            "stablehlo.dynamic_broadcast_in_dim",
            [init, shape],
            x.type,
            broadcast_dimensions=ir.DenseI64ArrayAttr.get([]),
        )
        for init, x in zip(w.inits, padded, strict=True)
    ]
    carried = [_int(1, i32), _int(0, i32), *totals, *padded]
    kinds = [v.type for v in carried]
    loop = ir.Operation.create("stablehlo.while", results=kinds, operands=carried, regions=2)
    condition, body = (
        region.blocks.append(*kinds, arg_locs=[op.location] * len(kinds)) for region in loop.regions
    )
    i1 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
    with ir.InsertionPoint(condition):
        again = _compare("LE", condition.arguments[0], size, i1)
        ir.Operation.create("stablehlo.return", operands=[again])
    count = len(padded)
    with ir.InsertionPoint(body):
        power, done = body.arguments[0], body.arguments[1]
        total, part = list(body.arguments[2 : 2 + count]), list(body.arguments[2 + count :])
        bit = _op("stablehlo.and", [size, power], i32)
        here = _compare("NE", bit, _int(0, i32), i1)
        longer = _combined(w.reducer, total, [_shifted(p, done, axis, length) for p in part], shape)
        new_total = [
            _op("stablehlo.select", [here, a, b], b.type)
            for a, b in zip(longer, total, strict=True)
        ]
        new_part = _combined(
            w.reducer, part, [_shifted(p, power, axis, length) for p in part], shape
        )
        new_done = _op("stablehlo.add", [done, bit], i32)
        new_power = _op("stablehlo.add", [power, power], i32)
        ir.Operation.create(
            "stablehlo.return", operands=[new_power, new_done, *new_total, *new_part]
        )
    results = list(loop.results)[2 : 2 + count]
    return [
        _first(value, axis, size, result.type)
        for value, result in zip(results, op.results, strict=True)
    ]


def _combined(
    reducer: Any, left: Sequence[ir.Value], right: Sequence[ir.Value], shape: ir.Value
) -> list[ir.Value]:
    """`reducer`, element by element, on arrays."""
    like = ir.RankedTensorType(left[0].type)

    def lift(scalar: ir.Operation) -> ir.Operation:
        kinds = [
            ir.RankedTensorType.get(like.shape, ir.RankedTensorType(r.type).element_type)
            for r in scalar.results
        ]
        if scalar.name == "stablehlo.constant":
            copy = scalar.clone().operation
            spread = _op(
                "stablehlo.dynamic_broadcast_in_dim",
                [copy.results[0], shape],
                kinds[0],
                broadcast_dimensions=ir.DenseI64ArrayAttr.get([]),
            )
            return spread.owner
        return ir.Operation.create(
            scalar.name,
            results=kinds,
            operands=[left[0]] * len(scalar.operands),  # the caller sets the right ones
            attributes=dict(scalar.attributes.items()),
        )

    for view in reducer.operation.regions[0].blocks[0].operations:
        op = view.operation
        if len(op.regions) or (not op.results and not op.name.endswith(".return")):
            raise UnsupportedError(
                f"{source_line(op)}: {op.name} in the reducer of a window whose size is known only "
                "at run time; make the window size static"
            )
    return _inlined(reducer, [*left, *right], lift)


def _shifted(value: ir.Value, by: ir.Value, axis: int, length: ir.Value) -> ir.Value:
    """`value[i + by]` along `axis`, indices clamped into the array."""
    kind = ir.RankedTensorType(value.type)
    i32 = ir.IntegerType.get_signless(32)
    line = ir.RankedTensorType.get([kind.shape[axis]], i32)
    sizes = _op("stablehlo.reshape", [length], ir.RankedTensorType.get([1], i32))
    iota = _op(
        "stablehlo.dynamic_iota",
        [sizes],
        line,
        iota_dimension=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0),
    )
    offset = _op(
        "stablehlo.dynamic_broadcast_in_dim",
        [by, sizes],
        line,
        broadcast_dimensions=ir.DenseI64ArrayAttr.get([]),
    )
    index = _op("stablehlo.add", [iota, offset], line)
    others = [k for k in range(kind.rank) if k != axis]
    numbers = (
        f"#stablehlo.gather<offset_dims = {others}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1>"
    )
    scalar = ir.RankedTensorType.get([], i32)
    entries = [_int(1, scalar) if k == axis else _dimension(value, k) for k in range(kind.rank)]
    return _op(
        "stablehlo.dynamic_gather",
        [value, index, _vector(entries)],
        kind,
        dimension_numbers=ir.Attribute.parse(numbers),
        indices_are_sorted=ir.BoolAttr.get(True),
    )


def _first(value: ir.Value, axis: int, size: ir.Value, kind: ir.Type) -> ir.Value:
    """Elements 0 .. length - size of `value` along `axis`: one for each full window."""
    rank = ir.RankedTensorType(value.type).rank
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    limits = [_dimension(value, k) for k in range(rank)]
    behind = _op("stablehlo.subtract", [limits[axis], size], i32)
    limits[axis] = _op("stablehlo.add", [behind, _int(1, i32)], i32)
    vectors = [_vector([_int(0, i32)] * rank), _vector(limits), _vector([_int(1, i32)] * rank)]
    return _op("stablehlo.real_dynamic_slice", [value, *vectors], kind)


# --- convolution --------------------------------------------------------------------------------


def _expand_convolution(op: ir.Operation) -> ir.Value:
    x, weights, padding = op.operands
    text = str(op.attributes["dimension_numbers"])
    spatial = _input_spatial_dimensions(text)
    rank = ir.RankedTensorType(x.type).rank
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    low, high, interior = [_int(0, i32)] * rank, [_int(0, i32)] * rank, [0] * rank
    columns = _padding_columns(padding, op)
    dilation = [1] * len(spatial)
    if "lhs_dilation" in op.attributes:
        dilation = list(ir.DenseI64ArrayAttr(op.attributes["lhs_dilation"]))
    for k, axis in enumerate(spatial):
        low[axis], high[axis] = columns[0][k], columns[1][k]
        interior[axis] = dilation[k] - 1
    element = ir.RankedTensorType(x.type).element_type
    zero = _op(
        "stablehlo.constant",
        [],
        ir.RankedTensorType.get([], element),
        value=_zero(element, op),
    )
    attributes = dict(op.attributes.items())
    attributes.pop("lhs_dilation", None)
    attributes.pop("padding", None)
    new = ir.Operation.create(
        "stablehlo.convolution",
        results=[op.results[0].type],
        operands=[_pad(x, zero, low, high, interior), weights],
        attributes=attributes,
    )
    return new.results[0]


def _zero(element: ir.Type, op: ir.Operation) -> ir.Attribute:
    scalar = ir.RankedTensorType.get([], element)
    if isinstance(element, ir.FloatType):
        return ir.DenseElementsAttr.get_splat(scalar, ir.FloatAttr.get(element, 0.0))
    if isinstance(element, ir.IntegerType):
        return ir.DenseElementsAttr.get_splat(scalar, ir.IntegerAttr.get(element, 0))
    raise UnsupportedError(
        f"{source_line(op)}: stablehlo.dynamic_conv of {element}; convolve real and imaginary "
        "parts apart"
    )


def _input_spatial_dimensions(text: str) -> list[int]:
    """From `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`: axis of 0, axis of 1, ..."""
    names = [n.strip() for n in text.partition("[")[2].partition("]")[0].split(",")]
    return [names.index(str(k)) for k in range(len(names) - 2)]


# --- sizes and vectors of them ------------------------------------------------------------------


def _op(name: str, operands: Sequence[ir.Value], kind: ir.Type, **attributes: Any) -> ir.Value:
    return ir.Operation.create(
        name, results=[kind], operands=list(operands), attributes=attributes
    ).results[0]


def _int(number: int, kind: ir.Type) -> ir.Value:
    element = ir.RankedTensorType(kind).element_type
    value = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, number))
    return _op("stablehlo.constant", [], kind, value=value)


def _compare(direction: str, a: ir.Value, b: ir.Value, i1: ir.Type) -> ir.Value:
    attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
    return _op("stablehlo.compare", [a, b], i1, comparison_direction=attribute)


def _convert(value: ir.Value, kind: ir.Type) -> ir.Value:
    return value if value.type == kind else _op("stablehlo.convert", [value], kind)


def _dimension(value: ir.Value, axis: int) -> ir.Value:
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    return _op("stablehlo.get_dimension_size", [value], i32, dimension=dimension)


def _shape(value: ir.Value) -> ir.Value:
    return _vector([_dimension(value, k) for k in range(ir.RankedTensorType(value.type).rank)])


def _vector(scalars: Sequence[ir.Value]) -> ir.Value:
    """A rank-1 tensor of i32 of these rank-0 values."""
    i32 = ir.IntegerType.get_signless(32)
    one = ir.RankedTensorType.get([1], i32)
    scalar = ir.RankedTensorType.get([], i32)
    parts = [_op("stablehlo.reshape", [_convert(s, scalar)], one) for s in scalars]
    kind = ir.RankedTensorType.get([len(parts)], i32)
    zero = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
    return _op("stablehlo.concatenate", parts, kind, dimension=zero)


def _pad(
    x: ir.Value,
    value: ir.Value,
    low: Sequence[ir.Value],
    high: Sequence[ir.Value],
    interior: Sequence[int],
) -> ir.Value:
    """`x` padded by sizes known at run time; `x` itself where they are all known to be 0."""
    if not any(interior) and all(_number(v) == 0 for v in (*low, *high)):
        return x
    kind = ir.RankedTensorType(x.type)
    sizes = [
        n if _number(a) == 0 and _number(b) == 0 and i == 0 else ir.ShapedType.get_dynamic_size()
        for n, a, b, i in zip(kind.shape, low, high, interior, strict=True)
    ]
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    between = _vector([_int(i, i32) for i in interior])
    return _op(
        "stablehlo.dynamic_pad",
        [x, value, _vector(low), _vector(high), between],
        ir.RankedTensorType.get(sizes, kind.element_type),
    )


def _padding_columns(padding: ir.Value, op: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    """The two columns of a padding of type tensor<n x 2>, as rank-0 values."""
    elements = _elements(padding)
    if not elements:
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} has a padding that is not built from sizes; make it "
            "static"
        )
    return elements[0::2], elements[1::2]


def _elements(value: ir.Value) -> list[ir.Value]:
    """The elements of a small integer tensor in row-major order, as rank-0 values.

    Looks through concatenations along the first axis, reshapes and constants; any other vector is
    sliced, and a matrix of another kind gives none.
    """
    kind = ir.RankedTensorType(value.type)
    op = producer(value)
    scalar = ir.RankedTensorType.get([], kind.element_type)
    if kind.rank == 0:
        return [value]
    if op is not None and op.name == "stablehlo.constant":
        numbers = np.array(op.attributes["value"]).reshape(-1)
        return [_int(int(n), scalar) for n in numbers]
    if op is not None and op.name == "stablehlo.reshape":
        return _elements(op.operands[0])
    rows = op is not None and op.name == "stablehlo.concatenate"
    if op is not None and rows and int(ir.IntegerAttr(op.attributes["dimension"]).value) == 0:
        return [e for operand in op.operands for e in _elements(operand)]
    if kind.rank != 1:
        return []
    return [_element(value, k, scalar) for k in range(int(kind.shape[0]))]


def _element(value: ir.Value, index: int, scalar: ir.Type) -> ir.Value:
    one = ir.RankedTensorType.get([1], ir.RankedTensorType(scalar).element_type)
    part = _op(
        "stablehlo.slice",
        [value],
        one,
        start_indices=ir.DenseI64ArrayAttr.get([index]),
        limit_indices=ir.DenseI64ArrayAttr.get([index + 1]),
        strides=ir.DenseI64ArrayAttr.get([1]),
    )
    return _op("stablehlo.reshape", [part], scalar)


def _number(value: ir.Value) -> int | None:
    """The number a rank-0 value is known to be here."""
    op = producer(value)
    while op is not None and op.name in ("stablehlo.convert", "stablehlo.reshape"):
        op = producer(op.operands[0])
    if op is None or op.name != "stablehlo.constant" or not op.attributes["value"].is_splat:
        return None
    return int(op.attributes["value"].get_splat_value().value)


def _constants(value: ir.Value, op: ir.Operation, what: str) -> list[int]:
    numbers = [_number(v) for v in _elements(value)]
    known = [n for n in numbers if n is not None]
    if len(known) != len(numbers):
        raise UnsupportedError(
            f"{source_line(op)}: {what} of a window that are known only at run time; make them "
            "static"
        )
    return known
