"""A function traced with symbols, and compared with a trace at the sizes of a call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import jax

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.jax.arguments.leaves import abstract
from shlo_disc.jax.arguments.plan import Pattern, Shapes
from shlo_disc.jax.calls.call import Blueprint, Call, Options
from shlo_disc.jax.calls.captured import hoisted
from shlo_disc.jax.calls.lowered import LoweredModule, lowered_module
from shlo_disc.jax.derived.sharding_types import is_sharded
from shlo_disc.jax.equations.compare import difference
from shlo_disc.jax.sizes.fresh import FreshSizes, assuming, reads_of
from shlo_disc.jax.sizes.marks import marking
from shlo_disc.jax.sizes.nesting import PartOfOuterError, nested
from shlo_disc.jax.sizes.structure import same_trees, tree_at
from shlo_disc.jax.sizes.symbolic import Question, open_scope
from shlo_disc.jax.versions.symbols.choice import Choice
from shlo_disc.jax.versions.symbols.search import Found, Lower
from shlo_disc.jax_private.jaxprs import equation_line, equations_of, error_codes, named_axes
from shlo_disc.jax_private.states import checking

_log = logging.getLogger("shlo_disc")

DIFFERS = "the program differs where the size is a number"
"""How the reason of a size begins that is a constant because of the comparison with numbers."""


@dataclass(frozen=True)
class InParts:
    """A traced program that is not lowered as a whole; it runs in parts (`segmented.py`)."""

    out_tree: Any
    out_avals: tuple[Any, ...]
    symbols: Mapping[int, str] = field(default_factory=dict)
    """Of sizes that are read from data, by the index of the read; those without are numbers."""
    assumed: Mapping[int, int] = field(default_factory=dict)
    """The values of these sizes in the trace."""
    questions: tuple[Question, ...] = ()
    """What the trace was told about these sizes."""

    @property
    def fresh(self) -> dict[str, int]:
        """The values of the symbols of sizes that are read from data."""
        return {symbol: self.assumed[index] for index, symbol in self.symbols.items()}

    def module(self) -> Any:
        """There is no one module; raises UnsupportedError."""
        raise UnsupportedError("the program runs in parts; see as_text() of what is compiled")

    def mlir_module(self) -> str:
        """As :meth:`module`."""
        return str(self.module())


Traced = tuple[LoweredModule | InParts, Any]
"""A lowered program, or one that runs in parts, and its jaxpr."""


class Trace(Protocol):
    """Traces a function once more."""

    def __call__(self, choice: Choice, known: Mapping[int, int] | None = None) -> Traced:
        """With a given choice of symbols. `known`: sizes read from data, by the index of the read;
        None for those of the first trace.
        """


Concrete = Callable[[Shapes], Any]
"""Traces a function at numbers, without symbols."""


def trace_with_symbols(
    options: Options,
    blueprint: Blueprint,
    specs: Sequence[Any],
    fresh: FreshSizes,
    lower: Lower = lambda _: True,
    *,
    whole: bool = True,
) -> Traced | None:
    """The function traced and lowered with abstract arrays of symbolic sizes as leaves.

    None if the jaxpr is not to be lowered, as `lower` says.
    A program that reads sizes from data, for which `fresh` are assumed, runs in parts; so does any
    without `whole`. Raises UnsupportedError for what is not compiled, PartOfOuterError for what has
    no meaning without the program around it, and what the function raises.
    """
    options.traces["symbols"] += 1
    scope = open_scope()
    questions: list[Question] = []
    kwargs: dict[str, Any]
    # JAX shall not take inner traces of others, which have no marks, or other sizes from data.
    with (
        nested(), marking(), error_codes(options.first_code), assuming(fresh),
        checking(("symbols", *fresh.assumed.items())),
    ):  # fmt: skip
        try:
            if blueprint.captured:
                jitted, traced = hoisted(options, blueprint, specs)
                args, kwargs = list(specs), {}
            else:
                args, kwargs = blueprint.with_leaves(specs)
                jitted, traced = options.jitted, options.jitted.trace(*args, **kwargs)
        finally:
            if scope is not None:
                questions = scope.session.take_fresh()
        jaxpr = traced.jaxpr
        _refuse_outer(options.name, jaxpr, len(specs))
        if not lower(jaxpr):
            return None
        if (reads := reads_of(jaxpr)) or not whole:
            if blueprint.captured:
                raise PartOfOuterError(
                    f"{options.name} runs in parts, and reads variables of the program around it"
                )
            in_parts = InParts(
                traced.out_tree,
                tuple(jaxpr.out_avals),
                {k: str(size) for k, size in reads.items() if not isinstance(size, int)},
                {k: fresh.assumed[k] for k in reads},
                tuple(questions),
            )
            return in_parts, jaxpr
        # JAX has kept the trace under this context, so this only lowers it.
        return _lowered(options, jitted, args, kwargs), jaxpr


def _lowered(options: Options, jitted: Any, args: Any, kwargs: Any) -> LoweredModule:
    """A traced call as the compiler takes it."""
    try:
        return lowered_module(options.name, jitted, args, kwargs, options.compile.platform)
    except ValueError as error:
        if "checkify.check" in str(error):
            raise PartOfOuterError(
                f"{options.name} has a checkify.check, which the checkify.checkify around "
                "it collects; call checkify inside shlo_disc.jit"
            ) from error
        raise


class RefError(UnsupportedError):
    """The function reads or writes a `jax.Ref`."""


def _refuse_outer(name: str, jaxpr: Any, arguments: int) -> None:
    """Raise UnsupportedError for what is no function of its arguments."""
    kinds = {type(effect).__name__ for effect in jaxpr.effects}
    if kinds & {"ReadEffect", "WriteEffect", "AccumEffect"}:
        raise RefError(
            f"{name} reads or writes a jax.Ref; pass its value as an argument and return the next"
        )
    if len(jaxpr.in_avals) != arguments:
        raise PartOfOuterError(
            f"{name} reads a value that an outer transformation of JAX is tracing (a variable of "
            "the function around it); pass it as an argument"
        )
    equations = equations_of(jaxpr)
    placing = next((e for e in equations if _places_arrays(e)), None)
    if placing is not None:
        raise PartOfOuterError(
            f"{name} places arrays on several devices ({placing.primitive.name}, "
            f"{equation_line(placing)}); compile what runs on one device"
        )
    inspects = next((e for e in equations if e.primitive.name == _INSPECTS), None)
    if inspects is not None:
        raise PartOfOuterError(
            f"{name} inspects where XLA places an array ({equation_line(inspects)})"
        )
    for axis in named_axes(jaxpr):
        raise PartOfOuterError(
            f"{name} uses the axis name {axis!r} of an outer vmap or shard_map; move the "
            "collective outside shlo_disc.jit"
        )


_PLACES = {
    "mesh_cast": "dst_sharding",
    "reshard": "dst_sharding",
    "shard_map": "mesh",
    "sharding_constraint": "sharding",
}
"""Primitives that say where arrays are, and the parameter that has the mesh or is it."""

_INSPECTS = "inspect_sharding"
"""The primitive that calls back while XLA compiles, with what XLA chose."""


def _places_arrays(equation: Any) -> bool:
    """True if an equation says how arrays are spread over several devices."""
    place = equation.params.get(_PLACES.get(equation.primitive.name, ""))
    if place is not None:
        mesh = getattr(place, "mesh", place)
        return getattr(mesh, "size", 0) > 1 or getattr(place, "num_devices", 1) > 1
    return any(is_sharded(v.aval) for v in equation.outvars if hasattr(v.aval, "sharding"))


def check(
    options: Options,
    call: Call,
    fresh: FreshSizes,
    shapes: Shapes | None = None,
    *,
    purpose: str = "numbers",
) -> Any:
    """The function traced with the call's own sizes, or those of `shapes`.

    `fresh` are the sizes it reads from data. JAX keeps a trace for each `purpose`. Raises what the
    function raises then.
    """
    if call.at_numbers is not None and shapes in (None, call.shapes):
        return call.at_numbers
    options.traces["numbers"] += 1
    specs = [
        abstract(shape, leaf.dtype, leaf.weak_type)
        for shape, leaf in zip(shapes or call.shapes, call.leaves, strict=True)
    ]
    blueprint = call.blueprint()
    fresh = FreshSizes(fresh.assumed, constant=True)
    with (
        nested(), marking(), error_codes(options.first_code), assuming(fresh),
        checking((purpose, *fresh.assumed.items())),
    ):  # fmt: skip
        if blueprint.captured:
            return hoisted(options, blueprint, specs).traced
        args, kwargs = blueprint.with_leaves(specs)
        return options.jitted.trace(*args, **kwargs)


_TRIALS = 6
"""Sizes that are tried one by one when a program does something else with numbers."""


def confirmed(
    found: Found[Traced],
    search: Callable[[Choice], Found[Traced]],
    shapes: Shapes,
    concrete_at: Concrete,
    may_pin: bool,
) -> Found[Traced]:
    """`found`, or what is found with constants where the program does something else with them."""

    def problem_in(found: Found[Traced]) -> tuple[str, str] | None:
        traced, pattern = found.traced.pattern, found.choice.pattern
        return problem_of(found.program, traced, pattern, shapes, concrete_at)

    problem = problem_in(found)
    if problem is None:
        return found
    text, where = problem
    reason = f"{DIFFERS}: {text}"
    if not may_pin:
        raise jax.errors.InconclusiveDimensionOperation(
            f"{reason} ({where}); dynamic=True keeps every size a symbol"
        )
    _log.debug("%s (%s)", reason, where)
    symbols = [s for s in found.traced.live() if s not in found.traced.fixed]
    for symbol in symbols[:_TRIALS] if len(symbols) > 1 else ():
        trial = found.traced.copy()
        trial.pin([symbol], reason, where)
        again = search(trial)
        if problem_in(again) is None:
            return again
    trial = found.traced.copy()
    if not trial.pin(symbols, reason, where):
        raise jax.errors.InconclusiveDimensionOperation(
            f"{reason} ({where}), but its sizes were stated in `shapes`"
        )
    return search(trial)


def problem_of(
    program: Traced, traced: Pattern, pattern: Pattern, shapes: Shapes, concrete_at: Concrete
) -> tuple[str, str] | None:
    """How a program differs from a trace at the sizes of a call, and the line; or None.

    JAX spells operations of dimensions of size 1 in another way. A difference in these dimensions
    alone does not count if the programs are alike at larger sizes.
    """
    sizes, concrete = traced.values(shapes), concrete_at(shapes)
    problem = _unlike(program, sizes, concrete)
    if problem is None or _unlike(program, sizes, concrete, units=False, empty=False) is not None:
        return problem
    for larger in _larger(pattern, shapes):
        try:
            concrete = concrete_at(larger)
        except Exception:  # the function refuses these sizes, for a reason that no guard tells
            _log.debug("no trace at the larger sizes %s", larger, exc_info=True)
            continue
        if _unlike(program, traced.values(larger), concrete, empty=False) is None:
            return None
    return problem


_LARGER = (2, 11, 101)
"""What sizes of 1 are replaced by: the first that fits the pattern, and the numbers after it."""

_MULTIPLE = 8
"""What other sizes are multiplied by: a quotient of such a size may be 1."""


def _larger(pattern: Pattern, shapes: Shapes) -> Iterator[Shapes]:
    """Shapes that fit the pattern: other sizes of 1, then multiples of the other sizes, too."""
    sizes = pattern.values(shapes)
    units = [symbol for symbol, value in sizes.items() if value == 1]
    # After the first the sizes of 1 are larger, too: one less than 2 may still be a case apart.
    for factor, firsts in ((1, _LARGER), (_MULTIPLE, _LARGER[1:]))[0 if units else 1 :]:
        multiples = {symbol: value * factor for symbol, value in sizes.items()}
        for first in firsts:
            multiples.update({symbol: first + k for k, symbol in enumerate(units)})
            found = tuple(
                tuple(
                    value if size is None else size.evaluate(multiples)
                    for size, value in zip(*pair, strict=True)
                )
                for pair in zip(pattern.dims, shapes, strict=True)
            )
            if pattern.solve(found) is not None:
                yield found
                break


def _unlike(
    program: Traced, hints: Mapping[str, int], concrete: Any, **compared: bool
) -> tuple[str, str] | None:
    lowered, jaxpr = program
    if isinstance(lowered, InParts):
        hints = {**hints, **lowered.fresh}
    if not same_trees(tree_at(lowered.out_tree, hints), concrete.out_tree):
        return f"the result is {lowered.out_tree}, but {concrete.out_tree} at these sizes", ""
    return difference(jaxpr, hints, concrete.jaxpr, **compared)
