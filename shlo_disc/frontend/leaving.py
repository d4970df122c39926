"""Programs that call back into Python in branches that calls seldom take.

`equinox.error_if`, and with it diffrax and optimistix, raises its error by a `jax.pure_callback` in
a branch. Such a program is compiled without the callback: it has one more result, which tells that
a branch with a callback was taken. The call is then made anew, as `jax.jit` makes it. A program is
a pure function, so nothing is seen of the first attempt.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxpr_as_fun

from shlo_disc.errors import UnsupportedError
from shlo_disc.frontend.at_sizes import read
from shlo_disc.frontend.calls import CALLS, called
from shlo_disc.jax_private import bind_equation, equations_of, jaxprs_inside, scan_operands

__all__ = ["CallbackError", "leaving"]

_CALLBACK = "pure_callback"


class CallbackError(UnsupportedError):
    """A program calls back into Python."""


def leaving(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without its callbacks: `arguments -> (left, results)`.

    `left`: a branch with a `jax.pure_callback` was taken; the results mean nothing then. Raises
    CallbackError when traced, for a callback that every call makes and for one in a place that is
    not looked into.
    """

    @functools.wraps(function)
    def apart(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [k for k, x in enumerate(leaves) if isinstance(x, jax.Array)]

        def flat(*arrays: Any) -> Any:
            whole = list(leaves)
            for k, x in zip(dynamic, arrays, strict=True):
                whole[k] = x
            args, kwargs = jax.tree.unflatten(tree, whole)
            return function(*args, **kwargs)

        arrays = [leaves[k] for k in dynamic]
        jaxpr, shapes = jax.make_jaxpr(flat, return_shape=True)(*arrays)
        left, results = _run(jaxpr.jaxpr, jaxpr.consts, arrays, in_branch=False)
        return left, jax.tree.unflatten(jax.tree.structure(shapes), results)

    return apart


def _run(
    jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], in_branch: bool
) -> tuple[Any, list[Any]]:
    """(a callback was left out, the results) of a jaxpr."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    left: Any = jnp.zeros((), bool)
    for equation in jaxpr.eqns:
        given = [read(values, atom) for atom in equation.invars]
        if equation.primitive.name == _CALLBACK or _calls_back(equation):
            more, results = _without(equation, given, in_branch)
            left |= more
        else:
            results = bind_equation(equation, given)
        values.update(zip(equation.outvars, results, strict=True))
    return left, [read(values, atom) for atom in jaxpr.outvars]


def _calls_back(equation: Any) -> bool:
    return any(
        inner.primitive.name == _CALLBACK
        for jaxpr in jaxprs_inside(equation)
        for inner in equations_of(jaxpr)
    )


def _without(equation: Any, given: list[Any], in_branch: bool) -> tuple[Any, list[Any]]:
    """The same of an equation that calls back, or holds one that does."""
    name, params = equation.primitive.name, equation.params
    if name == _CALLBACK:
        if not in_branch:
            raise CallbackError("jax.pure_callback outside a branch")
        avals = [variable.aval for variable in equation.outvars]
        return jnp.ones((), bool), [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
    if name in CALLS:
        inner = called(equation)
        return _run(inner.jaxpr, inner.consts, given, in_branch)
    if name == "cond":
        branches = [_branch(branch) for branch in params["branches"]]
        left, results = lax.switch(given[0], branches, *given[1:])
        return left, results
    if name == "while":
        return _while(params, given, in_branch)
    if name == "scan":
        return _scan(params, given, in_branch)
    raise CallbackError(f"jax.pure_callback inside {name}")


def _branch(closed: Any) -> Callable[..., Any]:
    return lambda *given: _run(closed.jaxpr, closed.consts, given, in_branch=True)


def _while(params: Any, given: list[Any], in_branch: bool) -> tuple[Any, list[Any]]:
    """A loop that ends where it leaves: what goes on has no meaning, and might never end."""
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    if any(eqn.primitive.name == _CALLBACK or _calls_back(eqn) for eqn in condition.jaxpr.eqns):
        raise CallbackError("jax.pure_callback in the condition of a loop")
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def go(state: Any) -> Any:
        left, carried = state
        (more,) = jaxpr_as_fun(condition)(*given[:first], *carried)
        return more & ~left

    def step(state: Any) -> Any:
        left, carried = state
        arguments = [*given[first:second], *carried]
        more, results = _run(body.jaxpr, body.consts, arguments, in_branch)
        return left | more, results

    return lax.while_loop(go, step, (jnp.zeros((), bool), given[second:]))


def _scan(params: Any, given: list[Any], in_branch: bool) -> tuple[Any, list[Any]]:
    fixed, carried = scan_operands(params)
    body = params["jaxpr"]

    def step(state: Any, row: Any) -> Any:
        left, values = state
        arguments = [*given[:fixed], *values, *row]
        more, results = _run(body.jaxpr, body.consts, arguments, in_branch)
        return (left | more, results[:carried]), results[carried:]

    (left, last), rows = lax.scan(
        step,
        (jnp.zeros((), bool), given[fixed : fixed + carried]),
        given[fixed + carried :],
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return left, [*last, *rows]
