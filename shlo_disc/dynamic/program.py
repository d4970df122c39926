"""The shape program: from the sizes of a call's arguments to symbols, checks and result sizes.

The host program emits the same steps and checks natively; this Python form explains failures and is
the oracle in tests. It runs when a check has failed, never in the steady state.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set

from shlo_disc.base.errors import ShapeMismatchError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import holds


@dataclass(frozen=True)
class Solve:
    """`symbol = (size - offset) / scale`, where size is dimension `axis` of `argument`."""

    symbol: str
    argument: int
    axis: int
    scale: int
    offset: Expr
    """Over symbols solved before."""
    is_element: bool = False
    """The symbol is element `axis` of the argument, in row-major order, not a dimension."""

    @property
    def size(self) -> str:
        """The name of the number read, as it occurs in checks."""
        name = element_symbol if self.is_element else size_symbol
        return name(self.argument, self.axis)


@dataclass(frozen=True)
class Check:
    """`lhs op rhs` over symbols and size names (`size_symbol`); op is one of == != < <= > >=."""

    lhs: Expr
    op: str
    rhs: Expr
    message: str
    """What must hold, in words that need no sizes."""
    argument: int = -1
    """Set, with `axis`, when lhs is that size of an argument."""
    axis: int = -1
    in_region: bool = False
    """A region needs it that may not run."""

    @property
    def terms(self) -> tuple[Expr, str, Expr]:
        """The condition."""
        return self.lhs, self.op, self.rhs

    @property
    def is_choice(self) -> bool:
        """True if one of several factors must be 0, as for a size that is 1 or that of a result."""
        return self.op == "==" and self.rhs == 0 and self.lhs.degree > 1

    def holds(self, env: Mapping[str, int]) -> bool:
        """True if the guard holds for these values of symbols."""
        return holds(self.lhs, self.op, self.rhs, env)


def linear(size: Expr, unknown: Set[str]) -> tuple[str, int, Expr] | None:
    """(s, c, rest) with `size` = c*s + rest, c != 0, s in `unknown`, and all of rest known."""
    names = size.symbols() & unknown
    for monomial, scale in size.terms if len(names) == 1 else ():
        if len(monomial) == 1 and monomial[0][0].key in names and monomial[0][1] == 1:
            (name,) = names
            rest = size - Expr.symbol(name) * scale
            return None if name in rest.symbols() else (name, scale, rest)
    return None


def size_symbol(argument: int, axis: int) -> str:
    """The name of an argument's size in checks: one that no program can write."""
    return f"size{_NOT_WRITTEN}{argument}{_NOT_WRITTEN}{axis}"


def element_symbol(argument: int, index: int) -> str:
    """The name of an element of a size argument: one that no program can write."""
    return f"element{_NOT_WRITTEN}{argument}{_NOT_WRITTEN}{index}"


_NOT_WRITTEN = "\u00b7"
"""A middle dot: Python has it in identifiers, the notation of sizes has it nowhere."""


@dataclass(frozen=True)
class ShapeProgram:
    """Everything a call must work out from the sizes of its arguments."""

    arguments: tuple[tuple[Expr, ...], ...]
    names: tuple[str, ...]
    """Argument paths, for messages."""
    results: tuple[tuple[Expr, ...], ...]
    steps: tuple[Solve, ...]
    checks: tuple[Check, ...]
    size_arguments: tuple[int, ...] = ()
    """Arguments whose elements are sizes."""
    computed: frozenset[int] = frozenset()
    """Arguments that no caller passes: results of an earlier program."""
    bounds: tuple[tuple[str, int | None, int | None], ...] = ()
    """(symbol, lowest, highest) in calls that pass the checks; None where there is no bound."""

    @property
    def elements(self) -> list[str]:
        """The names of the elements of size arguments, in the order the runtime reads them."""
        return [step.size for step in self.steps if step.is_element]

    @property
    def symbol_names(self) -> list[str]:
        """Symbols in solving order: their place in the symbol array."""
        return [step.symbol for step in self.steps]

    def evaluate(
        self, sizes: Sequence[Sequence[int]], elements: Sequence[int] = ()
    ) -> tuple[dict[str, int], list[tuple[int, ...]]]:
        """(symbol values, result shapes) for the shapes of all arguments and the elements of
        size arguments.

        Raises ShapeMismatchError naming the argument, its sizes and the constraint it breaks.
        """
        if len(sizes) != len(self.arguments):
            raise ShapeMismatchError(
                f"{len(sizes)} arguments were given, the program takes {len(self.arguments)}"
            )
        for index, (shape, want) in enumerate(zip(sizes, self.arguments, strict=True)):
            self._check_static(index, shape, want)
        env = {
            size_symbol(i, k): int(n) for i, shape in enumerate(sizes) for k, n in enumerate(shape)
        }
        env.update(zip(self.elements, elements, strict=True))
        for step in self.steps:
            env[step.symbol] = (env[step.size] - step.offset.evaluate(env)) // step.scale
        for check in self.checks:
            try:
                holds = check.holds(env)
            except ZeroDivisionError:
                because = self._sources(check.lhs.symbols() | check.rhs.symbols(), env)
                text = f"{check.message}: a size is divided by 0{because}"
                raise ShapeMismatchError(text) from None
            if not holds:
                raise ShapeMismatchError(self.explain(check, env))
        values = {name: env[name] for name in self.symbol_names}
        return values, [tuple(e.evaluate(env) for e in shape) for shape in self.results]

    def _check_static(self, index: int, shape: Sequence[int], want: Sequence[Expr]) -> None:
        where = self._places[index]
        if len(shape) != len(want):
            raise ShapeMismatchError(
                f"{where}: rank is {len(shape)}, but the program takes {shape_text(want)}, rank "
                f"{len(want)}"
            )
        for axis, (size, expected) in enumerate(zip(shape, want, strict=True)):
            if expected.is_const and size != expected.value:
                raise ShapeMismatchError(
                    f"{where}: dimension {axis} is {size}, but the program is compiled for "
                    f"{expected} there: it takes {shape_text(want)}"
                )

    def explain(self, check: Check, env: Mapping[str, int]) -> str:
        """The sentence for a check that fails with these symbols and sizes."""
        if check.argument < 0:
            left, right = check.lhs.evaluate(env), check.rhs.evaluate(env)
            symbols = check.lhs.symbols() | check.rhs.symbols()
            because = self._sources(symbols, env)
            if check.is_choice:  # the value of a product says nothing to a reader
                return f"{check.message}{because}"
            return f"{check.message}: {left} {check.op} {right} does not hold{because}"
        where = self._places[check.argument]
        got = env[size_symbol(check.argument, check.axis)]
        said = f"{where}: dimension {check.axis} is {got}, but"
        dimensions = [s for s in self.steps if not s.is_element]
        if any((s.argument, s.axis) == (check.argument, check.axis) for s in dimensions):
            # Where the symbol is read, only its divisor can be wrong.
            (step,) = (
                s for s in dimensions if (s.argument, s.axis) == (check.argument, check.axis)
            )
            rest = step.offset.symbols()
            return (
                f"{said} it must be {check.rhs} for a whole number {step.symbol}"
                f"{self._sources(rest, env)}"
            )
        atom = check.rhs.lone_atom
        value = f"{check.rhs} = {check.rhs.evaluate(env)}"
        if atom is not None and not atom.op:
            source = next(s for s in self.steps if s.symbol == atom.key)
            return f"{said} {value} ({atom.key} was read from {self._place(source)})"
        return f"{said} {value}{self._sources(check.rhs.symbols(), env)}"

    def _sources(self, symbols: frozenset[str], env: Mapping[str, int]) -> str:
        known = [s for s in self.steps if s.symbol in symbols]
        texts = [f"{s.symbol} = {env[s.symbol]} was read from {self._place(s)}" for s in known]
        return f" ({'; '.join(texts)})" if texts else ""

    def _place(self, step: Solve) -> str:
        part = "element" if step.is_element else "dimension"
        return f"{part} {step.axis} of {self._places[step.argument]}"

    @property
    def _places(self) -> list[str]:
        return [*argument_places(self.names, self.computed)]


def argument_places(names: Sequence[str], computed: Container[int]) -> Iterator[str]:
    """Every argument, for messages."""
    for index, name in enumerate(names):
        yield f"the result of {name}" if index in computed else f"argument {index} ({name!r})"


def shape_text(shape: Sequence[Expr]) -> str:
    """`[b, 2*t]`, for messages."""
    return "[" + ", ".join(map(str, shape)) + "]"
