"""A program for one block, in stages: between them the blocks add up what is a sum over all.

A training step in which blocks have parts of the batch is two stages: the gradients are added up,
then the parameters change. Sizes of the whole that the program uses as numbers are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from shlo_disc.base.records import dataclass
from shlo_disc.jax.arguments.leaves import abstract
from shlo_disc.jax.derived.splits.splits import Split, split_along
from shlo_disc.jax.equations.whole_sizes import number_types, with_numbers_given
from shlo_disc.jax_private.extend import Literal
from shlo_disc.jax_private.jaxprs import bind_equation

Derive = Callable[[Callable[..., Any], Sequence[Any], int], Any]
"""Makes a program of a function, the types of its arguments, and the number of its stage."""


@dataclass(frozen=True)
class Stage:
    """A part of a program."""

    program: Any
    inputs: tuple[Any, ...]
    """Variables that are its arguments."""
    outputs: tuple[Any, ...]
    """Variables that it computes for later stages and for the results."""


class Staged:
    """The stages of a program.

    `jaxpr`: closed, with symbolic sizes; `splits`: some of its splits.
    """

    def __init__(self, jaxpr: Any, splits: Sequence[Split], derive: Derive) -> None:
        self.numbers = sorted({size for split in splits for size in split.numbers}, key=str)
        """Sizes that are arguments behind those of the program."""
        self.types = number_types(jaxpr, self.numbers)
        avals = list(jaxpr.in_avals)

        def flat(*arguments: Any) -> list[Any]:
            given = dict(zip(self.numbers, arguments[len(avals) :], strict=True))
            return with_numbers_given(jaxpr, arguments[: len(avals)], given)

        specs = [abstract(aval.shape, aval.dtype) for aval in avals]
        specs += [abstract((), dtype) for dtype in self.types]
        self._flat = jax.jit(flat, keep_unused=True).trace(*specs).jaxpr
        inner = self._flat.jaxpr
        self.arguments = tuple(inner.invars)
        self.results = tuple(inner.outvars)
        """Variables, or numbers (`Literal`)."""
        found = [split_along(self._flat, split.symbol) for split in splits]
        self.splits = {split.symbol: split for split in found if isinstance(split, Split)}
        cuts = frozenset(v for split in self.splits.values() for v in split.cuts)
        self.stages = []
        for number, (equations, inputs, outputs) in enumerate(_parts(inner, cuts)):
            function = _function(self._flat, equations, inputs, outputs)
            program = derive(function, [v.aval for v in inputs], number)
            self.stages.append(Stage(program, inputs, outputs))

    def value(self, variable: Any, values: Mapping[Any, Any]) -> Any:
        """What a result is, given the values of variables."""
        if isinstance(variable, Literal):
            aval: Any = variable.aval
            return np.asarray(variable.val, aval.dtype)
        return values[variable]

    def number_values(self, values: dict[str, int]) -> list[Any]:
        """The arguments that stand for `numbers`, for these values of the symbols."""
        pairs = zip(self.numbers, self.types, strict=True)
        return [np.asarray(size.evaluate(values), dtype) for size, dtype in pairs]


_Part = tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]


def _parts(jaxpr: Any, cuts: frozenset[Any]) -> list[_Part]:
    """The equations of each stage, the variables that they read, and those that others read."""
    level: dict[Any, int] = {}
    rows: list[list[Any]] = [[]]
    for equation in jaxpr.eqns:
        read = [v for v in equation.invars if not isinstance(v, Literal)]
        stage = max((level.get(v, 0) + (v in cuts) for v in read), default=0)
        level.update(dict.fromkeys(equation.outvars, stage))
        rows += [[] for _ in range(stage + 1 - len(rows))]
        rows[stage].append(equation)
    constants = set(jaxpr.constvars)
    parts: list[_Part] = []
    wanted = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    for row in reversed(rows):
        made = [v for equation in row for v in equation.outvars]
        read = [v for e in row for v in e.invars if not isinstance(v, Literal)]
        inside, kept = set(made) | constants, tuple(v for v in made if v in wanted)
        inputs = tuple(v for v in dict.fromkeys(read) if v not in inside)
        parts.insert(0, (row, inputs, kept))
        wanted |= set(inputs)
    return parts


def _function(
    jaxpr: Any, equations: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> Callable[..., list[Any]]:
    """What a stage computes."""
    constants = dict(zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True))

    def run(*arguments: Any) -> list[Any]:
        values = {**constants, **dict(zip(inputs, arguments, strict=True))}
        for equation in equations:
            given = [v.val if isinstance(v, Literal) else values[v] for v in equation.invars]
            values.update(zip(equation.outvars, bind_equation(equation, given), strict=True))
        return [values[v] for v in outputs]

    return run
