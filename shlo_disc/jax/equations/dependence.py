"""Which results of a jaxpr depend on which of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import Literal


def dependent(jaxpr: Any, moving: Sequence[bool]) -> tuple[bool, ...]:
    """For every result of a closed jaxpr: False only if no argument in `moving` can change it.

    A call of another jaxpr (`jit`, `custom_jvp`, `checkpoint`) is looked into. Results of loops and
    branches depend on all that goes in.
    """
    inner = jaxpr.jaxpr
    changing = {v for v, moves in zip(inner.invars, moving, strict=True) if moves}
    for equation in inner.eqns:
        given = [_changes(v, changing) for v in equation.invars]
        if not any(given):
            continue
        results: Sequence[bool] = [True] * len(equation.outvars)
        if equation.primitive.name in CALLS:
            results = dependent(called(equation), given)
        changing.update(v for v, moves in zip(equation.outvars, results, strict=True) if moves)
    return tuple(_changes(v, changing) for v in inner.outvars)


def _changes(value: Any, changing: set[Any]) -> bool:
    return not isinstance(value, Literal) and value in changing
