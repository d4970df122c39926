"""`Constraints`: what is known of sizes, and what follows from it.

Every answer is a proof: False means "not proved". Product equalities are equalities of canonical
monomials, proved when asked; no transitive closure is kept (BladeDISC's made GPT-2
take 850 s to compile).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from shlo_disc.dynamic.expr import Atom, Expr

__all__ = ["Constraints"]

Bound = int | None


class Constraints:
    """A growing set of facts about the symbols of one program. Symbols are >= 0."""

    def __init__(self) -> None:
        self._solved: dict[str, Expr] = {}
        self._zero: set[Expr] = set()
        self._divisor: dict[Expr, int] = {}
        self._lower: dict[str, int] = {}
        self._upper: dict[str, int] = {}
        self._at_least_zero: list[Expr] = []
        self._canonical: dict[Expr, Expr] = {}

    # -- facts ----------------------------------------------------------------------------------

    def add_equal(self, a: Expr | int, b: Expr | int) -> None:
        """Record `a == b`; a symbol that occurs linearly is eliminated."""
        difference = self.canonical(Expr.of(a) - b)
        if difference.is_const:
            return
        name = _solvable(difference)
        if name is None:
            self._zero.add(_primitive(difference))
            return
        coefficient = next(
            c for m, c in difference.terms if len(m) == 1 and m[0][0].key == name and not m[0][0].op
        )
        solution = Expr.symbol(name) - difference * coefficient
        self._canonical.clear()
        self._solved = {s: e.substitute({name: solution}) for s, e in self._solved.items()}
        self._solved[name] = solution
        low, high = self._lower.pop(name, 0), self._upper.pop(name, None)
        if low:
            self.add_lower(solution, low)
        if high is not None:
            self.add_upper(solution, high)
        divisors, zeros = self._divisor, self._zero
        self._divisor, self._zero = {}, set()
        for expr, k in divisors.items():
            self.add_divisible(expr, k)
        for zero in zeros:
            self.add_equal(zero, 0)
        self._at_least_zero = [self.canonical(e) for e in self._at_least_zero]

    def add_divisible(self, expr: Expr | int, k: int) -> None:
        """Record that `k` divides `expr`."""
        expr = self.canonical(expr)
        if not expr.is_const:
            known = self._divisor.get(expr, 1)
            self._divisor[expr] = known * k // gcd(known, k)

    def add_lower(self, expr: Expr | int, bound: int) -> None:
        """Record `expr >= bound`."""
        expr = self.canonical(expr)
        name = _lone_symbol(expr)
        if name is not None:
            self._lower[name] = max(bound, self._lower.get(name, 0))
        elif not expr.is_const:
            self._at_least_zero.append(expr - bound)

    def add_upper(self, expr: Expr | int, bound: int) -> None:
        """Record `expr <= bound`."""
        expr = self.canonical(expr)
        name = _lone_symbol(expr)
        if name is not None:
            self._upper[name] = min(bound, self._upper.get(name, bound))
        elif not expr.is_const:
            self._at_least_zero.append(-expr + bound)

    # -- questions ------------------------------------------------------------------------------

    def canonical(self, expr: Expr | int) -> Expr:
        """`expr` with every solved symbol replaced."""
        expr = Expr.of(expr)
        if not self._solved:
            return expr
        known = self._canonical.get(expr)
        if known is None:
            known = self._canonical[expr] = (
                expr.substitute(self._solved) if expr.symbols() & self._solved.keys() else expr
            )
        return known

    def equal(self, a: Expr | int, b: Expr | int) -> bool:
        """Is `a == b` proved?"""
        if a == b:
            return True
        difference = self.canonical(Expr.of(a) - b)
        if difference.is_const:
            return difference.value == 0
        return bool(self._zero) and _primitive(difference) in self._zero

    def product_equal(self, xs: Iterable[Expr | int], ys: Iterable[Expr | int]) -> bool:
        """Is the product of `xs` proved equal to that of `ys`?"""
        return self.equal(Expr.product(xs), Expr.product(ys))

    def divisible(self, expr: Expr | int, k: int) -> bool:
        """Is it proved that `k` divides `expr`?"""
        expr = self.canonical(expr)
        if k == 1 or expr.content % k == 0 or self._divisor.get(expr, 1) % k == 0:
            return True
        return all(self._monomial_divisor(m, c) % k == 0 for m, c in expr.terms)

    def _monomial_divisor(self, monomial: tuple[tuple[Atom, int], ...], coefficient: int) -> int:
        divisor = abs(coefficient)
        for atom, power in monomial:
            divisor *= self._divisor.get(Expr({((atom, 1),): 1}), 1) ** power
        return divisor

    def at_least(self, a: Expr | int, b: Expr | int) -> bool:
        """Is `a >= b` proved?"""
        difference = self.canonical(Expr.of(a) - b)
        low, _ = self.bounds(difference)
        if low is not None and low >= 0:
            return True
        for fact in self._at_least_zero:
            low, _ = self._interval(difference - fact)
            if low is not None and low >= 0:
                return True
        return False

    def bounds(self, expr: Expr | int) -> tuple[Bound, Bound]:
        """(lower, upper) proved for `expr`; None where nothing is known."""
        expr = self.canonical(expr)
        low, high = self._interval(expr)
        for fact in self._at_least_zero:
            if (extra := expr - fact).is_const:
                low = extra.value if low is None else max(low, extra.value)
            if (extra := expr + fact).is_const:
                high = extra.value if high is None else min(high, extra.value)
        return low, high

    def _interval(self, expr: Expr) -> tuple[Bound, Bound]:
        low: Bound = 0
        high: Bound = 0
        for monomial, coefficient in expr.terms:
            a: Bound = 1
            b: Bound = 1
            for atom, power in monomial:
                for _ in range(power):
                    a, b = _interval_product((a, b), self._atom(atom))
            a, b = _interval_product((a, b), (coefficient, coefficient))
            low = None if low is None or a is None else low + a
            high = None if high is None or b is None else high + b
        return low, high

    def _atom(self, atom: Atom) -> tuple[Bound, Bound]:
        if not atom.op:
            return self._lower.get(atom.key, 0), self._upper.get(atom.key)
        (a, b), (c, d) = (self.bounds(arg) for arg in atom.args)
        if atom.op == "min":
            lows = None if a is None or c is None else min(a, c)
            return lows, min((x for x in (b, d) if x is not None), default=None)
        if atom.op == "max":
            highs = None if b is None or d is None else max(b, d)
            return max((x for x in (a, c) if x is not None), default=None), highs
        if c is None or c < 1:
            return None, None
        if atom.op == "mod":
            top = None if d is None else d - 1
            if a is not None and a >= 0 and b is not None:
                top = b if top is None else min(top, b)
            return 0, top
        # floordiv by something >= 1: smallest quotient from the extreme divisor.
        low = None
        if a is not None:
            low = a // c if a < 0 else (0 if d is None else a // d)
        high = None
        if b is not None:
            high = b // c if b >= 0 else (-1 if d is None else b // d)
        return low, high


def _interval_product(x: tuple[Bound, Bound], y: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    """Interval multiplication; None is an infinity on its side."""
    (a, b), (c, d) = x, y
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None if b is None or d is None else b * d
    if a is None or b is None or c is None or d is None:
        if c is not None and c == d:  # scaling by a number
            scaled = (None if a is None else a * c, None if b is None else b * c)
            return (0, 0) if c == 0 else scaled if c > 0 else (scaled[1], scaled[0])
        return None, None
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _lone_symbol(expr: Expr) -> str | None:
    if len(expr.terms) == 1:
        monomial, coefficient = expr.terms[0]
        if (
            coefficient == 1
            and len(monomial) == 1
            and monomial[0][1] == 1
            and not monomial[0][0].op
        ):
            return monomial[0][0].key
    return None


def _solvable(zero: Expr) -> str | None:
    """The symbol `zero == 0` defines: linear, coefficient +-1, in no other term.

    Names made up by the analysis (`d0_1`) go before the user's, later ones before earlier ones.
    """
    candidates = []
    for monomial, coefficient in zero.terms:
        if abs(coefficient) == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            rest = Expr({m: c for m, c in zero.terms if m != monomial})
            if not atom.op and atom.key not in rest.symbols():
                candidates.append(atom.key)
    return max(candidates, key=_solving_order, default=None)


def _solving_order(name: str) -> tuple[bool, int, int, str]:
    head, _, tail = name[1:].partition("_")
    if name[0] == "d" and head.isdigit() and tail.isdigit():
        return True, int(head), int(tail), name
    return False, 0, 0, name


def _primitive(expr: Expr) -> Expr:
    """`expr` divided by its content, with a positive leading coefficient."""
    content = expr.content or 1
    sign = -1 if expr.terms and expr.terms[0][1] < 0 else 1
    return Expr({m: c // (content * sign) for m, c in expr.terms})
