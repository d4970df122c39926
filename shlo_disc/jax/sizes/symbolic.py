"""Symbolic sizes that know their values in the call at hand, and what was asked of them.

Sizes of a trace belong to a :class:`SizeScope`. The scope travels with its sizes, so questions from
other threads and from rules of derived programs reach the trace they belong to; `questions.py`
answers them.
"""

from __future__ import annotations

import math
import operator
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from shlo_disc.base import locks
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import Relation, lower_bound
from shlo_disc.dynamic.tails import zero_from
from shlo_disc.jax.sizes.nesting import in_turn
from shlo_disc.jax_private.jaxprs import Unseen
from shlo_disc.jax_private.sizes import DimExpr, SymbolicScope, size_text


@dataclass(frozen=True)
class Question(Relation):
    """One answered question: what is true of the sizes of the call that was traced."""

    needs_number: bool = False
    """The program needs a Python number (`int`, `hash`, text): the sizes are best constants."""
    by_program: bool = True
    """False: a rule of JAX asked."""


class EnoughAskedError(BaseException):
    """Ends a trace that another one follows: no `except Exception` of the program takes it."""


@dataclass
class Session:
    """What was asked during one trace."""

    hints: dict[str, int]
    questions: dict[tuple[Expr, str, Expr], Question] = field(default_factory=dict)
    unknown: list[tuple[Any, Any]] = field(default_factory=list)
    """Pairs of sizes of which JAX was told that they may differ."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """(size, line) wherever JAX tried to read a number from a size."""
    converted: list[tuple[str, str]] = field(default_factory=list)
    """(size, line) wherever the program made a traced number of a size."""
    quotients: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """(traced number, size, divisor) wherever the program divided a size by a whole number."""
    fresh: set[str] = field(default_factory=set)
    """Symbols of sizes that the program reads from data; their hints are assumed."""
    noted: Callable[[Question], object] = lambda _: None
    """Is called with every new answer."""
    count: int = 0
    """How often shape rules and the program asked so far."""
    last: float = math.inf
    """The count at which the trace ends, since another one follows."""
    thread: int = field(default_factory=threading.get_ident)
    """Of the trace."""

    def asked(self) -> None:
        """Count a question; raises EnoughAskedError if it comes after the last one.

        Other threads of the program, which the error would end, get their answers.
        """
        self.count += 1
        if self.count > self.last and threading.get_ident() == self.thread:
            raise EnoughAskedError from Unseen()

    def take_fresh(self) -> list[Question]:
        """The questions that speak of fresh sizes; they are removed."""
        found = [
            (key, question)
            for key, question in self.questions.items()
            if question.symbols() & self.fresh
        ]
        for key, _ in found:
            del self.questions[key]
        return [question for _, question in found]


class _Open(threading.local):
    scope: SizeScope | None = None


_open = _Open()


def open_scope() -> SizeScope | None:
    """The scope whose trace is under way in this thread."""
    return _open.scope


class SizeScope(SymbolicScope):
    """A scope of symbolic sizes that knows the value of each symbol in the call at hand."""

    def __init__(self, constraints: Sequence[str], hints: Mapping[str, int]) -> None:
        self._session = Session(dict(hints))
        self._lock = locks.reentrant_lock()
        self.answers: list[Question] = []
        """What was asked while programs were derived from the one first traced."""
        self.is_open = False
        self.warned: set[tuple[str, str]] = set()
        """Sizes kept beyond their trace, and lines, of which a warning was logged."""
        self.forms: dict[Expr, Any] = {}
        """Sizes of this scope in normal form (`forms.py`)."""
        self.exprs: dict[int, Expr] = {}
        """What these sizes are, by their identity."""
        self.known: dict[tuple[Any, ...], Any] = {}
        """The same sizes by their terms in JAX: equal sizes of a scope are one object."""
        self.bounds: dict[tuple[int, Any], tuple[float, float]] = {}
        """Bounds by the identity of a size and their precision, while no constraint comes."""
        self.computed: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        """(result, operands) of arithmetic, by the method and the identities of the operands."""
        self.grows = False
        """True while answers may become constraints of the scope (not in derived programs)."""
        self._bounds = [
            (Expr.parse(left), Expr.parse(right))
            for left, right in (text.split(">=") for text in constraints)
        ]
        """Pairs of which JAX knows that the first is at least the second."""
        super().__init__(constraints)
        self.bounds.clear()

    @property
    def session(self) -> Session:
        """The trace under way, or the last one."""
        return self._session

    def allows(self, sizes: Mapping[str, int]) -> bool:
        """True if the answers given to rules of derived programs are true of `sizes`, too."""
        return all(question.allows(sizes) for question in self.answers)

    @contextmanager
    def asking(self, hints: Mapping[str, int], *, grows: bool = False) -> Iterator[Session]:
        """One trace at the sizes `hints`; traces of one scope follow each other.

        Raises BusyError as :func:`in_turn` does.
        """
        with in_turn(self._lock):
            before = self._session, self.is_open, self.grows
            self._session, self.is_open, self.grows = Session(dict(hints)), True, grows
            outer, _open.scope = _open.scope, self
            try:
                yield self._session
            finally:
                _open.scope = outer
                kept = self._session
                kept.quotients.clear()  # they hold the trace
                self._session, self.is_open, self.grows = before
                if not self.is_open:
                    self._session = kept  # a size the program kept answers with these sizes
                    self.computed.clear()

    @property
    def constrained(self) -> frozenset[str]:
        """The symbols of constraints, which JAX wants to know in every program it lowers."""
        every = (size.symbols() for bound in self._bounds for size in bound)
        return frozenset[str]().union(*every)

    def anew(self, hints: Mapping[str, int], constants: Mapping[str, int]) -> SizeScope:
        """A scope with the same constraints, where the symbols `constants` are numbers."""
        known = {name: Expr.const(value) for name, value in constants.items()}
        bounds = [(a.substitute(known), b.substitute(known)) for a, b in self._bounds]
        kept = [f"{a} >= {b}" for a, b in bounds if a.symbols() | b.symbols()]
        return SizeScope(kept, {s: v for s, v in hints.items() if s not in known})

    def is_zero(self, size: Expr) -> bool:
        """True if the size is 0 for all values of the symbols that the constraints allow."""
        if size.vanishes:
            return True
        tail = zero_from(size)
        if tail is None:
            return False
        bounds = (lower_bound(left, ">=", right) for left, right in self._bounds)
        return tail[1] <= max((n for s, n in filter(None, bounds) if s == tail[0]), default=1)

    def constrain(self, left: Expr, right: Expr) -> None:
        """Let JAX know that `left >= right` for the rest of the trace."""
        symbols = left.symbols() | right.symbols()
        # Sizes that are read from data are not known in programs that run before.
        if not self.grows or not is_narrow(left, right) or symbols & self._session.fresh:
            return
        self._bounds.append((left, right))
        self.grows = False  # parsing asks questions
        try:
            self._parse_and_process_explicit_constraint(f"{left} >= {right}")
            self._bounds_cache.clear()
            self.bounds.clear()
            self._decision_initial_state = None
        finally:
            self.grows = True


def is_narrow(*sizes: Expr) -> bool:
    """True if all numbers in the sizes have 32 bits: JAX lowers no constraint with wider ones."""
    return all(int(n) < 1 << 31 for size in sizes for n in re.findall(r"\b\d+", str(size)))


# ---- values -------------------------------------------------------------------------------------


def evaluate(size: Any, hints: Mapping[str, int]) -> int:
    """The value of a symbolic or constant size; raises KeyError for an unknown symbol."""
    if not isinstance(size, DimExpr):
        return operator.index(size)
    total = 0
    for term, coefficient in size._sorted_terms:
        for factor, power in term._factors:
            coefficient *= _factor(factor, hints) ** power
        total += coefficient
    return int(total)


def _factor(factor: Any, hints: Mapping[str, int]) -> int:
    if factor.var is not None:
        return hints[factor.var]
    a, b = (evaluate(operand, hints) for operand in factor.operands)
    return int(_OPERATIONS[factor.operation](a, b))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def is_size(value: Any) -> bool:
    """True for a symbolic size of a scope of ours."""
    return isinstance(value, DimExpr) and type(value.scope) is SizeScope


def remembered(name: str, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`method`, arithmetic of JAX, computed once for each pair of sizes of a scope of ours."""

    def compute(size: Any, other: Any) -> Any:
        scope, kind = size._scope, type(other)
        if type(scope) is not SizeScope or (kind is not int and kind is not DimExpr):
            return method(size, other)
        # An entry holds its operands, so that no other size gets their identity.
        key = name, id(size), other if kind is int else (id(other),)
        found = scope.computed.get(key)
        if found is None:
            found = scope.computed[key] = method(size, other), size, other
        return found[0]

    return compute


def as_expr(size: Any) -> Expr:
    """A symbolic or constant size as an expression."""
    if not isinstance(size, DimExpr):
        return Expr.const(size)
    scope = size._scope
    if type(scope) is SizeScope and (known := scope.exprs.get(id(size))) is not None:
        return known
    return Expr.sum(
        Expr.product(_factor_as_expr(factor) for factor, n in term._factors for _ in range(n))
        * coefficient
        for term, coefficient in size._sorted_terms
    )


def _factor_as_expr(factor: Any) -> Expr:
    if factor.var is not None:
        return Expr.symbol(factor.var)
    return Expr.of_function(factor.operation, *map(as_expr, factor.operands))


def never_equal(a: Expr, b: Expr) -> bool:
    """True if a difference of sizes is no zero: symbols are at least 1, so all signs agree."""
    difference = a - b
    signs = {coefficient > 0 for _, coefficient in difference.terms}
    return difference.is_polynomial and len(signs) == 1


def as_bound(a: Expr, b: Expr, hints: Mapping[str, int]) -> tuple[Expr, Expr] | None:
    """(n, 3) where `n >= 3` is true of `hints`, and `a == b` follows from it; or None."""
    tail = zero_from(a - b)
    if tail is None or hints.get(tail[0], 0) < tail[1]:
        return None
    return Expr.symbol(tail[0]), Expr.const(tail[1])


def text_of(size: Any) -> str:
    """The text of a symbolic size, `2*d0 + 1`; no question of the program."""
    return size_text(size)
