"""`Constraints`: what is known of sizes, and what follows from it.

Every answer is a proof: False means "not proved". Facts are kept in four forms:

* A symbol that an equality determines is replaced everywhere (`d0 == 2*d1` removes `d0`).
* Any other equality is a polynomial that is 0. Questions use it from left to right.
  No closure is computed: BladeDISC's transitive product equalities made GPT-2 take 850 s.
* Divisibility is a congruence `e = 0 (mod m)`.
* Bounds are intervals of symbols, and polynomials that are >= 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import gcd, lcm
from typing import TypeVar

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
from shlo_disc.dynamic.monomial import Monomial, common_monomial, monomial_quotient
from shlo_disc.dynamic.relations import RELATIONS
from shlo_disc.dynamic.samples import CounterexampleSamples

_F = TypeVar("_F")

_STEPS = 16
"""Reductions by known equalities tried for one question; programs seen need one or two."""

_DEPTH = 2
"""Facts combined to prove one bound."""

_MULTIPLES = 64
"""Multiples of facts subtracted to prove one divisibility; programs seen need three at most.
With no limit, two padded dimensions cut in windows took 20 s."""

_COMBINED = 32
"""Multiples of facts subtracted from each expression of a proof of a bound, at most. 55 relations
that PyTorch states of two padded dimensions have 12; n facts of n symbols each could have n^2."""


class Constraints:
    """A growing set of facts about the symbols of one program. They are >= 0, but for `signed`."""

    def __init__(self) -> None:
        self._solved: dict[str, Expr] = {}
        self._solved_with: dict[str, set[str]] = {}
        """Symbol -> the replaced symbols whose replacement has it."""
        self._zero: list[Expr] = []
        self._congruent: list[tuple[Expr, int]] = []
        self._divisor: dict[str, int] = {}
        self._symbol: dict[str, Interval] = {}
        self.signed: set[str] = set()
        """Symbols that may be negative: numbers that are no sizes."""
        self._at_least_zero: list[Expr] = []
        self._canonical: dict[Expr, Expr] = {}
        self._equal_products: dict[tuple[tuple[Expr | int, ...], ...], bool] = {}
        self._lows: dict[tuple[Expr, int], Bound] = {}
        self._intervals: dict[tuple[Atom, int], Interval] = {}
        self._divided: dict[tuple[Expr, int], bool] = {}
        self._atom_divisors: dict[Atom, int] = {}
        self._multiples_left = 0
        self._known_samples: CounterexampleSamples | None = None

    # -- facts ----------------------------------------------------------------------------------

    def add_signed(self, name: str) -> None:
        """The symbol `name`, of which nothing is known yet, may be negative."""
        self.signed.add(name)
        self._symbol[name] = EVERYTHING
        self._changed(divisors=False)

    def add_equal(self, a: Expr | int, b: Expr | int) -> None:
        """Record `a == b`; a symbol that occurs linearly is eliminated."""
        zero = _primitive(self.canonical(Expr.of(a) - b))
        if zero.is_const or zero in self._zero:
            return
        congruence = _lone_mod(zero)
        if congruence is not None:
            self.add_divisible(*congruence)
            return
        name = _solvable(zero)
        if name is None:
            self._zero.append(zero)
            self._changed()
            self._add_consequences(zero)
        else:
            self._eliminate(name, zero)

    def _eliminate(self, name: str, zero: Expr) -> None:
        """Replace symbol `name`, linear in `zero == 0`, in everything known."""
        (coefficient,) = (
            c for m, c in zero.terms if len(m) == 1 and m[0][0].key == name and m[0][1] == 1
        )
        solution = Expr.symbol(name) - zero * coefficient
        low, high = self._symbol.pop(name, (0, None))
        divisor = self._divisor.pop(name, 1)
        zeros, congruent, positive = self._zero, self._congruent, self._at_least_zero
        self._zero, self._congruent, self._at_least_zero = [], [], []
        if solution.is_const:  # it says nothing of facts without the symbol
            zeros, self._zero = _with_symbol(name, zeros, Expr.symbols)
            positive, self._at_least_zero = _with_symbol(name, positive, Expr.symbols)
            congruent, self._congruent = _with_symbol(name, congruent, lambda f: f[0].symbols())
        for other in self._solved_with.pop(name, ()):
            self._replace(other, self._solved[other].substitute({name: solution}))
        self._replace(name, solution)
        self._changed()
        if low is not None:
            self.add_lower(solution, low)
        if high is not None:
            self.add_upper(solution, high)
        self.add_divisible(solution, divisor)
        for expr, k in congruent:
            self.add_divisible(expr, k)
        for expr in positive:
            self.add_lower(expr, 0)
        for expr in zeros:
            self.add_equal(expr, 0)

    def _replace(self, name: str, solution: Expr) -> None:
        self._solved[name] = solution
        for symbol in solution.symbols():
            self._solved_with.setdefault(symbol, set()).add(name)

    def _add_consequences(self, zero: Expr) -> None:
        """From `c*s + rest == 0`: what divides `rest` divides `c*s`."""
        for monomial, coefficient in zero.terms:
            if len(monomial) == 1 and monomial[0][1] == 1:
                rest = gcd(*(self._term_divisor(m, c) for m, c in zero.terms if m != monomial))
                self.add_divisible(Expr({monomial: 1}), rest // gcd(rest, coefficient))
                if abs(coefficient) == 1:
                    self._add_order(monomial[0][0], zero * -coefficient)

    def _add_order(self, atom: Atom, rest: Expr) -> None:
        """From `min(a, b) == b` follows `a >= b`, and the like; `rest`: `b - min(a, b)`."""
        if atom.op not in ("min", "max"):
            return
        chosen = rest + Expr.of_atom(atom)
        for one, other in (atom.args, atom.args[::-1]):
            if chosen == one:
                self.add_lower(other - one if atom.op == "min" else one - other, 0)

    def add_divisible(self, expr: Expr | int, k: int) -> None:
        """Record that `k` divides `expr`."""
        expr, k = self.canonical(expr), abs(k)
        shared = gcd(expr.content, k)
        if k in (0, shared) or expr.is_const:
            return
        expr, k = Expr({m: c // shared for m, c in expr.terms}), k // shared
        atom = expr.lone_atom
        if atom is not None and not atom.op:
            self._divisor[atom.key] = lcm(k, self._divisor.get(atom.key, 1))
        elif (expr, k) not in self._congruent:
            self._congruent.append((expr, k))
        else:
            return
        self._changed()

    def add_lower(self, expr: Expr | int, bound: int) -> None:
        """Record `expr >= bound`."""
        positive = self.canonical(expr) - bound
        if positive.is_const:
            return
        content = gcd(*(c for m, c in positive.terms if m))
        if content > 1:
            # An integer is at least the quotient rounded up.
            terms = {m: c // content for m, c in positive.terms}
            positive = Expr(terms)
        constant = positive.constant_term
        head = positive - constant
        if (divided := _divided(head)) is not None:
            # floordiv(x, k) >= c is x >= k*c.
            dividend, k = divided
            self.add_lower(dividend, -constant * k)
        elif (divided := _divided(-head)) is not None:
            dividend, k = divided
            self.add_upper(dividend, constant * k + k - 1)
        if divided is not None and divided[0].lone_atom is not None:
            return  # its bounds give those of the quotient
        atom = head.lone_atom
        if atom is not None and not atom.op:
            low, high = self._symbol.get(atom.key, (0, None))
            self._symbol[atom.key] = (-constant if low is None else max(-constant, low), high)
            self._pin(atom.key)
        elif (atom := (-head).lone_atom) is not None and not atom.op:
            low, high = self._symbol.get(atom.key, (0, None))
            self._symbol[atom.key] = (low, constant if high is None else min(high, constant))
            self._pin(atom.key)
        elif positive not in self._at_least_zero:
            self._at_least_zero.append(positive)
        else:
            return
        self._changed(divisors=False)

    def add_upper(self, expr: Expr | int, bound: int) -> None:
        """Record `expr <= bound`."""
        self.add_lower(-Expr.of(expr), -bound)

    def _pin(self, name: str) -> None:
        """A symbol between two equal bounds is a number."""
        low, high = self._symbol[name]
        if low is not None and low == high:
            self._changed(divisors=False)
            self.add_equal(Expr.symbol(name), low)

    def assume(self, lhs: Expr | int, op: str, rhs: Expr | int) -> None:
        """Record `lhs op rhs`; op is one of == != < <= > >=."""
        difference = Expr.of(lhs) - rhs
        if op == "==":
            self.add_equal(lhs, rhs)
        elif op == ">=":
            self.add_lower(difference, 0)
        elif op == ">":
            self.add_lower(difference, 1)
        elif op == "<=":
            self.add_upper(difference, 0)
        elif op == "<":
            self.add_upper(difference, -1)
        elif op == "!=":
            # Of use only where it moves a bound.
            low, high = self.bounds(difference)
            if low == 0:
                self.add_lower(difference, 1)
            elif high == 0:
                self.add_upper(difference, -1)
        else:
            raise ValueError(f"{op!r} is not a comparison")

    def copy(self) -> Constraints:
        """The same facts, to add others to; what was derived of them is not taken along."""
        made = Constraints()
        made._solved = dict(self._solved)
        made._solved_with = {name: set(names) for name, names in self._solved_with.items()}
        made._zero = list(self._zero)
        made._congruent = list(self._congruent)
        made._divisor = dict(self._divisor)
        made._symbol = dict(self._symbol)
        made.signed = set(self.signed)
        made._at_least_zero = list(self._at_least_zero)
        return made

    def alone(
        self, symbols: Sequence[str], renamed: Callable[[Expr], Expr]
    ) -> tuple[object, ...] | None:
        """What is known of `symbols`, in expressions as `renamed` writes them.

        Symbols with equal knowledge, in their order, have equal answers to equal questions. None if
        a fact ties some of `symbols` to others.
        """
        wanted = {*symbols}
        of_one = [(self._symbol.get(name, (0, None)), self._divisor.get(name, 1),
                   name in self.signed) for name in symbols]  # fmt: skip
        facts: list[frozenset[object]] = []
        for known in (self._zero, self._at_least_zero, self._congruent):
            found: set[object] = set()
            for fact in known:
                expr, modulus = fact if isinstance(fact, tuple) else (fact, 0)
                about = expr.symbols()
                if about.isdisjoint(wanted):
                    continue
                if not about <= wanted:
                    return None
                found.add((renamed(expr), modulus))
            facts.append(frozenset(found))
        return (*of_one, *facts)

    def facts(self) -> tuple[frozenset[object], ...]:
        """All that is known. Equal facts have equal answers to equal questions."""
        tables = self._symbol.items(), self._divisor.items(), self.signed
        return tuple(map(frozenset, (*tables, self._zero, self._at_least_zero, self._congruent)))

    def _changed(self, *, divisors: bool = True) -> None:
        """Forget what was derived. Without `divisors` only bounds became known.

        No proof of divisibility reads bounds. A canonical form that they change is another key.
        """
        self._canonical.clear()
        self._equal_products.clear()
        self._lows.clear()
        self._intervals.clear()
        if divisors:
            self._divided.clear()
            self._atom_divisors.clear()
        self._known_samples = None

    @property
    def _samples(self) -> CounterexampleSamples:
        if self._known_samples is None:
            self._known_samples = CounterexampleSamples(
                self._symbol, self._divisor, self._zero, self._at_least_zero, self._congruent
            )
        return self._known_samples

    # -- questions ------------------------------------------------------------------------------

    def sampled(self, expr: Expr) -> tuple[int, ...]:
        """Values of `expr` at a few sizes at which the facts hold.

        They are the same sizes for every `expr`, unless that divides by 0 there. There may be none.
        """
        return tuple(self._samples.values(expr))

    def _at_samples(self, expr: Expr) -> Iterator[int]:
        """As :meth:`sampled`, of an expression in any symbols."""
        return self._samples.values(expr.substitute(self._solved) if self._solved else expr)

    def implies(self, lhs: Expr | int, op: str, rhs: Expr | int) -> bool | None:
        """True if `lhs op rhs` is proved, False if its opposite is, None if neither is."""
        holds = RELATIONS.get(op)
        if holds is None:
            raise ValueError(f"{op!r} is not a comparison")
        if len({holds(value, 0) for value in self._at_samples(Expr.of(lhs) - rhs)}) > 1:
            return None
        a, b = self.canonical(lhs), self.canonical(rhs)
        if op in ("==", "!="):
            if self.equal(a, b):
                return op == "=="
            if self.at_least(a, b + 1) or self.at_least(b, a + 1) or self._incongruent(a - b):
                return op == "!="
            return None
        if op in ("<", "<="):
            a, b, op = b, a, {"<": ">", "<=": ">="}[op]
        margin = 1 if op == ">" else 0
        if self.at_least(a, b + margin):
            return True
        return False if self.at_least(b, a + 1 - margin) else None

    def canonical(self, expr: Expr | int) -> Expr:
        """`expr` in the terms chosen to stand for equal ones, with functions folded by facts."""
        if not isinstance(expr, Expr):
            return Expr.const(expr)
        known = self._canonical.get(expr)
        if known is None:
            known = expr.substitute(self._solved) if self._solved else expr
            if any(atom.op for atom in known.atoms()):
                known = known.rebuild(self._folded)
            self._canonical[expr] = self._canonical[known] = known
        return known

    def _folded(self, atom: Atom) -> Expr:
        """The canonical form of one atom."""
        if not atom.op:
            return Expr.symbol(atom.key)
        a, b = (self.canonical(arg) for arg in atom.args)
        if atom.op in ("min", "max"):
            folded = Expr.min(a, b) if atom.op == "min" else Expr.max(a, b)
            if folded.lone_atom is None or folded.lone_atom.op != atom.op:
                return folded
            a, b = folded.lone_atom.args
            if self._is_nonnegative(a - b):
                return a if atom.op == "max" else b
            if self._is_nonnegative(b - a):
                return b if atom.op == "max" else a
            return folded
        if not b.terms:  # without a value where the facts hold
            return Expr.of_atom(atom)
        quotient, rest = a // b, a % b
        result = quotient if atom.op == "floordiv" else rest
        head = _division(rest, quotient)
        if head is None:
            return result
        x, divisor, whole = head
        value = self._division_value(x, divisor)
        if value is None:
            return result
        # rest = scale * mod(x, divisor) + c, and the quotient's own atom is floordiv(x, divisor).
        small_quotient, small_rest = value
        replaced = {whole[0]: small_quotient, whole[1]: small_rest}
        return result.rebuild(lambda at: replaced.get(at, Expr.of_atom(at)))

    def _division_value(self, x: Expr, divisor: Expr) -> tuple[Expr, Expr] | None:
        """(floordiv, mod) of `x` by `divisor` where facts determine the remainder."""
        low, high = self._range(x, _DEPTH)
        if divisor.is_const:
            k = divisor.value
            if low is not None and high is not None and low // k == high // k:
                return Expr.const(low // k), x - (low // k) * k
            rest = self._residue(x, k)
            if rest:
                # floordiv(x, k) = floordiv(x - rest, k), which divides exactly.
                return (x - rest) // divisor, Expr.const(rest)
            if rest == 0:
                return x // divisor, Expr.const(0)
        elif low is not None and low >= 0 and self._is_nonnegative(divisor - x - 1):
            return Expr.const(0), x
        elif high is not None and high < 0 and self._is_nonnegative(divisor + x):
            return Expr.const(-1), x + divisor  # jnp.roll(x, 1) begins at mod(-1, n)
        return None

    def _residue(self, x: Expr, k: int) -> int | None:
        """`x mod k` when it is a number that follows from congruences."""
        if self._divides(k, x):
            return 0
        if not self._congruent and not self._divisor:
            return None
        if len({value % k for value in self._samples.values(x)}) > 1:
            return None
        constant = x.constant_term
        if self._divides(k, x - constant):
            return constant % k
        for expr, m in self._congruent:
            if m % k == 0:
                for scale in {1, -1} | {c for mono, c in x.terms if mono}:
                    rest = x - expr * scale
                    if self._divides(k, rest - rest.constant_term):
                        return rest.constant_term % k
        return None

    def equal(self, a: Expr | int, b: Expr | int) -> bool:
        """True if `a == b` is proved."""
        if a is b or a == b:
            return True
        difference = self.canonical(Expr.of(a) - b)
        if difference.is_const:
            return difference.value == 0
        if self._samples.against(difference, lambda value: value == 0):
            return False
        if difference.vanishes:
            return True
        if self._zero and self._reduced(difference).vanishes:
            return True
        return self._range(difference, _DEPTH) == (0, 0)

    def product_equal(self, xs: Iterable[Expr | int], ys: Iterable[Expr | int]) -> bool:
        """True if the product of `xs` is proved equal to that of `ys`."""
        key = tuple(xs), tuple(ys)
        known = self._equal_products.get(key)
        if known is None:
            known = self._equal_products[key] = self._is_equal_product(*map(Expr.product, key))
        return known

    def _is_equal_product(self, a: Expr, b: Expr) -> bool:
        if self.equal(a, b):
            return True
        a, b = self.canonical(a), self.canonical(b)
        if self._samples.against(a - b, lambda value: value == 0):
            return False
        shared = common_monomial([*a.terms, *b.terms], a.terms[0][0]) if a.terms else ()
        if not shared:
            return False
        # a*m == b*m follows from a == b.
        return self.equal(_over(a, shared), _over(b, shared))

    def _reduced(self, expr: Expr) -> Expr:
        """`expr` less multiples of polynomials known to be 0, leading terms first."""
        for _ in range(_STEPS):
            reduced = self._reduced_once(expr)
            if reduced is None:
                break
            expr = reduced
        return expr

    def _reduced_once(self, expr: Expr) -> Expr | None:
        for monomial, coefficient in expr.terms:
            for zero in self._zero:
                lead, scale = zero.terms[0]
                power = monomial_quotient(monomial, lead)
                if power is not None and coefficient % scale == 0:
                    return expr - Expr({power: coefficient // scale}) * zero
        return None

    # -- divisibility ---------------------------------------------------------------------------

    def divisible(self, expr: Expr | int, k: int) -> bool:
        """True if `k` is proved to divide `expr`. 0 divides only 0."""
        expr, k = self.canonical(expr), abs(k)
        if k == 0:
            return self.equal(expr, 0)
        return self._divides(k, expr)

    def _divides(self, k: int, expr: Expr) -> bool:
        rest = self._modulo(expr, k)
        if not rest.terms:
            return True
        known = self._divided.get((rest, k))
        if known is None:
            is_refuted = self._samples.against(rest, lambda value: value % k == 0)
            self._multiples_left = _MULTIPLES
            known = not is_refuted and self._divides_with_facts(k, rest, _DEPTH)
            self._divided[rest, k] = known
        return known

    def _modulo(self, expr: Expr, k: int) -> Expr:
        """`expr` without the terms `k` divides, coefficients reduced."""
        if k == 1:
            return Expr.const(0)
        return Expr({m: c % k for m, c in expr.terms if self._term_divisor(m, c) % k})

    def _divides_with_facts(self, k: int, rest: Expr, depth: int) -> bool:
        """Subtract multiples of congruent expressions until nothing is left modulo `k`."""
        if not rest.terms:
            return True
        if depth == 0:
            return False
        facts = [*self._congruent, *((zero, 0) for zero in self._zero)]
        for expr, m in facts:
            for lead, scale in expr.terms:
                if not lead or abs(scale) != 1:
                    continue
                for monomial, coefficient in rest.terms:
                    power = monomial_quotient(monomial, lead)
                    # m divides expr, so k divides coefficient*power*expr.
                    if power is None or self._term_divisor(power, coefficient * m) % k:
                        continue
                    if not self._multiples_left:
                        return False
                    self._multiples_left -= 1
                    left = rest - Expr({power: coefficient * scale}) * expr
                    if self._divides_with_facts(k, self._modulo(left, k), depth - 1):
                        return True
        return False

    def _incongruent(self, difference: Expr) -> bool:
        """True if the remainder of `difference` modulo some number proves that it is not 0."""
        constant = difference.constant_term
        if constant == 0:
            return False
        divisor = self._divisor_of(difference - constant)
        return divisor > 1 and constant % divisor != 0

    def _divisor_of(self, expr: Expr) -> int:
        """A number that divides `expr`; 0 for 0."""
        return gcd(*(self._term_divisor(m, c) for m, c in expr.terms))

    def _term_divisor(self, monomial: Monomial, coefficient: int) -> int:
        divisor = abs(coefficient)
        for atom, power in monomial:
            divisor *= self._atom_divisor(atom) ** power
        return divisor

    def _atom_divisor(self, atom: Atom) -> int:
        """As :meth:`_function_divisor`, which is asked once."""
        if not atom.op:
            return self._divisor.get(atom.key, 1)
        if atom not in self._atom_divisors:
            self._atom_divisors[atom] = self._function_divisor(atom)
        return self._atom_divisors[atom]

    def _function_divisor(self, atom: Atom) -> int:
        """A number that divides a function of sizes."""
        a = self._divisor_of(atom.args[0])
        if atom.op == "floordiv":
            k = atom.args[1]
            return a // k.value if k.is_const and k.value and a and a % k.value == 0 else 1
        return gcd(a, self._divisor_of(atom.args[1])) or 1

    # -- bounds ---------------------------------------------------------------------------------

    def at_least(self, a: Expr | int, b: Expr | int) -> bool:
        """True if `a >= b` is proved."""
        return self._is_nonnegative(self.canonical(Expr.of(a) - b))

    def _is_nonnegative(self, expr: Expr) -> bool:
        # Not canonical() from here on: it asks these questions about the parts of an atom.
        if self._nonnegative(expr, _DEPTH):
            return True
        if self._samples.against(expr, lambda value: value >= 0):
            return False
        low = self._low(expr, _DEPTH)
        if low is None or (low < 0 and self._zero):
            low = either(low, self._low(self._reduced(expr), _DEPTH))
        return low is not None and low >= 0

    def is_natural(self, expr: Expr) -> bool:
        """True if the bounds of symbols, each by itself, prove `expr >= 0`.

        This is interval arithmetic alone, and takes a tenth of the time of :meth:`at_least`.
        """
        if not self._solved.keys().isdisjoint(expr.symbols()):
            expr = self.canonical(expr)
        low = self._interval(expr, 0)[0]
        return low is not None and low >= 0

    def bounds(self, expr: Expr | int) -> tuple[Bound, Bound]:
        """(lower, upper) proved for `expr`; None where nothing is known."""
        return self._range(self.canonical(expr), _DEPTH)

    def _range(self, expr: Expr, depth: int) -> Interval:
        """The interval of `expr`, combining up to `depth` facts on the way."""
        high = self._low(-expr, depth)
        return self._low(expr, depth), None if high is None else -high

    def _low(self, expr: Expr, depth: int) -> Bound:
        """As :meth:`_lower`, which is asked once."""
        key = expr, depth
        if key not in self._lows:
            self._lows[key] = self._lower(expr, depth)
        return self._lows[key]

    def _lower(self, expr: Expr, depth: int) -> Bound:
        """A lower bound of `expr`, the best found until one shows that it is >= 1."""
        if expr.is_const:
            return expr.value
        best = self._interval(expr, depth)[0]
        if len(expr.terms) > 1 and _undecided(best):
            best = either(best, self._lower_shifted(expr, depth))
            best = either(best, self._lower_factored(expr, depth))
        if depth == 0 or not _undecided(best):
            return best
        for rest in islice(self._less_a_fact(expr, depth), _COMBINED):
            best = either(best, self._low(rest, depth - 1))
        for atom in expr.atoms():
            if atom.op == "floordiv" and atom.args[1].is_const and atom.args[1].value > 1:
                # k*floordiv(x, k) is x - mod(x, k): a bound of k*expr sees through the quotient.
                k = atom.args[1].value
                low = self._low(expr * k, depth - 1)
                best = either(best, None if low is None else -(-low // k))
        return best

    def _less_a_fact(self, expr: Expr, depth: int) -> Iterator[Expr]:
        """`expr` less multiples of what is >= 0, without one of its terms: a bound of one holds."""
        for fact in [*self._at_least_zero, *self._atom_facts(expr, depth)]:
            coefficients = dict(fact.terms)
            pairs = ((c, coefficients.get(m, 0) if m else 0) for m, c in expr.terms)
            for times in dict.fromkeys(c // own for c, own in pairs if own and c % own == 0):
                if times > 0:
                    yield expr - fact * times

    def _lower_shifted(self, expr: Expr, depth: int) -> Bound:
        """Write each atom as its lower bound plus an excess >= 0.

        What then has only positive coefficients is at least its constant:
        `b*t - b = (b - 1)*(t - 1) + (t - 1) >= 0`.
        """
        lows: dict[Atom, int] = {}
        tops: dict[Atom, Bound] = {}
        for atom in expr.atoms():
            low, high = self._atom(atom, depth)
            if low is None:
                return None
            lows[atom], tops[atom] = low, None if high is None else high - low
        bound = 0
        for excesses, coefficient in _shifted(expr, lows).items():
            if coefficient > 0 and excesses:
                continue
            top = 1
            for atom in excesses:
                highest = tops[atom]
                if highest is None:
                    return None
                top *= highest
            bound += coefficient * top
        return bound

    def _lower_factored(self, expr: Expr, depth: int) -> Bound:
        """`m*e` with `m >= 0` and `e >= low >= 0`."""
        shared = common_monomial(expr.terms, expr.terms[0][0])
        if not shared:
            return None
        factor = self._interval(Expr({shared: 1}), depth)[0]
        if factor is None or factor < 0:
            return None
        low = self._low(_over(expr, shared), depth)
        return None if low is None or low < 0 else low * factor

    def _atom_facts(self, expr: Expr, depth: int) -> list[Expr]:
        """What is >= 0 by the meaning of the functions that occur in `expr`."""
        facts: list[Expr] = []
        for atom in expr.atoms():
            if not atom.op:
                continue
            a, b = atom.args
            own = Expr.of_atom(atom)
            if atom.op == "min":
                facts += [a - own, b - own]
            elif atom.op == "max":
                facts += [own - a, own - b]
            elif atom.op == "mod":
                if self._positive(b, depth) and self._nonnegative(a, depth):
                    facts.append(a - own)
                if self._positive(b, depth):
                    facts.append(b - 1 - own)
            elif self._positive(b, depth) and self._nonnegative(a, depth):
                facts.append(a - own)
        return facts

    def _positive(self, expr: Expr, depth: int) -> bool:
        low = self._interval(expr, depth)[0]
        return low is not None and low >= 1

    def _nonnegative(self, expr: Expr, depth: int) -> bool:
        low = self._interval(expr, depth)[0]
        return low is not None and low >= 0

    def _interval(self, expr: Expr, depth: int) -> Interval:
        """Interval arithmetic, term by term."""
        low: Bound = 0
        high: Bound = 0
        for monomial, coefficient in expr.terms:
            term: Interval = (1, 1)
            for atom, power in monomial:
                value = self._atom(atom, depth)
                for _ in range(power):
                    term = interval_product(term, value)
                if power % 2 == 0 and (term[0] is None or term[0] < 0):
                    term = (0 if len(monomial) == 1 else term[0], term[1])
            term = interval_product(term, (coefficient, coefficient))
            low, high = interval_sum(low, term[0]), interval_sum(high, term[1])
        return low, high

    def _atom(self, atom: Atom, depth: int) -> Interval:
        """As :meth:`_function`, which is asked once."""
        if not atom.op:
            return self._symbol.get(atom.key, (0, None))
        key = atom, depth
        if key not in self._intervals:
            self._intervals[key] = self._function(atom, depth)
        return self._intervals[key]

    def _function(self, atom: Atom, depth: int) -> Interval:
        """The interval of a function of sizes."""
        a, b = (self._range(arg, max(depth - 1, 0)) for arg in atom.args)
        if atom.op == "min":
            return both(min, a[0], b[0]), either(a[1], b[1], min)
        if atom.op == "max":
            return either(a[0], b[0]), both(max, a[1], b[1])
        if b[0] is None or b[0] < 1:
            return EVERYTHING
        if atom.op == "mod":
            top = None if b[1] is None else b[1] - 1
            return 0, either(top, a[1], min) if a[0] is not None and a[0] >= 0 else top
        return interval_floordiv(a, (b[0], b[1]))


def _undecided(bound: Bound) -> bool:
    """True if a better bound is worth looking for. Callers ask whether sizes are >= 0 or >= 1."""
    return bound is None or bound < 1


def _shifted(expr: Expr, lows: Mapping[Atom, int]) -> dict[tuple[Atom, ...], int]:
    """The coefficients of `expr` over the excesses of its atoms above `lows`."""
    total: dict[tuple[Atom, ...], int] = {}
    for monomial, coefficient in expr.terms:
        # In the order of the monomial, so that equal products have equal keys.
        parts: dict[tuple[Atom, ...], int] = {(): coefficient}
        for atom, power in monomial:
            low = lows[atom]
            for _ in range(power):
                longer = {(*key, atom): value for key, value in parts.items()}
                if low:
                    for key, value in parts.items():
                        longer[key] = longer.get(key, 0) + value * low
                parts = longer
        for key, value in parts.items():
            total[key] = total.get(key, 0) + value
    return {key: value for key, value in total.items() if value}


def _over(expr: Expr, monomial: Monomial) -> Expr:
    """`expr` divided by a monomial of each of its terms."""
    terms = {}
    for m, c in expr.terms:
        quotient = monomial_quotient(m, monomial)
        assert quotient is not None
        terms[quotient] = c
    return Expr(terms)


def _division(rest: Expr, quotient: Expr) -> tuple[Expr, Expr, tuple[Atom, Atom]] | None:
    """(x, divisor, (floordiv atom, mod atom)) of a division that was not folded."""
    for monomial, _ in rest.terms:
        for atom, _ in monomial:
            if atom.op == "mod":
                twin = (atom.args[0] // atom.args[1]).lone_atom
                if twin is not None and twin in quotient.atoms():
                    return atom.args[0], atom.args[1], (twin, atom)
    return None


def _lone_mod(zero: Expr) -> tuple[Expr, int] | None:
    """(x - r, k) of `mod(x, k) - r == 0`, r a number in [0, k)."""
    constant = zero.constant_term
    head = zero - constant
    for sign in (1, -1):
        atom = (head * sign).lone_atom
        if atom is not None and atom.op == "mod" and atom.args[1].is_const:
            x, k = atom.args[0], atom.args[1].value
            r = -constant * sign
            if 0 <= r < k:
                return x - r, k
    return None


def _divided(expr: Expr) -> tuple[Expr, int] | None:
    """(x, k) of `floordiv(x, k)` by a number k > 0, alone."""
    atom = expr.lone_atom
    if atom is None or atom.op != "floordiv" or not atom.args[1].is_const:
        return None
    divisor = atom.args[1].value
    return (atom.args[0], divisor) if divisor > 0 else None


def _solvable(zero: Expr) -> str | None:
    """The symbol `zero == 0` defines: linear, coefficient +-1, in no other term.

    Names made up by the analysis (`d0_1`) go before the user's, later ones before earlier ones.
    """
    candidates = []
    for monomial, coefficient in zero.terms:
        if abs(coefficient) == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if not atom.op:
                rest = zero - Expr({monomial: coefficient})
                if atom.key not in rest.symbols():
                    candidates.append(atom.key)
    return max(candidates, key=_solving_order, default=None)


def _solving_order(name: str) -> tuple[bool, int, int, str]:
    head, _, tail = name[1:].partition("_")
    if name[0] == "d" and head.isdecimal() and tail.isdecimal():
        return True, int(head), int(tail), name
    return False, 0, 0, name


def _with_symbol(
    name: str, facts: list[_F], symbols: Callable[[_F], frozenset[str]]
) -> tuple[list[_F], list[_F]]:
    """`facts` to record again, and those that stay: all of either, for their order matters."""
    if any(name in symbols(fact) for fact in facts):
        return facts, []
    return [], facts


def _primitive(expr: Expr) -> Expr:
    """`expr` divided by its content, with a positive leading coefficient."""
    content = expr.content or 1
    sign = -1 if expr.terms and expr.terms[0][1] < 0 else 1
    if content * sign == 1:
        return expr
    return Expr({m: c // (content * sign) for m, c in expr.terms})
