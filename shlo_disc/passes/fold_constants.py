"""fold-constants: what is known when compiling is computed when compiling.

    log (broadcast 0.5)                        ==>  broadcast -0.6931472
    add (constant [1, 2]), (constant [3, 4])   ==>  constant [4, 6]
    maximum (disc.dim b), ...                  ==>  itself: sizes are the host's

Why     Expansions of library functions compute on constants for every element.
Needs   `resolve-shapes`.
Keeps   every result; transcendental functions are evaluated in f64 and rounded once, which no
        kernel does better. Integer division by zero is left alone.
Cost    O(ops). Folding never makes a program larger: a constant that is not a splat has at most
        MAX_ELEMENTS elements.
Source  StableHLO spec of each op; integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from shlo_disc.ir.comparisons import comparison, is_total_order
from shlo_disc.ir.element_types import element_type, known_element_type
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.ir.ops import OPS, names
from shlo_disc.ir.ops.folding import Array
from shlo_disc.passes.base import register
from shlo_disc.passes.rules import Facts, RulePass, defined_by

MAX_ELEMENTS = 1024
"""Of a constant made by folding, unless all its elements are equal."""

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
    "NE": np.not_equal,
}


def elementwise(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """An element-wise op on constants, or on scalars spread by broadcasts ==> a constant."""
    if not all(_may_fold(v, facts) for v in op.operands):
        return None
    result = op.results[0]
    if _dtype_of(result) is None:
        return None
    arrays = [_splat_array(v, facts) for v in op.operands]
    if all(a is not None for a in arrays):
        folded = _evaluate(op, [a for a in arrays if a is not None])
        if folded is None:
            return None
        element = _attribute(folded.reshape(()), result.type.element_type).get_splat_value()
        return facts.filled(element, result.type, facts.shape(result))
    arrays = [constant_array(v, facts) for v in op.operands]
    known = [a for a in arrays if a is not None]
    if len(known) != len(arrays) or not result.type.has_static_shape:
        return None
    folded = _evaluate(op, known)
    return None if folded is None else _literal(folded, result, facts)


def moved(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """A small constant sliced, reshaped, transposed, reversed or joined ==> a constant."""
    result = op.results[0]
    if not result.type.has_static_shape or _dtype_of(result) is None:
        return None
    arrays = [constant_array(v, facts) for v in op.operands]
    known = [a for a in arrays if a is not None]
    if len(known) != len(arrays):
        return None
    shape = [int(n) for n in result.type.shape]
    if math.prod(shape) > MAX_ELEMENTS:
        return None
    return _literal(_MOVES[op.name](op, known, shape), result, facts)


def _slice(op: ir.Operation, arrays: list[Array], _: list[int]) -> Array:
    bounds = (
        list(ir.DenseI64ArrayAttr(op.attributes[n]))
        for n in ("start_indices", "limit_indices", "strides")
    )
    return arrays[0][tuple(slice(*b) for b in zip(*bounds, strict=True))]


_MOVES: dict[str, Callable[[ir.Operation, list[Array], list[int]], Array]] = {
    "stablehlo.concatenate": lambda op, arrays, _: np.concatenate(
        arrays, axis=int(ir.IntegerAttr(op.attributes["dimension"]).value)
    ),
    "stablehlo.reshape": lambda _op, arrays, shape: arrays[0].reshape(shape),
    "stablehlo.reverse": lambda op, arrays, _: np.flip(
        arrays[0], axis=tuple(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    ),
    "stablehlo.slice": _slice,
    "stablehlo.transpose": lambda op, arrays, _: arrays[0].transpose(
        list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    ),
}


def _evaluate(op: ir.Operation, arrays: list[Array]) -> Array | None:
    """The value of `op` on these arrays, in the element type of its result; None: not folded."""
    to = element_type(op.results[0].type.element_type).dtype
    # What is an overflow or an invalid operation to NumPy is inf or NaN to the program.
    with np.errstate(all="ignore"):
        fold = OPS[op.name].fold
        if fold is not None:
            traps = op.name == "stablehlo.divide" and to.kind in "iu"
            return None if traps else _cast(fold(*arrays), to)
        if op.name == "stablehlo.compare":
            return _compare(op, arrays)
        if op.name == "stablehlo.convert":
            return _convert(arrays[0], to)
    return None


def _compare(op: ir.Operation, arrays: list[Array]) -> Array | None:
    return None if is_total_order(op) else _COMPARE[comparison(op)](*arrays)


def _convert(x: Array, to: np.dtype[Any]) -> Array | None:
    if to == np.bool_:
        return np.not_equal(x, 0)
    if to.kind in "iu" and x.dtype.kind not in "iub":
        # Out of range the spec leaves the result open: kernels and this must not differ.
        limits = np.iinfo(to)
        inside = np.isfinite(x) & (x > float(limits.min)) & (x < float(limits.max))
        return np.trunc(x.astype(np.float64)).astype(to) if inside.all() else None
    return _cast(x, to)


def _cast(x: Array, to: np.dtype[Any]) -> Array:
    """`x` as `to`, rounded once."""
    if to != ml_dtypes.bfloat16 or x.dtype.itemsize < 4 or x.dtype == np.float32:
        return x.astype(to)
    # ml_dtypes rounds to f32 first. An f32 whose last bit says "not exact" rounds as `x` does:
    # round to odd (Boldo and Melquiond, 2008). The 64 bits of x87 hold every 64-bit integer.
    exact = x.astype(np.longdouble)
    near = exact.astype(np.float32)
    inexact = np.isfinite(near) & (near != exact)
    bits = near.view(np.uint32)
    odd = (bits - (np.abs(near) > np.abs(exact))).astype(np.uint32) | np.uint32(1)
    return np.where(inexact, odd, bits).view(np.float32).astype(to)


def _dtype_of(value: ir.Value) -> np.dtype[Any] | None:
    """The NumPy type of the elements; None for a type that the bindings of MLIR cannot read."""
    row = known_element_type(value.type.element_type)
    if row is None or (row.kind != "b" and row.bits < (16 if row.kind == "f" else 8)):
        return None
    return row.dtype


def _splat_array(value: ir.Value, facts: Facts) -> Array | None:
    """The one number all of `value` is, as a rank-0 array of its element type."""
    number = facts.splat(value)
    dtype = _dtype_of(value)
    return None if number is None or dtype is None else np.asarray(number).astype(dtype)


def _may_fold(value: ir.Value, facts: Facts) -> bool:
    """False for most values: only of the others is the type worth a look."""
    return (
        facts.splat_element(value) is not None
        or defined_by(value, "stablehlo.constant") is not None
    )


def constant_array(value: ir.Value, facts: Facts) -> Array | None:
    """The array of a small constant."""
    op = producer(value)
    if op is None or op.name != "stablehlo.constant" or not value.type.has_static_shape:
        return None
    shape = [int(n) for n in value.type.shape]
    if math.prod(shape) > MAX_ELEMENTS or _dtype_of(value) is None:
        return None
    number = _splat_array(value, facts)
    if number is not None:
        return np.full(shape, number)
    if isinstance(value.type.element_type, ir.BF16Type):  # no buffer protocol in the bindings
        return None
    return np.asarray(op.attributes["value"])


def _attribute(array: Array, element: ir.Type) -> ir.Attribute:
    bits = array.view(np.uint16) if isinstance(element, ir.BF16Type) else array
    return ir.DenseElementsAttr.get(
        np.ascontiguousarray(bits), type=element, shape=list(array.shape)
    )


def _literal(array: Array, result: ir.Value, facts: Facts) -> ir.Value:
    value = _attribute(array, result.type.element_type)
    return facts.build("stablehlo.constant", [], result.type, facts.shape(result), {"value": value})


_ELEMENTWISE = (
    *sorted(names(lambda row: row.fold is not None)),
    "stablehlo.compare",
    "stablehlo.convert",
)
RULES = {
    **dict.fromkeys(_ELEMENTWISE, (elementwise,)),
    **dict.fromkeys(_MOVES, (moved,)),
}

register(RulePass("fold-constants", RULES))
