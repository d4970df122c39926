"""simplify-algebra: element-wise identities that hold for every bit pattern.

    maximum %x, -inf          ==>  %x
    divide %x, 8.0            ==>  multiply %x, 0.125
    negate (negate %x)        ==>  %x

Why     Automatic differentiation and numerically careful library code leave them; each is an
        instruction per element.
Needs   nothing but constants where rules name them.
Keeps   every result, bit for bit, for NaN (its payload aside), infinities, -0.0 and denormals.
        Identities that are wrong for some value are not here: `x + 0.0` (-0.0 becomes +0.0),
        `x * 0.0`, `x - x`, `x / x` (NaN, infinities). Floats are not re-associated.
Cost    O(ops).
Source  IEEE 754-2019; StableHLO spec (maximum and minimum give NaN when either operand is NaN).

Upstream's `stablehlo-aggressive-simplification` is not used: it replaces x + 0.0 by x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.rules import Facts, Rule, RulePass, defined_by


def _element(op: ir.Operation) -> ir.Type:
    return op.results[0].type.element_type


def _is_float(kind: ir.Type) -> bool:
    return isinstance(kind, ir.FloatType)


def _lowest(kind: ir.Type) -> float | int:
    """The identity of maximum."""
    if _is_float(kind):
        return -math.inf
    return 0 if kind.is_unsigned or kind.width == 1 else -(1 << kind.width - 1)


def _highest(kind: ir.Type) -> float | int:
    """The identity of minimum."""
    if _is_float(kind):
        return math.inf
    bits = int(kind.width) if kind.is_unsigned or kind.width == 1 else int(kind.width) - 1
    return (1 << bits) - 1


def _is_number(value: Any, number: float, kind: ir.Type) -> bool:
    """True if `value` is exactly `number`, the sign of zero included."""
    if value is None or value != number:
        return False
    return not _is_float(kind) or math.copysign(1, value) == math.copysign(1, number)


def _neutral(
    number: Callable[[ir.Type], float | int | None], commutes: bool = True, name: str = ""
) -> Rule:
    """The rule "op(x, n) ==> x" for the neutral n of an element type; None: there is none."""

    def rule(op: ir.Operation, facts: Facts) -> ir.Value | None:
        left, right = op.operands
        splats = facts.splat(left) if commutes else None, facts.splat(right)
        if splats == (None, None):
            return None
        kind = _element(op)
        if not isinstance(kind, ir.IntegerType | ir.FloatType):
            return None
        neutral = number(kind)
        if neutral is None:
            return None
        if _is_number(splats[1], neutral, kind):
            return left
        return right if _is_number(splats[0], neutral, kind) else None

    rule.__name__ = f"neutral_{name}"
    return rule


def _all_ones(kind: ir.Type) -> int:
    return (1 << kind.width) - 1 if kind.is_unsigned else (1 if kind.width == 1 else -1)


def _absorbed(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Integers: x * 0, x & 0 ==> 0 and x | ones ==> ones."""
    kind = _element(op)
    if not isinstance(kind, ir.IntegerType):
        return None
    absorber = _all_ones(kind) if op.name == "stablehlo.or" else 0
    for value in op.operands:
        if facts.splat(value) is not None and int(facts.splat(value)) == absorber:
            return value
    return None


def _idempotent(op: ir.Operation, _: Facts) -> ir.Value | None:
    """op(x, x) ==> x."""
    return op.operands[0] if op.operands[0] == op.operands[1] else None


def _repeated(op: ir.Operation, _: Facts) -> ir.Value | None:
    """op(op(x, c), c) ==> op(x, c), for minimum, maximum, and, or."""
    for outer in (0, 1):
        inner = defined_by(op.operands[outer], op.name)
        if inner is not None and op.operands[1 - outer] in list(inner.operands):
            return op.operands[outer]
    return None


def _joined_alone(op: ir.Operation, _: Facts) -> ir.Value | None:
    """concatenate(x) ==> x"""
    return op.operands[0] if len(op.operands) == 1 else None


def _of_whole(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """slice(x) of all elements ==> x"""
    value, first, _, steps = op.operands
    starts, strides = facts.contents(first), facts.contents(steps)
    if starts is None or strides is None or value.type != op.results[0].type:
        return None
    is_whole = all(s.is_const and s.value == 0 for s in starts) and all(s.is_one for s in strides)
    is_all = is_whole and facts.same_shape(facts.shape(value), facts.shape(op.results[0]))
    return value if is_all else None


def _involution(op: ir.Operation, _: Facts) -> ir.Value | None:
    """op(op(x)) ==> x."""
    inner = defined_by(op.operands[0], op.name)
    return None if inner is None else inner.operands[0]


def _projection(op: ir.Operation, _: Facts) -> ir.Value | None:
    """op(op(x)) ==> op(x)."""
    return op.operands[0] if defined_by(op.operands[0], op.name) else None


def _abs_of_negate(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """abs(negate(x)) ==> abs(x)."""
    inner = defined_by(op.operands[0], "stablehlo.negate")
    if inner is None:
        return None
    result = op.results[0]
    return facts.build(op.name, [inner.operands[0]], result.type, facts.shape(result))


def _divide_by_power_of_two(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Floats: x / 2**k ==> x * 2**-k, where 2**-k is a normal number of the type.

    Both are the one real number x * 2**-k, rounded once.
    """
    row = known_element_type(_element(op))
    number = facts.splat(op.operands[1])
    if row is None or row.kind != "f" or row.bits < 16:
        return None
    if number is None or not math.isfinite(number) or number == 0:
        return None
    smallest = row.format.smallest
    mantissa, exponent = math.frexp(number)
    if abs(mantissa) != 0.5 or not smallest <= 1 - exponent <= -smallest:
        return None
    return _with_constant(op, "stablehlo.multiply", 1 / number, facts)


def _with_constant(op: ir.Operation, name: str, number: float, facts: Facts) -> ir.Value:
    """`name`(first operand of `op`, number): the constant takes the form of the second operand."""
    result = op.results[0]
    shape = facts.shape(result)
    scalar = ir.RankedTensorType.get([], _element(op))
    value = ir.DenseElementsAttr.get_splat(scalar, ir.FloatAttr.get(_element(op), number))
    constant = facts.build("stablehlo.constant", [], scalar, (), {"value": value})
    if result.type.rank:
        constant = facts.broadcast(constant, [], op.operands[1].type, shape)
    return facts.build(name, [op.operands[0], constant], result.type, shape)


def _subtract_itself(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Static integers: x - x and x ^ x ==> 0."""
    result = op.results[0]
    kind = _element(op)
    if op.operands[0] != op.operands[1] or not isinstance(kind, ir.IntegerType):
        return None
    if not result.type.has_static_shape:
        return None
    value = ir.DenseElementsAttr.get_splat(result.type, ir.IntegerAttr.get(kind, 0))
    return facts.build("stablehlo.constant", [], result.type, facts.shape(result), {"value": value})


def _select_one_side(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """select(p, x, x) ==> x, and select(constant, x, y) ==> the chosen one."""
    predicate, on_true, on_false = op.operands
    if on_true == on_false:
        return on_true
    chosen = facts.splat(predicate)
    if chosen is None:
        return None
    return on_true if chosen else on_false


def _select_of_not(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """select(not p, x, y) ==> select(p, y, x)."""
    inner = defined_by(op.operands[0], "stablehlo.not")
    if inner is None:
        return None
    result = op.results[0]
    _, on_true, on_false = op.operands
    return facts.build(
        op.name, [inner.operands[0], on_false, on_true], result.type, facts.shape(result)
    )


def _power_of_one(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Power: x ** 1 ==> x."""
    return op.operands[0] if facts.splat(op.operands[1]) == 1 else None


def _square(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Power: x ** 2 ==> x * x, which is the correctly rounded power."""
    if facts.splat(op.operands[1]) != 2:
        return None
    result = op.results[0]
    base = op.operands[0]
    return facts.build("stablehlo.multiply", [base, base], result.type, facts.shape(result))


def _zero_of_add(kind: ir.Type) -> float | int:
    # -0.0 + -0.0 is -0.0 and +0.0 + -0.0 is +0.0: the neutral element has a sign.
    return -0.0 if _is_float(kind) else 0


RULES: dict[str, tuple[Rule, ...]] = {
    "stablehlo.abs": (_projection, _abs_of_negate),
    "stablehlo.add": (_neutral(_zero_of_add, name="add"),),
    "stablehlo.and": (_idempotent, _neutral(_all_ones, name="and"), _absorbed, _repeated),
    "stablehlo.ceil": (_projection,),
    "stablehlo.concatenate": (_joined_alone,),
    "stablehlo.divide": (
        _neutral(lambda _: 1, commutes=False, name="divide"),
        _divide_by_power_of_two,
    ),
    "stablehlo.floor": (_projection,),
    "stablehlo.maximum": (_idempotent, _neutral(_lowest, name="maximum"), _repeated),
    "stablehlo.minimum": (_idempotent, _neutral(_highest, name="minimum"), _repeated),
    "stablehlo.multiply": (_neutral(lambda _: 1, name="multiply"), _absorbed),
    "stablehlo.negate": (_involution,),
    "stablehlo.not": (_involution,),
    "stablehlo.or": (_idempotent, _neutral(lambda _: 0, name="or"), _absorbed, _repeated),
    "stablehlo.power": (_power_of_one, _square),
    "stablehlo.real_dynamic_slice": (_of_whole,),
    "stablehlo.round_nearest_afz": (_projection,),
    "stablehlo.round_nearest_even": (_projection,),
    "stablehlo.select": (_select_one_side, _select_of_not),
    "stablehlo.subtract": (
        _neutral(lambda _: 0, commutes=False, name="subtract"),
        _subtract_itself,
    ),
    "stablehlo.xor": (_neutral(lambda _: 0, name="xor"), _subtract_itself),
}

register(RulePass("simplify-algebra", RULES))
