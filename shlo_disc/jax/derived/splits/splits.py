"""Along which symbols a program may be split, and what becomes of its arguments and results.

:func:`split_along` follows the states of values (`states.py`) through a jaxpr with symbolic
sizes. If every operation has a rule for what it is given, the program computes the same from blocks
as from the whole, at all sizes that its guards allow. So a program that may be split along each of
several symbols may be split along all of them.

Two things may be wanted from other blocks. A size that the program uses as a number (`x / n`) is
that of the whole; `Split.numbers` lists such sizes. A `SUM` that the program uses in another way
than a sum is added up over the blocks first; `Split.cuts` lists such values. `staged.py` makes a
program with both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.derived.splits.rules import RULES
from shlo_disc.jax.derived.splits.states import (
    SUM,
    WHOLE,
    ZERO,
    CannotSplitError,
    Kind,
    State,
    checked,
    joined,
    mentions,
    plain,
    start_of,
)
from shlo_disc.jax.sizes.symbolic import as_expr
from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import Literal
from shlo_disc.jax_private.jaxprs import scan_operands


@dataclass(frozen=True)
class Split:
    """How a program is split along one symbol."""

    symbol: str
    arguments: tuple[State, ...]
    results: tuple[State, ...]
    numbers: frozenset[Expr]
    """Sizes with the symbol that the program uses as numbers."""
    cuts: frozenset[Any]
    """Variables that are `SUM` until they are added up over the blocks, and `WHOLE` then."""

    @property
    def states(self) -> tuple[State, ...]:
        """Those of arguments, then those of results."""
        return self.arguments + self.results


def split_along(jaxpr: Any, symbol: str) -> Split | str:
    """The split of a closed jaxpr along `symbol`, or the reason why there is none.

    The symbol is at least 1 in each block.
    """
    given: list[State] = []
    for index, aval in enumerate(jaxpr.in_avals):
        state = start_of(aval.shape, symbol)
        if state is None:
            return f"argument {index} has more dimensions of {symbol}, or not a multiple of it"
        given.append(state)
    cuts: set[Any] = set()
    while True:
        follow = _Follow(symbol, cuts)
        try:
            results = follow.run(jaxpr.jaxpr, given)
        except CannotSplitError as why:
            return str(why)
        if follow.wanted <= cuts:
            break
        cuts |= follow.wanted  # all that reads such a value reads the whole of it
    states = tuple(WHOLE if state is ZERO else state for state in results)
    added = frozenset(follow.added)
    return Split(symbol, tuple(given), states, frozenset(follow.numbers), added)


class _Follow:
    """Follows states along one symbol."""

    def __init__(self, symbol: str, cuts: set[Any]) -> None:
        self._symbol = symbol
        self._loops = 0
        self._cuts = cuts
        self.numbers: set[Expr] = set()
        self.wanted: set[Any] = set()
        """Variables of sums that something wants the whole of."""
        self.added: set[Any] = set()
        """Those of `cuts` that are sums."""

    def run(self, jaxpr: Any, given: Sequence[State]) -> list[State]:
        """The states of a jaxpr's results; raises CannotSplitError."""
        states: dict[Any, State] = dict.fromkeys(jaxpr.constvars, WHOLE)
        states.update(zip(jaxpr.invars, given, strict=True))

        def read(atom: Any) -> State:
            if isinstance(atom, Literal):
                return _number(atom.val)
            if states[atom] is SUM and atom in self._cuts and not self._loops:
                self.added.add(atom)
                return WHOLE
            return states[atom]

        for equation in jaxpr.eqns:
            known = [read(atom) for atom in equation.invars]
            try:
                found = self._equation(equation, known)
            except CannotSplitError:
                if SUM not in known or self._loops:
                    raise
                pairs = zip(equation.invars, known, strict=True)
                self.wanted.update(atom for atom, state in pairs if state is SUM)
                wholes = [WHOLE if state is SUM else state for state in known]
                found = self._equation(equation, wholes)
            for variable, state in zip(equation.outvars, found, strict=True):
                states[variable] = checked(equation, state, variable.aval.shape, self._symbol)
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, given: list[State]) -> Sequence[State]:
        name = equation.primitive.name
        if name in CALLS:
            return self.run(called(equation).jaxpr, given)
        if name in _CONTROL:
            return _CONTROL[name](self, equation, given)
        if name == "dim_as_value":
            return self._size(equation)
        uses = any(mentions(value, self._symbol) for value in equation.params.values())
        if plain(given) and name in _REPEATING:
            return self._repeated(equation, given)
        if name in RULES and (not uses or self._may_use(equation, given)):
            return RULES[name](equation, given)
        if plain(given) and not uses:
            return [WHOLE] * len(equation.outvars)
        raise CannotSplitError(equation, f"uses {self._symbol}")

    def _size(self, equation: Any) -> list[State]:
        size = equation.params["dim"]
        if mentions(size, self._symbol):
            if self._loops:
                raise CannotSplitError(equation, f"uses the number {self._symbol} in a loop")
            self.numbers.add(as_expr(size))
        return [WHOLE]

    def _repeated(self, equation: Any, given: Sequence[State]) -> list[State]:
        """An array made alike in every block."""
        (variable,) = equation.outvars
        state = start_of(variable.aval.shape, self._symbol)
        if state is None:
            raise CannotSplitError(equation, f"makes a shape with more than {self._symbol}")
        if equation.params.get("dimension", -1) == state:
            raise CannotSplitError(equation, "counts along the dimension")
        return [given[0]] if state is WHOLE and given else [state]

    def _may_use(self, equation: Any, given: Sequence[State]) -> bool:
        """True if sizes among the parameters show in the result's shape, or a rule tests them."""
        name, params = equation.primitive.name, equation.params
        if name == "slice":
            return all(
                axis == given[0]
                or not any(
                    mentions(params[key][axis], self._symbol)
                    for key in ("start_indices", "limit_indices", "strides")
                    if params[key]
                )
                for axis in range(len(params["start_indices"]))
            )
        return name in _SIZES_ARE_SHAPES

    # -- control flow -----------------------------------------------------------------------------

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """In a jaxpr of control flow, where blocks are on their own."""
        self._loops += 1
        try:
            yield
        finally:
            self._loops -= 1

    def _rounds(
        self,
        equation: Any,
        carried: Sequence[State],
        body: Callable[[Sequence[State]], list[State]],
    ) -> tuple[list[State], list[State]]:
        """What a loop carries in every round, and the states of all that its body then returns."""
        while True:
            with self._inside():
                results = body(carried)
            pairs = zip(carried, results[: len(carried)], strict=True)
            new = [joined(equation, pair) for pair in pairs]
            if new == list(carried):
                return new, results
            carried = new

    def scan(self, equation: Any, given: Sequence[State]) -> list[State]:
        """`lax.scan`: arrays that are scanned lose their first dimension in the body."""
        params = equation.params
        if mentions(params["length"], self._symbol):
            raise CannotSplitError(equation, "runs along the dimension")
        constants, count = scan_operands(params)
        fixed, carried = given[:constants], given[constants : constants + count]
        steps = [s if isinstance(s, Kind) else s - 1 for s in given[constants + count :]]
        body = params["jaxpr"].jaxpr
        carried, results = self._rounds(
            equation, carried, lambda states: self.run(body, [*fixed, *states, *steps])
        )
        stacked = [s if isinstance(s, Kind) else s + 1 for s in results[count:]]
        return [*carried, *stacked]

    def while_loop(self, equation: Any, given: Sequence[State]) -> list[State]:
        """`lax.while_loop`: every block must go on as long."""
        params = equation.params
        tests, rest = params["cond_nconsts"], params["body_nconsts"]
        fixed = given[tests : tests + rest]
        carried, _ = self._rounds(
            equation,
            given[tests + rest :],
            lambda states: self.run(params["body_jaxpr"].jaxpr, [*fixed, *states]),
        )
        with self._inside():
            go_on = self.run(params["cond_jaxpr"].jaxpr, [*given[:tests], *carried])
        if not plain(go_on):
            raise CannotSplitError(equation, "goes on as the values of a block say")
        return carried

    def cond(self, equation: Any, given: Sequence[State]) -> list[State]:
        """`lax.cond`: every block must take the same branch."""
        if not plain(given[:1]):
            raise CannotSplitError(equation, "branches as the values of a block say")
        with self._inside():
            rows = [self.run(branch.jaxpr, given[1:]) for branch in equation.params["branches"]]
        return [joined(equation, states) for states in zip(*rows, strict=True)]


_CONTROL: Mapping[str, Callable[[_Follow, Any, Sequence[State]], Sequence[State]]] = {
    "scan": _Follow.scan,
    "while": _Follow.while_loop,
    "cond": _Follow.cond,
}

_REPEATING = frozenset({"broadcast_in_dim", "iota"})

_SIZES_ARE_SHAPES = frozenset(
    {"broadcast_in_dim", "reshape", "dynamic_slice", "gather", "split", "iota"}
)


def _number(value: Any) -> State:
    return ZERO if np.ndim(value) == 0 and not np.any(value) else WHOLE
