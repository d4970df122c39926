"""`shape`: shapes are i64 vectors, conditions on shapes are assertions."""

from __future__ import annotations

import functools

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest.mixed.arith import ARITH
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.mixed.tensor import size_at
from shlo_disc.ingest.size_values import Sizes, binary, number, shape_of, truth, vector
from shlo_disc.ir.builders import assert_sizes, compare, integer, number_of
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir

Values = list[ir.Value]


def _shape_of(sizes: Sizes, op: ir.Operation) -> Values:
    return [shape_of(op.operands[0])]


def _const_shape(sizes: Sizes, op: ir.Operation) -> Values:
    return [vector([number(int(n)) for n in ir.DenseIntElementsAttr(op.attributes["shape"])])]


def _const_size(sizes: Sizes, op: ir.Operation) -> Values:
    return [number(ir.IntegerAttr(op.attributes["value"]).value)]


def _broadcast(sizes: Sizes, op: ir.Operation) -> Values:
    return [vector(sizes.broadcast(op, list(op.operands)))]


def _must_broadcast(sizes: Sizes, op: ir.Operation) -> Values:
    sizes.broadcast(op, list(op.operands))
    return []


def _may_broadcast(sizes: Sizes, op: ir.Operation) -> Values:
    return [sizes.are_broadcastable(op, list(op.operands))]


def _must_be_equal(sizes: Sizes, op: ir.Operation) -> Values:
    sizes.require_equal(op, list(op.operands))
    return []


def _equal(sizes: Sizes, op: ir.Operation) -> Values:
    rows = [sizes.elements(shape) for shape in op.operands]
    if len({len(row) for row in rows}) > 1:
        return [integer(0, truth())]
    pairs = [(a, b) for row in rows[1:] for a, b in zip(rows[0], row, strict=True)]
    told = [compare("EQ", a, b) for a, b in pairs]
    return [functools.reduce(lambda a, b: binary("and", a, b), told, integer(1, truth()))]


def _require(sizes: Sizes, op: ir.Operation) -> Values:
    text = ir.StringAttr(op.attributes["msg"]).value.replace("{", "(").replace("}", ")")
    assert_sizes(op.operands[0], f"{source_line(op)}: {op.name}: {text}", [])
    return []


def _witness(sizes: Sizes, op: ir.Operation) -> Values:
    """Of asserted conditions, or a known one."""
    if "passing" in op.attributes and not ir.BoolAttr(op.attributes["passing"]).value:
        raise InvalidModuleError(f"{source_line(op)}: {op.name} says that no call is allowed")
    return []


def _concat(sizes: Sizes, op: ir.Operation) -> Values:
    return [vector([size for shape in op.operands for size in sizes.elements(shape)])]


def _split_at(sizes: Sizes, op: ir.Operation) -> Values:
    shape, index = op.operands
    elements, place = sizes.elements(shape), number_of(index)
    if place is None:
        raise UnsupportedError(
            f"{source_line(op)}: {op.name}: it is not known when compiling where the shape is "
            "split; split it at a constant"
        )
    if not -len(elements) <= place <= len(elements):
        raise InvalidModuleError(
            f"{source_line(op)}: {op.name}: a shape of rank {len(elements)} is split at {place}"
        )
    place += len(elements) if place < 0 else 0
    return [vector(elements[:place]), vector(elements[place:])]


def _get_extent(sizes: Sizes, op: ir.Operation) -> Values:
    shape, index = op.operands
    return [size_at(sizes, op, shape, index)]


def _dim(sizes: Sizes, op: ir.Operation) -> Values:
    value, index = op.operands
    return [size_at(sizes, op, shape_of(value), index)]


def _num_elements(sizes: Sizes, op: ir.Operation) -> Values:
    elements = sizes.elements(op.operands[0])
    return [functools.reduce(lambda a, b: binary("multiply", a, b), elements or [number(1)])]


def _rank(sizes: Sizes, op: ir.Operation) -> Values:
    return [number(int(ir.RankedTensorType(op.operands[0].type).shape[0]))]


def _from_extents(sizes: Sizes, op: ir.Operation) -> Values:
    return [vector(list(op.operands))]


def _same(sizes: Sizes, op: ir.Operation) -> Values:
    return [op.operands[0]]


def _of_sizes(name: str) -> Rule:
    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        return [binary(name, *op.operands)]

    return rule


SHAPE: dict[str, Rule] = {
    "shape.add": _of_sizes("add"),
    "shape.assuming_all": _witness,
    "shape.broadcast": _broadcast,
    "shape.concat": _concat,
    "shape.const_shape": _const_shape,
    "shape.const_size": _const_size,
    "shape.const_witness": _witness,
    "shape.cstr_broadcastable": _must_broadcast,
    "shape.cstr_eq": _must_be_equal,
    "shape.cstr_require": _require,
    "shape.dim": _dim,
    "shape.div": ARITH["arith.floordivsi"],
    "shape.from_extent_tensor": _same,
    "shape.from_extents": _from_extents,
    "shape.get_extent": _get_extent,
    "shape.index_to_size": _same,
    "shape.is_broadcastable": _may_broadcast,
    "shape.max": _of_sizes("maximum"),
    "shape.min": _of_sizes("minimum"),
    "shape.mul": _of_sizes("multiply"),
    "shape.num_elements": _num_elements,
    "shape.rank": _rank,
    "shape.shape_eq": _equal,
    "shape.shape_of": _shape_of,
    "shape.size_to_index": _same,
    "shape.split_at": _split_at,
    "shape.to_extent_tensor": _same,
    "shape.value_as_shape": _same,
}
"""`shape.assuming` has its body in its place: see `rewriter.py`."""
