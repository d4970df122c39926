"""Integer arithmetic of StableHLO on sizes: what one element of a shape operand holds.

An entry is an :class:`Expr` (a number), a bool, a :class:`Condition` (a truth value that facts do
not decide) or None (not known). A float is a :class:`Quotient` (see `float_values.py`). Arithmetic
is exact; `fit` says what is left of a result in the element type. A signed 32 or 64-bit product of
sizes is taken not to wrap: where it did, the program's own shapes would be wrong. Unsigned numbers
are never sizes (JAX's are signed): they are followed only where no array of less than 2^31 elements
a dimension makes them wrap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Atom, Expr
from shlo_disc.dynamic.intervals import (
    EVERYTHING,
    Bound,
    Interval,
    both,
    either,
    interval_floordiv,
    interval_product,
    interval_sum,
)
from shlo_disc.dynamic.monomial import MAX_NESTING, MAX_WEIGHT

LARGEST_SIZE = (1 << 31) - 1
"""The largest size JAX's own 32-bit arithmetic on sizes can hold."""


MAX_CONDITION_WEIGHT = MAX_WEIGHT // 8
MAX_CONDITION_DEPTH = MAX_NESTING // 4
"""Of conditions joined in conditions. What is beyond is a truth value that data decide."""


class Condition:
    """`lhs op rhs`, op one of EQ NE GE GT; or AND / OR of `parts`. Immutable."""

    __slots__ = ("_hash", "depth", "lhs", "op", "parts", "rhs", "weight")

    def __init__(
        self,
        op: str,
        lhs: Expr | None = None,
        rhs: Expr | None = None,
        parts: frozenset[Condition] = frozenset(),
    ) -> None:
        self.op, self.lhs, self.rhs, self.parts = op, lhs, rhs, parts
        self._hash = hash((op, lhs, rhs, parts))
        own = sum(term.weight for term in (lhs, rhs) if term is not None)
        self.weight: int = own + sum(part.weight for part in parts)
        self.depth: int = 1 + max((part.depth for part in parts), default=0)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Condition) or self._hash != other._hash:
            return False
        mine, others = (self.op, self.lhs, self.rhs), (other.op, other.lhs, other.rhs)
        return mine == others and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.parts:
            return f"{self.op}({', '.join(sorted(map(repr, self.parts)))})"
        return f"{self.op}({self.lhs}, {self.rhs})"

    @property
    def comparison(self) -> tuple[Expr, str, Expr] | None:
        """(lhs, op, rhs) with op spelled as in Python; None of AND and OR."""
        if self.lhs is None or self.rhs is None:
            return None
        return self.lhs, _SPELLING[self.op], self.rhs


_SPELLING = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">"}


class Quotient(NamedTuple):
    """A float: an integer over an integer of at least 1, which is a power of two if exact."""

    numerator: Expr
    denominator: Expr | int = 1
    is_rounded: bool = False
    """Whether the float may be the nearest one to the quotient."""
    below: tuple[Expr, ...] = ()
    """What must be at most the largest exact integer, so that this is true."""


Entry = Expr | Condition | Quotient | bool | None


def exceeds(entry: Expr, low: Bound, high: int, signed: Set[str] = frozenset()) -> bool:
    """True unless low <= entry <= high is proved for sizes up to `LARGEST_SIZE`.

    `low` is None where only the upper end matters; `signed` are symbols that may be negative. The
    proof is interval arithmetic.
    """
    least, most = _interval(entry, signed)
    return most is None or most > high or (low is not None and (least is None or least < low))


def _interval(expr: Expr, signed: Set[str]) -> Interval:
    total: Interval = (0, 0)
    for monomial, coefficient in expr.terms:
        term: Interval = (coefficient, coefficient)
        for atom, power in monomial:
            for _ in range(power):
                term = interval_product(term, _atom_interval(atom, signed))
        total = interval_sum(total[0], term[0]), interval_sum(total[1], term[1])
    return total


def _atom_interval(atom: Atom, signed: Set[str]) -> Interval:
    if not atom.op:
        return -LARGEST_SIZE if atom.key in signed else 0, LARGEST_SIZE
    a, b = (_interval(arg, signed) for arg in atom.args)
    if atom.op == "min":
        return both(min, a[0], b[0]), either(a[1], b[1], min)
    if atom.op == "max":
        return either(a[0], b[0]), both(max, a[1], b[1])
    # A divisor is at least 1, whatever its interval says.
    top = max(b[1], 1) if b[1] is not None else None
    if atom.op == "mod":
        return 0, None if top is None else top - 1
    return interval_floordiv(a, (max(b[0] or 1, 1), top)) if a != EVERYTHING else EVERYTHING


class SizeArithmetic:
    """The ops of :data:`ELEMENTWISE` on entries, under what `facts` prove."""

    def __init__(self, facts: Constraints) -> None:
        self.facts = facts
        self._quotients: dict[Expr, dict[tuple[Expr, Expr], None]] = {}
        self._remainders: dict[Expr, dict[tuple[Expr, Expr], None]] = {}

    def fit(self, entry: Entry, width: int, is_unsigned: bool) -> Entry:
        """`entry` as an integer type of `width` bits holds it; None when that is not known."""
        if not isinstance(entry, Expr):
            return entry
        low, high = (0, 1 << width) if is_unsigned else (-(1 << width - 1), 1 << width - 1)
        if entry.is_const:
            value = entry.value
            return entry if low <= value < high else Expr.const((value - low) % (1 << width) + low)
        if is_unsigned and (
            exceeds(entry, None, high - 1, self.facts.signed) or not self.facts.at_least(entry, 0)
        ):
            return None
        if width >= 32:
            return entry if all(abs(c) < high for _, c in entry.terms) else None
        least, most = self.facts.bounds(entry)
        inside = least is not None and most is not None and low <= least and most < high
        return entry if inside else None

    # -- numbers --------------------------------------------------------------------------------

    def add(self, a: Entry, b: Entry) -> Entry:
        """Sum."""
        return a + b if isinstance(a, Expr) and isinstance(b, Expr) else None

    def subtract(self, a: Entry, b: Entry) -> Entry:
        """Difference."""
        return a - b if isinstance(a, Expr) and isinstance(b, Expr) else None

    def multiply(self, a: Entry, b: Entry) -> Entry:
        """Product; `a * min(a, 1)` is a, which is how common sizes of broadcasts are written.

        What has too many factors or terms for a size is a number like any other.
        """
        if not isinstance(a, Expr) or not isinstance(b, Expr) or not a.may_be_multiplied(b):
            return None
        return a if b == Expr.min(a, 1) and self.facts.at_least(a, 0) else a * b

    def negate(self, a: Entry) -> Entry:
        """Minus."""
        return -a if isinstance(a, Expr) else None

    def divide(self, a: Entry, b: Entry) -> Entry:
        """Quotient rounded towards 0; the divisor's sign must be known.

        For b >= 1: trunc(a / b) = floordiv(max(a, 0), b) - floordiv(max(-a, 0), b).
        """
        if not isinstance(a, Expr) or not isinstance(b, Expr):
            return None
        quotient = self._truncated(a, b)
        if quotient is None and self.facts.at_least(-1, b):
            opposite = self._truncated(a, -b)
            quotient = None if opposite is None else -opposite
        if quotient is not None:
            quotient = self.facts.canonical(quotient)
            self._quotients.setdefault(quotient, {})[a, b] = None
        return quotient

    def _truncated(self, a: Expr, b: Expr) -> Expr | None:
        facts = self.facts
        if not facts.at_least(b, 1):
            return None
        if facts.at_least(a, 0) or (b.is_const and facts.divisible(a, b.value)):
            return a // b
        if facts.at_least(0, a):
            return -(-a // b)
        return Expr.max(a, 0) // b - Expr.max(-a, 0) // b

    def remainder(self, a: Entry, b: Entry) -> Entry:
        """`a - b*divide(a, b)`: has the sign of the dividend."""
        quotient = self.divide(a, b)
        if not isinstance(a, Expr) or not isinstance(b, Expr) or not isinstance(quotient, Expr):
            return None
        rest = self.facts.canonical(a - b * quotient)
        self._remainders.setdefault(rest, {})[a, b] = None
        return rest

    def maximum(self, a: Entry, b: Entry) -> Entry:
        """Larger; `or` of truth values."""
        if isinstance(a, Expr) and isinstance(b, Expr):
            return self.facts.canonical(Expr.max(a, b))
        return self.either(a, b) if isinstance(a, bool) or isinstance(b, bool) else None

    def minimum(self, a: Entry, b: Entry) -> Entry:
        """Smaller; `and` of truth values."""
        if isinstance(a, Expr) and isinstance(b, Expr):
            return self.facts.canonical(Expr.min(a, b))
        return self.both(a, b) if isinstance(a, bool) or isinstance(b, bool) else None

    def absolute(self, a: Entry) -> Entry:
        """Magnitude."""
        return self.maximum(a, -a) if isinstance(a, Expr) else None

    def sign(self, a: Entry) -> Entry:
        """-1, 0 or 1: max(min(a, 1), -1)."""
        if not isinstance(a, Expr):
            return None
        return self.facts.canonical(Expr.max(Expr.min(a, 1), -1))

    def clamp(self, low: Entry, a: Entry, high: Entry) -> Entry:
        """`min(max(a, low), high)`."""
        if isinstance(a, Expr) and isinstance(low, Expr) and isinstance(high, Expr):
            ends_known = low.is_const and high.is_const
            if ends_known and not exceeds(a, low.value, high.value, self.facts.signed):
                return a
        return self.minimum(self.maximum(a, low), high)

    def power(self, a: Entry, b: Entry) -> Entry:
        """Power with a small constant exponent."""
        if isinstance(a, Expr) and isinstance(b, Expr) and b.is_const and 0 <= b.value <= 8:
            result: Entry = Expr.const(1)
            for _ in range(b.value):
                result = self.multiply(result, a)
            return result
        return None

    def shift_left(self, a: Entry, b: Entry) -> Entry:
        """Product with a constant power of two."""
        if isinstance(a, Expr) and isinstance(b, Expr) and b.is_const and 0 <= b.value < 31:
            return a * (1 << b.value)
        return None

    def shift_right(self, a: Entry, b: Entry) -> Entry:
        """Floor division by a constant power of two, of a value read as :data:`BITS_READ` says."""
        if isinstance(a, Expr) and isinstance(b, Expr) and b.is_const and 0 <= b.value < 31:
            return self.facts.canonical(a // (1 << b.value))
        return None

    # -- truth values ---------------------------------------------------------------------------

    def compare(self, direction: str, a: Entry, b: Entry) -> Entry:
        """`stablehlo.compare` with this direction."""
        if direction in ("LT", "LE"):
            return self.compare({"LT": "GT", "LE": "GE"}[direction], b, a)
        if isinstance(a, Expr) and isinstance(b, Expr):
            decided = self.facts.implies(a, _SPELLING[direction], b)
            return Condition(direction, a, b) if decided is None else decided
        if direction == "EQ":
            return self._same(a, b)
        if direction == "NE":
            return self.negation(self._same(a, b))
        return None

    def _same(self, a: Entry, b: Entry) -> Entry:
        if isinstance(b, bool):
            a, b = b, a
        if isinstance(a, bool) and isinstance(b, (bool, Condition)):
            return b if a else self.negation(b)
        return True if isinstance(a, Condition) and a == b else None

    def negation(self, a: Entry) -> Entry:
        """`not` of a truth value, or of the bits of a signed number."""
        if isinstance(a, bool):
            return not a
        if isinstance(a, Expr):
            return -a - 1
        if not isinstance(a, Condition):
            return None
        if a.parts:
            parts = [self.negation(p) for p in a.parts]
            known = frozenset(p for p in parts if isinstance(p, Condition))
            return Condition({"AND": "OR", "OR": "AND"}[a.op], parts=known)
        if a.op in ("EQ", "NE"):
            return Condition({"EQ": "NE", "NE": "EQ"}[a.op], a.lhs, a.rhs)
        return Condition({"GE": "GT", "GT": "GE"}[a.op], a.rhs, a.lhs)

    def both(self, a: Entry, b: Entry) -> Entry:
        """`and`."""
        if isinstance(b, bool):
            a, b = b, a
        if isinstance(a, bool):
            return b if a else False
        if isinstance(a, Condition) and isinstance(b, Condition):
            return _joined("AND", a, b)
        if isinstance(a, Expr) and isinstance(b, Expr) and a.is_const and b.is_const:
            return Expr.const(a.value & b.value)
        return None

    def either(self, a: Entry, b: Entry) -> Entry:
        """`or`."""
        if isinstance(b, bool):
            a, b = b, a
        if isinstance(a, bool):
            return True if a else b
        if isinstance(a, Condition) and isinstance(b, Condition):
            return _joined("OR", a, b)
        if isinstance(a, Expr) and isinstance(b, Expr) and a.is_const and b.is_const:
            return Expr.const(a.value | b.value)
        return None

    def exclusive(self, a: Entry, b: Entry) -> Entry:
        """`xor`."""
        if isinstance(a, Expr) and isinstance(b, Expr):
            return Expr.const(a.value ^ b.value) if a.is_const and b.is_const else None
        return self.compare("NE", a, b)

    def settled(self, a: Entry) -> Entry:
        """A truth value under the facts of now, which may be more than when it was made."""
        if not isinstance(a, Condition):
            return a
        if a.lhs is not None and a.rhs is not None:
            canonical = self.facts.canonical
            return self.compare(a.op, canonical(a.lhs), canonical(a.rhs))
        join = self.both if a.op == "AND" else self.either
        total: Entry = a.op == "AND"
        for part in a.parts:
            total = join(total, self.settled(part))
        return total

    # -- choice ---------------------------------------------------------------------------------

    def select(self, condition: Entry, a: Entry, b: Entry) -> Entry:
        """Decided, the same either way, a minimum or maximum, JAX's floor division, or a sum."""
        given, condition = condition, self.settled(condition)
        if isinstance(condition, bool):
            return a if condition else b
        if a is not None and a == b:
            return a
        if not isinstance(a, Expr) or not isinstance(b, Expr):
            return self._select_truth(condition, a, b)
        if not isinstance(condition, Condition):
            return None
        for asked in (given, condition):
            if isinstance(asked, Condition) and asked.op in ("GE", "GT"):
                if (a, b) == (asked.lhs, asked.rhs):
                    return self.maximum(a, b)
                if (b, a) == (asked.lhs, asked.rhs):
                    return self.minimum(a, b)
        found = self._floor(condition, a, b)
        return self._by_cases(condition, a, b) if found is None else found

    def _by_cases(self, condition: Condition, a: Expr, b: Expr) -> Entry:
        """`b` where the two are equal if `condition` is true, `a` where they are if it is false.

        Any other choice is `b + t * (a - b)`, where t is 1 if the condition is true, and else 0.
        """
        if (equality := self._equality(condition)) is not None:
            unknown, number, if_equal, other = *equality[0], *((a, b) if equality[1] else (b, a))
            known = {unknown: number}
            if if_equal.substitute(known) == other.substitute(known):
                return other
        told = self._indicator(condition)
        if told is None or not told.may_be_multiplied(a - b):
            return None
        return self.facts.canonical(b + told * (a - b))

    def _equality(self, condition: Condition) -> tuple[tuple[str, Expr], bool] | None:
        """The symbol that has a known value if `condition` is true (True) or false (False)."""
        lhs, rhs = condition.lhs, condition.rhs
        if lhs is None or rhs is None:
            return None
        # `lhs >= rhs` is `lhs == rhs` if it is never above; `lhs > rhs` is `!=` if never below.
        is_equality = condition.op == "EQ" or (
            condition.op == "GE" and self.facts.at_least(rhs, lhs)
        )
        if not is_equality and not (
            condition.op == "NE" or (condition.op == "GT" and self.facts.at_least(lhs, rhs))
        ):
            return None
        solved = self._solved(lhs, rhs) or self._solved(rhs, lhs)
        return None if solved is None else (solved, is_equality)

    def _solved(self, term: Expr, number: Expr) -> tuple[str, Expr] | None:
        """The value of the one symbol of `term`, if that equals `number`."""
        if not number.is_const:
            return None
        while True:
            number, term = number - term.constant_term, term - term.constant_term
            if len(term.terms) != 1 or number.value % term.content:
                return None
            sign = 1 if term.terms[0][1] > 0 else -1
            number = Expr.const(sign * number.value // term.content)
            (monomial, _) = term.terms[0]
            if len(monomial) != 1 or monomial[0][1] != 1:
                return None
            atom = monomial[0][0]
            if not atom.op:
                return atom.key, number
            if atom.op not in ("min", "max"):
                return None
            # The one of the two that is not beyond the number is equal to it.
            one, other = atom.args
            beyond = (
                [self.facts.at_least(x, number + 1) for x in (one, other)]
                if atom.op == "min"
                else [self.facts.at_least(number - 1, x) for x in (one, other)]
            )
            if not any(beyond):
                return None
            term = other if beyond[0] else one

    def _indicator(self, condition: Condition) -> Expr | None:
        """1 if `condition` is true, and else 0."""
        if condition.lhs is None or condition.rhs is None:
            parts = [self._indicator(part) for part in sorted(condition.parts, key=str)]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            return functools.reduce(Expr.min if condition.op == "AND" else Expr.max, known)
        difference = condition.lhs - condition.rhs
        if condition.op in ("EQ", "NE"):
            apart = Expr.min(Expr.max(difference, -difference), 1)
            return apart if condition.op == "NE" else 1 - apart
        least = difference + 1 if condition.op == "GE" else difference
        return Expr.min(Expr.max(least, 0), 1)

    def _select_truth(self, condition: Entry, a: Entry, b: Entry) -> Entry:
        if a is True and b is False:
            return condition
        return self.negation(condition) if a is False and b is True else None

    def _floor(self, condition: Condition, a: Expr, b: Expr) -> Entry:
        """The two idioms of `jnp.floor_divide` and `jnp.remainder`:

        `select(sign(x) != sign(y) and rem != 0, quotient - 1, quotient)` is floordiv(x, y);
        `select((rem < 0) != (y < 0) and rem != 0, rem + y, rem)` is mod(x, y).
        """
        zero = Expr.const(0)
        for x, y in list(self._quotients.get(b, ())) if a == b - 1 else ():
            signs = self.compare("NE", self.sign(x), self.sign(y))
            asked = self.both(signs, self.compare("NE", self.remainder(x, y), zero))
            if condition == self.settled(asked):
                return self.facts.canonical(x // y)
        for x, y in list(self._remainders.get(b, ())):
            below = self.compare("NE", self.compare("LT", b, zero), self.compare("LT", y, zero))
            asked = self.both(below, self.compare("NE", b, zero))
            if a == b + y and condition == self.settled(asked):
                return self.facts.canonical(x % y)
        return None


def _joined(op: str, a: Condition, b: Condition) -> Condition | None:
    """Both of `a` and `b` ("AND"), or one of them ("OR"); None if that is too long."""
    if a == b:
        return a
    if a.weight + b.weight > MAX_CONDITION_WEIGHT or max(a.depth, b.depth) > MAX_CONDITION_DEPTH:
        return None
    return Condition(op, parts=_parts(op, a) | _parts(op, b))


def _parts(op: str, condition: Condition) -> frozenset[Condition]:
    return condition.parts if condition.op == op else frozenset({condition})


ELEMENTWISE: dict[str, Callable[..., Entry]] = {
    "stablehlo.abs": SizeArithmetic.absolute,
    "stablehlo.add": SizeArithmetic.add,
    "stablehlo.and": SizeArithmetic.both,
    "stablehlo.clamp": SizeArithmetic.clamp,
    "stablehlo.divide": SizeArithmetic.divide,
    "stablehlo.maximum": SizeArithmetic.maximum,
    "stablehlo.minimum": SizeArithmetic.minimum,
    "stablehlo.multiply": SizeArithmetic.multiply,
    "stablehlo.negate": SizeArithmetic.negate,
    "stablehlo.not": SizeArithmetic.negation,
    "stablehlo.or": SizeArithmetic.either,
    "stablehlo.power": SizeArithmetic.power,
    "stablehlo.remainder": SizeArithmetic.remainder,
    "stablehlo.select": SizeArithmetic.select,
    "stablehlo.shift_left": SizeArithmetic.shift_left,
    "stablehlo.shift_right_arithmetic": SizeArithmetic.shift_right,
    "stablehlo.shift_right_logical": SizeArithmetic.shift_right,
    "stablehlo.sign": SizeArithmetic.sign,
    "stablehlo.subtract": SizeArithmetic.subtract,
    "stablehlo.xor": SizeArithmetic.exclusive,
}
"""Element-wise ops: (arithmetic, one entry per operand) -> entry."""

BITS_READ = {"stablehlo.shift_right_arithmetic": False, "stablehlo.shift_right_logical": True}
"""Ops that read the bits of operand 0 as a signed (False) or unsigned (True) number, whatever the
element type says."""


def evaluate(
    arithmetic: SizeArithmetic, name: str, operands: Sequence[Entry], width: int, is_unsigned: bool
) -> Entry:
    """One element of the element-wise op `name`, as its result type holds it.

    What nests half as deep as a size may is a number like any other: facts add functions to it.
    """
    if name in BITS_READ:
        read = arithmetic.fit(operands[0], width, BITS_READ[name])
        operands = (read, *operands[1:])
    found = arithmetic.fit(ELEMENTWISE[name](arithmetic, *operands), width, is_unsigned)
    # The host computes terms in i64. A sum wraps there as it does in the program's own type; the
    # operands of a `min`, a `max` or a division do not.
    if isinstance(found, Expr) and any(
        _is_wide_within(atom) or atom.depth > MAX_NESTING // 2 for atom in found.atoms()
    ):
        return None
    return found


def is_wide(term: Expr) -> bool:
    """Whether `term` has a number that i64 does not hold, at any depth."""
    return any(not -(1 << 63) <= coefficient < 1 << 63 for _, coefficient in term.terms) or any(
        map(_is_wide_within, term.atoms())
    )


def _is_wide_within(atom: Atom) -> bool:
    """Whether an operand of `atom` has a number that i64 does not hold."""
    return any(map(is_wide, atom.args))
