"""Sizes as PyTorch has them (SymPy) in the notation of the compiler.

    s77*(s27 // 2) + 1        ==>    "x_0*floordiv(x_1, 2) + 1"
    Eq(Mod(s27, 4), 0)        ==>    "mod(x_1, 4) == 0"
    {s27: VR[2, 64]}          ==>    "x_1 <= 64"

A symbol has the name of the first dimension that it is the size of. PyTorch takes every symbol to
be at least 2 while it traces, and lets calls have 0 and 1 all the same. So a lower bound of at most
2 stands for 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import sympy
import torch
from sympy.logic.boolalg import Boolean
from torch._guards import ShapeGuard
from torch.utils._sympy.functions import Mod
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from shlo_disc.base.errors import UnsupportedError

_TRACING_BOUND = 2
"""The lower bound that PyTorch gives a symbol without being told one."""

_NO_BOUND = 1 << 62
"""PyTorch writes an unknown upper bound as the largest index or one less."""

_CALLS = {
    "CleanDiv": "floordiv",
    "FloorDiv": "floordiv",
    "Max": "max",
    "Min": "min",
    "Mod": "mod",
    "PythonMod": "mod",
}
"""Functions of SymPy and of PyTorch, by the name of their class, to ours."""

_RELATIONS = {
    "Equality": "==",
    "GreaterThan": ">=",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "StrictLessThan": "<",
    "Unequality": "!=",
}


def _call(e: Any) -> str | None:
    """The function of the notation that `e` calls."""
    return _CALLS.get(type(e).__name__)


def require(condition: bool | torch.SymBool) -> None:
    """Add a guard while a program is traced, also one that holds for all sizes from 2 on.

    PyTorch drops such a guard, and serves sizes of 0 and 1 all the same.
    """
    if isinstance(condition, torch.SymBool):
        env = condition.node.shape_env
        env.guards.append(ShapeGuard(condition.node.expr, env._get_sloc(), size_oblivious=False))


def environment_of(values: Any) -> Any:
    """What PyTorch knows of the symbols in sizes of fake tensors; None where none has symbols."""
    mode = torch._guards.detect_fake_mode(values)
    return None if mode is None else mode.shape_env


def expression(size: Any) -> sympy.Basic:
    """The SymPy expression of an int, a SymInt or a SymBool."""
    if isinstance(size, torch.SymInt | torch.SymBool | torch.SymFloat):
        return size.node.expr
    return sympy.sympify(size)


def is_plain_symbol(size: Any) -> bool:
    """True if `size` is one symbol and nothing else."""
    return bool(expression(size).is_Symbol)


def size_in(size: Any, x: torch.Tensor) -> Any:
    """`size`, a term of the sizes of `x`, computed from them, so that a trace has its nodes.

    Raises UnsupportedError for a term of other sizes.
    """
    e, known = expression(size), {}
    for axis, own in enumerate(x.shape):
        stand_in = sympy.Symbol(f"size_{axis}", integer=True, nonnegative=True)
        if not expression(own).is_number:
            e = e.subs(expression(own), stand_in)
            known[stand_in] = own
    for stand_in, own in list(known.items()):
        if (solved := _solved(own)) is not None:
            name, factor, offset = solved
            of_axis = sympy.Symbol(f"{stand_in.name}_{name}", integer=True, nonnegative=True)
            e = e.subs({s: of_axis for s in e.free_symbols if s.name == name})
            known[of_axis] = (own - offset) // factor
    if not e.free_symbols <= known.keys():
        raise UnsupportedError(f"the size {size} is no term of the sizes of its operand")
    return sympy_interp(PythonReferenceAnalysis, known, e) if e.free_symbols else int(e)


_LARGEST_DENOMINATOR = 1 << 10
"""Of a factor of a size, which is at most 2^30."""


def exact_floor(e: Any) -> tuple[Any, Any] | None:
    """A rounded term as what is divided and the divisor, both of integers.

    `int(1.5 * n)` is `(3*n, 2)`, `math.floor(n / 2)` is `(n, 2)`, `math.ceil(n / 2)` is
    `(n + 1, 2)`. None for another term, and for one whose floats may be rounded across an integer.

    An f64 stands for p/q if it is the nearest one, and not below p/q by more than 2^-54 of it.
    Then no product that should be a whole number is rounded to less. Other products are at
    least 1/q away from the next whole number. For a ceiling the factor is p/q itself.
    """
    kind = type(e).__name__
    if kind not in ("TruncToInt", "FloorToInt", "CeilToInt"):
        return None
    if type(e.args[0]).__name__ == "IntTrueDiv":
        return _rounded(kind, *e.args[0].args)
    factor, rest = e.args[0].as_coeff_Mul()
    if type(rest).__name__ != "ToFloat" or factor < 0:
        return None
    stated = Fraction(float(factor))
    near = stated.limit_denominator(_LARGEST_DENOMINATOR)
    is_near = near * (1 - Fraction(1, 1 << 54)) <= stated <= near * (1 + Fraction(1, 1 << 52))
    if not is_near or near.numerator >= _LARGEST_DENOMINATOR**2:
        return None
    if kind == "CeilToInt" and near != stated:
        return None
    return _rounded(kind, near.numerator * rest.args[0], sympy.Integer(near.denominator))


def _rounded(kind: str, numerator: Any, denominator: Any) -> tuple[Any, Any] | None:
    """As :func:`exact_floor`, of a quotient in f64.

    Where it is no integer, it differs from the nearest one by at least one part in `numerator`.
    So its rounding to f64 changes neither floor nor ceiling of sizes below 2^52.
    """
    if not denominator.is_positive or (kind == "TruncToInt" and not numerator.is_nonnegative):
        return None
    return numerator + denominator - 1 if kind == "CeilToInt" else numerator, denominator


def symbols_of(size: Any) -> frozenset[str]:
    """The names of the symbols in `size`."""
    return frozenset(symbol.name for symbol in expression(size).free_symbols)


_OF_FLOATS = ("FloatPow", "FloatTrueDiv", "IntTrueDiv", "ToFloat")


def has_floats(condition: Any) -> bool:
    """True for a condition on what is computed from sizes in floats."""
    terms = sympy.preorder_traversal(expression(condition))
    return any(e.is_Float or type(e).__name__ in _OF_FLOATS for e in terms)


class Place(NamedTuple):
    """Where a call has a symbol: `(size - offset) // factor` of a dimension, or a number."""

    number: int
    """The input."""
    axis: int | None
    """The dimension that has it; None: the input is the number."""
    factor: int = 1
    offset: int = 0

    @property
    def is_whole(self) -> bool:
        """True for the size of a dimension itself."""
        return self.axis is not None and self.factor == 1 and self.offset == 0


def places_of(placeholders: Sequence[torch.fx.Node]) -> dict[str, Place]:
    """Where a call has each symbol: as a size of a tensor, as a number, or as a part of a size."""
    found: dict[str, Place] = {}
    values = [node.meta.get("val") for node in placeholders]
    sizes = [
        (number, axis, size)
        for number, value in enumerate(values)
        if isinstance(value, torch.Tensor)
        for axis, size in enumerate(value.shape)
    ]
    for number, axis, size in sizes:
        if is_plain_symbol(size):
            found.setdefault(str(expression(size)), Place(number, axis))
    for number, value in enumerate(values):
        if isinstance(value, torch.SymInt) and is_plain_symbol(value):
            found.setdefault(str(expression(value)), Place(number, None))
    for number, axis, size in sizes:
        if (solved := _solved(size)) is not None:
            name, factor, offset = solved
            found.setdefault(name, Place(number, axis, factor, offset))
    return found


def _solved(size: Any) -> tuple[str, int, int] | None:
    """`factor*symbol + offset` as (symbol, factor, offset); None for another size."""
    offset, rest = expression(size).as_coeff_Add()
    factor, symbol = rest.as_coeff_Mul()
    if not (symbol.is_Symbol and offset.is_Integer and factor.is_Integer and factor > 0):
        return None
    return symbol.name, int(factor), int(offset)


class Numbers:
    """Terms of sizes that conditions require to be numbers.

    `Eq(s27 // (s27 // 4), 4)` makes 8 of `2 * (s27 // (s27 // 4))`.
    """

    def __init__(self, conditions: Sequence[Any]) -> None:
        self.known: dict[Any, Any] = {}
        """Term -> the number."""
        for condition in map(expression, conditions):
            parts = condition.args if isinstance(condition, sympy.And) else [condition]
            for part in parts:
                if isinstance(part, sympy.Eq) and part.rhs.is_Integer and not part.lhs.is_Integer:
                    self.known[part.lhs] = part.rhs

    def of(self, size: Any) -> sympy.Basic:
        """The expression of `size`, with numbers for the terms that are known."""
        return expression(size).xreplace(self.known)

    def multiples(self) -> list[sympy.Basic]:
        """Divisibilities that follow: `s27 // d == 4` and `s27 % d == 0` make `s27 % 4 == 0`."""
        exact = {e.args for e, n in self.known.items() if n == 0 and _call(e) == "mod"}
        return [
            sympy.Eq(Mod(e.args[0], n), 0)
            for e, n in self.known.items()
            if n > 1 and _call(e) == "floordiv" and e.args in exact
        ]


class Sizes:
    """The values of symbols in a call, read from its inputs."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.places = dict(places)
        self._functions: dict[Any, tuple[tuple[str, ...], Callable[..., Any]]] = {}

    def value(self, size: Any, inputs: Sequence[Any]) -> int:
        """`size`, an expression of symbols, in a call with these inputs."""
        return self.at(size, {name: self.symbol(name, inputs) for name in symbols_of(size)})

    def at(self, size: Any, values: Mapping[str, int]) -> int:
        """`size`, an expression of symbols that have these values; 1 for a true condition."""
        if size not in self._functions:
            names = tuple(sorted(symbols_of(size)))
            symbols = [s for n in names for s in size.free_symbols if s.name == n]
            self._functions[size] = names, sympy.lambdify(symbols, size, "sympy")
        names, function = self._functions[size]
        found = function(*map(values.__getitem__, names))
        return int(bool(found)) if isinstance(found, Boolean) else int(found)

    @staticmethod
    def number(e: Any, values: Mapping[str, Any]) -> Any:
        """`e`, an expression of symbols that have these `values`, with the numbers of Python."""
        known = {symbol: values[symbol.name] for symbol in e.free_symbols}
        return sympy_interp(PythonReferenceAnalysis, known, e)

    def symbol(self, name: str, inputs: Sequence[Any]) -> int:
        """The value of a symbol in a call with these inputs."""
        number, axis, factor, offset = self.places[name]
        size = inputs[number] if axis is None else inputs[number].shape[axis]
        return (int(size) - offset) // factor


class Notation:
    """Writes sizes, conditions and ranges, with names of its own for symbols."""

    def __init__(
        self,
        names: Mapping[str, str],
        terms: Mapping[Any, str] | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        self._names = dict(names)
        """Symbol -> its name; those without one cannot be stated."""
        self._terms: dict[Any, str] = dict(terms or {})
        """Size of an argument that has no such symbol -> its name."""
        self._numbers = {} if numbers is None else dict(numbers.known)
        """Term -> the number that is written for it."""

    @property
    def terms(self) -> Mapping[Any, str]:
        """Sizes that :meth:`argument_size` has named as a whole, with their names."""
        return self._terms

    def knows(self, size: Any) -> bool:
        """True if every symbol of `size` has a name."""
        return symbols_of(size) <= self._names.keys()

    def size(self, size: Any) -> str:
        """`size`, an int, a SymInt or a SymPy expression.

        Raises UnsupportedError for a function that the notation lacks, or a symbol without a name.
        """
        return self._text(expression(size))

    def argument_size(self, size: Any) -> str:
        """As :meth:`size`, of an argument; a term without a notation has a name of its own.

        So has one of symbols that are the size of no argument, in a region of a graph.
        """
        e = expression(size)
        if self.knows(e):
            with contextlib.suppress(UnsupportedError):
                return self._text(e)
        return self._terms.setdefault(e, f"term_{len(self._terms)}")

    def relations(self, condition: Any) -> list[str]:
        """The constraints that a SymBool or a SymPy condition states; none for a true one.

        Terms that are known as numbers are written so, but on the left of an equality.

        Raises UnsupportedError for one that is no conjunction of relations.
        """
        e = expression(condition)
        if e == sympy.true:
            return []
        if isinstance(e, sympy.And):
            return [text for part in e.args for text in self.relations(part)]
        kind = type(e).__name__
        if kind not in _RELATIONS:
            raise UnsupportedError(f"the program requires {e} of its sizes, which is no relation")
        left = self._spelled(e.lhs) if kind == "Equality" else self._text(e.lhs)
        return [f"{left} {_RELATIONS[kind]} {self._text(e.rhs)}"]

    def constraints(self, conditions: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """The constraints that `conditions` state, and those that have none."""
        found: list[str] = []
        unstated = []
        for condition in conditions:
            try:
                found += self.relations(condition)
            except UnsupportedError:
                unstated.append(expression(condition))
        return found, unstated

    def bounds(self, ranges: Mapping[Any, Any]) -> list[str]:
        """The constraints of `ranges` (expressions to value ranges) on known symbols and terms."""
        found: list[str] = []
        for e, values in ranges.items():
            if e not in self._terms and not self.knows(e):
                continue
            text = self._terms.get(e) or self._text(e)
            stated = values.lower.is_Integer and int(values.lower) > _TRACING_BOUND
            found.append(f"{text} >= {int(values.lower) if stated else 0}")
            if values.upper.is_Integer and int(values.upper) < _NO_BOUND:
                found.append(f"{text} <= {int(values.upper)}")
        return found

    def _text(self, e: Any) -> str:
        number = self._numbers.get(e)
        return self._spelled(e if number is None else number)

    def _spelled(self, e: Any) -> str:
        if e.is_Integer:
            if abs(int(e)) >= _NO_BOUND:  # their sums would leave 64 bits
                raise UnsupportedError(f"the number {e} is no size")
            return str(int(e)) if int(e) >= 0 else f"({int(e)})"
        if e.is_Symbol:
            if e.name not in self._names:
                raise UnsupportedError(f"the size {e} comes from data; no argument has it")
            return self._names[e.name]
        kind, function = type(e).__name__, _call(e)
        if kind == "Identity":
            return self._text(e.args[0])
        if e.is_Add:
            return "(" + " + ".join(map(self._text, e.args)) + ")"
        if e.is_Mul:
            return self._product(e)
        if (e.is_Pow and e.exp.is_Integer and int(e.exp) > 0) or kind == "PowByNatural":
            base, exponent = e.args
            return "*".join([self._text(base)] * int(exponent))
        if function is not None:
            return _folded(function, [self._text(a) for a in e.args])
        if (quotient := exact_floor(e)) is not None:
            return f"floordiv({self._text(quotient[0])}, {self._text(quotient[1])})"
        if kind == "ModularIndexing":
            base, divisor, modulus = map(self._text, e.args)
            return f"mod(floordiv({base}, {divisor}), {modulus})"
        raise UnsupportedError(
            f"the size {e} is computed with {kind}, which sizes of shlo_disc cannot be; compute it "
            "outside the compiled function and pass it in"
        )

    def _product(self, e: Any) -> str:
        numerator, denominator = e.as_numer_denom()
        if denominator != 1:  # PyTorch writes an exact quotient so
            return f"floordiv({self._text(numerator)}, {self._text(denominator)})"
        return "*".join(map(self._text, e.args))


def _folded(name: str, texts: list[str]) -> str:
    """A function of two arguments of all `texts`."""
    text = texts[-1]
    for other in reversed(texts[:-1]):
        text = f"{name}({other}, {text})"
    return text
