"""Equations with symbolic sizes, run by JAX at the sizes of a call.

Parameters of equations hold sizes (`shape`, `length`, inner programs). They are evaluated, and the
equations are bound again. Calls of inner programs run as the equations inside; `custom_jvp` and
`custom_vjp` rules are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from shlo_disc.jax.arguments.leaves import abstract
from shlo_disc.jax.sizes.structure import parts_of
from shlo_disc.jax.sizes.symbolic import as_expr, evaluate
from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import ClosedJaxpr, Literal
from shlo_disc.jax_private.functions_with_sizes import HeldSizes
from shlo_disc.jax_private.jaxprs import bind_equation, is_jaxpr
from shlo_disc.jax_private.sizes import DimExpr, size_as_array

Values = dict[Any, Any]
"""The values of the variables of a jaxpr."""

_CALLBACK = "callback"
"""The parameter of an equation that has a function of Python."""


def run_equations(equations: Sequence[Any], values: Values, sizes: Mapping[str, Any]) -> None:
    """Bind equations once more, with `sizes` for their symbols; the results are put in `values`.

    `sizes`: a number or a symbolic size for every symbol. Raises what JAX raises for these sizes.
    """
    for equation in equations:
        name = equation.primitive.name
        operands = [read(values, atom) for atom in equation.invars]
        if name == "dim_as_value":
            size = _size(equation.params["dim"], sizes)
            dtype = equation.outvars[0].aval.dtype
            is_number = not isinstance(size, DimExpr)
            results = [np.asarray(size, dtype) if is_number else size_as_array(size)]
        elif name in CALLS:
            results = _call(called(equation), operands, sizes)
        else:
            params = {
                key: _function_at(value, sizes) if key == _CALLBACK else _at(value, sizes)
                for key, value in equation.params.items()
            }
            results = bind_equation(equation, operands, params)
        values.update(zip(equation.outvars, results, strict=True))


def closed_at(closed: Any, sizes: Mapping[str, Any]) -> Any:
    """A closed jaxpr traced once more with a number or a symbolic size for every symbol."""

    def run(*arguments: Any) -> list[Any]:
        return _call(closed, arguments, sizes)

    specs = [
        abstract(tuple(_size(s, sizes) for s in aval.shape), aval.dtype, aval.weak_type)
        for aval in closed.in_avals
    ]
    return jax.make_jaxpr(run)(*specs)


def symbols_in(value: Any) -> Iterator[str]:
    """The symbols of all sizes inside a value; inside an equation also those of its types."""
    if isinstance(value, DimExpr):
        yield from value._get_vars()
    elif is_jaxpr(value):
        inner = getattr(value, "jaxpr", value)
        for variable in inner.invars:
            yield from symbols_in(variable.aval)
        for equation in inner.eqns:
            yield from symbols_of(equation)
    elif hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        for size in value.shape:
            yield from symbols_in(size)
    else:
        for part in parts_of(value):
            yield from symbols_in(part)


def symbols_of(equation: Any) -> Iterator[str]:
    """The symbols of an equation: in its parameters, and in the types of its results."""
    for key, value in equation.params.items():
        yield from symbols_in(HeldSizes(value).sizes if key == _CALLBACK else value)
    for variable in equation.outvars:
        yield from symbols_in(variable.aval)


def read(values: Mapping[Any, Any], atom: Any) -> Any:
    """The value of a variable or literal."""
    return atom.val if isinstance(atom, Literal) else values[atom]


def _call(closed: Any, operands: Sequence[Any], sizes: Mapping[str, Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    values: Values = dict(zip(jaxpr.invars, operands, strict=True))
    values.update(zip(jaxpr.constvars, closed.consts, strict=True))
    run_equations(jaxpr.eqns, values, sizes)
    return [read(values, atom) for atom in jaxpr.outvars]


def _size(size: Any, sizes: Mapping[str, Any]) -> Any:
    """A size with others for its symbols."""
    if not isinstance(size, DimExpr):
        return size
    others = [sizes[name] for name in size._get_vars()]
    scope = next((other.scope for other in others if isinstance(other, DimExpr)), None)
    if scope is None:
        return evaluate(size, sizes)
    text = str(as_expr(size).substitute({name: as_expr(sizes[name]) for name in size._get_vars()}))
    return export.symbolic_shape(text, scope=scope)[0]


def _function_at(callback: Any, sizes: Mapping[str, Any]) -> Any:
    held = HeldSizes(callback)
    return held.replaced([_size(size, sizes) for size in held.sizes])


def _at(value: Any, sizes: Mapping[str, Any]) -> Any:
    """A parameter of an equation with other sizes for its symbols."""
    if isinstance(value, DimExpr):
        return _size(value, sizes)
    if next(symbols_in(value), None) is None:
        return value
    if is_jaxpr(value):
        if hasattr(value, "consts"):
            return closed_at(value, sizes)
        found = closed_at(ClosedJaxpr(value, ()), sizes)
        if found.consts:
            raise TypeError("an open jaxpr has constants at these sizes")
        return found.jaxpr
    if hasattr(value, "shape") and hasattr(value, "dtype"):  # an abstract array
        return value.update(shape=tuple(_size(size, sizes) for size in value.shape))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_at(part, sizes) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_at(part, sizes) for part in value)
    raise TypeError(f"a parameter of type {type(value).__name__} holds a symbolic size: {value}")
