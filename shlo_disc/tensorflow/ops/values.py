"""What the rules of TensorFlow's ops share: sizes that may be known, and arrays in given shapes."""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.size_arithmetic import (
    Size,
    known,
    larger,
    minus,
    plus,
    smaller,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, scalar_type
from shlo_disc.ir.builders import convert, create
from shlo_disc.ir.mlir import ir, producer

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
            start_indices=[k],
            limit_indices=[k + 1],
            strides=[1],
        )  # fmt: skip
        found.append(create("stablehlo.reshape", [part], scalar))
    return found


# -- attributes ------------------------------------------------------------------------------------


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


def module_of(op: ir.Operation) -> ir.Operation:
    """The module that `op` is in."""
    module = op
    while module.name != "builtin.module":
        module = module.parent.operation
    return module
