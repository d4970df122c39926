"""sum-integers: a product of dequantised integers is a product of the integers, scaled.

    dot_general(convert(%q) * s, (convert(%p) - 3) * t)         q, p : i8 or ui8
    ==>  %sums = dot_general(%q, %p) - 3 * reduce add %q : i32
         convert(%sums) * s * t

Why     Exporters (PyTorch's pt2e, ONNX) and `uniform_dequantize` leave products of floats whose
        operands have 8 bits. Integers are a quarter of the bytes, and machines multiply more of
        them at once. Requantisation behind the product is element-wise work on its sums.
Needs   `simplify`: scales are broadcasts, transposes are in the product.
Keeps   the result up to less than the error of a sum of floats. Let u = 2^-24, and let x and y be
        the dequantised operands, which have an error of u each. The exact sum of x * y is within
        2u of s * t * sum, relative to the sum of |x * y|. The integer sum is exact. Its conversion
        and two scalings add 3u. A sum of K floats has an error of up to K * u. Where a scale is
        NaN, so is the result. Where a scale is infinite or a product of two scales overflows,
        neither result is finite. They may differ in which of NaN and the infinities they are.
Cost    O(products).
Source  Jacob et al., "Quantization and training of neural networks for efficient
        integer-arithmetic-only inference" (2018), section 2.3.

A scale or zero point is a number, or has no dimension that is summed. Let a = q - z and b = p - w.
Then the sum of a * b is that of q * p, minus w times that of q, minus z times that of b. All are
integers modulo 2^32, so only the last must fit into 32 bits: `_MOST` bounds K. Where K is a symbol
a guard does: who compiles for a call (`disc.seen`) makes another program if that is refused. Else
floats stay.

An open zero point is an array that may hold anything. It is cut into its nearest integer in the
range of q or p, which is z, and a rest r, of floats. Then r times the sum of b is subtracted, too.
The rest has the sign of z - q for all q where z is out of range, so nothing cancels. Else it is at
most 1/2, and |q - z| at most three times |q - z - r|, or 0: a few u more. That of PyTorch is 0.

The smaller of two unknown scales is multiplied first: 2^31 times the larger may overflow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.seen import SEEN
from shlo_disc.ir.attributes import broadcast_dims
from shlo_disc.ir.builders import compare, element_of, summed, with_element
from shlo_disc.ir.contractions import Side, dot_sides
from shlo_disc.ir.dialect import Guard
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.op_classes import BROADCASTS, WHY
from shlo_disc.passes.rules import Facts, RulePass, defined_by

_MOST = (1 << 31) - 1
"""The largest sum."""

_LEAST_DEPTH = 16
"""Products in a sum from which on they are integers: the error of fewer floats may be smaller."""

_LIMITS = {False: (-128, 127), True: (0, 255)}
"""Of integers of 8 bits, signed and unsigned."""

_NUMBERS = (*BROADCASTS, "stablehlo.constant")

_SAFE = 2.0**96
"""2^31 times a scale up to this is finite."""


class _Spread(NamedTuple):
    """A value and which dimensions of an operand its own are; it is the same along all others."""

    value: ir.Value
    dims: tuple[int, ...]
    kept: tuple[int, ...]
    """Its dimensions that `dims` are about; others have size 1. A splat keeps none."""


class _Dequantised(NamedTuple):
    """(`integers` - `zero`) * `scale`; None: no zero point, a scale of 1."""

    integers: ir.Value
    zero: _Spread | None
    scale: _Spread | None
    largest: int
    """Of the magnitudes of `integers - zero`."""
    is_open: bool
    """The zero point may be any number: see the module."""
    side: Side


class _RefusedError(Exception):
    """Why floats stay, where both operands were integers of 8 bits."""


def sum_integers(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """See the module."""
    result = op.results[0]
    if WHY in op.attributes or not all(_is_f32(v) for v in (*op.operands, result)):
        return None
    if not all(_begins_narrow(value) for value in op.operands):
        return None
    try:
        left, right = (
            _dequantised(value, side, facts)
            for value, side in zip(op.operands, dot_sides(op), strict=True)
        )
        if left.is_open and right.is_open:
            raise _RefusedError("neither zero point is known to be an integer of 8 bits")
        if "algorithm" in op.attributes:
            raise _RefusedError("the program asks for an algorithm of floats")
        _bound_depth(op, left, right, facts)
    except _RefusedError as reason:
        op.attributes[WHY] = ir.StringAttr.get(f"sums of floats: {reason}")
        return None
    return _product(op, left, right, facts)


# --- what is there --------------------------------------------------------------------------------


def _is_f32(value: ir.Value) -> bool:
    return isinstance(element_of(value), ir.F32Type)


def _is_narrow(value: ir.Value) -> bool:
    kind = element_of(value)
    return isinstance(kind, ir.IntegerType) and kind.width == 8


def _begins_narrow(value: ir.Value) -> bool:
    """True for integers of 8 bits behind conversions, a product and a difference."""
    for _ in range(4):
        op = defined_by(value, "stablehlo.multiply", "stablehlo.subtract", "stablehlo.convert")
        if op is None:
            return False
        value = op.operands[0]
        if op.name == "stablehlo.multiply" and defined_by(value, *_NUMBERS):
            value = op.operands[1]
        if op.name == "stablehlo.convert" and _is_narrow(value):
            return True
    return False


def _dequantised(value: ir.Value, side: Side, facts: Facts) -> _Dequantised:
    """How `value` is computed from integers of 8 bits, which :func:`_begins_narrow` has found."""
    scale = None
    if product := defined_by(value, "stablehlo.multiply"):
        value, factor = product.operands
        if defined_by(value, *_NUMBERS):
            value, factor = factor, value
        scale = _spread(factor, side, facts, "scale")
    zero = None
    bounds: tuple[int, int] | None = (0, 0)
    value = _behind_convert(value)
    if (difference := defined_by(value, "stablehlo.subtract")) and _holds_differences(value):
        value, point = difference.operands
        zero = _spread(point, side, facts, "zero point")
        bounds = _range(point, facts)
    value = _behind_convert(value)
    if not _is_narrow(value):
        raise _RefusedError("an operand is not (integers - zero point) * scale")
    least, most = _LIMITS[element_of(value).is_unsigned]
    low, high = bounds or (least, most)
    largest = max(abs(least - high), abs(most - low))
    return _Dequantised(value, zero, scale, largest, bounds is None, side)


def _behind_convert(value: ir.Value) -> ir.Value:
    """The integers of which `value` is the conversion; or itself."""
    op = defined_by(value, "stablehlo.convert")
    if op is None or not isinstance(element_of(op.operands[0]), ir.IntegerType):
        return value
    inner: ir.Value = op.operands[0]
    return inner


def _holds_differences(value: ir.Value) -> bool:
    """True if differences of integers of 16 bits are exact in the type of `value`."""
    kind = element_of(value)
    if not isinstance(kind, ir.IntegerType):
        return _is_f32(value)
    return bool(kind.width >= 32 and not kind.is_unsigned)


def _range(value: ir.Value, facts: Facts) -> tuple[int, int] | None:
    """The least and the largest number that `value` may hold, where these are integers."""
    number = facts.splat(value)
    if number is not None:
        return _whole(number, number)
    if _is_narrow(value):
        return _LIMITS[element_of(value).is_unsigned]
    op = defined_by(value, *_NUMBERS, "stablehlo.convert")
    if op is not None and op.name == "stablehlo.constant":
        numbers = np.asarray(ir.DenseElementsAttr(op.attributes["value"]))
        if numbers.size:
            return _whole(numbers.min(), numbers.max(), bool((numbers == np.rint(numbers)).all()))
    elif op is not None and (
        op.name in BROADCASTS or isinstance(element_of(op.operands[0]), ir.IntegerType)
    ):
        return _range(op.operands[0], facts)
    return None


def _whole(low: float, high: float, are_whole: bool = True) -> tuple[int, int] | None:
    if not are_whole or not max(abs(low), abs(high)) < 1 << 15 or low != int(low):
        return None
    return int(low), int(high)


def _spread(value: ir.Value, side: Side, facts: Facts, what: str) -> _Spread:
    """`value` without the dimensions along which it is the same."""
    if facts.splat_element(value) is not None:
        return _Spread(value, (), ())
    op = defined_by(value, *BROADCASTS)
    if op is None:
        raise _RefusedError(f"a {what} is an array as large as its operand")
    source, dims = op.operands[0], broadcast_dims(op)
    kept = tuple(k for k, size in enumerate(facts.shape(source)) if not size.is_one)
    if any(dims[k] in side.contracting for k in kept):
        raise _RefusedError(f"a {what} changes along the sum")
    return _Spread(source, tuple(dims[k] for k in kept), kept)


def _alone(one: _Spread, facts: Facts) -> ir.Value:
    """The value, with the dimensions that are kept."""
    value, sizes = one.value, facts.shape(one.value)
    element = facts.splat_element(value)
    if element is not None and not one.kept:
        return facts.filled(element, ir.RankedTensorType.get([], element_of(value)), ())
    if len(one.kept) == len(sizes):
        return value
    kind = ir.RankedTensorType.get([value.type.shape[k] for k in one.kept], element_of(value))
    return facts.reshape(value, kind, tuple(sizes[k] for k in one.kept))


def _bound_depth(op: ir.Operation, left: _Dequantised, right: _Dequantised, facts: Facts) -> None:
    """The sums of `op` fit into 32 bits, in every call."""
    sizes = facts.shape(op.operands[0])
    depth = Expr.product(sizes[d] for d in left.side.contracting)
    most = _MOST // max(left.largest * right.largest, 1)
    if depth.is_const and depth.value < _LEAST_DEPTH:
        raise _RefusedError(f"there are only {depth.value} products in a sum")
    if not facts.analysis.constraints.at_least(depth, 1):
        raise _RefusedError("a sum may be empty: 0, whatever the scales are")
    implied = facts.analysis.constraints.implies(depth, "<=", Expr.const(most))
    if implied:
        return
    main = op.operation.parent
    if implied is False or main is None or main.name != "func.func" or SEEN not in main.attributes:
        raise _RefusedError(f"a sum of more than {most} products may not fit into 32 bits")
    texts = {"lhs": str(depth), "op": "<=", "rhs": str(most)}
    texts["message"] = f"{source_line(op)}: sums of integers fit into 32 bits up to {most} products"
    Guard(**{name: ir.StringAttr.get(text) for name, text in texts.items()})


# --- what becomes of it ---------------------------------------------------------------------------


def _product(op: ir.Operation, left: _Dequantised, right: _Dequantised, facts: Facts) -> ir.Value:
    result = op.results[0]
    shape, i32 = facts.shape(result), ir.IntegerType.get_signless(32)
    wide = with_element(result.type, i32)
    numbers = {"dot_dimension_numbers": op.attributes["dot_dimension_numbers"]}
    numbers[WHY] = ir.StringAttr.get("sums of integers: both operands were dequantised from 8 bits")
    operands = [left.integers, right.integers]
    sums = facts.build("stablehlo.dot_general", operands, wide, shape, numbers)

    def over_result(one: _Spread, side: Side, kind: ir.Type) -> ir.Value:
        place = {d: k for k, d in enumerate(side.batch)}
        place |= dict(zip(side.free, side.results, strict=True))
        dims = [place[d] for d in one.dims]
        value, order = _alone(one, facts), sorted(range(len(dims)), key=lambda k: dims[k])
        if order != sorted(order):
            value = facts.transpose(value, order)
        if element_of(value) != kind.element_type:
            own = with_element(value.type, kind.element_type)
            value = facts.build("stablehlo.convert", [value], own, facts.shape(value))
        return facts.broadcast(value, sorted(dims), kind, shape)

    def less(value: ir.Value, zero: _Spread, mine: Side, total: _Spread, side: Side) -> ir.Value:
        kind = value.type
        factors = [over_result(zero, mine, kind), over_result(total, side, kind)]
        product = facts.build("stablehlo.multiply", factors, kind, shape)
        return facts.build("stablehlo.subtract", [value, product], kind, shape)

    def total(one: _Dequantised, zero: _Spread | None) -> _Spread:
        sizes = facts.shape(one.integers)
        kind = with_element(one.integers.type, i32)
        value = facts.build("stablehlo.convert", [one.integers], kind, sizes)
        if zero is not None:
            point = facts.broadcast(zero.value, zero.dims, kind, sizes)
            value = facts.build("stablehlo.subtract", [value, point], kind, sizes)
        dims = tuple(d for d in range(len(sizes)) if d not in one.side.contracting)
        found = summed(value, one.side.contracting)
        facts.made[found] = tuple(sizes[d] for d in dims)
        return _Spread(found, dims, tuple(range(len(dims))))

    (whole_left, rest_left), (whole_right, rest_right) = (_cut(one, facts) for one in (left, right))
    if whole_right is not None:
        sums = less(sums, whole_right, right.side, total(left, None), left.side)
    if whole_left is not None:
        sums = less(sums, whole_left, left.side, total(right, whole_right), right.side)
    value = facts.build("stablehlo.convert", [sums], result.type, shape)
    if rest_right is not None:
        value = less(value, rest_right, right.side, total(left, whole_left), left.side)
    if rest_left is not None:
        value = less(value, rest_left, left.side, total(right, whole_right), right.side)
    scales = [(x.scale, x.side) for x in (left, right) if x.scale is not None]
    known = [facts.splat(scale.value) for scale, _ in scales]
    both = math.prod(known) if None not in known else None
    factors = [over_result(scale, side, result.type) for scale, side in scales]
    if len(factors) == 2 and both is not None and 2.0**-126 <= abs(both) <= _SAFE:
        element = ir.FloatAttr.get(result.type.element_type, float(both))
        factors = [facts.filled(element, result.type, shape)]
    elif len(factors) == 2:
        is_safe = [x is not None and abs(x) <= _SAFE for x in known]
        if is_safe[1] and not is_safe[0]:
            factors.reverse()
        elif not is_safe[0]:
            factors = _smaller_first(factors, facts)
    for factor in factors:
        value = facts.build("stablehlo.multiply", [value, factor], result.type, shape)
    return value


def _cut(one: _Dequantised, facts: Facts) -> tuple[_Spread | None, _Spread | None]:
    """The zero point as an integer of 32 bits, and the rest of an open one, of f32."""
    if one.zero is None:
        return None, None
    value = _alone(one.zero, facts)
    shape, dims = facts.shape(value), one.zero.dims

    def made(name: str, operands: list[ir.Value], element: ir.Type) -> ir.Value:
        kind = with_element(value.type, element)
        return facts.build(f"stablehlo.{name}", operands, kind, shape)

    def spread(value: ir.Value) -> _Spread:
        return _Spread(value, dims, tuple(range(len(dims))))

    i32, f32 = ir.IntegerType.get_signless(32), ir.F32Type.get()
    if not one.is_open:
        return spread(made("convert", [value], i32)), None
    number = near = made("convert", [value], f32)
    limits = _LIMITS[element_of(one.integers).is_unsigned]
    for name, limit in zip(("maximum", "minimum"), limits, strict=True):
        bound = facts.filled(ir.FloatAttr.get(f32, limit), near.type, shape)
        near = made(name, [near, bound], f32)
    whole = made("convert", [made("round_nearest_even", [near], f32)], i32)
    return spread(whole), spread(made("subtract", [number, made("convert", [whole], f32)], f32))


def _smaller_first(factors: list[ir.Value], facts: Facts) -> list[ir.Value]:
    """Two values of one shape, in every element the one of the smaller magnitude in front."""
    kind, shape = factors[0].type, facts.shape(factors[0])
    less = compare("LT", *(facts.build("stablehlo.abs", [x], kind, shape) for x in factors))
    facts.made[less] = shape
    return [
        facts.build("stablehlo.select", [less, *pair], kind, shape)
        for pair in (factors, factors[::-1])
    ]


RULES = {"stablehlo.dot_general": (sum_integers,)}

SUM_INTEGERS = register(RulePass("sum-integers", RULES))
