"""The shape-value analysis: what small tensors hold that are computed from sizes only.

Shape operands of dynamic ops are ordinary integer tensors: following their arithmetic symbolically
tells what they hold. Entries are in row-major order; see `arithmetic.py` for one entry. Floats on
the way from sizes to sizes are followed while they are exact (`float_values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shlo_disc.dynamic.arithmetic import (
    BITS_READ,
    ELEMENTWISE,
    Condition,
    Entry,
    Quotient,
    evaluate,
)
from shlo_disc.dynamic.asked import Asked, Entries, IntegerType
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.float_values import (
    FLOAT_RULES,
    FloatType,
    constant_quotients,
    integer_of,
    quotient_of,
)
from shlo_disc.dynamic.monomial import MAX_WEIGHT, FormulaTooLongError
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.comparisons import comparison
from shlo_disc.ir.dense_elements import elements_of
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.indexing import gather_numbers
from shlo_disc.ir.mlir import ir

__all__ = ["MAX_ELEMENTS", "SHAPE_VALUES", "Entries", "FloatType", "IntegerType", "follow"]

MAX_ELEMENTS = 64
"""Shape operands have at most 2 x rank entries; longer tensors are data."""


def follow(s: Asked, op: ir.Operation, kind: IntegerType | FloatType) -> Entries | None:
    """The contents of the one result of `op`, of type `kind`; None when they depend on data.

    What is too long for a formula is data, too.
    """
    try:
        found = _follow(s, op, kind)
    except FormulaTooLongError:
        return None
    return found and tuple(None if _is_too_long(entry) else entry for entry in found)


def _is_too_long(entry: Entry) -> bool:
    return isinstance(entry, Expr) and entry.weight > MAX_WEIGHT


def _follow(s: Asked, op: ir.Operation, kind: IntegerType | FloatType) -> Entries | None:
    if isinstance(kind, FloatType):
        return _follow_floats(s, op, kind)
    rule = SHAPE_VALUES.get(op.name)
    if rule is not None:
        return rule(s, op, kind)
    if op.name not in ELEMENTWISE:
        return None
    columns = _columns(s, op, kind.elements)
    if columns is None:
        return None
    if op.results[0] in s.sized:
        exact = [ELEMENTWISE[op.name](s.arithmetic, *column) for column in columns]
        return tuple(_sized(s, op, e, c, kind) for e, c in zip(exact, columns, strict=True))
    return tuple(_element(s, op.name, column, kind) for column in columns)


def _columns(s: Asked, op: ir.Operation, count: int) -> list[tuple[Entry, ...]] | None:
    """The operands of every element; None when one of the operands is not known."""
    operands: list[Entries] | None = _known(s, op)
    if op.name == "stablehlo.select" and s.entries(op.operands[0]) is not None:
        # A known condition chooses one of the values; the other may be data.
        operands = [s.entries(v) or (None,) for v in op.operands]
    if operands is None:
        return None
    rows = [o * count if len(o) == 1 else o for o in operands]
    return list(zip(*rows, strict=True))


def _follow_floats(s: Asked, op: ir.Operation, kind: FloatType) -> Entries | None:
    if op.name in _MOVING:
        # Rules of ops that move elements ask for the number and the shape of these alone.
        return SHAPE_VALUES[op.name](s, op, IntegerType(kind.shape, 64, False, kind.elements))
    if op.name == "stablehlo.constant":
        value = op.attributes["value"]
        dense = isinstance(value, ir.DenseElementsAttr)
        return constant_quotients(value, kind) if dense else None
    if op.name == "stablehlo.convert":
        entries = s.entries(op.operands[0])
        return entries and tuple(quotient_of(s, e, kind.digits) for e in entries)
    rule = FLOAT_RULES.get(op.name)
    columns = None if rule is None else _columns(s, op, kind.elements)
    if rule is None or columns is None:
        return None
    return tuple(rule(s, kind.digits, column) for column in columns)


def _sized(
    s: Asked, op: ir.Operation, exact: Entry, operands: Sequence[Entry], kind: IntegerType
) -> Entry:
    """An element that a size is computed from: what would wrap is refused when a call starts."""
    if _is_too_long(exact):
        return None
    if isinstance(exact, Expr) and not exact.is_const and op.name not in BITS_READ:
        return s.fitted(op, exact, kind)
    return _element(s, op.name, operands, kind)


def _element(s: Asked, name: str, operands: Sequence[Entry], kind: IntegerType) -> Entry:
    return evaluate(s.arithmetic, name, operands, kind.width, kind.is_unsigned)


def _known(s: Asked, op: ir.Operation) -> list[Entries] | None:
    """The contents of every operand; None when one is not known."""
    found = []
    for value in op.operands:
        entries = s.entries(value)
        if entries is None:
            return None
        found.append(entries)
    return found


def _array(s: Asked, value: ir.Value) -> Any | None:
    """The contents of `value` as an array of entries."""
    entries = s.entries(value)
    if entries is None:
        return None
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array.reshape([size.value for size in s.shape(value)])


# -- one rule per op name -----------------------------------------------------------------------

Rule = Callable[[Asked, ir.Operation, IntegerType], Entries | None]


def _constant(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    value = op.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr):
        return None
    if kind.elements == 0:
        return ()
    if value.is_splat:
        number = int(value.get_splat_value().value)
        if kind.is_unsigned:
            number %= 1 << kind.width  # the bindings read ui64 as i64
        return (bool(number) if kind.width == 1 else Expr.const(number),) * kind.elements
    numbers = elements_of(value, element_type(value.type.element_type))
    if kind.width == 1:
        return tuple(bool(n) for n in numbers)
    return tuple(Expr.const(int(n)) for n in numbers)


def _size_of(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    return (s.shape(op.operands[0])[attr.integer(op, "dimension")],)


def _disc_shape(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    return tuple(s.parsed(d) for d in ir.ArrayAttr(op.attributes["dims"]))


def _disc_dim(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    return (s.parsed(op.attributes["dim"]),)


def _same(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    return s.entries(op.operands[0])


def _bitcast(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    entries = s.entries(op.operands[0])
    if entries is None or len(entries) != kind.elements:
        return None
    return tuple(s.arithmetic.fit(e, kind.width, kind.is_unsigned) for e in entries)


def _convert(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    entries = s.entries(op.operands[0])
    if entries is None:
        return None
    entries = tuple(_of_float(s, op, e, kind) if isinstance(e, Quotient) else e for e in entries)
    if op.results[0] in s.sized and kind.width > 1:
        return tuple(
            s.fitted(op, e, kind) if isinstance(e, Expr) and not e.is_const
            else _converted(s, e, kind)
            for e in entries
        )  # fmt: skip
    return tuple(_converted(s, e, kind) for e in entries)


def _of_float(s: Asked, op: ir.Operation, entry: Quotient, kind: IntegerType) -> Entry:
    if kind.width == 1:  # true unless the float is zero
        return entry.numerator
    low = 0 if kind.is_unsigned else -(1 << kind.width - 1)
    return integer_of(s, op, entry, low, low + (1 << kind.width) - 1)


def _converted(s: Asked, entry: Entry, kind: IntegerType) -> Entry:
    if kind.width == 1:
        return s.arithmetic.compare("NE", entry, _ZERO) if isinstance(entry, Expr) else entry
    if isinstance(entry, bool):
        return Expr.const(int(entry))
    if isinstance(entry, Condition):
        return None
    return s.arithmetic.fit(entry, kind.width, kind.is_unsigned)


_ZERO = Expr.const(0)


def _compare(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    operands = _known(s, op)
    if operands is None:
        return None
    direction = comparison(op)
    return tuple(s.arithmetic.compare(direction, a, b) for a, b in zip(*operands, strict=True))


def _concatenate(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    operands = _known(s, op)
    if operands is None:
        return None
    if len(kind.shape) == 1:
        return tuple(e for o in operands for e in o)
    arrays: list[Any] = [_array(s, v) for v in op.operands]
    return tuple(np.concatenate(arrays, axis=attr.integer(op, "dimension")).reshape(-1))


def _slice(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    array = _array(s, op.operands[0])
    if array is None:
        return None
    keys = ("start_indices", "limit_indices", "strides")
    bounds = zip(*(attr.integers(op, key) for key in keys), strict=True)
    return tuple(array[tuple(slice(*b) for b in bounds)].reshape(-1))


def _dynamic_slice(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    array = _array(s, op.operands[0])
    starts = [s.scalar(v) for v in list(op.operands)[1:]]
    if array is None:
        return None
    window = []
    for start, size, limit in zip(starts, kind.shape, array.shape, strict=True):
        if start is None or not start.is_const:
            return None
        first = min(max(start.value, 0), limit - size)
        window.append(slice(first, first + size))
    return tuple(array[tuple(window)].reshape(-1))


def _gather(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    """Elements of a vector at constant places; starts are clamped, as specified."""
    entries, places = s.entries(op.operands[0]), s.elements(op.operands[1])
    numbers = gather_numbers(op)
    one_each = numbers.collapsed_dims == (0,) and not numbers.window_dims
    if entries is None or places is None or not one_each or len(s.shape(op.operands[0])) != 1:
        return None
    if not entries or len(places) != kind.elements or not all(p.is_const for p in places):
        return None
    return tuple(entries[min(max(p.value, 0), len(entries) - 1)] for p in places)


def _transpose(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    array = _array(s, op.operands[0])
    if array is None:
        return None
    return tuple(array.transpose(attr.integers(op, "permutation")).reshape(-1))


def _reverse(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    array = _array(s, op.operands[0])
    return (
        None
        if array is None
        else tuple(np.flip(array, axis=tuple(attr.integers(op, "dimensions"))).reshape(-1))
    )


def _broadcast(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    entries = s.entries(op.operands[0])
    if entries is None:
        return None
    if len(entries) == 1:
        return entries * kind.elements
    array = _array(s, op.operands[0])
    assert array is not None
    sizes = [1] * len(kind.shape)
    for axis, target in enumerate(attr.integers(op, "broadcast_dimensions")):
        sizes[target] = array.shape[axis]
    return tuple(np.broadcast_to(array.reshape(sizes), kind.shape).reshape(-1))


def _iota(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    numbers = np.indices(kind.shape)[attr.integer(op, "iota_dimension")].reshape(-1)
    return tuple(s.arithmetic.fit(Expr.const(int(n)), *kind[1:3]) for n in numbers)


def _reduce(s: Asked, op: ir.Operation, kind: IntegerType) -> Entries | None:
    """A reduction whose body is one known op of its two arguments."""
    array = _array(s, op.operands[0])
    first = s.entries(op.operands[1])
    body = op.regions[0].blocks[0]
    if array is None or first is None or len(body.operations) != 2:
        return None
    step, returned = (view.operation for view in body.operations)
    if step.name not in ELEMENTWISE or list(step.operands) != list(body.arguments):
        return None
    if returned.operands[0] != step.results[0]:
        return None
    axes = attr.integers(op, "dimensions")
    kept = [k for k in range(array.ndim) if k not in axes]
    many = math.prod(array.shape[axis] for axis in axes)
    rows = array.transpose([*kept, *axes]).reshape(kind.elements, many)
    return tuple(_fold(s, step.name, first[0], row, kind) for row in rows)


def _fold(s: Asked, name: str, first: Entry, row: Sequence[Entry], kind: IntegerType) -> Entry:
    total = first
    for entry in row:
        total = _element(s, name, (total, entry), kind)
    return total


SHAPE_VALUES: dict[str, Rule] = {
    "disc.dim": _disc_dim,
    "disc.shape": _disc_shape,
    "disc.sizes": _disc_shape,
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.compare": _compare,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.convert": _convert,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_reshape": _same,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.gather": _gather,
    "stablehlo.get_dimension_size": _size_of,
    "stablehlo.iota": _iota,
    "stablehlo.optimization_barrier": _same,
    "stablehlo.reduce": _reduce,
    "stablehlo.reshape": _same,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}
"""Ops that are not element-wise: what their result holds."""

_MOVING = frozenset(
    {
        "stablehlo.broadcast_in_dim",
        "stablehlo.concatenate",
        "stablehlo.reshape",
        "stablehlo.slice",
    }
)
"""Ops that move elements, of floats as of integers."""
