"""Which results of a jaxpr depend on which of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

__all__ = ["dependent"]


def dependent(jaxpr: Any, moving: Sequence[bool]) -> tuple[bool, ...]:
    """For every result of a closed jaxpr: False only if no argument in `moving` can change it.

    A call of another jaxpr (`jit`, `custom_jvp`, `checkpoint`) is looked into. Results of loops and
    branches depend on all that goes in.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    changing = {v for v, moves in zip(inner.invars, moving, strict=True) if moves}
    for equation in inner.eqns:
        given = [_changes(v, changing) for v in equation.invars]
        if not any(given):
            continue
        called = _called(equation)
        results = [True] * len(equation.outvars) if called is None else dependent(called, given)
        changing.update(v for v, moves in zip(equation.outvars, results, strict=True) if moves)
    return tuple(_changes(v, changing) for v in inner.outvars)


def _changes(value: Any, changing: set[Any]) -> bool:
    return not isinstance(value, core.Literal) and value in changing


_CALLS = {
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "jit": "jaxpr",
    "remat2": "jaxpr",
}
"""Name of a primitive that computes what a jaxpr does -> the parameter that holds the jaxpr."""


def _called(equation: Any) -> Any:
    """The jaxpr that an equation is a call of; None for all others."""
    return equation.params.get(_CALLS.get(equation.primitive.name, ""))
