"""What the rules of TensorFlow's ops share: sizes that may be known, and arrays in given shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.size_arithmetic import (
    Size,
    known,
    larger,
    less,
    minus,
    must_be_equal,
    pairs_of,
    plus,
    product,
    quotient,
    reshaped,
    same_size,
    shape_vector,
    size_of,
    sizes_of,
    smaller,
    static,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, scalar_type
from shlo_disc.ir.builders import convert, create, scalar, with_element
from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.mlir import ir, producer

__all__ = [
    "Size", "broadcast_to", "constant", "converted", "element_of", "elements", "flag", "iota",
    "items", "known", "known_integer", "known_integers", "larger", "less", "lowest",
    "may_be_open", "minus", "module_of", "must_be_equal", "padded",
    "pairs_of", "plus", "product", "quotient", "reshaped", "result",
    "reversed_along", "same_size", "shape_vector", "size_of", "sizes_of", "smaller",
    "static", "taken", "times", "unless_open", "value_of", "windowed",
]  # fmt: skip


# -- sizes -----------------------------------------------------------------------------------------


def elements(sizes: Sizes, array: ir.Value) -> list[Size]:
    """The elements of an integer vector or number, as sizes."""
    kind = ir.RankedTensorType(array.type)
    if kind.rank == 0:
        return [_only_element(sizes, array)]
    return [_element(sizes, array, k) for k in range(kind.shape[0])]


def _only_element(sizes: Sizes, array: ir.Value) -> Size:
    op = producer(array)
    if op is not None and op.name == "stablehlo.reshape" and _is_integer(array):
        (source,) = op.operands
        if ir.RankedTensorType(source.type).rank == 1:
            return _element(sizes, source, 0)
    return known(_widened(array))


def _element(sizes: Sizes, array: ir.Value, index: int) -> Size:
    """One element of a vector. TensorFlow keeps sizes in 32 bits, which a size fits."""
    op = producer(array)
    if op is not None and op.name == "stablehlo.concatenate":
        for part in op.operands:
            (length,) = ir.RankedTensorType(part.type).shape
            if index < length:
                return _element(sizes, part, index)
            index -= length
    if op is not None and op.name == "stablehlo.convert" and _is_integer(op.operands[0]):
        inner = _element(sizes, op.operands[0], index)
        if isinstance(inner, int) or _is_size(inner):
            return inner
    if op is not None and op.name == "stablehlo.reshape":
        (source,) = op.operands
        if ir.RankedTensorType(source.type).rank == 0:
            return _only_element(sizes, source)
    if op is not None and op.name == "stablehlo.slice":
        start, stride = (
            ir.DenseI64ArrayAttr(op.attributes[name])[0] for name in ("start_indices", "strides")
        )
        return _element(sizes, op.operands[0], start + index * stride)
    return known(sizes.element(array, index))


def _widened(value: ir.Value) -> ir.Value:
    """A rank-0 integer as i64; a size that went through 32 bits as it was."""
    op = producer(value)
    if op is not None and op.name == "stablehlo.convert" and _is_size(op.operands[0]):
        return convert(op.operands[0], scalar_type())
    return convert(value, scalar_type())


def _is_integer(value: ir.Value) -> bool:
    element = ir.RankedTensorType(value.type).element_type
    return isinstance(element, ir.IntegerType) and element.width >= 32


def _is_size(value: ir.Value) -> bool:
    """True for the size of a dimension."""
    op = producer(value)
    while op is not None and op.name == "stablehlo.convert":
        op = producer(op.operands[0])
    return op is not None and op.name == "stablehlo.get_dimension_size"


_OF_SIZES = {f"stablehlo.{name}" for name in (
    "add", "convert", "divide", "maximum", "minimum", "multiply", "reshape", "subtract"
)}  # fmt: skip


def may_be_open(size: Size) -> bool:
    """True if a call may find -1 here, which stands for a size that is left open.

    False for numbers, and for what is computed of sizes of dimensions and numbers by arithmetic.
    """
    if isinstance(size, int):
        return False
    op = producer(size)
    if op is None:
        return True
    if op.name in ("stablehlo.constant", "stablehlo.get_dimension_size"):
        return False
    if op.name not in _OF_SIZES:
        return True
    return any(map(may_be_open, op.operands))


def unless_open(size: Size, otherwise: Size) -> Size:
    """`size`; where a call finds -1 in it, `otherwise`. It stays negative below.

    `max(size, otherwise * (size < 0) * (size > -2)) + min(size + 1, 0)`: a term of few products,
    which conditions are not to the analysis of shapes.
    """
    if not may_be_open(size):
        return size
    is_negative = smaller(larger(minus(0, size), 0), 1)
    is_above = smaller(larger(plus(size, 2), 0), 1)
    open_ = times(otherwise, times(is_negative, is_above))
    return plus(larger(size, open_), smaller(plus(size, 1), 0))


def items(sizes: Sizes, array: ir.Value) -> list[ir.Value]:
    """The elements of a vector or number, each by itself; those of integers as sizes are known."""
    kind = ir.RankedTensorType(array.type)
    scalar = ir.RankedTensorType.get([], kind.element_type)
    if _is_integer(array):
        return [convert(value_of(size), scalar) for size in elements(sizes, array)]
    if kind.rank == 0:
        return [array]
    found = []
    for k in range(kind.shape[0]):
        part = create(
            "stablehlo.slice", [array], ir.RankedTensorType.get([1], kind.element_type),
            start_indices=ir.DenseI64ArrayAttr.get([k]),
            limit_indices=ir.DenseI64ArrayAttr.get([k + 1]),
            strides=ir.DenseI64ArrayAttr.get([1]),
        )  # fmt: skip
        found.append(create("stablehlo.reshape", [part], scalar))
    return found


# -- attributes ------------------------------------------------------------------------------------


def flag(op: ir.Operation, name: str) -> bool:
    """An attribute that is true or false; false where it is left out."""
    return name in op.attributes and bool(ir.BoolAttr(op.attributes[name]).value)


def known_integer(value: ir.Value, what: str) -> int:
    """A rank-0 integer. Raises UnsupportedError where the program computes it."""
    told = elements(Sizes(), value)[0]
    if not isinstance(told, int):
        raise UnsupportedError(f"{what} must be a number, not computed")
    return told


def known_integers(value: ir.Value, what: str) -> list[int]:
    """A vector of integers, or one. Raises UnsupportedError where the program computes them."""
    told = elements(Sizes(), value)
    found = [number for number in told if isinstance(number, int)]
    if len(found) < len(told):
        raise UnsupportedError(f"{what} must be numbers, not computed")
    return found


# -- arrays ----------------------------------------------------------------------------------------


def result(op: ir.Operation, number: int = 0) -> ir.RankedTensorType:
    """The type of a result."""
    return ir.RankedTensorType(op.results[number].type)


def element_of(array: ir.Value) -> ir.Type:
    """The element type of an array."""
    return ir.RankedTensorType(array.type).element_type


def _typed(sizes: Sequence[Size], element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(static(sizes), element)


def constant(value: float, element: ir.Type | str) -> ir.Value:
    """A rank-0 constant."""
    inner = ir.Type.parse(element) if isinstance(element, str) else element
    if isinstance(inner, ir.ComplexType):
        return scalar(value, inner)
    kind = ir.RankedTensorType.get([], inner)
    attribute: Any
    if isinstance(inner, ir.IntegerType):
        attribute = ir.IntegerAttr.get(inner, int(value))
    else:
        attribute = ir.FloatAttr.get(inner, float(value))
    splat = ir.DenseElementsAttr.get_splat(kind, attribute)
    return create("stablehlo.constant", [], kind, value=splat)


def lowest(element: ir.Type, *, is_highest: bool = False, is_finite: bool = False) -> ir.Value:
    """The rank-0 smallest number of a type, or its largest; of floats an infinity, or finite."""
    sign = 1 if is_highest else -1
    if isinstance(element, ir.FloatType):
        if not is_finite:
            return constant(sign * math.inf, element)
        return constant(sign * _largest_float(element), element)
    kind = ir.IntegerType(element)
    if kind.is_unsigned:
        return constant((1 << kind.width) - 1 if is_highest else 0, element)
    edge = 1 << (kind.width - 1)
    return constant(edge - 1 if is_highest else -edge, element)


def _largest_float(element: ir.Type) -> float:
    row = known_element_type(element)
    if row is None:
        raise UnsupportedError(f"elements of type {element}")
    info: Any = ml_dtypes.finfo
    return float(info(row.dtype).max)


def converted(array: ir.Value, element: ir.Type | str) -> ir.Value:
    """`array` with elements of another type."""
    inner = ir.Type.parse(element) if isinstance(element, str) else element
    return convert(array, with_element(array.type, inner))


def broadcast_to(array: ir.Value, dims: Sequence[int], sizes: Sequence[Size]) -> ir.Value:
    """`array` in the shape `sizes`; its dimension k goes to `dims[k]`."""
    kind = _typed(sizes, element_of(array))
    attribute = ir.DenseI64ArrayAttr.get(list(dims))
    if kind.has_static_shape and ir.RankedTensorType(array.type).has_static_shape:
        return create("stablehlo.broadcast_in_dim", [array], kind, broadcast_dimensions=attribute)
    return create(
        "stablehlo.dynamic_broadcast_in_dim",
        [array, shape_vector(sizes)],
        kind,
        broadcast_dimensions=attribute,
    )


def iota(sizes: Sequence[Size], axis: int, element: ir.Type | str) -> ir.Value:
    """The index along `axis`."""
    inner = ir.Type.parse(element) if isinstance(element, str) else element
    kind = _typed(sizes, inner)
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    if kind.has_static_shape:
        return create("stablehlo.iota", [], kind, iota_dimension=dimension)
    return create("stablehlo.dynamic_iota", [shape_vector(sizes)], kind, iota_dimension=dimension)


def reversed_along(array: ir.Value, axes: Sequence[int]) -> ir.Value:
    """`array` with the order of some dimensions reversed."""
    if not axes:
        return array
    attribute = ir.DenseI64ArrayAttr.get(list(axes))
    return create("stablehlo.reverse", [array], array.type, dimensions=attribute)


def taken(array: ir.Value, indices: ir.Value, axis: int) -> ir.Value:
    """The entries of a dimension that a vector of indices, all within it, names."""
    sizes = sizes_of(array)
    others = [k for k in range(len(sizes)) if k != axis]
    count = size_of(indices, 0)
    kind = _typed([count if k == axis else n for k, n in enumerate(sizes)], element_of(array))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {others}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1>"
    )
    slices: list[Size] = [1 if k == axis else n for k, n in enumerate(sizes)]
    if all(isinstance(n, int) for n in slices):
        return create(
            "stablehlo.gather",
            [array, indices],
            kind,
            dimension_numbers=numbers,
            slice_sizes=ir.DenseI64ArrayAttr.get(static(slices)),
        )
    return create(
        "stablehlo.dynamic_gather", [array, indices, shape_vector(slices)], kind,
        dimension_numbers=numbers,
    )  # fmt: skip


def windowed(array: ir.Value, starts: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """The window of these sizes that begins at a vector of indices, which data may give."""
    axes = list(range(len(sizes)))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {axes}, start_index_map = {axes}>"
    )
    return create(
        "stablehlo.dynamic_gather",
        [array, starts, shape_vector(sizes)],
        _typed(sizes, element_of(array)),
        dimension_numbers=numbers,
        indices_are_sorted=ir.BoolAttr.get(True),
    )


def padded(
    array: ir.Value,
    pads: Sequence[tuple[Size, Size]],
    inside: Sequence[int] = (),
    value: ir.Value | None = None,
) -> ir.Value:
    """`array` with `value`, or 0, in front of and behind each dimension, and between entries."""
    between = list(inside) or [0] * len(pads)
    sizes = []
    for n, (low, high), zeros in zip(sizes_of(array), pads, between, strict=True):
        own = n if zeros == 0 else plus(n, times(larger(minus(n, 1), 0), zeros))
        sizes.append(plus(plus(low, own), high))
    rows = [[low for low, _ in pads], [high for _, high in pads], between]
    return create(
        "stablehlo.dynamic_pad",
        [array, value or constant(0, element_of(array)), *map(shape_vector, rows)],
        _typed(sizes, element_of(array)),
    )


def module_of(op: ir.Operation) -> ir.Operation:
    """The module that `op` is in."""
    module = op
    while module.name != "builtin.module":
        module = module.parent.operation
    return module
