"""A program traced with symbols, compared with the same function traced at the sizes of the call.

A traced function can tell a symbolic size from a number in ways that Python does not show
(`isinstance(n, int)`, `type(n) is int`). A new version is therefore compared with a trace at the
sizes of the call: structure, shapes and dtypes of the results, and the operations that depend on
the arguments, in order, with the numbers they use.

JAX itself writes some operations differently for symbols (indexing, reshapes, loops over a size).
Those, and everything computed from sizes alone, are left out of the comparison.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from shlo_disc.jax.sizes.marks import CLOSED, MARK
from shlo_disc.jax.sizes.symbolic import evaluate
from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import Literal
from shlo_disc.jax_private.jaxprs import equation_line, scan_operands

LAYOUT = frozenset(
    (
        "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "convert_element_type", "copy",
        "copy_p", "slice", "dynamic_slice", "gather", "concatenate", "transpose", "rev", "pad",
        "iota", "split", "select_n", "clamp", "optimization_barrier", "stop_gradient", "name",
        "dim_as_value", "dynamic_update_slice", "scatter", "scatter-add", "add_any", "lt", "le",
        "gt", "ge", "eq", "ne", "le_to", "lt_to", "and", "or", "not", "rem", "sign", "broadcast",
        "pvary", "sharding_constraint", "stack", "unstack",
    )
)  # fmt: skip
"""Operations that move values or belong to index arithmetic: JAX spells them by what it knows."""

INLINED = CALLS - {"composite"}
"""Calls whose body is part of the program; a composite is one operation."""


_Type = tuple[tuple[int, ...], str]
"""The shape of an array and the name of its dtype."""


class _Event(NamedTuple):
    """One operation on data: its name, the types of its results, and the numbers it uses."""

    name: str
    results: tuple[_Type, ...]
    numbers: tuple[float | None, ...]
    """Per operand: the number it is for certain, or None."""
    equation: Any

    @property
    def where(self) -> str:
        """The line of the program it comes from."""
        return equation_line(self.equation)


def difference(
    symbolic: Any,
    hints: Mapping[str, int],
    concrete: Any,
    *,
    units: bool = True,
    empty: bool = True,
) -> tuple[str, str] | None:
    """The first difference between two jaxprs of one function, and its line; None for no other.

    `symbolic` is traced with symbols of the values `hints`, `concrete` with those sizes. Without
    `units`, dimensions of size 1 are left out of the comparison of operations; without `empty`,
    arrays without elements, with which JAX computes nothing.
    """
    for number, (a, b) in enumerate(zip(symbolic.out_avals, concrete.out_avals, strict=True)):
        mine, theirs = _type(a, hints), _type(b, {})
        if mine != theirs:
            return f"result {number} is {_shown(mine)}, but {_shown(theirs)} at these sizes", ""
        if getattr(a, "weak_type", False) != getattr(b, "weak_type", False):
            kinds = ("weakly", "strongly") if a.weak_type else ("strongly", "weakly")
            return f"result {number} is {kinds[0]} typed, but {kinds[1]} at these sizes", ""
    readers = _Reader(hints, empty), _Reader({}, empty)
    ours, want = readers[0].events(symbolic), readers[1].events(concrete)
    for a, b in zip(ours, want, strict=False):
        if a.name != b.name or not _same_numbers(a.numbers, b.numbers):
            return _told(a, b), a.where
        same = a.results == b.results if units else _without_units(a) == _without_units(b)
        if not same and a.name not in _SHAPE_FREE:
            return _told(a, b), a.where
    if len(ours) != len(want):
        more, fewer = (ours, want) if len(ours) > len(want) else (want, ours)
        extra = more[len(fewer)]
        which = "a symbol" if more is ours else "a number"
        return f"{extra.name} is computed only where the size is {which}", extra.where
    if not units and any(reader.has_left_out for reader in readers):
        return None  # programs in two ways pad what is empty: they compute with other rows
    inside = readers[0].inside, readers[1].inside
    for which, one, other in (("symbol", *inside), ("number", *inside[::-1])):
        alone = (kind for kind in one if not any(_agree(kind, same) for same in other))
        for name, numbers in sorted(alone, key=str):
            if (name, {*numbers}) != _INTERLEAVED:
                words = " ".join((name, *(f"{x:.3g}" for x in numbers if x is not None)))
                return f"{words} is computed only where the size is a {which}", ""
    return None


_INTERLEAVED = ("add", {None})
"""How the recursion of `lax.associative_scan` puts its halves together."""

_NAMES_A_FUNCTION = frozenset(["noinline"])  # of equinox
"""Primitives whose first operand is the number of a function of Python.

A function that the program defines has another number in every trace.
"""

_SHAPE_FREE = frozenset(("while", "scan", "loop", "cond"))


def _without_units(event: _Event) -> list[tuple[list[int], str]]:
    return [([size for size in shape if size != 1], dtype) for shape, dtype in event.results]


def _told(a: _Event, b: _Event) -> str:
    return f"{_event(a)} with symbols is {_event(b)} with numbers"


def _event(event: _Event) -> str:
    numbers = [f"{x:g}" for x in event.numbers if x is not None]
    used = f" of {', '.join(numbers)}" if numbers else ""
    return f"{event.name}{used} -> {', '.join(map(_shown, event.results))}"


def _shown(type_: _Type) -> str:
    return f"{type_[1]}[{','.join(map(str, type_[0]))}]"


def _type(aval: Any, hints: Mapping[str, int]) -> _Type:
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", aval)
    name = _name(dtype) if isinstance(dtype, np.dtype) else str(dtype)
    return tuple(evaluate(size, hints) for size in shape), name


_name = functools.cache(str)
"""The name of a type of elements: NumPy makes it anew each time."""


def _same_numbers(a: Sequence[float | None], b: Sequence[float | None]) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x is not None and y is not None and not _close(x, y):
            return False
    return True


def _close(x: float, y: float) -> bool:
    return x == y or (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=1e-4)


_Kind = tuple[str, tuple[float | None, ...]]
"""The name and the numbers of an operation, without its place and its shapes."""


def _kind(event: _Event) -> _Kind:
    return event.name, event.numbers


def _agree(a: _Kind, b: _Kind) -> bool:
    return a[0] == b[0] and _same_numbers(a[1], b[1])


class _Value(NamedTuple):
    """What is known of a value: whether it depends on data, and its number if it is one."""

    is_data: bool
    number: float | None = None


_DATA = _Value(True)
_UNKNOWN = _Value(False)


class _Reader:
    """Reads the operations on data out of a jaxpr, calls inlined."""

    def __init__(self, hints: Mapping[str, int], empty: bool) -> None:
        self.hints, self.empty = hints, empty
        self._types: dict[int, _Type] = {}
        """Of abstract arrays by address: the jaxpr keeps them."""
        self.has_left_out = False
        self.inside: set[_Kind] = set()
        """Kinds of operations in programs that are written in two ways, however often."""

    def events(self, closed: Any) -> list[_Event]:
        """The operations of a closed jaxpr whose arguments are all data."""
        jaxpr = closed.jaxpr
        values = dict.fromkeys(jaxpr.invars, _DATA)
        values.update(zip(jaxpr.constvars, map(_constant, closed.consts), strict=True))
        return self._run(jaxpr, values)

    def _run(self, jaxpr: Any, values: dict[Any, _Value]) -> list[_Event]:
        found: list[_Event] = []
        for equation in jaxpr.eqns:
            operands = [_read(values, atom) for atom in equation.invars]
            name = equation.primitive.name
            results: list[_Value]
            function = str(equation.params.get("name", "")) if name in INLINED else ""
            if function.startswith(CLOSED):
                results = [_DATA] * len(equation.outvars)
                # Without types: a derivative keeps what its program computes on the way.
                found.append(_Event(function, (), (), equation))
            elif function.startswith(MARK):
                results = [_DATA] * len(equation.outvars)
                body, bound = _opened(called(equation), operands)
                self.inside.update(map(_kind, self._run(body, bound)))
            elif name in INLINED:
                body, bound = _opened(called(equation), operands)
                found += self._run(body, bound)
                results = [_read(bound, atom) for atom in body.outvars]
            elif name in ("scan", "while", "cond"):
                inside, results = self._control(name, equation, operands)
                if any(value.is_data for value in results):
                    found += inside
            elif _DATA in operands or (not operands and equation.effects):
                results = [_DATA] * len(equation.outvars)
                if not (
                    name in LAYOUT
                    or (equation.outvars and all(map(self._is_left_out, equation.outvars)))
                    or _is_index_arithmetic(name, equation)
                    or self._sums_single_elements(name, equation)
                ):
                    found.append(self._event(equation, name, operands))
            else:
                number = self._number(equation, [value.number for value in operands])
                results = [_Value(False, number)] * len(equation.outvars)
            if not self.empty:
                results = [
                    _UNKNOWN if self._is_left_out(variable) else value
                    for variable, value in zip(equation.outvars, results, strict=True)
                ]
            values.update(zip(equation.outvars, results, strict=True))
        return found

    def _is_left_out(self, variable: Any) -> bool:
        """True for an array without elements, if such are left out."""
        if self.empty:
            return False
        shape = getattr(variable.aval, "shape", ())
        empty = any(evaluate(size, self.hints) == 0 for size in shape)
        self.has_left_out |= empty
        return empty

    def _sums_single_elements(self, name: str, equation: Any) -> bool:
        """True for a sum over dimensions of size 1.

        The derivative of a broadcast sums over a symbol; where the size is 1, no broadcast is seen.
        """
        if name != "reduce_sum":
            return False
        shape = equation.invars[0].aval.shape
        return all(evaluate(shape[axis], self.hints) == 1 for axis in equation.params["axes"])

    def _event(self, equation: Any, name: str, operands: Sequence[_Value]) -> _Event:
        types = tuple(self._type(variable.aval) for variable in equation.outvars)
        numbers = tuple(None if value.is_data else value.number for value in operands)
        if name in _NAMES_A_FUNCTION:
            numbers = (None, *numbers[1:])
        if name == "integer_pow":
            numbers += (float(equation.params["y"]),)
        return _Event(name, types, numbers, equation)

    def _type(self, aval: Any) -> _Type:
        found = self._types.get(id(aval))
        if found is None:
            found = self._types[id(aval)] = _type(aval, self.hints)
        return found

    def _control(
        self, name: str, equation: Any, operands: list[_Value]
    ) -> tuple[list[_Event], list[_Value]]:
        """The operations inside a loop or branches, and what is known of the results."""
        params = equation.params
        if name == "cond":
            bodies = [_opened(branch, operands[1:]) for branch in params["branches"]]
            found = [event for body, bound in bodies for event in self._run(body, bound)]
            branches = [[_read(bound, atom) for atom in body.outvars] for body, bound in bodies]
            chosen = operands[0].is_data
            return found, [
                _DATA if chosen or any(v.is_data for v in values) else _UNKNOWN
                for values in zip(*branches, strict=True)
            ]
        if name == "scan":
            fixed, carried = scan_operands(params)
            body_of, first = params["jaxpr"], operands[:fixed]
            state, rest = operands[fixed : fixed + carried], operands[fixed + carried :]
        else:
            fixed, carried = params["cond_nconsts"], len(equation.outvars)
            body_of = params["body_jaxpr"]
            first = operands[fixed : fixed + params["body_nconsts"]]
            state, rest = operands[fixed + params["body_nconsts"] :], []
        state = [_Value(value.is_data) for value in state]  # it changes: no number is for certain
        while True:
            body, bound = _opened(body_of, [*first, *state, *rest])
            found = self._run(body, bound)
            outs = [_read(bound, atom) for atom in body.outvars]
            grown = [
                _Value(a.is_data or b.is_data) for a, b in zip(state, outs[:carried], strict=True)
            ]
            if grown == state:
                break
            state = grown
        return found, [*state, *(_Value(value.is_data) for value in outs[carried:])]

    def _number(self, equation: Any, operands: list[float | None]) -> float | None:
        """The number an operation on sizes and literals gives, where it is one."""
        name = equation.primitive.name
        if name == "dim_as_value":
            return float(evaluate(equation.params["dim"], self.hints))
        if name in ("broadcast_in_dim", "reshape", "squeeze", "copy"):
            return operands[0]
        function = _ARITHMETIC.get(name)
        if function is None or any(number is None for number in operands):
            return None
        try:
            return _rounded(function(equation, *operands), equation.outvars[0].aval.dtype)
        except (ArithmeticError, ValueError):
            return None


def _is_index_arithmetic(name: str, equation: Any) -> bool:
    """True if an operation may make a negative index positive, or bound it."""
    kinds = {getattr(v.aval.dtype, "kind", "") for v in equation.outvars}
    return name in ("add", "sub", "max", "min") and kinds <= {"i", "u"}


def _rounded(number: float, dtype: Any) -> float:
    """A number as an array of a type has it; floats of 32 bits and more are close enough."""
    if jax.numpy.issubdtype(dtype, np.integer):
        return float(int(number))
    narrow = jax.numpy.issubdtype(dtype, np.floating) and np.dtype(dtype).itemsize < 4
    with np.errstate(over="ignore"):  # infinity, as in the program
        return float(np.asarray(number).astype(dtype)) if narrow else float(number)


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda _, a, b: a + b,
    "sub": lambda _, a, b: a - b,
    "mul": lambda _, a, b: a * b,
    "div": lambda _, a, b: a / b,
    "neg": lambda _, a: -a,
    "max": lambda _, a, b: max(a, b),
    "min": lambda _, a, b: min(a, b),
    "pow": lambda _, a, b: math.pow(a, b),
    "integer_pow": lambda e, a: a ** e.params["y"],
    "sqrt": lambda _, a: np.sqrt(a),
    "rsqrt": lambda _, a: 1 / np.sqrt(a),
    "log": lambda _, a: np.log(a),
    "exp": lambda _, a: np.exp(a),
    "floor": lambda _, a: np.floor(a),
    "ceil": lambda _, a: np.ceil(a),
    "convert_element_type": lambda _, a: a,
}


def _opened(inner: Any, operands: Sequence[_Value]) -> tuple[Any, dict[Any, _Value]]:
    """The jaxpr of a call and its arguments' values."""
    jaxpr = getattr(inner, "jaxpr", inner)
    values = dict(zip(jaxpr.invars, operands, strict=True))
    values.update(zip(jaxpr.constvars, map(_constant, getattr(inner, "consts", ())), strict=True))
    return jaxpr, values


def _constant(value: Any) -> _Value:
    if np.ndim(value) == 0 and not isinstance(value, jax.core.Tracer):
        try:
            return _Value(False, float(value))
        except (TypeError, ValueError):
            return _UNKNOWN
    return _UNKNOWN


def _read(values: Mapping[Any, _Value], atom: Any) -> _Value:
    return _constant(atom.val) if isinstance(atom, Literal) else values.get(atom, _UNKNOWN)
