"""`Expr`: a symbolic size as a canonical polynomial with integer coefficients.

The indeterminates ("atoms") are symbols and `floordiv(a, b)`, `mod(a, b)`, `min(a, b)`,
`max(a, b)` of expressions. Equal polynomials are equal objects in the sense of `==` and `hash`, so that
shapes can be compared, and used as keys, without asking for facts. The notation is that of
`jax.export`: `2*b*t + 1`, `floordiv(t, 2)`, `b^2`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from math import gcd

__all__ = ["Expr"]

Monomial = tuple[tuple["Atom", int], ...]
"""Atoms with their powers, sorted; the empty product is 1."""


class Atom:
    """An indeterminate: a symbol (`op` is "") or one of the four functions of two sizes."""

    __slots__ = ("_hash", "args", "key", "op")

    def __init__(self, op: str, name: str, args: tuple[Expr, ...] = ()) -> None:
        self.op = op
        self.args = args
        self.key = name
        self._hash = hash(name)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __lt__(self, other: Atom) -> bool:
        return (self.op != "", self.key) < (other.op != "", other.key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.key


class Expr:
    """An immutable canonical polynomial; Python ints are accepted wherever an Expr is."""

    __slots__ = ("_hash", "_text", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    """Monomials with non-zero coefficients, sorted; () is zero."""

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = tuple(sorted(((m, c) for m, c in terms.items() if c), key=_order))
        self._hash = hash(self.terms)
        self._text: str | None = None

    # -- construction ---------------------------------------------------------------------------

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def const(value: int) -> Expr:
        """The constant `value`."""
        return Expr({(): int(value)})

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def symbol(name: str) -> Expr:
        """The unknown size `name`, an identifier."""
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not a name for a size")
        return Expr({((Atom("", name), 1),): 1})

    @staticmethod
    def of(value: Expr | int) -> Expr:
        """`value` as an Expr."""
        return value if isinstance(value, Expr) else Expr.const(value)

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def parse(text: str) -> Expr:
        """The expression written in `jax.export`'s notation; raises ValueError."""
        try:
            return _parse(ast.parse(text.strip().replace("^", "**"), mode="eval").body)
        except (SyntaxError, KeyError, TypeError) as error:
            raise ValueError(f"{text!r} is not a size expression: {error}") from None

    @staticmethod
    def product(sizes: Iterable[Expr | int]) -> Expr:
        """The product; 1 for no sizes."""
        result = Expr.const(1)
        for size in sizes:
            result = result * size
        return result

    @staticmethod
    def min(a: Expr | int, b: Expr | int) -> Expr:
        """The smaller of two sizes, folded when their difference is constant."""
        a, b = Expr.of(a), Expr.of(b)
        difference = a - b
        if difference.is_const:
            return a if difference.value <= 0 else b
        return _function("min", *sorted((a, b), key=str))

    @staticmethod
    def max(a: Expr | int, b: Expr | int) -> Expr:
        """The larger of two sizes, folded when their difference is constant."""
        a, b = Expr.of(a), Expr.of(b)
        difference = a - b
        if difference.is_const:
            return a if difference.value >= 0 else b
        return _function("max", *sorted((a, b), key=str))

    # -- arithmetic -----------------------------------------------------------------------------

    def __add__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            if other == 0:
                return self
            other = Expr.const(other)
        terms = dict(self.terms)
        for monomial, coefficient in other.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Expr(terms)

    def __neg__(self) -> Expr:
        return Expr({m: -c for m, c in self.terms})

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (-other)

    def __rsub__(self, other: Expr | int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            if other == 1:
                return self
            return Expr({m: c * other for m, c in self.terms})
        terms: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                product = _times(m, n)
                terms[product] = terms.get(product, 0) + c * d
        return Expr(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        """Quotient rounded down, as Python does; raises ZeroDivisionError for a constant 0."""
        return _divmod(self, Expr.of(other))[0]

    def __mod__(self, other: Expr | int) -> Expr:
        """Remainder with the divisor's sign, as Python does."""
        return _divmod(self, Expr.of(other))[1]

    floordiv = __floordiv__
    mod = __mod__

    def __rfloordiv__(self, other: int) -> Expr:
        return Expr.const(other) // self

    def __rmod__(self, other: int) -> Expr:
        return Expr.const(other) % self

    # -- questions ------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.is_const and self.value == other
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_const(self) -> bool:
        """Is this a number?"""
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def value(self) -> int:
        """The number this is; raises ValueError for an expression with symbols."""
        if not self.terms:
            return 0
        if not self.is_const:
            raise ValueError(f"{self} is not a constant")
        return self.terms[0][1]

    @property
    def constant_term(self) -> int:
        """The coefficient of the empty monomial."""
        return next((c for m, c in self.terms if not m), 0)

    @property
    def content(self) -> int:
        """The greatest common divisor of all coefficients (0 of zero)."""
        return gcd(*(c for _, c in self.terms))

    def atoms(self) -> frozenset[Atom]:
        """The atoms at the top level."""
        return frozenset(atom for m, _ in self.terms for atom, _ in m)

    def symbols(self) -> frozenset[str]:
        """The names of all symbols, nested ones included."""
        names: set[str] = set()
        for atom in self.atoms():
            if atom.op:
                for arg in atom.args:
                    names |= arg.symbols()
            else:
                names.add(atom.key)
        return frozenset(names)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The number for these symbol values; raises KeyError, ZeroDivisionError."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom, power in monomial:
                coefficient *= _value(atom, env) ** power
            total += coefficient
        return total

    def substitute(self, env: Mapping[str, Expr | int]) -> Expr:
        """This expression with symbols replaced."""
        total = Expr.const(0)
        for monomial, coefficient in self.terms:
            term = Expr.const(coefficient)
            for atom, power in monomial:
                factor = _replaced(atom, env)
                for _ in range(power):
                    term = term * factor
            total = total + term
        return total

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expr({str(self)!r})"


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[bool, str, int], ...]]:
    monomial = term[0]
    degree = sum(power for _, power in monomial)
    return -degree, tuple((a.op != "", a.key, -p) for a, p in monomial)


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: (item[0].op != "", item[0].key)))


def _function(op: str, a: Expr, b: Expr) -> Expr:
    if a.is_const and b.is_const:
        return Expr.const(_APPLY[op](a.value, b.value))
    return Expr({((Atom(op, f"{op}({a}, {b})", (a, b)), 1),): 1})


_APPLY = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


@functools.lru_cache(maxsize=4096)
def _divmod(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Floor division, after taking out the terms of `a` that `b` divides exactly."""
    if b.is_const and b.value == 0:
        raise ZeroDivisionError(f"floordiv({a}, 0)")
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    if len(b.terms) == 1:
        monomial, coefficient = b.terms[0]
        for m, c in a.terms:
            quotient = _monomial_quotient(m, monomial)
            if quotient is None:
                rest[m] = c
                continue
            # c = k * coefficient + r with 0 <= r < coefficient, r kept for the floor.
            k, r = divmod(c, coefficient)
            if k:
                whole[quotient] = whole.get(quotient, 0) + k
            if r:
                rest[m] = r
    elif a == b:
        return Expr.const(1), Expr.const(0)
    else:
        rest = dict(a.terms)
    left = Expr(rest)
    if not left.terms:
        return Expr(whole), Expr.const(0)
    if left.is_const and b.is_const:
        k, r = divmod(left.value, b.value)
        return Expr(whole) + k, Expr.const(r)
    if b.is_const and b.value > 0 and (common := gcd(left.content, b.value)) > 1:
        # floor((g*x) / (g*k)) = floor(x / k), mod likewise scaled.
        small = Expr({m: c // common for m, c in left.terms})
        q, r = _divmod(small, Expr.const(b.value // common))
        return Expr(whole) + q, r * common
    return Expr(whole) + _function("floordiv", left, b), _function("mod", left, b)


def _monomial_quotient(m: Monomial, by: Monomial) -> Monomial | None:
    powers = dict(m)
    for atom, power in by:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((a, powers[a]) for a, _ in m if powers[a])


def _value(atom: Atom, env: Mapping[str, int]) -> int:
    if not atom.op:
        return env[atom.key]
    a, b = (arg.evaluate(env) for arg in atom.args)
    return int(_APPLY[atom.op](a, b))


_BUILD = {
    "floordiv": Expr.__floordiv__,
    "mod": Expr.__mod__,
    "min": Expr.min,
    "max": Expr.max,
}


def _replaced(atom: Atom, env: Mapping[str, Expr | int]) -> Expr:
    if not atom.op:
        return Expr.of(env[atom.key]) if atom.key in env else Expr.symbol(atom.key)
    a, b = (arg.substitute(env) for arg in atom.args)
    return _BUILD[atom.op](a, b)


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


def _parse(node: ast.expr) -> Expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Expr.const(node.value)
    if isinstance(node, ast.Name):
        return Expr.symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parse(node.operand)
    if isinstance(node, ast.BinOp):
        left = _parse(node.left)
        right = _parse(node.right)
        if isinstance(node.op, ast.Pow):
            return Expr.product([left] * right.value)
        operations = {
            ast.Add: Expr.__add__,
            ast.Sub: Expr.__sub__,
            ast.Mult: Expr.__mul__,
            ast.FloorDiv: Expr.__floordiv__,
            ast.Mod: Expr.__mod__,
        }
        return operations[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        a, b = (_parse(argument) for argument in node.args)
        return _BUILD[node.func.id](a, b)
    raise TypeError(f"unexpected {type(node).__name__}")
