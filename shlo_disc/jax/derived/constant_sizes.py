"""Which sizes become constants where a rule of JAX refuses symbols."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from shlo_disc.base.errors import ForkError, UnsupportedError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.sizes.messages import ShapeError
from shlo_disc.jax.sizes.nesting import BusyError
from shlo_disc.jax.sizes.symbolic import Question

if TYPE_CHECKING:
    from shlo_disc.jax.derived.program import Program, Sizes

_log = logging.getLogger("shlo_disc")

Make: TypeAlias = "Callable[[Program, frozenset[str]], Any]"
"""Derives something from a program; the set has the symbols added that shall be constants."""

_TRIALS = 6
"""Sizes that are tried one by one as constants when an error of JAX names none."""


class OtherFormError(Exception):
    """A program traced anew is called in another way: JAX keeps other values for a derivative."""


class Anew(Protocol):
    """Traces a program once more."""

    def __call__(self, sizes: Sizes, constants: frozenset[str]) -> Program:
        """The program traced at `sizes`, with the symbols `constants` as these numbers.

        Raises whatever the trace raises, and InconclusiveDimensionOperation for a symbol that the
        user wants to stay one.
        """


def with_constants(
    original: Program,
    key: Any,
    sizes: Sizes,
    make: Make,
    more: tuple[str, ...],
    program: Program,
    error: Exception,
) -> tuple[Program, Any]:
    """What `make` derives with constants for the sizes in JAX's way; raises without any.

    Those the error names are tried first, then those of batches, then each alone. An error that
    stays when all sizes are constants is one of the user's program.
    """
    values = dict(sizes)
    every = frozenset((*program.symbols, *more))
    problem = ShapeError(error, {name: values[name] for name in every})

    def attempt(constants: frozenset[str]) -> tuple[Program, Any]:
        own = constants.difference(more)
        fresh = program.anew(sizes, own) if own else program
        try:
            return fresh, fresh.made(key, values, make, constants.intersection(more))
        except BusyError:
            fresh = program.anew(sizes, own)
            return fresh, fresh.made(key, values, make, constants.intersection(more))

    def first(trials: Iterable[frozenset[str]]) -> tuple[frozenset[str], Program, Any] | None:
        for constants in trials:
            try:
                return constants, *attempt(constants)
            except (UnsupportedError, ForkError):
                raise
            except Exception as other:
                _log.debug("%s: not with %s: %s", original.name, sorted(constants), other)
                if constants == every and not isinstance(other, OtherFormError):
                    other.add_note(f"with symbolic sizes: {error}")
                    raise other from error
        return None

    one = problem.must_be_constant()
    named = one.symbols() if one is not None else every.intersection(problem.named())
    batches = frozenset((*program.batches, *more))
    found = first(s for s in dict.fromkeys((named, batches)) if s and s != every)
    whole = first([every]) if found is None else None
    if found is None and len(every) > 1:
        last = (*program.symbols, *more)[: -_TRIALS - 1 : -1]
        found = first(frozenset([name]) for name in last)
    found = found or whole
    if found is None:
        try:
            raise error
        finally:
            del error, problem  # this frame is in its traceback
    constants, fresh, made = found
    if fresh is not program:
        original.add(fresh)
    original.need(key, constants)
    original.note(
        [
            Question(
                Expr.symbol(name),
                "==",
                Expr.const(values[name]),
                problem.sentence,
                problem.where,
            )
            for name in sorted(constants)
        ]
    )
    _log.warning(
        "%s: %s made a constant in a derived program, compiled again for other values: %s",
        original.name,
        ", ".join(sorted(constants)) + (" is" if len(constants) == 1 else " are"),
        problem.sentence,
    )
    return fresh, made
