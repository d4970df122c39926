"""`Expr`: a symbolic size as a canonical polynomial with integer coefficients.

The indeterminates ("atoms") are symbols and `floordiv(a, b)`, `mod(a, b)`, `min(a, b)`,
`max(a, b)` of expressions. Polynomials over the same atoms that are equal are equal objects
(`==`, `hash`), so shapes can be compared, and used as keys, without asking for facts. The notation
is that of `jax.export`: `2*b*t + 1`, `floordiv(t, 2)`, `b^2`.

These identities are applied too, each exact for all integers (and divisors other than 0):

* `floordiv(q*d + r, d) = q + floordiv(r, d)` for the terms of the dividend that `d` divides.
* `floordiv(-x, k) = -floordiv(x + k - 1, k)`, so that both spellings of a ceiling are one.
* `d*floordiv(x, d) = x - mod(x, d)`.
* `floordiv(floordiv(x, j) + y, k) = floordiv(x + j*y, j*k)` for numbers `j` and `k`. With
  `x = j*q + r`, `0 <= r < j`, the right side is `floor((q + y + r/j) / k)`, and `r/j < 1` takes no
  integer past the next multiple of `k`.
* `k*floordiv(x, j*k) = floordiv(x, j) - mod(floordiv(x, j), k)`, and
  `j*mod(floordiv(x, j), k) = mod(x, j*k) - mod(x, j)`: the two above together.
* `floordiv(x, k) + floordiv(x + 1, k) + ... + floordiv(x + k - 1, k) = x` (Hermite). Of
  `x = k*q + r` the last `r` terms are `q + 1`, and the others `q`. The sum in the fewest terms is
  kept, so `x - floordiv(x, 2)` is `floordiv(x + 1, 2)`.
* Common factors of dividend and divisor cancel.
* `mod(mod(x, j), k) = mod(x, k)` when `k` divides `j`.
* `min` and `max` are flat, sorted, and drop what differs from another entry by a constant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import product
from math import gcd, lcm, prod
from typing import Any, overload

from shlo_disc.dynamic.monomial import (
    CACHE_SIZE,
    MAX_WEIGHT,
    Atom,
    FormulaTooLongError,
    Monomial,
    Terms,
    common_monomial,
    intern,
    monomial_order,
    monomial_quotient,
    times,
)
from shlo_disc.dynamic.notation import Tree, parse

__all__ = ["MAX_DEGREE", "MAX_PRODUCT_TERMS", "Atom", "Expr", "Monomial", "ceil_div", "renaming"]

MAX_PRODUCT_TERMS = 20_000
"""Terms of one factor times those of the other: 20 ms. Sizes of real programs have below ten; the
(a + ... + h)^60 that a hostile one may ask for has 10^9."""

MAX_DEGREE = 256
"""Sizes multiplied in one term. Shapes have at most 32 dimensions; thousands of factors take
minutes."""


class Expr:
    """An immutable canonical polynomial; Python ints are accepted wherever an Expr is."""

    __slots__ = ("_divides", "_hash", "_symbols", "_text", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    """Monomials with non-zero coefficients, sorted; () is zero."""

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        if _has_quotients(terms):
            self._set(*_reduced(tuple(terms.items())))
        else:
            self._set(_sorted(terms), False)

    def _set(self, terms: tuple[tuple[Monomial, int], ...], divides: bool) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._divides = divides
        """Whether terms have quotients or remainders: other coefficients may have other forms."""
        self._text: str | None = None
        self._symbols: frozenset[str] | None = None

    # -- construction ---------------------------------------------------------------------------

    @staticmethod
    def of_terms(terms: tuple[tuple[Monomial, int], ...]) -> Expr:
        """The expression that had these `terms`."""
        made = Expr.__new__(Expr)
        made._set(terms, _has_quotients(dict(terms)))
        return made

    @staticmethod
    @functools.lru_cache(maxsize=CACHE_SIZE)
    def const(value: int) -> Expr:
        """The constant `value`."""
        return Expr({(): int(value)})

    @staticmethod
    @functools.lru_cache(maxsize=CACHE_SIZE)
    def symbol(name: str) -> Expr:
        """The unknown size `name`, an identifier."""
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not a name for a size")
        return Expr.of_atom(intern("", name))

    @staticmethod
    def of_atom(atom: Atom) -> Expr:
        """The expression that is this atom alone."""
        return _of_atom(atom)

    @staticmethod
    def of(value: Expr | int) -> Expr:
        """`value` as an Expr."""
        return value if isinstance(value, Expr) else Expr.const(value)

    @staticmethod
    @functools.lru_cache(maxsize=CACHE_SIZE)
    def parse(text: str) -> Expr:
        """The expression written in `jax.export`'s notation; raises ValueError."""
        try:
            return _from_tree(parse(text))
        except ZeroDivisionError:
            raise ValueError(f"{text!r} is not a size expression: division by 0") from None

    @staticmethod
    def product(sizes: Iterable[Expr | int]) -> Expr:
        """The product; 1 for no sizes."""
        result = Expr.const(1)
        for size in sizes:
            result = result * size
        return result

    @staticmethod
    def sum(sizes: Iterable[Expr | int]) -> Expr:
        """The sum; 0 for no sizes. Linear in the terms, which `+` one by one is not."""
        terms: Terms = {}
        divides = False
        for size in map(Expr.of, sizes):
            divides |= size._divides
            for monomial, coefficient in size.terms:
                terms[monomial] = terms.get(monomial, 0) + coefficient
        return _polynomial(terms, divides)

    @staticmethod
    def min(a: Expr | int, b: Expr | int) -> Expr:
        """The smaller of two sizes, folded when their difference is constant."""
        return _extremum("min", Expr.of(a), Expr.of(b))

    @staticmethod
    def max(a: Expr | int, b: Expr | int) -> Expr:
        """The larger of two sizes, folded when their difference is constant."""
        return _extremum("max", Expr.of(a), Expr.of(b))

    @staticmethod
    def of_function(op: str, a: Expr, b: Expr) -> Expr:
        """`op(a, b)`, where `op` is `floordiv`, `mod`, `min` or `max`."""
        return _BUILD[op](a, b)

    # -- arithmetic -----------------------------------------------------------------------------

    def __add__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            if not isinstance(other, int):
                return NotImplemented
            other = Expr.const(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        return _sum(self, other)

    def __neg__(self) -> Expr:
        return _scaled(self, -1)

    def __sub__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            return self + -other if isinstance(other, int) else NotImplemented
        if self.terms == other.terms:
            return Expr.const(0)
        if not other.terms:
            return self
        return _difference(self, other)

    def __rsub__(self, other: Expr | int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            if not isinstance(other, int):
                return NotImplemented
            return self if other == 1 else _scaled(self, other)
        if other.is_const:
            return self * other.value
        if self.is_const:
            return other * self.value
        return _product(self, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        """Quotient rounded down, as Python does; raises ZeroDivisionError for a constant 0."""
        return _divmod(self, Expr.of(other))[0]

    def __mod__(self, other: Expr | int) -> Expr:
        """Remainder with the divisor's sign, as Python does; raises ZeroDivisionError."""
        return _divmod(self, Expr.of(other))[1]

    floordiv = __floordiv__
    mod = __mod__

    def __rfloordiv__(self, other: int) -> Expr:
        return Expr.const(other) // self

    def __rmod__(self, other: int) -> Expr:
        return Expr.const(other) % self

    # -- questions ------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self._hash == other._hash and self.terms == other.terms
        if isinstance(other, int):
            return self.terms == (((), other),) if other else not self.terms
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr.parse, (str(self),)

    @property
    def is_one(self) -> bool:
        """Whether this is the literal 1."""
        return self.terms == _ONE_TERM

    @property
    def is_const(self) -> bool:
        """True if the expression is a number."""
        return not self.terms or not self.terms[0][0]  # the number is the last of several terms

    @property
    def value(self) -> int:
        """The number this is; raises ValueError for an expression with symbols."""
        if not self.terms:
            return 0
        monomial, number = self.terms[0]
        if monomial:
            raise ValueError(f"{self} is not a constant")
        return number

    @property
    def is_polynomial(self) -> bool:
        """True without `floordiv`, `mod`, `min` and `max`."""
        return not any(atom.op for monomial, _ in self.terms for atom, _ in monomial)

    @property
    def constant_term(self) -> int:
        """The coefficient of the empty monomial."""
        if self.terms and not self.terms[-1][0]:
            return self.terms[-1][1]
        return 0

    @property
    def degree(self) -> int:
        """Atoms multiplied in the longest term; 0 of a number."""
        return -monomial_order(self.terms[0][0])[0] if self.terms else 0

    @property
    def weight(self) -> int:
        """Symbols, functions and terms of the formula as written."""
        return len(self.terms) + sum(atom.weight for m, _ in self.terms for atom, _ in m)

    def may_be_multiplied(self, other: Expr) -> bool:
        """Whether the product is far below the limits of a size: of numbers there are no limits."""
        counts = len(self.terms), len(other.terms)
        return (
            4 * (self.degree + other.degree) <= MAX_DEGREE
            and (min(counts) <= 1 or 4 * counts[0] * counts[1] <= MAX_PRODUCT_TERMS)
            and counts[0] * other.weight + counts[1] * self.weight <= MAX_WEIGHT
        )

    @property
    def content(self) -> int:
        """The greatest common divisor of all coefficients (0 of zero)."""
        return gcd(*(c for _, c in self.terms))

    @property
    def lone_atom(self) -> Atom | None:
        """The atom this expression is, with coefficient and power 1; None for any other."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                return monomial[0][0]
        return None

    def atoms(self) -> frozenset[Atom]:
        """The atoms at the top level."""
        return frozenset(atom for m, _ in self.terms for atom, _ in m)

    def symbols(self) -> frozenset[str]:
        """The names of all symbols, nested ones included."""
        if self._symbols is None:
            names: set[str] = set()
            for monomial, _ in self.terms:
                for atom, _ in monomial:
                    if atom.op:
                        for arg in atom.args:
                            names |= arg.symbols()
                    else:
                        names.add(atom.key)
            self._symbols = frozenset(names)
        return self._symbols

    @property
    def vanishes(self) -> bool:
        """True if the expression is shown to be 0 for all integers.

        By `mod = x - d*floordiv`; and by numbers, where divisors are numbers (:func:`_repeats_0`).
        """
        if not self.terms:
            return True
        return self._divides and _vanishes(self)

    def evaluate(self, env: Mapping[str, int], known: dict[Atom, int] | None = None) -> int:
        """The number for these symbol values; raises KeyError, ZeroDivisionError.

        `known` has the values of functions at `env` that earlier calls found, and gets those found
        here. Terms of one program have most functions in common.
        """
        known = {} if known is None else known
        total = 0
        for monomial, coefficient in self.terms:
            for atom, power in monomial:
                coefficient *= _value(atom, env, known) ** power
            total += coefficient
        return total

    def substitute(
        self, env: Mapping[str, Expr | int], known: dict[Atom, Expr] | None = None
    ) -> Expr:
        """The expression with symbols replaced, all at once.

        A division by what becomes 0 has no value and stays as it is. `known` keeps what atoms
        become, for more expressions in the same `env`.
        """
        if env.keys().isdisjoint(self.symbols()):
            return self
        if (alone := self.lone_atom) is not None and not alone.op:
            return Expr.of(env[alone.key])
        found: dict[Atom, Expr] = {} if known is None else known
        return self.rebuild(lambda atom: _replaced(atom, env, found))

    def rebuild(self, value: Callable[[Atom], Expr]) -> Expr:
        """The same polynomial over `value(atom)`, an Expr for each top-level atom."""
        total: Terms = {}
        divides = False
        for monomial, coefficient in self.terms:
            term = _ONE
            for atom, power in monomial:
                factor = value(atom)
                for _ in range(power):
                    term = factor if term is _ONE else term * factor
            divides |= term._divides
            for m, c in term.terms:
                total[m] = total.get(m, 0) + c * coefficient
        return _polynomial(total, divides)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expr({str(self)!r})"


_ONE_TERM = (((), 1),)


def _sorted(terms: Mapping[Monomial, int]) -> tuple[tuple[Monomial, int], ...]:
    """The terms that are not 0, in order."""
    items = [item for item in terms.items() if item[1]]
    if len(items) > 1:
        # No function of Python for each term: most of the time of long sums was theirs.
        orders = map(monomial_order, [monomial for monomial, _ in items])
        items = [item for _, item in sorted(zip(orders, items, strict=True))]
    return tuple(items)


def _in_order(terms: tuple[tuple[Monomial, int], ...]) -> Expr:
    """The expression of terms that are sorted, none of them 0, without quotients."""
    made = Expr.__new__(Expr)
    made._set(terms, False)
    return made


def _polynomial(terms: Mapping[Monomial, int], divides: bool) -> Expr:
    """The sum of terms; `divides` if there may be quotients among them."""
    return Expr(terms) if divides else _in_order(_sorted(terms))


@functools.lru_cache(maxsize=CACHE_SIZE)
def _of_atom(atom: Atom) -> Expr:
    return Expr({((atom, 1),): 1})


# -- sums and products: what a program asks for is asked for five times -------------------------


@functools.lru_cache(maxsize=CACHE_SIZE)
def _sum(a: Expr, b: Expr) -> Expr:
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _polynomial(terms, a._divides or b._divides)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _difference(a: Expr, b: Expr) -> Expr:
    if a._divides or b._divides:
        return a + -b
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) - coefficient
    return _polynomial(terms, False)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _scaled(a: Expr, number: int) -> Expr:
    if a._divides or not number:
        return Expr({m: c * number for m, c in a.terms})
    return _in_order(tuple([(m, c * number) for m, c in a.terms]))


@functools.lru_cache(maxsize=CACHE_SIZE)
def _product(a: Expr, b: Expr) -> Expr:
    if len(a.terms) * len(b.terms) > MAX_PRODUCT_TERMS:
        raise FormulaTooLongError(
            f"a size is a product of {len(a.terms)} and {len(b.terms)} terms; the limit "
            f"is {MAX_PRODUCT_TERMS} for the product of these counts. Make it of fewer sums of "
            "sizes, or pass it as an integer argument"
        )
    if a.degree + b.degree > MAX_DEGREE:
        raise FormulaTooLongError(
            f"a size is a product of {a.degree + b.degree} sizes; the limit is "
            f"{MAX_DEGREE}. Pass it as an integer argument"
        )
    terms: Terms = {}
    for m, c in a.terms:
        for n, d in b.terms:
            product = times(m, n)
            terms[product] = terms.get(product, 0) + c * d
    return _polynomial(terms, a._divides or b._divides)


# -- division -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=CACHE_SIZE)
def _atom(op: str, a: Expr, b: Expr) -> Atom:
    """`op(a, b)` as an atom; the arguments are canonical already."""
    return intern(op, f"{op}({a}, {b})", (a, b))


def _function(op: str, a: Expr, b: Expr) -> Expr:
    """`op(a, b)` as an expression that is one atom; the arguments are canonical already."""
    return Expr.of_atom(_atom(op, a, b))


@functools.lru_cache(maxsize=CACHE_SIZE)
def _divmod(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(floordiv, mod) in canonical form; `a == b*floordiv + mod` as polynomials."""
    zero = Expr.const(0)
    if not b.terms:
        raise ZeroDivisionError(f"floordiv({a}, 0)")
    if not a.terms:
        return zero, zero
    if b.terms[0][1] < 0:
        quotient, rest = _divmod(-a, -b)
        return quotient, -rest
    if b.is_const:
        return _divmod_number(a, b.value)
    if len(b.terms) == 1:
        return _divmod_monomial(a, b)
    # A sum: only whole quotients are split off.
    quotient, left = zero, a
    lead, scale = b.terms[0]
    for _ in range(16):
        if left.is_const:
            break
        power = monomial_quotient(left.terms[0][0], lead)
        if power is None or left.terms[0][1] % scale:
            break
        step = Expr({power: left.terms[0][1] // scale})
        quotient, left = quotient + step, left - step * b
    if not left.terms:
        return quotient, left
    if not left.is_const:
        quotient, left = zero, a
    shared = gcd(left.content, b.content)
    if shared > 1:
        left = Expr({m: c // shared for m, c in left.terms})
        b = Expr({m: c // shared for m, c in b.terms})
    return quotient + _function("floordiv", left, b), _function("mod", left, b) * shared


def _divmod_number(a: Expr, k: int) -> tuple[Expr, Expr]:
    """Division by a number k >= 1.

    Coefficients keep their residue nearest to 0, the constant its residue in [0, k). The leading
    residue is positive: floordiv(-x, k) = -floordiv(x + k - 1, k).
    """
    if k == 1:
        return a, Expr.const(0)
    whole: Terms = {}
    rest: Terms = {}
    extra = Expr.const(0)
    for monomial, coefficient in a.terms:
        quotient, residue = divmod(coefficient, k)
        if monomial and (2 * residue > k or (2 * residue == k and coefficient < 0)):
            quotient, residue = quotient + 1, residue - k
        if quotient:
            whole[monomial] = whole.get(monomial, 0) + quotient
        if residue:
            atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None
            if atom is not None and atom.op == "mod" and _is_multiple(atom.args[1], k):
                # mod(x, j) = x - j*floordiv(x, j), where k divides j.
                x, j = atom.args
                extra = extra + residue * x
                whole_part = _divmod(x, j)[0] * (residue * (j.value // k))
                for m, c in whole_part.terms:
                    whole[m] = whole.get(m, 0) - c
            else:
                rest[monomial] = residue
    if extra.terms:
        quotient_rest, remainder = _divmod(Expr(rest) + extra, Expr.const(k))
        return Expr(whole) + quotient_rest, remainder
    left, head = Expr(rest), Expr(whole)
    if left.is_const:
        return head, left
    constant = left.constant_term
    shared = gcd(k, *(c for m, c in left.terms if m))
    if shared > 1:
        # floor((g*y + r) / (g*k)) = floor((y + floor(r / g)) / k)
        inner = Expr({m: c // shared for m, c in left.terms if m}) + constant // shared
        quotient_rest, remainder = _divmod(inner, Expr.const(k // shared))
        return head + quotient_rest, remainder * shared + constant % shared
    if left.terms[0][1] < 0:
        quotient_rest, remainder = _divmod(-left + (k - 1), Expr.const(k))
        return head - quotient_rest, (k - 1) - remainder
    divisor = Expr.const(k)
    flat = _flat_dividend(left)
    if flat is not None:
        dividend, inner_k = flat
        quotient_rest, _ = _divmod(dividend, Expr.const(inner_k * k))
        return head + quotient_rest, _function("mod", left, divisor)
    return head + _function("floordiv", left, divisor), _function("mod", left, divisor)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _flat_dividend(a: Expr) -> tuple[Expr, int] | None:
    """`(x + j*y, j)` for `floordiv(x, j) + y` with a number `j`, and no other quotient in `y`.

    `y - floordiv(x, j)` is `y + floordiv(j - 1 - x, j)`.
    """
    found = None
    for monomial, coefficient in a.terms:
        atoms = [atom for atom, _ in monomial if atom.op == "floordiv"]
        if not atoms:
            continue
        alone = monomial == ((atoms[0], 1),) and abs(coefficient) == 1
        if found is not None or not alone or not atoms[0].args[1].is_const:
            return None
        found = atoms[0], coefficient
    if found is None:
        return None
    atom, sign = found
    x, j = atom.args[0], atom.args[1].value
    others = a - Expr.of_atom(atom) * sign
    return (x if sign > 0 else j - 1 - x) + others * j, j


def _is_multiple(j: Expr, k: int) -> bool:
    return j.is_const and j.value % k == 0


def _divmod_monomial(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Division by c*m, c >= 1, m a product of atoms of unknown sign."""
    lead, scale = b.terms[0]
    whole: Terms = {}
    rest: Terms = {}
    for monomial, coefficient in a.terms:
        power = monomial_quotient(monomial, lead)
        if power is None:
            rest[monomial] = coefficient
            continue
        quotient, residue = divmod(coefficient, scale)
        if quotient:
            whole[power] = quotient
        if residue:
            rest[monomial] = residue
    left, head = Expr(rest), Expr(whole)
    if not left.terms:
        return head, left
    shared = common_monomial(left.terms, lead)
    factor = gcd(left.content, scale)
    if shared or factor > 1:
        # floor(g*y / (g*z)) = floor(y / z) whatever the sign of g.
        inner = Expr({_quotient(m, shared): c // factor for m, c in left.terms})
        divisor = Expr({_quotient(lead, shared): scale // factor})
        quotient_rest, remainder = _divmod(inner, divisor)
        return head + quotient_rest, remainder * Expr({shared: factor})
    return head + _function("floordiv", left, b), _function("mod", left, b)


def _quotient(m: Monomial, by: Monomial) -> Monomial:
    found = monomial_quotient(m, by)
    assert found is not None
    return found


_ROUNDED = frozenset(("floordiv", "mod"))


def _has_quotients(terms: Iterable[Monomial]) -> bool:
    for monomial in terms:
        for atom, _ in monomial:
            if atom.op in _ROUNDED:
                return True
    return False


@functools.lru_cache(maxsize=CACHE_SIZE)
def _reduced(
    terms: tuple[tuple[Monomial, int], ...],
) -> tuple[tuple[tuple[Monomial, int], ...], bool]:
    """`terms` with the identities of sums of quotients applied until none applies, sorted.

    And whether quotients are left.
    """
    found = _without_quotients(dict(terms))
    for _ in range(_ROUNDS):
        before, found = found, _without_quotients(_without_sums(found))
        if found == before:
            break
    return _sorted(found), _has_quotients(found)


_ROUNDS = 8
"""Terms of several families may change in turn; two rounds settle those that programs have."""


def _without_quotients(terms: Mapping[Monomial, int]) -> Terms:
    """`d*floordiv(x, d)` becomes `x - mod(x, d)` in every term that is a whole multiple of it."""
    out = dict(terms)
    changed = True
    while changed:
        changed = False
        for monomial in list(out):
            expanded = _expanded_quotient(monomial, out[monomial])
            if expanded is not None:
                changed = True
                del out[monomial]
                for m, c in expanded:
                    out[m] = out.get(m, 0) + c
    return out


@functools.lru_cache(maxsize=CACHE_SIZE)
def _expanded_quotient(
    monomial: Monomial, coefficient: int
) -> tuple[tuple[Monomial, int], ...] | None:
    if not coefficient:
        return None
    for index, (atom, power) in enumerate(monomial):
        if atom.op not in _ROUNDED:
            continue
        others = (
            monomial[:index] + (((atom, power - 1),) if power > 1 else ()) + monomial[index + 1 :]
        )
        if atom.op == "mod":
            value, shared = _remainder_of_quotient(atom, coefficient)
        else:
            value, shared, others = _multiple_of_quotient(atom, coefficient, others)
        if value is not None:
            return tuple((times(others, m), coefficient // shared * c) for m, c in value.terms)
    return None


def _multiple_of_quotient(
    atom: Atom, coefficient: int, others: Monomial
) -> tuple[Expr | None, int, Monomial]:
    """What is `n * others` times a quotient, for the greatest `n` and divisor of it that fit."""
    x, divisor = atom.args
    if len(divisor.terms) != 1:
        return None, 1, others
    lead, scale = divisor.terms[0]
    shared = gcd(coefficient, scale)
    rest = monomial_quotient(others, lead)
    if (lead and shared != scale) or shared == 1 != scale or rest is None:
        return None, 1, others
    if shared != scale:
        x, divisor = _divmod(x, Expr.const(scale // shared))[0], Expr.const(shared)
    return x - _divmod(x, divisor)[1], shared, rest


def _remainder_of_quotient(atom: Atom, coefficient: int) -> tuple[Expr | None, int]:
    """`(mod(x, j*k) - mod(x, j), j)` for `mod(floordiv(x, j), k)`, a factor `j` at a time."""
    dividend, divisor = atom.args
    flat = _flat_dividend(dividend) if abs(coefficient) > 1 and divisor.is_const else None
    if flat is None:
        return None, 1
    x, j = flat
    shared = gcd(coefficient, j)
    if shared == 1:
        return None, 1
    x = _divmod(x, Expr.const(j // shared))[0]
    return _divmod(x, divisor * shared)[1] - _divmod(x, Expr.const(shared))[1], shared


def _without_sums(terms: Terms) -> Terms:
    """`terms` with Hermite's identity applied where fewer terms remain.

    Terms that differ by a multiple of the identity have one result: the same forms compete.
    """
    families: dict[tuple[Monomial, Expr, int], set[int]] = {}
    for monomial, coefficient in terms.items() if len(terms) > 1 else ():
        for index, (atom, power) in enumerate(monomial):
            if coefficient and atom.op == "floordiv" and power == 1 and atom.args[1].is_const:
                x, k = atom.args[0], atom.args[1].value
                factor = monomial[:index] + monomial[index + 1 :]
                offset = x.constant_term
                families.setdefault((factor, x - offset, k), set()).add(offset)
    for (factor, x, k), offsets in families.items():
        if k <= 2 * len(offsets) + 1:  # else more terms remain than there are
            fewest = _in_fewest_terms(terms, factor, x, k)
            apart = _without_remainders(fewest, factor, x, k)
            if apart is not fewest:
                apart = _in_fewest_terms(apart, factor, x, k)
            terms = min(fewest, apart, key=lambda found: sum(map(bool, found.values())))
    return terms


def _in_fewest_terms(terms: Terms, factor: Monomial, x: Expr, k: int) -> Terms:
    """`terms` plus the multiple of `factor * (x - sum(floordiv(x + c, k)))` that leaves least."""
    divisor = Expr.const(k)
    members = [times(factor, ((_atom("floordiv", x + c, divisor), 1),)) for c in range(k)]
    base = {times(factor, m): c for m, c in x.terms}
    lead, scale = next(iter(base.items()))
    parts, whole = [terms.get(m, 0) for m in members], terms.get(lead, 0)

    def cost(n: int) -> tuple[int, int, bool, int]:
        left = [part - n for part in parts]
        rest = whole + scale * n
        return sum(map(bool, (*left, rest))), sum(map(abs, (*left, rest))), not rest, n

    candidates = {*parts, *((-whole // scale,) if whole % scale == 0 else ())}
    best = min(candidates, key=cost)
    if not best:
        return terms
    found = dict(terms)
    for m in members:
        found[m] = found.get(m, 0) - best
    for m, c in base.items():
        found[m] = found.get(m, 0) + c * best
    return found


def _without_remainders(terms: Terms, factor: Monomial, x: Expr, k: int) -> Terms:
    """`terms` with each `mod(x + c, k)` times `factor` as a quotient: `y - k*floordiv(y, k)`."""
    found, divisor = terms, Expr.const(k)
    for y in (x + c for c in range(k)):
        remainder = times(factor, ((_atom("mod", y, divisor), 1),))
        if coefficient := terms.get(remainder, 0):
            found = {m: c for m, c in found.items() if m != remainder}
            quotient = ((_atom("floordiv", y, divisor), 1),)
            for m, c in (*y.terms, (quotient, -k)):
                key = times(factor, m)
                found[key] = found.get(key, 0) + c * coefficient
    return found


@functools.lru_cache(maxsize=CACHE_SIZE)
def _vanishes(expr: Expr) -> bool:
    """As `Expr.vanishes`, of an expression with quotients."""
    total: Terms = {}
    for monomial, coefficient in expr.terms:
        for m, c in _without_mods(monomial):
            total[m] = total.get(m, 0) + c * coefficient
    return not any(total.values()) or _repeats_0(expr)


def _without_mods(monomial: Monomial) -> list[tuple[Monomial, int]]:
    """`monomial` with every `mod(x, d)` written as `x - d*floordiv(x, d)`, not folded back."""
    product: Terms = {(): 1}
    for atom, power in monomial:
        factor: list[tuple[Monomial, int]] = [(((atom, 1),), 1)]
        if atom.op == "mod":
            x, divisor = atom.args
            quotient = _divmod(x, divisor)[0].terms
            factor = [
                *x.terms,
                *((times(m, q), -c * d) for m, c in divisor.terms for q, d in quotient),
            ]
        for _ in range(power):
            grown: Terms = {}
            for m, c in product.items():
                for n, d in factor:
                    key = times(m, n)
                    grown[key] = grown.get(key, 0) + c * d
            product = grown
    return list(product.items())


# -- equality of quotients ------------------------------------------------------------------------

_Steps = dict[Monomial, tuple[int, int]]

LARGEST_BOX = 4096
"""Numbers that one proof may try: 20 ms. A hop of 160 and a window of 400 have a period of 800."""


@functools.lru_cache(maxsize=CACHE_SIZE)
def _repeats_0(a: Expr) -> bool:
    """True if `a` is 0 in a box whose values decide all others.

    The variables are the symbols, and the other products that no quotient by a number takes apart.
    Each has a period `p` and a change `s`, with `a(v + p) = a(v) + s` for all integers `v`. The
    variable itself has (1, 1). Let `x` have (p, s), where `s` is a multiple of `k`, as that of a
    large enough multiple of `p` is. Then `floordiv(x, k)` has (p, s/k), and `mod(x, k)` has (p, 0).
    Sums add the changes of a common period. If no variable changes `a`, the values in the box of
    the periods are all values.

    A product of `e` factors that `v` changes is a polynomial of degree `e` in `t`, for each `r` of
    `v = p*t + r`. A polynomial that is 0 at `e + 1` integers is 0. So `e + 1` periods decide then.
    """
    inner = {v for m, _ in a.terms for atom in _rounded(m) for v in _steps(atom.args[0])}
    terms = [(_factors(monomial, inner), coefficient) for monomial, coefficient in a.terms]
    periods: dict[Monomial, int] = {}
    degrees: dict[Monomial, int] = {}
    for factors, _ in terms:
        degree: dict[Monomial, int] = {}
        for factor, power in factors:
            for variable, (period, _) in _steps(Expr({factor: 1})).items():
                periods[variable] = lcm(periods.get(variable, 1), period)
                degree[variable] = degree.get(variable, 0) + power
        for variable, number in degree.items():
            degrees[variable] = max(degrees.get(variable, 0), number)
    if all(sum(power for _, power in factors) <= 1 for factors, _ in terms):
        if any(change for _, change in _steps(a).values()):
            return False
        degrees = dict.fromkeys(degrees, 0)
    box = [range(period * (degrees[variable] + 1)) for variable, period in periods.items()]
    if prod(map(len, box)) > LARGEST_BOX:
        return False
    for values in product(*box):
        env = dict(zip(periods, values, strict=True))
        if sum(c * prod(_at(Expr({f: 1}), env) ** n for f, n in factors) for factors, c in terms):
            return False
    return True


def _rounded(monomial: Monomial) -> list[Atom]:
    """The quotients and remainders by numbers in a monomial."""
    return [atom for atom, _ in monomial if atom.op in _ROUNDED and atom.args[1].is_const]


def _factors(monomial: Monomial, inner: Container[Monomial]) -> list[tuple[Monomial, int]]:
    """Monomials and powers whose product is `monomial`: one of `inner` is not taken apart."""
    rounded = _rounded(monomial)
    rest = tuple((atom, power) for atom, power in monomial if atom not in rounded)
    whole = rest in inner
    found: list[tuple[Monomial, int]] = [(rest, 1)] if whole else []
    for atom, power in monomial:
        if not whole or atom in rounded:
            found.append((((atom, 1),), power))
    return found


def _steps(a: Expr) -> _Steps:
    """(period, change) of an expression in each of its variables."""
    found: _Steps = {}
    for monomial, coefficient in a.terms:
        atom = _rounded_by_number(monomial)
        steps: _Steps = {monomial: (1, 1)} if monomial and atom is None else {}
        if atom is not None:
            k = atom.args[1].value
            for variable, (period, change) in _steps(atom.args[0]).items():
                times_ = k // gcd(k, change)
                grown = change * times_ // k if atom.op == "floordiv" else 0
                steps[variable] = period * times_, grown
        for variable, (period, change) in steps.items():
            other, before = found.get(variable, (1, 0))
            common = lcm(period, other)
            total = before * (common // other) + coefficient * change * (common // period)
            found[variable] = common, total
    return found


def _at(a: Expr, env: Mapping[Monomial, int]) -> int:
    """The value at values of the variables."""
    total = 0
    for monomial, coefficient in a.terms:
        atom = _rounded_by_number(monomial)
        if atom is not None:
            coefficient *= _APPLY[atom.op](_at(atom.args[0], env), atom.args[1].value)
        elif monomial:
            coefficient *= env[monomial]
        total += coefficient
    return total


def _rounded_by_number(monomial: Monomial) -> Atom | None:
    """The quotient or remainder by a number that a monomial is; None for any other."""
    if len(monomial) != 1 or monomial[0][1] != 1:
        return None
    atom = monomial[0][0]
    return atom if atom.op in _ROUNDED and atom.args[1].is_const else None


# -- min and max --------------------------------------------------------------------------------


@functools.lru_cache(maxsize=CACHE_SIZE)
def _extremum(op: str, a: Expr, b: Expr) -> Expr:
    """`min` or `max` of two expressions: entries flattened, sorted, comparable ones dropped.

    The number comes last, and the others make a balanced tree: thousands nest ten deep.
    """
    kept: dict[tuple[tuple[Monomial, int], ...], Expr] = {}
    for entry in [*_entries(op, a), *_entries(op, b)]:
        constant = entry.constant_term
        head = entry.terms[:-1] if constant else entry.terms
        other = kept.get(head)
        if other is None or (constant < other.constant_term) == (op == "min"):
            kept[head] = entry
    number = kept.pop((), None)
    if not kept:
        assert number is not None
        return number
    balanced = _balanced(op, sorted(kept.values(), key=str))
    return balanced if number is None else _function(op, balanced, number)


def _balanced(op: str, entries: Sequence[Expr]) -> Expr:
    if len(entries) == 1:
        return entries[0]
    half = (len(entries) + 1) // 2
    return _function(op, _balanced(op, entries[:half]), _balanced(op, entries[half:]))


def _entries(op: str, expr: Expr) -> list[Expr]:
    atom = expr.lone_atom
    if atom is None or atom.op != op:
        return [expr]
    return [*_entries(op, atom.args[0]), *_entries(op, atom.args[1])]


# -- values -------------------------------------------------------------------------------------

_APPLY: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}

_BUILD: dict[str, Callable[[Expr, Expr], Expr]] = {
    "floordiv": Expr.__floordiv__,
    "mod": Expr.__mod__,
    "min": Expr.min,
    "max": Expr.max,
}


_ONE = Expr.const(1)


_RENAMINGS = 64
"""Renamings that a process keeps, with what they made: of one program several are asked for often,
over the symbols of its layers and back."""


def renaming(symbols: Sequence[str], names: Sequence[str]) -> Callable[[Expr], Expr]:
    """A function that puts each of `names` in the place of a symbol, all at once."""
    return _renaming(tuple(symbols), tuple(names))


@functools.lru_cache(_RENAMINGS)
def _renaming(symbols: tuple[str, ...], names: tuple[str, ...]) -> Callable[[Expr], Expr]:
    put = {symbol: Expr.symbol(name) for symbol, name in zip(symbols, names, strict=True)}
    known: dict[Atom, Expr] = {}
    made: dict[Expr, Expr] = {}

    def renamed(size: Expr) -> Expr:
        found = made.get(size)
        if found is None:
            found = made[size] = size.substitute(put, known)
        return found

    return renamed


def _value(atom: Atom, env: Mapping[str, int], known: dict[Atom, int]) -> int:
    if not atom.op:
        return int(env[atom.key])
    value = known.get(atom)
    if value is None:
        a, b = (arg.evaluate(env, known) for arg in atom.args)
        value = known[atom] = int(_APPLY[atom.op](a, b))
    return value


def _replaced(atom: Atom, env: Mapping[str, Expr | int], known: dict[Atom, Expr]) -> Expr:
    if not atom.op:
        return Expr.of(env[atom.key]) if atom.key in env else Expr.symbol(atom.key)
    found = known.get(atom)
    if found is None:
        a, b = (arg.substitute(env, known) for arg in atom.args)
        is_division = atom.op in ("floordiv", "mod")
        found = Expr.of_atom(atom) if is_division and not b.terms else _BUILD[atom.op](a, b)
        known[atom] = found
    return found


@overload
def ceil_div(a: int, b: int) -> int: ...


@overload
def ceil_div(a: Expr, b: Expr | int) -> Expr: ...


def ceil_div(a: Expr | int, b: Expr | int) -> Expr | int:
    """The smallest integer that is not below a / b; b is at least 1."""
    return (a + b - 1) // b


# -- text ---------------------------------------------------------------------------------------


def _text(expr: Expr) -> str:
    if not expr.terms:
        return "0"
    out = ""
    for monomial, coefficient in expr.terms:
        factors = [f"{a.key}^{p}" if p > 1 else a.key for a, p in monomial]
        magnitude = abs(coefficient)
        if magnitude != 1 or not factors:
            factors.insert(0, str(magnitude))
        sign = "-" if coefficient < 0 else "+"
        if out:
            out += f" {sign} " + "*".join(factors)
        else:
            out = ("-" if coefficient < 0 else "") + "*".join(factors)
    return out


def _from_tree(tree: Tree) -> Expr:
    """Depth is that of parentheses, which `parse` bounds: chains of operators are followed here."""
    if isinstance(tree, int):
        return Expr.const(tree)
    if isinstance(tree, str):
        return Expr.symbol(tree)
    op, left, right = tree
    if op == "^":
        assert isinstance(right, int)
        return Expr.product([_from_tree(left)] * right)
    for chain in (_SUMS, _PRODUCTS):
        if op in chain:
            first, steps = _chain(tree, chain)
            values = [(o, _from_tree(step)) for o, step in steps]
            if chain is _SUMS:
                return Expr.sum([_from_tree(first), *(v if o == "+" else -v for o, v in values)])
            total = _from_tree(first)
            for o, value in values:
                total = _OPERATIONS[o](total, value)
            return total
    return _BUILD[op](_from_tree(left), _from_tree(right))


def _chain(tree: Tree, operators: frozenset[str]) -> tuple[Tree, list[tuple[str, Tree]]]:
    """(a, [("+", b), ("-", c)]) of the tree of a + b - c."""
    steps = []
    while isinstance(tree, tuple) and tree[0] in operators:
        op, tree, right = tree
        steps.append((op, right))
    return tree, steps[::-1]


_SUMS = frozenset("+-")

_OPERATIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "%": Expr.__mod__,
    "*": Expr.__mul__,
    "//": Expr.__floordiv__,
}

_PRODUCTS = frozenset(_OPERATIONS)
