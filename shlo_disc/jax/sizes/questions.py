"""Questions about symbolic sizes, answered with the sizes of the call at hand.

A traced function may ask Python questions about a size: `if n % 2`, `n == 4`, `n in {2, 4}`,
`int(n)`, `f"{n}"`. JAX's symbolic sizes answer some of them with an error, and others wrongly: an
unknown `==` is False, and every size is true. While shlo_disc traces, the sizes belong to a
:class:`~shlo_disc.jax.sizes.symbolic.SizeScope`, which knows the sizes of the call. A question of
the program gets the answer `jax.jit` would give, and the answer becomes a guard of the compiled
version.

Questions of JAX's own code keep JAX's meaning where JAX is prepared for an unknown answer
(`policy.py`). A shape rule that would raise gets the answer of the call, and the guard says so.

The functions of this module answer one question each; `methods.py` puts them into JAX's class.
"""

from __future__ import annotations

import decimal
import logging
import math
import numbers
import operator
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
import numpy as np

from shlo_disc.jax.sizes import policy
from shlo_disc.jax.sizes.askers import (
    asker_of,
    calls_cache,
    is_caught_by_program,
    line_of,
    line_of_program,
    range_asked,
)
from shlo_disc.jax.sizes.symbolic import (
    Question,
    SizeScope,
    as_bound,
    as_expr,
    evaluate,
    never_equal,
    text_of,
)
from shlo_disc.jax_private.sizes import DimExpr, size_as_array

_log = logging.getLogger("shlo_disc")

Original = Callable[..., Any]
"""JAX's own method of the same name."""

_at_least: Original = DimExpr.__ge__  # before methods.py replaces the method


class _Asked:
    """One question about a size of ours: the asker, and the sizes that answer."""

    __slots__ = ("by_program", "frame", "scope", "session")

    def __init__(self, size: Any, frame: FrameType | None) -> None:
        self.scope: SizeScope = size.scope
        self.session = self.scope.session
        self.by_program, self.frame = asker_of(frame)

    @property
    def where(self) -> str:
        """The line of the program that asks, or that called JAX."""
        return line_of(self.frame) if self.by_program else line_of_program(self.frame)

    @property
    def who(self) -> str:
        return "the program" if self.by_program else f"{policy.name_of_function(self.frame)} of JAX"

    def value(self, size: Any) -> int:
        return evaluate(size, self.session.hints)

    def note(
        self, left: Any, relation: str, right: Any, reason: str, *, needs_number: bool = False
    ) -> None:
        """Let the answer `left relation right` be a guard."""
        if not self.scope.is_open:
            self._warn(str(as_expr(left)))
            return
        a, b = as_expr(left), as_expr(right)
        if (a - b).vanishes or (relation == "!=" and never_equal(a, b)):
            return
        if relation == "==" and (bound := as_bound(a, b, self.session.hints)) is not None:
            (a, b), relation = bound, ">="
            if b == 1:
                return  # as every symbol is
        key = a, relation, b
        known = self.session.questions.get(key)
        if known is None or (needs_number and not known.needs_number):
            question = self.session.questions[key] = Question(
                a, relation, b, reason, self.where, needs_number, self.by_program
            )
            self.session.noted(question)
            if relation == ">=":
                self.scope.constrain(a, b)
        self.session.asked()

    def _warn(self, size: str) -> None:
        where = self.where or "an unknown line"
        if (size, where) not in self.scope.warned:
            self.scope.warned.add((size, where))
            _log.warning(
                "the size %s was kept by the program beyond its trace and is asked at %s; it "
                "answers with the size of the last trace. Read sizes from arguments at every call.",
                size,
                where,
            )


def is_ours(size: Any) -> bool:
    """True if all symbols of a size have values; JAX makes symbols of its own, too."""
    scope = size.scope
    if type(scope) is not SizeScope:
        return False
    known = scope.exprs.get(id(size))
    hints = scope.session.hints
    return all(
        symbol in hints for symbol in (size._get_vars() if known is None else known.symbols())
    )


# ---- equality and order -------------------------------------------------------------------------

_NUMBERS = (numbers.Number, np.generic, decimal.Decimal)


def equal(size: Any, other: Any, frame: FrameType | None, original: Original) -> Any:
    """`size == other` for a size of ours, or NotImplemented."""
    if size is other:
        return True
    other = _number_in_array(other)
    if isinstance(other, DimExpr):
        if other.scope is not size.scope:
            return False
    elif isinstance(other, _NUMBERS):
        other = _whole(other)
        if other is None:
            return False
    else:
        if not asker_of(frame).by_program:
            return original(size, other)
        return _as_array_comparison(size, other, jax.numpy.equal)
    difference = size - other
    if not isinstance(difference, DimExpr):
        return difference == 0
    if not is_ours(difference):
        return False
    if size.scope.is_zero(as_expr(difference)):
        return True
    asked = _Asked(size, frame)
    same = asked.value(difference) == 0
    treated = ""
    if asked.by_program:
        if calls_cache(asked.frame):
            return False  # a key of another size or trace; a miss is right for all
        if (members := range_asked(asked.frame)) is not None:
            return _in_range(asked, size, members)
    else:
        treated = policy.of_equality(asked.frame)
        number = not isinstance(other, DimExpr)
        unknown = number and (treated == "small" or (treated == "units" and other in (-1, 0, 1)))
        unknown |= treated == "zero" and not (number and other == 0)
        unknown |= number and other == 0 and policy.runs_at_zero(asked.frame)
        if treated == "unknown" or unknown or not asked.scope.is_open:
            asked.session.unknown.append((size, other))
            if treated == "units":
                asked.session.asked()
            return False
        if treated == "units" and not same and not policy.may_raise(asked.frame):
            return False  # the general way, which is right for equal sizes, too
        if treated == "equal":
            return True
    reason = f"{asked.who} compares {as_expr(size)} with {as_expr(other)}"
    zero = not isinstance(other, DimExpr) and other == 0
    if zero and not same and not asked.by_program and _is_at_least(size, 0, _at_least):
        asked.note(size, ">=", 1, reason)  # as a bound it decides more
    else:
        asked.note(size, "==" if same else "!=", other, reason)
    if not same and treated == "units" and policy.may_raise(asked.frame):
        for part in (size, other):  # where the error is caught: a size of 1 would fit
            if asked.value(part) != 1:
                asked.note(part, "!=", 1, reason)
    return same


def _number_in_array(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype != object:
        return value.item()
    return value


def _whole(number: Any) -> int | None:
    """The integer a number of any type is equal to, or None."""
    if isinstance(number, (complex, np.complexfloating)):
        if number.imag != 0:
            return None
        number = number.real
    try:
        whole = int(number)
    except (OverflowError, TypeError, ValueError):  # infinities, texts and dates, NaN
        return None
    return whole if whole == number else None


def _as_array_comparison(size: Any, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
    if isinstance(other, np.ndarray):
        return compare(size_as_array(size), other)
    return NotImplemented  # traced values and arrays of JAX compare element by element


def _in_range(asked: _Asked, size: Any, members: range) -> bool:
    value = asked.value(size)
    reason = f"the program asks whether {as_expr(size)} is in {members}"
    low, high = sorted((members[0], members[-1]))  # an empty range compares nothing
    if value < low:
        asked.note(low - 1, ">=", size, reason)
    elif value > high:
        asked.note(size, ">=", high + 1, reason)
    else:
        asked.note(size, ">=", low, reason)
        asked.note(high, ">=", size, reason)
        if abs(members.step) != 1:
            inside = value in members
            asked.note((size - low) % abs(members.step), "==" if inside else "!=", 0, reason)
    return value in members


ORDER: dict[str, Callable[[int, int], bool]] = {
    "__lt__": operator.lt,
    "__le__": operator.le,
    "__gt__": operator.gt,
    "__ge__": operator.ge,
}
_SIGNS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_ARRAY_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "__lt__": jax.numpy.less,
    "__le__": jax.numpy.less_equal,
    "__gt__": jax.numpy.greater,
    "__ge__": jax.numpy.greater_equal,
}


def ordered(size: Any, name: str, other: Any, frame: FrameType | None, original: Original) -> Any:
    """`size < other` and the like for a size of ours, or NotImplemented."""
    asked = _Asked(size, frame)
    other = _number_in_array(other)
    if not isinstance(other, (DimExpr, int, np.integer)):
        if not asked.by_program and not _is_whole_float(other):
            return original(size, other)
        if isinstance(other, (jax.Array, np.ndarray)):
            return _as_array_comparison(size, other, _ARRAY_ORDER[name])
        real = isinstance(other, (numbers.Real, np.generic, decimal.Decimal))
        if not real or isinstance(other, (np.character, np.complexfloating)):
            return NotImplemented
        if math.isnan(other):
            return False
        if math.isinf(other):
            return (other > 0) == (name in ("__lt__", "__le__"))
        # n < 4.5 is n < 5; n <= 4.5 is n <= 4.
        other = math.ceil(other) if name in ("__lt__", "__ge__") else math.floor(other)
    try:
        return original(size, other)
    except jax.errors.InconclusiveDimensionOperation:
        if not asked.by_program and (policy.is_caught(asked.frame) or not asked.scope.is_open):
            raise
        if not is_ours(size) or (isinstance(other, DimExpr) and not is_ours(other)):
            raise
    if not asked.by_program and policy.is_more_than_one(asked.frame, other):
        return name in ("__gt__", "__ge__")
    one = name == "__ge__" and isinstance(other, int) and other == 1
    if one and not asked.by_program and policy.takes_a_row(asked.frame):
        return True
    mine, theirs = asked.value(size), asked.value(other)
    answer = ORDER[name](mine, theirs)
    low, high = (size, other) if name in ("__lt__", "__le__") else (other, size)
    strict = name in ("__lt__", "__gt__")
    reason = f"{asked.who} asks whether {as_expr(size)} {_SIGNS[name]} {as_expr(other)}"
    if isinstance(other, DimExpr) and mine == theirs and policy.is_likely_whole(asked.frame):
        asked.note(size, "==", other, reason)
    elif answer:  # high >= low, or high >= low + 1
        asked.note(high, ">=", low + 1 if strict else low, reason)
    else:
        asked.note(low, ">=", high if strict else high + 1, reason)
    return answer


def _is_whole_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and float(value).is_integer()


def truth(size: Any, frame: FrameType | None, at_least: Original) -> bool:
    """`bool(size)`; `at_least` is JAX's own `>=`, which knows the bounds of sizes."""
    if not is_ours(size):
        return True
    asked = _Asked(size, frame)
    value = asked.value(size)
    if not asked.by_program and policy.runs_at_zero(asked.frame):
        return True
    if value == 0 or not _is_at_least(size, 1, at_least):
        reason = f"{asked.who} asks bool({as_expr(size)})"
        asked.note(size, "==" if value == 0 else "!=", 0, reason)
    return value != 0


def _is_at_least(size: Any, bound: int, at_least: Original) -> bool:
    try:
        return bool(at_least(size, bound))
    except jax.errors.InconclusiveDimensionOperation:
        return False


def divides(size: Any, frame: FrameType | None, at_least: Original, *, whole: bool) -> None:
    """Ask what a division by a size of ours asks; raises ZeroDivisionError where the size is 0.

    A quotient that is rounded down (`whole`) depends on the divisor's sign, too: traced integers
    round to zero.
    """
    if not is_ours(size) or not size.scope.is_open:
        return
    if _is_at_least(size, 1, at_least) or _is_at_least(-size, 1, at_least):
        return
    asked = _Asked(size, frame)
    value = asked.value(size)
    reason = f"{asked.who} divides by {as_expr(size)}"
    if value == 0:
        asked.note(size, "==", 0, reason)
        raise ZeroDivisionError(
            "integer division or modulo by zero" if whole else "division by zero"
        )
    if not whole:
        asked.note(size, "!=", 0, reason)
    elif value > 0:
        asked.note(size, ">=", 1, reason)
    else:
        asked.note(-1, ">=", size, reason)


# ---- numbers ------------------------------------------------------------------------------------

_LARGEST = 2**31 - 1

REPEATS = "a number of repeats"
THE_TEXT = "the text"


def number(size: Any, how: str, frame: FrameType | None) -> int | None:
    """The value of a size of ours for a program that needs a Python number; None for JAX.

    `how`: the number's use, for the reason (`"int"`, `"the hash"`).
    """
    if policy.is_probe(frame) or not is_ours(size):
        return None
    asked = _Asked(size, frame)
    value = asked.value(size)
    if not asked.by_program:
        if how == THE_TEXT or not asked.scope.is_open:
            return None
        if policy.checks_overflow(asked.frame):
            asked.note(_LARGEST, ">=", size, "JAX asks whether an index type holds the size")
            return value
        if how != REPEATS and not is_caught_by_program(asked.frame):
            asked.session.refused.append((text_of(size), asked.where))
            return None
    elif how == THE_TEXT and policy.is_for_messages(frame):
        return None
    elif how == THE_TEXT and policy.is_of_error(asked.frame):
        return value
    reason = f"{asked.who} uses {how} of {as_expr(size)}"
    asked.note(size, "==", value, reason, needs_number=True)
    return value
