"""Which arguments of a function are parameters, by how the function uses them.

A compiler does better with a hidden size it knows (tiles without tails, packed weights), and sizes
of parameters hardly ever change between calls. An argument with many leaves may be parameters, a
cache of keys and values, or a batch with many features. Weights are told apart by their use: they
are right operands of products without batch dimensions, kernels of convolutions, tables that are
gathered from, or are broadcast along the dimensions of data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shlo_disc.jax_private.calls import CALLS, called
from shlo_disc.jax_private.extend import Literal

_VIEWS = frozenset(
    (
        "reshape", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p", "slice",
        "dynamic_slice", "transpose", "optimization_barrier", "stop_gradient", "name",
    )
)  # fmt: skip
"""Operations whose result is still the same weight."""


def weights(jaxpr: Any) -> set[int]:
    """The arguments of a closed jaxpr that are used as weights."""
    found: set[int] = set()
    inner = jaxpr.jaxpr
    _follow(inner, {variable: k for k, variable in enumerate(inner.invars)}, found)
    return found


def _follow(jaxpr: Any, origin: dict[Any, int], found: set[int]) -> None:
    """Add to `found` the origins that are used as weights; `origin` grows by views of them."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        operands = [_origin(origin, atom) for atom in equation.invars]
        if all(operand is None for operand in operands):
            continue
        if name in CALLS or name in ("scan", "while", "cond"):
            for body, inputs in _bodies(name, equation, operands):
                inside = {v: k for v, k in zip(body.invars, inputs, strict=True) if k is not None}
                _follow(body, inside, found)
                if name in CALLS:
                    for result, atom in zip(equation.outvars, body.outvars, strict=True):
                        if (source := _origin(inside, atom)) is not None:
                            origin[result] = source
        elif name in _VIEWS:
            if operands[0] is not None:
                origin[equation.outvars[0]] = operands[0]
        else:
            found.update(k for k in _used_as_weights(name, equation, operands) if k is not None)


def _origin(origin: Mapping[Any, int], atom: Any) -> int | None:
    return None if isinstance(atom, Literal) else origin.get(atom)


def _used_as_weights(name: str, equation: Any, operands: Sequence[int | None]) -> list[int | None]:
    if name == "dot_general":
        _, (batch, _) = equation.params["dimension_numbers"]
        return [] if batch else [operands[1]]
    if name == "conv_general_dilated":
        return [operands[1]]
    if name == "gather":
        return [operands[0]]
    if name == "broadcast_in_dim" and equation.invars[0].aval.ndim < equation.outvars[0].aval.ndim:
        return [operands[0]]
    return []


def _bodies(
    name: str, equation: Any, operands: Sequence[int | None]
) -> list[tuple[Any, Sequence[int | None]]]:
    params = equation.params
    if name == "cond":
        return [(branch.jaxpr, operands[1:]) for branch in params["branches"]]
    if name == "while":
        first = params["cond_nconsts"]
        return [(params["body_jaxpr"].jaxpr, operands[first:])]
    body = params["jaxpr"] if name == "scan" else called(equation)
    return [(body.jaxpr, operands)]
