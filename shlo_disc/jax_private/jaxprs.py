"""Jaxprs and their equations, tracers, and rules for primitives of ours."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
from jax._src import checkify as _checkify
from jax._src import core as _core
from jax._src import source_info_util as _source_info
from jax._src import util as _util
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import partial_eval as _partial_eval
from jax._src.shard_map import shard_map_p as _shard_map_p

from shlo_disc.jax_private.extend import ClosedJaxpr, Jaxpr

Unseen = _source_info.JaxStackTraceBeforeTransformation
"""The cause of an error that nobody sees: JAX takes 6 ms to add the lines of the program.

Each error needs its own: JAX keeps an error where its cause is.
"""


def is_jaxpr(value: Any) -> bool:
    """True for a jaxpr, open or closed."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))  # one class since JAX 0.12


def jaxprs_inside(equation: Any) -> Iterator[Any]:
    """The open jaxprs in the parameters of an equation."""
    yield from _core.jaxprs_in_params(equation.params)


def equation_line(equation: Any) -> str:
    """`model.py:7`: the line of the program an equation comes from."""
    return _source_info.summarize(equation.source_info).split(" (")[0]


def without_mesh() -> Any:
    """A context in which types of arrays name no mesh."""
    mesh: Any = jax.sharding.AbstractMesh
    context: Any = jax.sharding.use_abstract_mesh
    return context(mesh((), ()))


def bind_equation(
    equation: Any, arguments: Sequence[Any], params: Mapping[str, Any] | None = None
) -> list[Any]:
    """The results of an equation for these arguments, under the transformations in force.

    The mesh under which it was traced is left. `params`: other parameters than its own.
    """
    info = equation.source_info
    name_stack = _source_info.current_name_stack() + info.name_stack
    user = _source_info.user_context(info.traceback, name_stack=name_stack)
    with user, equation.ctx.manager, without_mesh():
        primitive = equation.primitive
        given = primitive.get_bind_params(equation.params if params is None else params)
        results = primitive.bind(*arguments, **given)
    return list(results) if primitive.multiple_results else [results]


def scan_operands(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a `scan` equation are constants of its body, and how many its state."""
    if "ft_in" in params:  # since JAX 0.11
        fixed, state, _ = params["ft_in"].unpack()
        return len(list(fixed)), len(list(state))
    return params["num_consts"], params["num_carry"]


def closed_over(traced: Any) -> list[Any]:
    """The values that became the first arguments of `traced.jaxpr`: those of outer traces.

    Constant arrays are among them where one is a tracer; without tracers the list is empty.
    """
    return list(traced._consts)


def are_plain(tracers: Sequence[Any]) -> bool:
    """True if shape, dtype and weak type are all that the tracers are: no mesh, no axes."""
    return all(tracer.aval == _plain(tracer) for tracer in tracers)


def _plain(spec: Any) -> Any:
    return shaped_array(spec.shape, spec.dtype, weak_type=spec.weak_type)


@contextmanager
def retyped(tracers: Sequence[Any], specs: Sequence[Any]) -> Iterator[None]:
    """Inside, each tracer has the shape, dtype and weak type of its spec, and no other property.

    For functions that are traced inside and read the tracers; no equation of the trace that a
    tracer belongs to may be made meanwhile.
    """
    before = [tracer.aval for tracer in tracers]
    try:
        for tracer, spec in zip(tracers, specs, strict=True):
            tracer.aval = _plain(spec)
        yield
    finally:
        for tracer, aval in zip(tracers, before, strict=True):
            tracer.aval = aval


def named_axes(jaxpr: Any) -> frozenset[Any]:
    """The names of axes of outer programs (`vmap`, `shard_map`) that a jaxpr speaks of.

    Effects tell most; some collectives have none in JAX (`ppermute`).
    """
    names = {effect.name for effect in jaxpr.effects if isinstance(effect, _core.NamedAxisEffect)}
    if not any("axis_name" in equation.params for equation in equations_of(jaxpr)):
        return frozenset(names)
    todo = [getattr(jaxpr, "jaxpr", jaxpr)]
    while todo:
        for equation in todo.pop().eqns:
            if equation.primitive is _shard_map_p:  # names axes of its own inside
                continue
            given = equation.params.get("axis_name", ())
            given = given if isinstance(given, (tuple, list, frozenset)) else (given,)
            names.update(name for name in given if not isinstance(name, int))
            todo += list(jaxprs_inside(equation))
    return frozenset(names)


def batched_by(primitive: Any, rule: Callable[..., tuple[list[Any], list[int | None]]]) -> None:
    """Let `rule(axis_name, size, arguments, axes, **parameters)` batch `primitive`.

    `axis_name` is None for an axis without a name; at least one argument is batched.
    """

    def batch(data: Any, arguments: Any, axes: Any, **parameters: Any) -> Any:
        if all(axis is None for axis in axes):
            results = primitive.bind(*arguments, **parameters)
            return results, [None] * len(results)
        name = None if data.name is _core.no_axis_name else data.name
        return rule(name, data.size, arguments, axes, **parameters)

    _batching.fancy_primitive_batchers[primitive] = batch


shaped_array = _core.ShapedArray
"""`(shape, dtype, weak_type) -> aval`."""


def inputs_used(jaxpr: Any) -> list[bool]:
    """Which arguments of a closed jaxpr something needs; `jax.jit` drops the others."""
    closed = getattr(jaxpr, "jaxpr", jaxpr)
    with jax.enable_checks(False):  # sizes may be equal by guards, of which a jaxpr says nothing
        used: list[bool] = _partial_eval.dce_jaxpr(closed, [True] * len(closed.outvars))[1]
    return used


_CHECKS_HAVE_CONTEXT = "ctx" in inspect.signature(_checkify.checkify_jaxpr).parameters


def check_by_jaxpr(primitive: Any, jaxpr_of: Callable[..., Any]) -> None:
    """Let `checkify` look for errors of arithmetic and places in `jaxpr_of(**parameters)`.

    The jaxpr computes what `primitive` does with these parameters. Without such errors to look for
    the primitive runs as it is: it has no checks of the user's inside.
    """

    def rule(*arguments: Any, **parameters: Any) -> Any:
        count = 3 if _CHECKS_HAVE_CONTEXT else 2  # since JAX 0.12
        *context, error, errors = arguments[:count]
        values = arguments[count:]
        if errors <= _checkify.user_checks:
            return error, primitive.bind(*values, **parameters)
        return _checkify.checkify_jaxpr(*context, jaxpr_of(**parameters), errors, error, *values)

    _checkify.error_checks[primitive] = rule


Traceback = type(_source_info.current().traceback)
"""Where a value was computed."""

_EACH = 1 << 10
"""Codes of errors for each function: only errors of one result need different ones."""
_blocks = itertools.count(_EACH)
_own_codes: ContextVar[Iterator[int] | None] = ContextVar("codes of errors", default=None)
_next_code = _checkify.next_code


def _code() -> int:
    own = _own_codes.get()
    return int(_next_code()) if own is None else next(own)


_checkify.next_code = _code


def first_error_code() -> int:
    """The first of the codes that :func:`error_codes` may give to errors of a function."""
    return next(_blocks) * _EACH


@contextmanager
def error_codes(first: int) -> Iterator[None]:
    """`checkify` numbers errors from `first` on, as in another trace of the same function.

    A trace inside goes on with the numbers of the one around it.
    """
    token = _own_codes.set(_own_codes.get() or itertools.count(first))
    try:
        yield
    finally:
        _own_codes.reset(token)


def equations_of(jaxpr: Any) -> tuple[Any, ...]:
    """Every equation of a jaxpr and of those nested in it.

    The equations of a jaxpr that two equations hold occur twice.
    """
    found: tuple[Any, ...] = _equations_of(getattr(jaxpr, "jaxpr", jaxpr))
    return found


def _all_equations(jaxpr: Any) -> tuple[Any, ...]:
    found, todo = [], [jaxpr]
    while todo:
        inner = todo.pop()
        found += inner.eqns
        for equation in inner.eqns:
            todo += jaxprs_inside(equation)
    return tuple(found)


_FEW = 8
"""Jaxprs whose equations are kept: a first call asks several times for those of one."""

by_jaxpr: Any = functools.partial(_util.weakref_lru_cache, maxsize=_FEW, trace_context_in_key=False)
"""A decorator of functions of one open jaxpr: their last results are kept, as long as it lives."""

_equations_of = by_jaxpr(_all_equations)
