"""States of values while a program is followed along one symbol.

A program is *split along* a symbol `s` if it runs once for each block: each contiguous part of the
indices that `s` counts. The values of the blocks then make the value of the whole in one of four
ways, which is the value's state:

* an axis `k`: concatenated along axis `k`, whose size is `s * c`, with `s` as the slowest index;
* `WHOLE`: each block has the whole value;
* `SUM`: the sum of the values of the blocks;
* `ZERO`: zero everywhere, which is both `WHOLE` and `SUM`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.sizes.symbolic import as_expr
from shlo_disc.jax_private.jaxprs import equation_line
from shlo_disc.jax_private.sizes import DimExpr


class Kind(enum.Enum):
    """States that are no axis."""

    WHOLE = "whole"
    SUM = "sum"
    ZERO = "zero"


WHOLE, SUM, ZERO = Kind.WHOLE, Kind.SUM, Kind.ZERO

State: TypeAlias = int | Kind


class CannotSplitError(Exception):
    """An operation needs more of a dimension than one block."""

    def __init__(self, equation: Any, why: str) -> None:
        super().__init__(f"{equation.primitive.name} {why} ({equation_line(equation)})")


def cofactor(size: Any, symbol: str) -> Expr | None:
    """`c` with `size == symbol * c` and no `symbol` in `c`; None if there is none."""
    size = as_expr(size)
    rest = size.substitute({symbol: 1})
    return rest if size == Expr.symbol(symbol) * rest else None


def mentions(value: Any, symbol: str) -> bool:
    """True if a size in the parameter `value` of an equation, or in its jaxprs, has `symbol`."""
    if isinstance(value, DimExpr):
        return symbol in as_expr(value).symbols()
    if value is None or isinstance(value, (bool, int, float, str, np.dtype, np.ndarray)):
        return False
    if isinstance(value, Mapping):
        return any(mentions(v, symbol) for v in value.values())
    if isinstance(value, (tuple, list)):
        return any(mentions(v, symbol) for v in value)
    inner = getattr(value, "jaxpr", value)
    if hasattr(inner, "eqns"):
        variables = [*inner.invars, *inner.constvars]
        return any(mentions(v.aval.shape, symbol) for v in variables) or any(
            mentions(e.params, symbol) or any(mentions(v.aval.shape, symbol) for v in e.outvars)
            for e in inner.eqns
        )
    # An object of JAX with numbers inside: a symbol of the same name is taken for a size.
    return re.search(rf"\b{re.escape(symbol)}\b", str(value)) is not None


def start_of(shape: Sequence[Any], symbol: str) -> State | None:
    """The state of an argument of this shape; None if `symbol` makes more than blocks of it."""
    axes = [k for k, size in enumerate(shape) if mentions(size, symbol)]
    if not axes:
        return WHOLE
    return axes[0] if len(axes) == 1 and cofactor(shape[axes[0]], symbol) is not None else None


def checked(equation: Any, state: State, shape: Sequence[Any], symbol: str) -> State:
    """`state`, if a value of this shape can be in it; raises CannotSplitError."""
    expected = start_of(shape, symbol)
    fits = isinstance(state, Kind) if expected is WHOLE else state == expected
    if expected is None or not fits:
        raise CannotSplitError(equation, f"makes a result of shape {_text(shape)}")
    return state


def _text(shape: Sequence[Any]) -> str:
    return f"({', '.join(str(as_expr(size)) for size in shape)})"


def plain(states: Sequence[State]) -> bool:
    """True if every block has all of these values."""
    return all(state is WHOLE or state is ZERO for state in states)


def axes_of(states: Sequence[State]) -> set[int]:
    """The axes among the states."""
    return {state for state in states if not isinstance(state, Kind)}


def is_inexact(*variables: Any) -> bool:
    """True if all of these variables are of floating-point or complex numbers."""
    return all(jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in variables)


def joined(equation: Any, states: Sequence[State]) -> State:
    """The state of a value that is any of several values, whichever is chosen."""
    found = [state for state in dict.fromkeys(states) if state is not ZERO]
    if len(found) > 1:
        raise CannotSplitError(equation, "joins values that are split in different ways")
    return found[0] if found else ZERO
