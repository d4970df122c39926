"""Equations of a jaxpr that call another one: they compute what it computes."""

from __future__ import annotations

from typing import Any

from shlo_disc.jax_private.extend import ClosedJaxpr

CALLS = frozenset(
    (
        "checkpoint",
        "closed_call",
        "composite",
        "core_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "jit",
        "pjit",
        "remat",
        "remat2",
    )
)
"""The names of their primitives."""

_PARAMETERS = ("call_jaxpr", "jaxpr", "fun_jaxpr")


def called(equation: Any) -> Any:
    """The closed jaxpr that an equation of `CALLS` computes."""
    jaxpr = next(equation.params[key] for key in _PARAMETERS if key in equation.params)
    return jaxpr if hasattr(jaxpr, "consts") else ClosedJaxpr(jaxpr, ())
