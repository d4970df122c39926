"""Equations of sizes that hold from a size on.

`floordiv(max(n - 2, 0), 2) = floordiv(n, 2) - 1` is no identity, but it holds for every `n >= 2`.
Sizes that a program writes in two ways are often equal so: a slice, a crop or a window needs some
rows. One bound of one symbol then says all that the equation says of larger sizes.

A function `f` of one integer has the tail (b, p, s) if `f(n + p) = f(n) + s` for all `n >= b`. The
symbol has (1, 1, 1). Let `x` and `y` have tails from `b` on, with changes `s` and `t` over a common
period `p`:

* `x + y` has (b, p, s + t).
* `floordiv(x, k)` has (b, p, s/k) where `k` divides `s`; over `k` periods it divides the change.
  There `mod(x, k)` has (b, p, 0).
* `max(x, y)` has (b, p, s) where `s = t`: the difference repeats. Where `s > t`, each period adds
  `s - t` to `x - y`. So `x` is the larger one from some period on, and so is the tail.

A product of `e` functions with tails is a polynomial of degree `e` in `t`, for each `r` of
`n = p*t + r` in the tail. A polynomial that is 0 at `e + 1` integers is 0. So the first `e + 1`
periods of a tail decide.
"""

from __future__ import annotations

import functools
from math import gcd, lcm
from typing import NamedTuple

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import CACHE_SIZE, Atom, Monomial

LARGEST = 4096
"""The largest size that one proof may try: 20 ms."""


class _Tail(NamedTuple):
    start: int
    period: int
    change: int

    def over(self, period: int) -> int:
        """The change over a multiple of the period."""
        return self.change * (period // self.period)


@functools.lru_cache(maxsize=CACHE_SIZE)
def zero_from(size: Expr) -> tuple[str, int] | None:
    """(n, b) where `size` is shown to be 0 for all `n >= b`, whatever its other symbols are.

    `b` is at least 1, as sizes are, and the smallest such number. None where nothing is shown.
    """
    if size.is_polynomial:
        return None
    found = [
        (start, symbol)
        for symbol in size.symbols()
        if (start := _zero_from(size, symbol)) is not None
    ]
    return min(found)[::-1] if found else None


def _zero_from(size: Expr, symbol: str) -> int | None:
    """The first number of `symbol` from which on each factor of other symbols has a sum of 0."""
    groups: dict[Monomial, dict[Monomial, int]] = {}
    for monomial, coefficient in size.terms:
        mine: list[tuple[Atom, int]] = []
        others: list[tuple[Atom, int]] = []
        for atom, power in monomial:
            symbols = Expr.of_atom(atom).symbols()
            if symbol in symbols and len(symbols) > 1:
                return None
            (mine if symbol in symbols else others).append((atom, power))
        groups.setdefault(tuple(others), {})[tuple(mine)] = coefficient
    starts = [_zero_of_one(Expr(terms), symbol) for terms in groups.values()]
    known = [start for start in starts if start is not None]
    return max(known) if known and len(known) == len(starts) else None


def _zero_of_one(size: Expr, symbol: str) -> int | None:
    """The same for an expression of `symbol` alone."""
    start, period, degree = 1, 1, 0
    for monomial, _ in size.terms:
        tails = [(_tail_of_atom(atom, symbol), power) for atom, power in monomial]
        factors = 0
        for tail, power in tails:
            if tail is None:
                return None
            start, period = max(start, tail.start), lcm(period, tail.period)
            factors += power if tail.change else 0
        degree = max(degree, factors)
    if start + period * (degree + 1) > LARGEST or size.evaluate({symbol: LARGEST}):
        return None
    if any(size.evaluate({symbol: n}) for n in range(start, start + period * (degree + 1))):
        return None
    while start > 1 and not size.evaluate({symbol: start - 1}):
        start -= 1
    return start


def _tail(size: Expr, symbol: str) -> _Tail | None:
    """The tail of a sum; None for products of the symbol."""
    parts: list[tuple[_Tail, int]] = []
    for monomial, coefficient in size.terms:
        if not monomial:
            continue
        if len(monomial) != 1 or monomial[0][1] != 1:
            return None
        tail = _tail_of_atom(monomial[0][0], symbol)
        if tail is None:
            return None
        parts.append((tail, coefficient))
    start = max((tail.start for tail, _ in parts), default=1)
    period = lcm(*(tail.period for tail, _ in parts))
    return _Tail(start, period, sum(c * tail.over(period) for tail, c in parts))


@functools.lru_cache(maxsize=CACHE_SIZE)
def _tail_of_atom(atom: Atom, symbol: str) -> _Tail | None:
    if not atom.op:
        return _Tail(1, 1, 1)
    a, b = (_tail(argument, symbol) for argument in atom.args)
    if a is None or b is None:
        return None
    if atom.op in ("floordiv", "mod"):
        divisor = atom.args[1]
        if not divisor.is_const or not divisor.value:
            return None
        k = abs(divisor.value)
        period = a.period * (k // gcd(k, a.change))
        grown = a.over(period) // divisor.value if atom.op == "floordiv" else 0
        return _Tail(a.start, period, grown)
    start, period = max(a.start, b.start), lcm(a.period, b.period)
    changes = a.over(period), b.over(period)
    gained = changes[0] - changes[1]
    if start + period > LARGEST:
        return None
    if gained:  # from where on the argument that grows faster is the larger one
        lead = atom.args[0] - atom.args[1] if gained > 0 else atom.args[1] - atom.args[0]
        least = min(lead.evaluate({symbol: n}) for n in range(start, start + period))
        start += max(0, -(least // abs(gained))) * period
    return _Tail(start, period, (max if atom.op == "max" else min)(changes))
