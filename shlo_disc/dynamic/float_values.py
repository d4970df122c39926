"""Floats computed from sizes: what small float tensors hold, while that is exact.

    %0 = convert %n : i64 to f64                    n / 1
    %1 = divide %0, %c2 : f64                       n / 2, exact
    %2 = divide %0, %c3 : f64                       n / 3, rounded
    %3 = ceil %2 : f64                              ceil(n / 3), exact again
    %4 = convert %3 : f64 to i64                    ceil(n / 3), a size

PyTorch writes the length of `arange` this way. A float is a quotient of integer terms. One of
numbers below `2^digits` is rounded at most once, by the division. It then rounds up, down or
towards 0 to the same integer as the exact quotient of `a` and `b`. For let k be the next integer
above: a / b is below k by at least 1 / b, unless it is k. Rounding moves a / b by at most
a / (b * 2^digits), which is less than 1 / b.

That the numbers are below `2^digits` follows from the sizes, or a guard of every call says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shlo_disc.dynamic.arithmetic import Entry, Quotient, exceeds
from shlo_disc.dynamic.asked import Asked
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.dense_elements import elements_of
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir

DIGITS = {"f32": 24, "f64": 53}
"""Bits of the mantissas of the float types that sizes are computed in."""

GUARDED_DIGITS = 53
"""A call with larger numbers than these has no sense as an array: a guard may refuse it. Those of
f32 are not beyond the sizes of arrays."""


class FloatType(NamedTuple):
    """A small float tensor type: static sizes, bits of the mantissa, number of elements."""

    shape: tuple[int, ...]
    digits: int
    elements: int


def quotient_of(s: Asked, entry: Entry, digits: int) -> Entry:
    """The float that an integer or a float becomes by conversion; None if it may be rounded."""
    if isinstance(entry, Expr):
        return _exact(s, entry, 1, digits, ())
    if isinstance(entry, Quotient) and not entry.is_rounded:
        return _exact(s, entry.numerator, entry.denominator, digits, entry.below)
    return None


def integer_of(s: Asked, op: ir.Operation, entry: Quotient, least: int, most: int) -> Entry:
    """The integer that a float becomes by conversion to a type that holds `least` to `most`.

    Guards say that the float is exact. What the type does not hold is not known: a conversion of
    floats does not wrap.
    """
    whole = s.arithmetic.divide(entry.numerator, Expr.of(entry.denominator))
    if isinstance(whole, Expr) and whole.is_const and not least <= whole.value <= most:
        return None
    for term in entry.below:
        s.require(op, term, "<=", Expr.const(1 << GUARDED_DIGITS))
    return whole


def constant_quotients(value: ir.DenseElementsAttr, kind: FloatType) -> tuple[Entry, ...]:
    """The elements of a constant; None of those that are not finite or too long."""
    if value.is_splat:
        return (_number(float(value.get_splat_value().value), kind.digits),) * kind.elements
    numbers = elements_of(value, element_type(value.type.element_type))
    return tuple(_number(float(n), kind.digits) for n in numbers)


def _number(number: float, digits: int) -> Entry:
    if not math.isfinite(number) or (number == 0 and math.copysign(1, number) < 0):
        return None
    numerator, denominator = number.as_integer_ratio()
    if max(abs(numerator), denominator) > 1 << digits:
        return None
    return Quotient(Expr.const(numerator), denominator)


def _exact(
    s: Asked,
    numerator: Expr,
    denominator: Expr | int,
    digits: int,
    below: tuple[Expr, ...],
    *,
    is_rounded: bool = False,
) -> Entry:
    """The quotient, with what has to be below the largest exact integer; None if it may not be."""
    limit = 1 << digits
    for term in (numerator, denominator):
        if isinstance(term, int) or term.is_const:
            if abs(term if isinstance(term, int) else term.value) > limit:
                return None
        elif exceeds(term, -limit, limit, s.constraints.signed):
            least, most = s.constraints.bounds(term)
            if least is not None and most is not None and -limit <= least and most <= limit:
                continue
            if digits < GUARDED_DIGITS:
                return None
            below = (*below, *(t for t in (term, -term) if not s.constraints.at_least(0, t)))
    return Quotient(numerator, denominator, is_rounded, tuple(dict.fromkeys(below)))


def _is_exact(*entries: Entry) -> bool:
    return all(isinstance(e, Quotient) and not e.is_rounded for e in entries)


Float = Callable[[Asked, int, Sequence[Entry]], Entry]


def _add(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    a, b = operands
    if not isinstance(a, Quotient) or not isinstance(b, Quotient) or not _is_exact(a, b):
        return None
    if not isinstance(a.denominator, int) or not isinstance(b.denominator, int):
        return None
    common = max(a.denominator, b.denominator)  # powers of two
    total = a.numerator * (common // a.denominator) + b.numerator * (common // b.denominator)
    return _exact(s, total, common, digits, a.below + b.below)


def _subtract(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    a, b = operands
    return _add(s, digits, (a, _negate(s, digits, [b])))


def _negate(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    (a,) = operands
    return a._replace(numerator=-a.numerator) if isinstance(a, Quotient) else None


def _multiply(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    a, b = operands
    if not isinstance(a, Quotient) or not isinstance(b, Quotient) or not _is_exact(a, b):
        return None
    if not isinstance(a.denominator, int) or not isinstance(b.denominator, int):
        return None
    if not a.numerator.may_be_multiplied(b.numerator):
        return None
    product, below = a.numerator * b.numerator, a.below + b.below
    return _exact(s, product, a.denominator * b.denominator, digits, below)


def _divide(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    a, b = operands
    if not isinstance(a, Quotient) or not isinstance(b, Quotient) or not _is_exact(a, b):
        return None
    if not isinstance(a.denominator, int) or not isinstance(b.denominator, int):
        return None
    numerator, denominator = a.numerator * b.denominator, b.numerator * a.denominator
    if s.constraints.at_least(-1, denominator):
        numerator, denominator = -numerator, -denominator
    if not s.constraints.at_least(denominator, 1):
        return None
    below = a.below + b.below
    if not denominator.is_const:
        return _exact(s, numerator, denominator, digits, below, is_rounded=True)
    number = denominator.value
    common = math.gcd(number, numerator.content)
    if common > 1:
        numerator, number = Expr({m: c // common for m, c in numerator.terms}), number // common
    is_rounded = number & (number - 1) != 0
    return _exact(s, numerator, number, digits, below, is_rounded=is_rounded)


def _floor(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    (a,) = operands
    if not isinstance(a, Quotient):
        return None
    return Quotient(s.constraints.canonical(a.numerator // a.denominator), 1, False, a.below)


def _ceil(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
    (a,) = operands
    return _negate(s, digits, [_floor(s, digits, [_negate(s, digits, [a])])])


def _extremum(name: str) -> Float:
    def rule(s: Asked, digits: int, operands: Sequence[Entry]) -> Entry:
        a, b = operands
        if not isinstance(a, Quotient) or not isinstance(b, Quotient) or not _is_exact(a, b):
            return None
        if a.denominator != 1 or b.denominator != 1:
            return None
        found = getattr(Expr, name)(a.numerator, b.numerator)
        return Quotient(s.constraints.canonical(found), 1, False, a.below + b.below)

    return rule


FLOAT_RULES: dict[str, Float] = {
    "stablehlo.add": _add,
    "stablehlo.ceil": _ceil,
    "stablehlo.divide": _divide,
    "stablehlo.floor": _floor,
    "stablehlo.maximum": _extremum("max"),
    "stablehlo.minimum": _extremum("min"),
    "stablehlo.multiply": _multiply,
    "stablehlo.negate": _negate,
    "stablehlo.subtract": _subtract,
}
"""Element-wise ops of floats: (analysis, bits of the mantissa, one entry per operand) -> entry."""
