"""What a compiled version assumes of the argument sizes, and the test of a call against it.

A :class:`Pattern` gives every axis of every leaf as an expression over symbols (`b`, `4*k`, `768`),
plus guards between expressions. Its C++ form, :class:`shlo_disc.ral.SizePattern`, solves the
symbols from a call's shapes and tests everything; the dispatcher runs it before any Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

from shlo_disc import ral
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.program import linear
from shlo_disc.dynamic.relations import Relation

Shapes = Sequence[tuple[int, ...]]
"""The shape of every leaf, in order."""

MANY = 8
"""From here on arrays of constant sizes in a row are counted, not listed."""


@dataclass(frozen=True)
class Note:
    """Something that is assumed of the sizes, why, and which line of the program made us."""

    text: str
    reason: str
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.text}: {self.reason}{place}"


@dataclass(frozen=True)
class Guard(Relation):
    """A relation of sizes that must hold for a compiled version to be used."""

    stated: str = ""
    """The user's own words, for a constraint that was stated."""

    def __str__(self) -> str:
        return self.stated or super().__str__()

    def substitute(self, values: dict[str, Expr]) -> Guard:
        """The same guard in other symbols."""
        left, right = self.left.substitute(values), self.right.substitute(values)
        return Guard(left, self.relation, right, self.reason, self.where, self.stated)

    @property
    def note(self) -> Note:
        """The guard as a sentence."""
        return Note(str(self), self.reason, self.where)


class Step(NamedTuple):
    """What a call's size at an axis of a leaf tells."""

    leaf: int
    axis: int
    size: Expr
    symbol: str | None = None
    """It is solved here, in `size` = `factor` * `symbol` + `rest`; None if all symbols are."""
    factor: int = 1
    rest: Expr = Expr.const(0)


@dataclass(frozen=True)
class Pattern:
    """Sizes of all leaves as expressions (None: anything goes), and guards."""

    names: tuple[str, ...]
    """The path of every leaf, for messages."""
    dims: tuple[tuple[Expr | None, ...], ...]
    guards: tuple[Guard, ...] = ()
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """All symbols, sorted."""
        found: set[str] = set()
        for shape in self.dims:
            for size in shape:
                if size is not None:
                    found |= size.symbols()
        return tuple(sorted(found))

    @cached_property
    def steps(self) -> list[Step]:
        """The steps in an order that can be executed."""
        steps: list[Step] = []
        waiting = [
            (leaf, axis, size)
            for leaf, shape in enumerate(self.dims)
            for axis, size in enumerate(shape)
            if size is not None
        ]
        known: set[str] = set()
        # Symbols on their own first: messages then say "b was read from", not "4*b was read from".
        waiting.sort(key=lambda item: len(item[2].terms) != 1 or item[2].terms[0][1] != 1)
        while waiting:
            later = []
            for leaf, axis, size in waiting:
                unknown = size.symbols() - known
                found = linear(size, unknown)
                if not unknown:
                    steps.append(Step(leaf, axis, size, rest=size))
                elif found is not None and found[1] > 0:
                    steps.append(Step(leaf, axis, size, *found))
                    known |= unknown
                else:
                    later.append((leaf, axis, size))
            if len(later) == len(waiting):
                sizes = ", ".join(str(size) for _, _, size in later)
                raise ValueError(f"the sizes {sizes} do not determine their symbols")
            waiting = later
        return steps

    @property
    def is_solvable(self) -> bool:
        """Do the shapes determine every symbol?"""
        atoms = {size.lone_atom for shape in self.dims for size in shape if size is not None}
        if {atom.key for atom in atoms if atom is not None} >= {*self.symbols}:
            return True
        try:
            return bool(self.steps) or True
        except ValueError:
            return False

    @cached_property
    def native(self) -> ral.SizePattern:
        """The pattern in C++.

        Raises ValueError when the shapes do not determine every symbol, OverflowError when a
        coefficient takes more than 64 bits.
        """
        place: dict[tuple[int, int], int] = {}
        for leaf, shape in enumerate(self.dims):
            for axis in range(len(shape)):
                place[leaf, axis] = len(place)
        number = {symbol: index for index, symbol in enumerate(self.symbols)}
        steps = []
        for leaf, axis, _, symbol, factor, rest in self.steps:
            solved = -1 if symbol is None else number[symbol]
            steps.append((place[leaf, axis], solved, factor, _code(rest, number)))
        guards = [
            (
                _code(guard.left, number),
                ral.SIZE_RELATIONS[guard.relation],
                _code(guard.right, number),
            )
            for guard in self.guards
        ]
        return ral.SizePattern([len(shape) for shape in self.dims], len(number), steps, guards)

    def solve(self, shapes: Shapes) -> tuple[int, ...] | None:
        """Shapes to the values of `symbols`, or None when the shapes do not fit the pattern."""
        try:
            return self.native.solve(shapes)
        except OverflowError:  # Python's numbers have any width
            values, broken = self._tested(shapes)
            return None if broken else tuple(values[symbol] for symbol in self.symbols)

    def values(self, shapes: Shapes) -> dict[str, int]:
        """The symbols and their values in shapes that fit."""
        values = self.solve(shapes)
        assert values is not None, (self, shapes)
        return dict(zip(self.symbols, values, strict=True))

    def mismatch(self, shapes: Shapes) -> str | None:
        """The first thing in which `shapes` break the pattern, as a sentence; None if they fit."""
        return self._tested(shapes)[1]

    def _tested(self, shapes: Shapes) -> tuple[dict[str, int], str | None]:
        """The values of the symbols solved, and the first thing that does not fit."""
        values: dict[str, int] = {}
        origin: dict[str, str] = {}
        for leaf, axis, size, symbol, factor, rest in self.steps:
            actual = shapes[leaf][axis]
            place = f"argument {self.names[leaf]}: dimension {axis} is {actual}"
            if symbol is not None:
                if (known := _value(rest, values)) is None:
                    return values, f"{place}, but {size} divides by 0"
                value, remainder = divmod(actual - known, factor)
                if remainder:
                    return values, f"{place}, but {size} is a multiple of {factor}" + _plus(rest)
                if value < 1:
                    least = str(factor) if rest == 0 else f"{factor} + {rest}"
                    return values, f"{place}, but {size} is at least {least}"
                values[symbol] = value
                origin[symbol] = f"dimension {axis} of argument {self.names[leaf]}"
            elif (expected := _value(size, values)) != actual:
                if size.is_const:
                    return values, f"{place}, but must be {expected}"
                text = f"{size} = {expected}" if expected is not None else f"{size} divides by 0"
                return values, f"{place}, but {text} ({_origins(size.symbols(), values, origin)})"
        for guard in self.guards:
            left, right = _value(guard.left, values), _value(guard.right, values)
            if left is None or right is None or not guard.holds(values):
                test = f"{left} {guard.relation} {right} is false"
                if left is None or right is None:
                    test = "a size is divided by 0"
                sources = _origins(guard.symbols(), values, origin)
                return values, f"{guard} does not hold: {test} ({sources})"
        return values, None

    def text(self) -> str:
        """One line a leaf (many of constant sizes in a row share one), a guard and a note."""
        lines = []
        leaves = zip(self.names, self.dims, strict=True)
        for constant, run in itertools.groupby(leaves, lambda leaf: _constant(leaf[1])):
            group = list(run)
            if constant and len(group) > MANY:
                first, last = group[0][0], group[-1][0]
                lines.append(f"  {first} to {last}: {len(group)} arrays of constant sizes")
                continue
            for name, shape in group:
                sizes = ", ".join("_" if size is None else str(size) for size in shape)
                lines.append(f"  {name}: ({sizes})")
        seen = dict.fromkeys(str(note) for note in [*(g.note for g in self.guards), *self.notes])
        if seen:
            lines.append("assumes")
            lines += [f"  {note}" for note in seen]
        return "\n".join(lines)


def _constant(shape: Sequence[Expr | None]) -> bool:
    return all(size is not None and size.is_const for size in shape)


def _plus(rest: Expr) -> str:
    return "" if rest == 0 else f" plus {rest}"


def _origins(symbols: frozenset[str], values: dict[str, int], origin: dict[str, str]) -> str:
    return ", ".join(
        f"{symbol} = {values[symbol]} was read from {origin[symbol]}" for symbol in sorted(symbols)
    )


def _value(size: Expr, values: Mapping[str, int]) -> int | None:
    """The number; None where a size is divided by 0."""
    try:
        return size.evaluate(values)
    except ZeroDivisionError:
        return None


def _code(size: Expr, number: Mapping[str, int]) -> list[int]:
    """The expression in the postfix form of :class:`shlo_disc.ral.SizePattern`."""
    operations = ral.SIZE_OPERATIONS
    code: list[int] = []
    for index, (monomial, coefficient) in enumerate(size.terms or (((), 0),)):
        if abs(coefficient) >= 1 << 63:
            raise OverflowError(f"a coefficient of {size} takes more than 64 bits")
        code += [operations["constant"], coefficient]
        for atom, power in monomial:
            if atom.op:
                factor = [x for argument in atom.args for x in _code(argument, number)]
                factor.append(operations[atom.op])
            else:
                factor = [operations["symbol"], number[atom.key]]
            code += [*factor, operations["*"]] * power
        if index:
            code.append(operations["+"])
    return code
