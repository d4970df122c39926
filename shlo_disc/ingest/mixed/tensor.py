"""`tensor`: sizes, elements, and views of tensors."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.present import converted
from shlo_disc.ingest.size_values import (
    Sizes,
    binary,
    extent,
    item,
    number,
    scalar_type,
    shape_of,
    vector,
)
from shlo_disc.ir.builders import (
    assert_sizes,
    broadcast,
    compare,
    convert,
    create,
    number_of,
)
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir

Values = list[ir.Value]

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def size_at(sizes: Sizes, op: ir.Operation, shape: ir.Value, index: ir.Value) -> ir.Value:
    """One element of a shape, which a call may choose."""
    known = number_of(index)
    (rank,) = ir.RankedTensorType(shape.type).shape
    if known is None:
        return _element(shape, [index])
    if not -rank <= known < rank:
        raise InvalidModuleError(
            f"{source_line(op)}: {op.name}: there is no dimension {known}; the rank is {rank}"
        )
    return sizes.element(shape, known % rank)


def _dim(sizes: Sizes, op: ir.Operation) -> Values:
    value, index = op.operands
    known = number_of(index)
    if known is not None and 0 <= known < ir.RankedTensorType(value.type).rank:
        return [extent(value, known)]
    return [size_at(sizes, op, shape_of(value), index)]


def _rank(sizes: Sizes, op: ir.Operation) -> Values:
    return [number(ir.RankedTensorType(op.operands[0].type).rank)]


def _from_elements(sizes: Sizes, op: ir.Operation) -> Values:
    kind = ir.RankedTensorType(converted(op.results[0].type))
    if kind.rank == 0:
        return list(op.operands)
    if not len(op.operands):
        empty = ir.Attribute.parse(f"dense<> : {kind}")
        return [create("stablehlo.constant", [], kind, value=empty)]
    values = vector(list(op.operands))
    return [values if kind.rank == 1 else create("stablehlo.reshape", [values], kind)]


def _splat(sizes: Sizes, op: ir.Operation) -> Values:
    kind = ir.RankedTensorType(converted(op.results[0].type))
    value, *dynamic = op.operands
    shape = _mixed(kind.shape, iter(dynamic))
    return [broadcast(value, [], kind, lambda: vector(shape))]


def _mixed(static: Sequence[int], dynamic: Iterator[ir.Value]) -> list[ir.Value]:
    """Sizes, some of them known."""
    return [convert(next(dynamic), scalar_type()) if n == _DYNAMIC else number(n) for n in static]


def _element(value: ir.Value, index: Sequence[ir.Value]) -> ir.Value:
    """The element at `index`."""
    kind = ir.RankedTensorType(value.type)
    ones = [1] * kind.rank
    part = create(
        "stablehlo.dynamic_slice",
        [value, *index],
        ir.RankedTensorType.get(ones, kind.element_type),
        slice_sizes=ones,
    )
    return create("stablehlo.reshape", [part], ir.RankedTensorType.get([], kind.element_type))


def _extract(sizes: Sizes, op: ir.Operation) -> Values:
    value, *index = op.operands
    kind = ir.RankedTensorType(value.type)
    if kind.rank == 0:
        return [value]
    known = [number_of(i) for i in index]
    static = kind.has_static_shape and all(
        k is not None and 0 <= k < n for k, n in zip(known, kind.shape, strict=True)
    )
    return [item(value, [k or 0 for k in known]) if static else _element(value, index)]


def _reshaped(value: ir.Value, shape: Sequence[ir.Value], kind: ir.RankedTensorType) -> ir.Value:
    if kind.has_static_shape and ir.RankedTensorType(value.type).has_static_shape:
        return create("stablehlo.reshape", [value], kind)
    return create("stablehlo.dynamic_reshape", [value, vector(shape)], kind)


def _cast(sizes: Sizes, op: ir.Operation) -> Values:
    """The same array; every call checks the sizes that only the result type has."""
    (value,) = op.operands
    own = ir.RankedTensorType(value.type)
    kind = ir.RankedTensorType(converted(op.results[0].type))
    shape = []
    for axis, (n, m) in enumerate(zip(own.shape, kind.shape, strict=True)):
        size = extent(value, axis)
        if n == _DYNAMIC and m != _DYNAMIC:
            text = f"{source_line(op)}: {op.name}: size {{0}} of dimension {axis} must be {m}"
            assert_sizes(compare("EQ", size, number(m)), text, [size])
            size = number(m)
        shape.append(size)
    if own == kind or (own.rank == 1 and not own.is_dynamic_dim(0) and _is_integer(own)):
        return [value]  # of a shape, more is known than the result type says
    return [_reshaped(value, shape, kind)]


def _is_integer(kind: ir.RankedTensorType) -> bool:
    return isinstance(kind.element_type, ir.IntegerType)


def _reshape(sizes: Sizes, op: ir.Operation) -> Values:
    value, shape = op.operands
    kind = ir.RankedTensorType(converted(op.results[0].type))
    return [create("stablehlo.dynamic_reshape", [value, shape], kind)]


def _groups(op: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(k).value for k in group] for group in op.attributes["reassociation"]]


def _collapse(sizes: Sizes, op: ir.Operation) -> Values:
    (value,) = op.operands
    kind = ir.RankedTensorType(converted(op.results[0].type))
    shape = [
        functools.reduce(lambda a, b: binary("multiply", a, b), [extent(value, k) for k in group])
        for group in _groups(op)
    ]
    return [_reshaped(value, shape, kind)]


def _expand(sizes: Sizes, op: ir.Operation) -> Values:
    value, *dynamic = op.operands
    kind = ir.RankedTensorType(converted(op.results[0].type))
    static = list(ir.DenseI64ArrayAttr(op.attributes["static_output_shape"]))
    return [_reshaped(value, _mixed(static, iter(dynamic)), kind)]


def _bitcast(sizes: Sizes, op: ir.Operation) -> Values:
    return [create("stablehlo.bitcast_convert", list(op.operands), op.results[0].type)]


TENSOR: dict[str, Rule] = {
    "tensor.bitcast": _bitcast,
    "tensor.cast": _cast,
    "tensor.collapse_shape": _collapse,
    "tensor.dim": _dim,
    "tensor.expand_shape": _expand,
    "tensor.extract": _extract,
    "tensor.from_elements": _from_elements,
    "tensor.rank": _rank,
    "tensor.reshape": _reshape,
    "tensor.splat": _splat,
}
