"""Variables of the program around a function: tracers of outer traces that the function reads.

Such tracers become further arguments of the function, behind its own. They are found by a trace at
the sizes of the call, so a call passes the variables it reads itself. While the function is traced
with symbols the tracers have symbolic sizes. Nothing here outlives the call that holds the tracers.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from shlo_disc.jax.arguments.leaves import abstract, is_canonical, is_key_dtype, type_of
from shlo_disc.jax.calls.call import Blueprint, Call, Options
from shlo_disc.jax.sizes.fresh import FreshSizes, assuming
from shlo_disc.jax.sizes.marks import marking
from shlo_disc.jax.sizes.nesting import PartOfOuterError, nested
from shlo_disc.jax_private.extend import jaxpr_as_fun
from shlo_disc.jax_private.jaxprs import are_plain, closed_over, retyped
from shlo_disc.jax_private.states import checking


class Hoisted(NamedTuple):
    """A function whose arguments are its leaves and the captured variables, all of them arrays."""

    jitted: Any
    """Holds neither the function it was traced from nor the tracers."""
    traced: Any
    """Its trace, a `jax.stages.Traced`."""


def with_captured(options: Options, call: Call) -> Call:
    """The call with the tracers of outer traces that it reads as further leaves.

    It also has the program at its own sizes, `at_numbers`. Raises what the function raises when it
    is traced, and PartOfOuterError for a tracer that is no array.
    """
    fresh = FreshSizes()
    with nested(), marking(), checking(True), assuming(fresh):
        # Not by `options.jitted`: JAX would keep the tracers, and give them to the next trace.
        traced = _flat(options, call.blueprint()).trace(*_specs(call.types))
        tracers = [value for value in closed_over(traced) if isinstance(value, jax.core.Tracer)]
        if not tracers:
            call.at_numbers = None if fresh.assumed else traced
            return call
        for tracer in tracers:
            _refuse(options.name, tracer)
        call = call.capturing(tracers, _names(options.function, tracers))
        specs = _specs(call.types)
        if are_plain(tracers):
            call.at_numbers = _hoisted(options.name, call.captured, traced, specs).traced
        else:
            call.at_numbers = hoisted(options, call.blueprint(), specs).traced
    return call


def _refuse(name: str, tracer: Any) -> None:
    """Raise PartOfOuterError for what cannot be an argument."""
    type_ = type_of(tracer)
    if type_ is None or not (is_key_dtype(type_[1]) or is_canonical(type_[1])):
        raise PartOfOuterError(
            f"{name} reads a value of the program around it that is "
            f"{'no array' if type_ is None else f'of dtype {type_[1]} while x64 is off'}"
        )


def hoisted(options: Options, blueprint: Blueprint, specs: Sequence[Any]) -> Hoisted:
    """The function of a call with captured variables, traced with abstract arrays.

    `specs`: of the call's own leaves, and of the captured variables. Raises what the function
    raises, and PartOfOuterError if it reads other variables than at the sizes of the call.
    """
    captured = blueprint.captured
    own = specs[: len(specs) - len(captured)]
    # No key of JAX's caches has the sizes of a captured variable: every trace has a key of its own.
    with retyped(captured, specs[len(own) :]), checking(object()):
        traced = _flat(options, blueprint).trace(*own)
    return _hoisted(options.name, captured, traced, specs)


def _hoisted(name: str, captured: Sequence[Any], traced: Any, specs: Sequence[Any]) -> Hoisted:
    """`traced` with arguments for the tracers it closes over; constant arrays stay constants."""
    count = len(specs) - len(captured)
    place = {id(tracer): count + k for k, tracer in enumerate(captured)}
    sources: list[tuple[int | None, Any]] = []
    for value in closed_over(traced):
        if not isinstance(value, jax.core.Tracer):
            sources.append((None, value))
        elif id(value) in place:
            sources.append((place[id(value)], None))
        else:
            raise PartOfOuterError(
                f"{name} reads other variables of the program around it at other sizes"
            )
    run, tree = jaxpr_as_fun(traced.jaxpr), traced.out_tree

    def function(*arguments: Any) -> Any:
        closed = [value if index is None else arguments[index] for index, value in sources]
        return jax.tree.unflatten(tree, run(*closed, *arguments[:count]))

    function.__name__ = function.__qualname__ = name
    jitted = jax.jit(function, keep_unused=True)
    return Hoisted(jitted, jitted.trace(*specs))


def _flat(options: Options, blueprint: Blueprint) -> Any:
    """`jax.jit` of the function as one of its own leaves; for a single trace."""
    function = options.function

    def run(*leaves: Any) -> Any:
        args, kwargs = blueprint.with_leaves(leaves)
        return function(*args, **kwargs)

    run.__name__ = run.__qualname__ = options.name
    return jax.jit(run, keep_unused=True)


def _specs(types: Sequence[tuple[Any, Any, bool]]) -> list[Any]:
    return [abstract(*type_) for type_ in types]


def _names(function: Callable[..., Any], tracers: Sequence[Any]) -> list[str]:
    """Names of captured variables for messages: `params['w']` of the enclosing function."""
    inner = inspect.unwrap(function)
    owner = getattr(inner, "__self__", None)
    values = {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    cells = getattr(getattr(inner, "__func__", inner), "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    known: dict[int, str] = {}
    for name, value in values.items():
        # A structure that JAX cannot flatten has no names inside: nothing else depends on them.
        with contextlib.suppress(Exception):
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                known.setdefault(id(leaf), name + jax.tree_util.keystr(path))
    return [known.get(id(tracer), f"captured[{k}]") for k, tracer in enumerate(tracers)]
