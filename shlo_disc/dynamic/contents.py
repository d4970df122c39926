"""The integer contents of small tensors that are computed from sizes only.

Shape operands of dynamic ops are ordinary integer tensors; following their arithmetic symbolically tells
what they hold. An entry is an :class:`Expr` (a number), a :class:`Condition` (a truth value not
decided), a bool, one of the two helper forms of truncating division, or None (not known).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.mlir import ir

__all__ = ["MAX_ELEMENTS", "SCALAR_RULES", "Condition", "Entry", "Truncated", "constant_entries"]

MAX_ELEMENTS = 32
"""Shape operands have at most 2 x rank entries; longer tensors are data."""


@dataclass(frozen=True)
class Condition:
    """`lhs op rhs`, undecided; or the conjunction / disjunction of `parts`."""

    op: str
    lhs: Entry = None
    rhs: Entry = None
    parts: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Truncated:
    """`stablehlo.divide` ("div") or `remainder` ("rem") of sizes that may be negative, plus `offset`
    times 1 (div) or the divisor (rem)."""

    kind: str
    a: Expr
    b: Expr
    offset: int = 0


@dataclass(frozen=True)
class Sign:
    """`stablehlo.sign` of a size whose sign is not proved."""

    of: Expr


Entry = Expr | Condition | Truncated | Sign | bool | None


def constant_entries(op: ir.Operation) -> tuple[Entry, ...] | None:
    """The entries of a small integer or i1 constant."""
    kind = ir.RankedTensorType(op.results[0].type)
    if not isinstance(kind.element_type, ir.IntegerType) or kind.rank > 1:
        return None
    count = kind.shape[0] if kind.rank else 1
    if count > MAX_ELEMENTS:
        return None
    value = op.attributes["value"]
    boolean = kind.element_type.width == 1
    if value.is_splat:
        one = value.get_splat_value()
        entry = bool(one.value) if boolean else Expr.const(int(one.value))
        return (entry,) * count
    numbers = np.array(value).reshape(-1)
    return tuple(bool(n) if boolean else Expr.const(int(n)) for n in numbers)


def _add(facts: Constraints, a: Entry, b: Entry) -> Entry:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a + b
    if isinstance(b, Truncated):
        a, b = b, a
    if isinstance(a, Truncated) and isinstance(b, Expr):
        if a.kind == "rem" and a.b == b:
            return Truncated(a.kind, a.a, a.b, a.offset + 1)
        if a.kind == "div" and b.is_const:
            return Truncated(a.kind, a.a, a.b, a.offset + b.value)
    return None


def _subtract(facts: Constraints, a: Entry, b: Entry) -> Entry:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a - b
    if isinstance(a, Truncated) and isinstance(b, Expr) and b.is_const and a.kind == "div":
        return Truncated(a.kind, a.a, a.b, a.offset - b.value)
    return None


def _multiply(facts: Constraints, a: Entry, b: Entry) -> Entry:
    return a * b if isinstance(a, Expr) and isinstance(b, Expr) else None


def _divide(facts: Constraints, a: Entry, b: Entry) -> Entry:
    """Truncates towards zero: the floor when both are proved to be >= 0."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or not facts.at_least(b, 1):
        return None
    exact = b.is_const and facts.divisible(a, b.value)
    return a // b if exact or facts.at_least(a, 0) else Truncated("div", a, b)


def _remainder(facts: Constraints, a: Entry, b: Entry) -> Entry:
    """The sign of the dividend: the modulus when both are proved to be >= 0."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or not facts.at_least(b, 1):
        return None
    if b.is_const and facts.divisible(a, b.value):
        return Expr.const(0)
    return a % b if facts.at_least(a, 0) else Truncated("rem", a, b)


def _sign(facts: Constraints, a: Entry) -> Entry:
    if not isinstance(a, Expr):
        return None
    if facts.at_least(a, 1):
        return Expr.const(1)
    if facts.at_least(-1, a):
        return Expr.const(-1)
    return Expr.const(0) if facts.equal(a, 0) else Sign(a)


def _maximum(facts: Constraints, a: Entry, b: Entry) -> Entry:
    if isinstance(a, Expr) and isinstance(b, Expr):
        if facts.at_least(a, b):
            return a
        return b if facts.at_least(b, a) else Expr.max(a, b)
    return None


def _minimum(facts: Constraints, a: Entry, b: Entry) -> Entry:
    if isinstance(a, Expr) and isinstance(b, Expr):
        if facts.at_least(a, b):
            return b
        return a if facts.at_least(b, a) else Expr.min(a, b)
    return None


def _negate(facts: Constraints, a: Entry) -> Entry:
    return -a if isinstance(a, Expr) else None


def _abs(facts: Constraints, a: Entry) -> Entry:
    if not isinstance(a, Expr):
        return None
    return a if facts.at_least(a, 0) else _maximum(facts, a, -a)


def _clamp(facts: Constraints, low: Entry, a: Entry, high: Entry) -> Entry:
    return _minimum(facts, _maximum(facts, a, low), high)


_DECIDED: dict[str, Callable[[Constraints, Expr, Expr], bool | None]] = {
    "EQ": lambda f, a, b: (
        True if f.equal(a, b) else (False if f.at_least(a, b + 1) or f.at_least(b, a + 1) else None)
    ),
    "GE": lambda f, a, b: True if f.at_least(a, b) else (False if f.at_least(b, a + 1) else None),
    "GT": lambda f, a, b: True if f.at_least(a, b + 1) else (False if f.at_least(b, a) else None),
}


def compare(facts: Constraints, direction: str, a: Entry, b: Entry) -> Entry:
    """The truth value of a `stablehlo.compare` of two entries."""
    if isinstance(a, bool) and isinstance(b, bool):
        return (a == b) == (direction == "EQ") if direction in ("EQ", "NE") else None
    if direction in ("LT", "LE"):
        return compare(facts, {"LT": "GT", "LE": "GE"}[direction], b, a)
    if direction == "NE":
        return _not(facts, compare(facts, "EQ", a, b))
    if isinstance(a, Expr) and isinstance(b, Expr):
        decided = _DECIDED[direction](facts, a, b)
        return Condition(direction, a, b) if decided is None else decided
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        if direction == "EQ" and isinstance(a, bool) and isinstance(b, Condition):
            return b if a else _not(facts, b)
        if direction == "EQ" and isinstance(b, bool) and isinstance(a, Condition):
            return a if b else _not(facts, a)
        return None
    return Condition(direction, a, b)


_OPPOSITE = {"EQ": "NE", "NE": "EQ"}


def _not(facts: Constraints, a: Entry) -> Entry:
    if isinstance(a, bool):
        return not a
    if not isinstance(a, Condition):
        return None
    if a.op in _OPPOSITE:
        return Condition(_OPPOSITE[a.op], a.lhs, a.rhs)
    if a.op in ("GE", "GT") and isinstance(a.lhs, Expr) and isinstance(a.rhs, Expr):
        return Condition({"GE": "GT", "GT": "GE"}[a.op], a.rhs, a.lhs)
    return None


def _and(facts: Constraints, a: Entry, b: Entry) -> Entry:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    if a is None or b is None:
        return None
    if _exclude(facts, a, b) or _exclude(facts, b, a):
        return False
    return Condition("AND", parts=(a, b))


def _exclude(facts: Constraints, a: Entry, b: Entry) -> bool:
    """`sign(x) != 1` (so x == 0, x being a size) excludes `mod(x, k) != 0`."""
    if not isinstance(a, Condition) or not isinstance(b, Condition) or a.op != "NE" or b.op != "NE":
        return False
    signs = [s.of for s in (a.lhs, a.rhs) if isinstance(s, Sign)]
    if len(signs) != 1 or not facts.at_least(signs[0], 0):
        return False
    return any(
        isinstance(side, Expr)
        and any(at.op == "mod" and at.args[0] == signs[0] for at in side.atoms())
        and len(side.terms) == 1
        for side in (b.lhs, b.rhs)
    )


def _or(facts: Constraints, a: Entry, b: Entry) -> Entry:
    if isinstance(a, bool):
        return True if a else b
    if isinstance(b, bool):
        return True if b else a
    return None if a is None or b is None else Condition("OR", parts=(a, b))


def _xor(facts: Constraints, a: Entry, b: Entry) -> Entry:
    return compare(facts, "NE", a, b)


def _select(facts: Constraints, condition: Entry, a: Entry, b: Entry) -> Entry:
    """Decided; the same either way; or JAX's spelling of floor division and modulus:

    `select(sign(x) != sign(y) and rem != 0, div - 1, div)` and
    `select((rem < 0) != (y < 0) and rem != 0, rem + y, rem)`.
    """
    if isinstance(condition, bool):
        return a if condition else b
    if a is not None and a == b:
        return a
    if isinstance(a, Truncated) and isinstance(b, Truncated) and condition is not None:
        if (a.a, a.b, a.kind) == (b.a, b.b, b.kind) and b.offset == 0 and _asks_rest(condition, b):
            if a.kind == "div" and a.offset == -1:
                return b.a // b.b
            if a.kind == "rem" and a.offset == 1:
                return b.a % b.b
    if isinstance(condition, Condition) and isinstance(a, Expr) and isinstance(b, Expr):
        if condition.op in ("GE", "GT") and {a, b} == {condition.lhs, condition.rhs}:
            return Expr.max(a, b) if a == condition.lhs else Expr.min(a, b)
    return None


def _asks_rest(condition: Entry, division: Truncated) -> bool:
    """Does the condition compare the remainder of this very division with zero?"""
    if not isinstance(condition, Condition):
        return False
    if condition.op == "AND":
        return any(_asks_rest(part, division) for part in condition.parts)
    rest = Truncated("rem", division.a, division.b)
    return condition.op == "NE" and rest in (condition.lhs, condition.rhs)


SCALAR_RULES: dict[str, Callable[..., Entry]] = {
    "stablehlo.abs": _abs,
    "stablehlo.add": _add,
    "stablehlo.and": _and,
    "stablehlo.clamp": _clamp,
    "stablehlo.divide": _divide,
    "stablehlo.maximum": _maximum,
    "stablehlo.minimum": _minimum,
    "stablehlo.multiply": _multiply,
    "stablehlo.negate": _negate,
    "stablehlo.not": _not,
    "stablehlo.or": _or,
    "stablehlo.remainder": _remainder,
    "stablehlo.select": _select,
    "stablehlo.sign": _sign,
    "stablehlo.subtract": _subtract,
    "stablehlo.xor": _xor,
}
"""Element-wise: (facts, one entry per operand) -> entry."""


def elementwise(
    facts: Constraints, rule: Callable[..., Entry], operands: Sequence[tuple[Entry, ...]]
) -> tuple[Entry, ...]:
    """`rule` on every element; a one-element operand counts for all."""
    count = max(len(o) for o in operands)
    rows = [o * count if len(o) == 1 else o for o in operands]
    return tuple(rule(facts, *column) for column in zip(*rows, strict=True))
