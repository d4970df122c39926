"""Arithmetic of sizes that may be known: numbers are computed here, others by StableHLO.

plus(3, 4)      ==>  7
plus(%d, 4)     ==>  stablehlo.add %d, 4        %d: a rank-0 i64
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.size_values import Sizes, binary, extent, number, scalar_type, vector
from shlo_disc.ir.builders import assert_sizes, compare, create, number_of, select
from shlo_disc.ir.mlir import ir

Size: TypeAlias = int | ir.Value
"""A number, or a rank-0 i64."""

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def value_of(size: Size) -> ir.Value:
    """`size` as a rank-0 i64."""
    return number(size) if isinstance(size, int) else size


def known(size: ir.Value) -> Size:
    """A constant as its number; another size as it is."""
    told = number_of(size)
    return size if told is None else told


def size_of(array: ir.Value, axis: int) -> Size:
    """The size of a dimension."""
    return known(extent(array, axis))


def sizes_of(array: ir.Value) -> list[Size]:
    """All sizes of an array."""
    return [size_of(array, axis) for axis in range(ir.RankedTensorType(array.type).rank)]


def plus(a: Size, b: Size) -> Size:
    """`a + b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    return binary("add", value_of(a), value_of(b))


def minus(a: Size, b: Size) -> Size:
    """`a - b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return a if b == 0 else binary("subtract", value_of(a), value_of(b))


def times(a: Size, b: Size) -> Size:
    """`a * b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1 or b == 1:
        return b if a == 1 else a
    return binary("multiply", value_of(a), value_of(b))


def product(sizes: Sequence[Size]) -> Size:
    """The product; 1 of none."""
    found: Size = 1
    for size in sizes:
        found = times(found, size)
    return found


def quotient(a: Size, b: Size) -> Size:
    """`a // b` for numbers from 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return a if b == 1 else binary("divide", value_of(a), value_of(b))


def smaller(a: Size, b: Size) -> Size:
    """`min(a, b)`."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return binary("minimum", value_of(a), value_of(b))


def larger(a: Size, b: Size) -> Size:
    """`max(a, b)`."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return binary("maximum", value_of(a), value_of(b))


def less(size: Size, bound: int, then: Size, otherwise: Size) -> Size:
    """`then if size < bound else otherwise`."""
    if isinstance(size, int):
        return then if size < bound else otherwise
    condition = compare("LT", size, number(bound))
    return select(condition, value_of(then), value_of(otherwise))


def same_size(sizes: Sizes, a: Size, b: Size) -> bool:
    """True if two sizes are known to be equal."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return sizes.origin(a) == sizes.origin(b)


def must_be_equal(a: Size, b: Size, text: str) -> None:
    """Every call checks the two sizes; `{0}` and `{1}` in `text` are what they are."""
    if isinstance(a, int) and a == b:
        return
    own, other = value_of(a), value_of(b)
    assert_sizes(compare("EQ", own, other), text, [own, other])


def static(sizes: Sequence[Size]) -> list[int]:
    """Sizes as types have them."""
    return [size if isinstance(size, int) else _DYNAMIC for size in sizes]


def shape_vector(sizes: Sequence[Size]) -> ir.Value:
    """Sizes as an i64 vector."""
    return vector([value_of(size) for size in sizes])


def pairs_of(numbers: Sequence[Size]) -> ir.Value:
    """Two numbers a row, as an i64[n, 2]."""
    kind = ir.RankedTensorType.get([len(numbers) // 2, 2], scalar_type().element_type)
    return create("stablehlo.reshape", [shape_vector(numbers)], kind)


def reshaped(array: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """`array` in the shape `sizes`; every call checks the number of elements."""
    kind = ir.RankedTensorType.get(static(sizes), ir.RankedTensorType(array.type).element_type)
    if kind.has_static_shape and ir.RankedTensorType(array.type).has_static_shape:
        same = math.prod(kind.shape) == math.prod(ir.RankedTensorType(array.type).shape)
        if not same:
            raise UnsupportedError(f"{array.type} cannot have the shape {kind}")
        return array if kind == array.type else create("stablehlo.reshape", [array], kind)
    return create("stablehlo.dynamic_reshape", [array, shape_vector(sizes)], kind)
