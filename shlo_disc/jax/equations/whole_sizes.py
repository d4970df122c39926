"""A jaxpr with arguments in place of some of the sizes that it uses as numbers.

A block of a program has its own sizes. Where the program divides by a size of the whole, or counts
with it, it is given the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.sizes.symbolic import as_expr
from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import Literal
from shlo_disc.jax_private.jaxprs import bind_equation


def number_types(jaxpr: Any, numbers: Sequence[Expr]) -> list[Any]:
    """The dtypes that a closed jaxpr gives these sizes."""
    found: dict[Expr, Any] = {}
    waiting = [jaxpr.jaxpr]
    while waiting:
        for equation in waiting.pop().eqns:
            if equation.primitive.name == "dim_as_value":
                found[as_expr(equation.params["dim"])] = equation.outvars[0].aval.dtype
            elif equation.primitive.name in CALLS:
                waiting.append(called(equation).jaxpr)
    return [found[size] for size in numbers]


def with_numbers_given(
    jaxpr: Any, arguments: Sequence[Any], numbers: Mapping[Expr, Any]
) -> list[Any]:
    """The results of a closed jaxpr with the scalars `numbers` in place of these sizes.

    Calls (`CALLS`) are looked into, loops are not.
    """
    values = dict(zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True))
    values.update(zip(jaxpr.jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        name = equation.primitive.name
        if name == "dim_as_value" and (size := as_expr(equation.params["dim"])) in numbers:
            results = [numbers[size]]
        elif name in CALLS:
            results = with_numbers_given(called(equation), given, numbers)
        else:
            results = bind_equation(equation, given)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.jaxpr.outvars]
