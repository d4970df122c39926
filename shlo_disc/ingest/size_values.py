"""Sizes in programs: where a size comes from, and the common sizes of broadcasts.

    a: %d, a size                      %d = get_dimension_size %y, dim = 0
    b: dimension 0 of %x               %y = tanh %x                           a and b are equal

A size is a rank-0 i64. Two sizes go together in a broadcast if they are equal or one is 1. Types
tell it, or both come from one place; else every call checks it. The common size of `a` and `b` is
`max(a, b) * min(a, b, 1)`: 0 and 1 give 0. The larger and the smaller one of a common size are
kept, so that a chain of thousands of broadcasts has sizes of one term.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.ir.builders import (
    assert_sizes,
    compare,
    convert,
    create,
    dimension,
    integer,
    number_of,
)
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.ir.ops import OPS, Role

_Source: TypeAlias = ir.Value | tuple[ir.Value, int]
"""A size, or a value and one of its dimensions."""

_SHAPE_OPERAND = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_reshape": 1,
}


def scalar_type(width: int = 64) -> ir.RankedTensorType:
    """A rank-0 signless integer type."""
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(width))


def truth() -> ir.RankedTensorType:
    """A rank-0 i1."""
    return scalar_type(1)


def number(value: int) -> ir.Value:
    """A constant size."""
    return integer(value, scalar_type())


def binary(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """`stablehlo.NAME` of two values of one type."""
    return create(f"stablehlo.{name}", [a, b], a.type)


def extent(value: ir.Value, axis: int) -> ir.Value:
    """The size of a dimension."""
    kind = ir.RankedTensorType(value.type)
    if not kind.is_dynamic_dim(axis):
        return number(int(kind.get_dim_size(axis)))
    return convert(dimension(value, axis), scalar_type())


def vector(sizes: Sequence[ir.Value]) -> ir.Value:
    """The rank-1 tensor of these rank-0 values of one type."""
    inner = ir.RankedTensorType(sizes[0].type).element_type if sizes else scalar_type().element_type
    kind = ir.RankedTensorType.get([len(sizes)], inner)
    if not sizes:
        return create("stablehlo.constant", [], kind, value=ir.Attribute.parse(f"dense<> : {kind}"))
    one = ir.RankedTensorType.get([1], inner)
    parts = [create("stablehlo.reshape", [size], one) for size in sizes]
    if len(parts) == 1:
        return parts[0]
    return create("stablehlo.concatenate", parts, kind, dimension=0)


def shape_of(value: ir.Value) -> ir.Value:
    """All sizes of `value`, as an i64 vector."""
    return vector([extent(value, k) for k in range(ir.RankedTensorType(value.type).rank)])


class Sizes:
    """What is known of the sizes of one function."""

    def __init__(self) -> None:
        self._joined: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        """Of a common size: the largest of the sizes, and the smallest of these and 1."""
        self._asserted: set[Hashable] = set()
        self._origins: dict[_Source, int | _Source] = {}

    def elements(self, value: ir.Value) -> list[ir.Value]:
        """The elements of an integer vector, as sizes."""
        (length,) = ir.RankedTensorType(value.type).shape
        return [self.element(value, k) for k in range(length)]

    def element(self, value: ir.Value, index: int) -> ir.Value:
        """One element of an integer vector, as a size."""
        found = _peek(value, index)
        if isinstance(found, int):
            return number(found)
        if found is None:
            found = item(value, [index])
        return convert(found, scalar_type())

    def origin(self, size: _Source) -> int | _Source:
        """Equal of sizes that are known to be equal: a number, a size, or a dimension."""
        passed: list[_Source] = []
        found: int | _Source | None = size
        while found is not None and not isinstance(found, int) and found not in self._origins:
            passed.append(found)
            found = _source(found)
        if found is None:
            found = passed[-1]
        elif not isinstance(found, int):
            found = self._origins[found]
        self._origins.update(dict.fromkeys(passed, found))
        return found

    def record(self, value: ir.Value, shape: Sequence[ir.Value]) -> None:
        """`value` has these sizes."""
        for axis, size in enumerate(shape):
            self._origins[value, axis] = self.origin(size)

    # -- broadcasts -----------------------------------------------------------------------------

    def broadcast(self, op: ir.Operation, shapes: Sequence[ir.Value]) -> list[ir.Value]:
        """The common shape of `shapes`, trailing dimensions together; every call checks it."""
        rows = [self.elements(shape) for shape in shapes]
        rank = max(map(len, rows), default=0)
        columns = [
            [row[k - rank + len(row)] for row in rows if k >= rank - len(row)] for k in range(rank)
        ]
        return self.common(op, columns)

    def common(self, op: ir.Operation, columns: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
        """The common size of each of `columns`, which are the sizes of one dimension each."""
        return [self._common(op, k, column) for k, column in enumerate(columns)]

    def _common(self, op: ir.Operation, axis: int, sizes: Sequence[ir.Value]) -> ir.Value:
        known: dict[Hashable, ir.Value] = {}
        for size in sizes:
            known.setdefault(self.origin(size), size)
        known.pop(1, None)
        numbers = [n for n in known if isinstance(n, int)]
        if len(numbers) > 1:
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name}: sizes {numbers[0]} and {numbers[1]} of dimension "
                f"{axis} must be equal or 1"
            )
        if len(known) < 2:
            return next(iter(known.values()), number(1))
        known = {n: known[n] for n in (*numbers, *known)}  # messages name numbers first
        common = known[numbers[0]] if numbers else self._join(known)
        key = frozenset(known), op.operation.block
        if key in self._asserted:
            return common
        self._asserted.add(key)
        told = list(known.values())
        names = " and ".join(f"{{{k}}}" for k in range(len(told)))
        text = f"{source_line(op)}: {op.name}: sizes {names} of dimension {axis} must be equal or 1"
        for origin, size in known.items():
            if not isinstance(origin, int):
                differences = [binary("subtract", size, n) for n in (number(1), common)]
                product = binary("multiply", *differences)
                assert_sizes(compare("EQ", product, number(0)), text, told)
        return common

    def _join(self, sizes: dict[Hashable, ir.Value]) -> ir.Value:
        one = number(1)
        parts = [
            self._joined.get(origin) or (size, binary("minimum", size, one))
            if isinstance(origin, ir.Value)
            else (size, binary("minimum", size, one))
            for origin, size in sizes.items()
        ]
        largest = functools.reduce(lambda a, b: binary("maximum", a, b), [p[0] for p in parts])
        least = functools.reduce(lambda a, b: binary("minimum", a, b), [p[1] for p in parts])
        common = binary("multiply", largest, least)
        self._joined[common] = largest, least
        return common

    def are_broadcastable(self, op: ir.Operation, shapes: Sequence[ir.Value]) -> ir.Value:
        """Whether `shapes` have a common shape, as a rank-0 i1."""
        rows = [self.elements(shape) for shape in shapes]
        rank = max(map(len, rows), default=0)
        one, result = number(1), integer(1, truth())
        for k in range(1, rank + 1):
            column = [row[-k] for row in rows if len(row) >= k]
            for i, a in enumerate(column):
                for b in column[:i]:
                    if self.origin(a) == self.origin(b):
                        continue
                    fits = [compare("EQ", *pair) for pair in ((a, b), (a, one), (b, one))]
                    either = functools.reduce(lambda x, y: binary("or", x, y), fits)
                    result = binary("and", result, either)
        return result

    def require_equal(self, op: ir.Operation, shapes: Sequence[ir.Value]) -> None:
        """Every call checks that `shapes` are equal."""
        rows = [self.elements(shape) for shape in shapes]
        if len({len(row) for row in rows}) > 1:
            raise InvalidModuleError(f"{source_line(op)}: {op.name}: shapes of different ranks")
        for axis, column in enumerate(zip(*rows, strict=True)):
            for size in column[1:]:
                if self.origin(size) == self.origin(column[0]):
                    continue
                text = f"{source_line(op)}: {op.name}: sizes {{0}} and {{1}} of dimension {axis} "
                equal = compare("EQ", column[0], size)
                assert_sizes(equal, text + "must be equal", [column[0], size])


def item(value: ir.Value, index: Sequence[int]) -> ir.Value:
    """One element of a tensor of static shape, as a rank-0 tensor."""
    kind = ir.RankedTensorType(value.type)
    inner = kind.element_type
    array = ir.DenseI64ArrayAttr.get
    one = create(
        "stablehlo.slice",
        [value],
        ir.RankedTensorType.get([1] * kind.rank, inner),
        start_indices=array(list(index)),
        limit_indices=array([k + 1 for k in index]),
        strides=array([1] * kind.rank),
    )
    return create("stablehlo.reshape", [one], ir.RankedTensorType.get([], inner))


def _peek(value: ir.Value, index: int) -> int | ir.Value | None:
    """One element of an integer vector that some op has made a vector of; no op is made."""
    op = producer(value)
    if op is None:
        return None
    if op.name == "stablehlo.concatenate":
        for part in op.operands:
            (length,) = ir.RankedTensorType(part.type).shape
            if index < length:
                return _peek(part, index)
            index -= length
    if op.name == "stablehlo.constant":
        attribute = op.attributes["value"]
        if not isinstance(attribute, ir.DenseElementsAttr):
            return None
        if attribute.is_splat:
            return int(attribute.get_splat_value().value)
        return int(np.array(attribute).reshape(-1)[index])
    if op.name == "stablehlo.reshape" and math.prod(ir.RankedTensorType(value.type).shape) == 1:
        source = op.operands[0]
        return source if ir.RankedTensorType(source.type).rank == 0 else _peek_one(source)
    if op.name == "stablehlo.convert" and _widens(op):
        return _peek(op.operands[0], index)
    return None


def _peek_one(value: ir.Value) -> int | ir.Value | None:
    return _peek(value, 0) if ir.RankedTensorType(value.type).rank == 1 else None


def _widens(op: ir.Operation) -> bool:
    """Whether a conversion keeps every number: a signed integer of as many bits or more."""
    source, target = (ir.RankedTensorType(v.type).element_type for v in (*op.operands, *op.results))
    if not isinstance(source, ir.IntegerType) or not isinstance(target, ir.IntegerType):
        return False
    return 1 < source.width <= target.width and not source.is_unsigned and not target.is_unsigned


def _source(size: _Source) -> int | _Source | None:
    """What a size, or the size of a dimension, is equal to; None if that is not known."""
    if isinstance(size, tuple):
        return _source_of_dimension(*size)
    known = number_of(size)
    op = producer(size)
    if known is not None or op is None:
        return known
    if op.name == "stablehlo.convert" and _widens(op):
        return op.operands[0]
    if op.name == "stablehlo.get_dimension_size":
        return op.operands[0], int(ir.IntegerAttr(op.attributes["dimension"]).value)
    return None


def _source_of_dimension(value: ir.Value, axis: int) -> int | _Source | None:
    kind = ir.RankedTensorType(value.type)
    if not kind.is_dynamic_dim(axis):
        return int(kind.get_dim_size(axis))
    op = producer(value)
    if op is None:
        return None
    if op.name in _SHAPE_OPERAND:
        return _peek(op.operands[_SHAPE_OPERAND[op.name]], axis)
    if op.name == "stablehlo.transpose":
        return op.operands[0], list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))[axis]
    if op.name == "stablehlo.dot_general":
        return _source_in_product(op, axis)
    if op.name == "tensor.cast":
        return op.operands[0], axis
    if op.name == "stablehlo.reduce":
        rank = ir.RankedTensorType(op.operands[0].type).rank
        dims = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        return op.operands[0], [k for k in range(rank) if k not in dims][axis]
    if op.name in OPS and OPS[op.name].role is Role.ELEMENTWISE:
        alike = [v for v in op.operands if ir.RankedTensorType(v.type).rank == kind.rank]
        fixed = (v for v in alike if not ir.RankedTensorType(v.type).is_dynamic_dim(axis))
        return next(fixed, alike[0]), axis
    return None


def _source_in_product(op: ir.Operation, axis: int) -> _Source:
    """Dimension `axis` of a `dot_general`: its batches, then what each operand has besides."""
    left, right = dot_sides(op)
    if axis < len(left.batch):
        return op.operands[0], left.batch[axis]
    number, side = (0, left) if axis in left.results else (1, right)
    return op.operands[number], side.free[side.results.index(axis)]
