"""Products of atoms: the keys of a polynomial (see `expr.py`)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from shlo_disc.base import locks
from shlo_disc.base.errors import UnsupportedError

if TYPE_CHECKING:
    from shlo_disc.dynamic.expr import Expr

Monomial = tuple[tuple["Atom", int], ...]
"""Atoms with their powers, sorted; the empty product is 1."""

Terms = dict[Monomial, int]
"""A polynomial as coefficients by monomial, zeros allowed."""

CACHE_SIZE = 1 << 14
"""Entries of each memo table; a 1200-op module with 6 symbols uses a few hundred."""

MAX_NESTING = 64
"""Functions in each other's arguments; what follows a size recurses as deep. `parse` takes 100."""

MAX_WEIGHT = 8192
"""Symbols, functions and terms of a formula as it is written. Choices between terms of each other
double it at every step, or worse; a formula of this weight takes about 0.1 s to simplify."""


class FormulaTooLongError(UnsupportedError):
    """A formula of sizes nests deeper, or has more terms or factors, than the limits allow."""


class Atom:
    """An indeterminate: a symbol (`op` is "") or one of the four functions of two sizes.

    Atoms are made by this module only and interned: equal atoms are one object, which makes
    comparing and hashing monomials as cheap as comparing addresses.
    """

    __slots__ = ("__weakref__", "args", "depth", "key", "op", "order", "weight")

    op: str
    key: str
    args: tuple[Expr, ...]
    order: tuple[bool, str]
    depth: int
    """Functions in each other's arguments, this one included; 0 of a symbol."""
    weight: int
    """Symbols, functions and terms as written, this one included; 1 of a symbol."""

    def __lt__(self, other: Atom) -> bool:
        return self.order < other.order

    def __repr__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (self.op, self.key, self.args)


_atoms: WeakValueDictionary[str, Atom] = WeakValueDictionary()
_atoms_lock = locks.lock()


def intern(op: str, key: str, args: tuple[Expr, ...] = ()) -> Atom:
    """The one atom that prints as `key`; compilations in several threads share the table.

    Raises FormulaTooLongError for more than :data:`MAX_NESTING` functions in one another.
    """
    with _atoms_lock:
        found = _atoms.get(key)
        if found is None:
            inner = [
                atom.depth for arg in args for monomial, _ in arg.terms for atom, _ in monomial
            ]
            depth = (op != "") + max(inner, default=0)
            if depth > MAX_NESTING:
                raise FormulaTooLongError(
                    f"a size has more than {MAX_NESTING} quotients, remainders, minima and maxima "
                    "in each other's arguments; pass it as an integer argument"
                )
            found = Atom()
            found.op, found.key, found.args, found.order = op, key, args, (op != "", key)
            found.depth = depth
            found.weight = 1 + sum(arg.weight for arg in args)
            _atoms[key] = found
        return found


@functools.lru_cache(maxsize=CACHE_SIZE)
def monomial_order(monomial: Monomial) -> tuple[int, tuple[tuple[bool, str, int], ...]]:
    """Higher degrees first, then by name: a graded order, so reductions by it end."""
    degree = sum(power for _, power in monomial)
    return -degree, tuple((*a.order, -p) for a, p in monomial)


@functools.lru_cache(maxsize=CACHE_SIZE)
def times(a: Monomial, b: Monomial) -> Monomial:
    """The product."""
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].order))


def monomial_quotient(m: Monomial, by: Monomial) -> Monomial | None:
    """`m / by`; None when `by` does not divide it."""
    if not by:
        return m
    powers = dict(m)
    for atom, power in by:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((a, powers[a]) for a, _ in m if powers[a])


def common_monomial(terms: Iterable[tuple[Monomial, int]], start: Monomial) -> Monomial:
    """The largest monomial that divides `start` and every term."""
    common = dict(start)
    for monomial, _ in terms:
        powers = dict(monomial)
        common = {a: min(p, powers[a]) for a, p in common.items() if a in powers}
    return tuple(sorted(common.items(), key=lambda item: item[0].order))
