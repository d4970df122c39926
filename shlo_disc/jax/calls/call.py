"""One call of a function, described: options, structure, types and names of its arrays."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import jax
from jax import export

from shlo_disc.base.records import dataclass
from shlo_disc.executables.devices import Place
from shlo_disc.jax.arguments.leaves import (
    Leaf,
    leaf_names,
    not_an_array,
    positional_names,
    refuse_wide_array,
    top_level_of,
    type_of,
)
from shlo_disc.jax.arguments.plan import Guard
from shlo_disc.jax.calls.compiler import Compiler
from shlo_disc.jax_private.jaxprs import first_error_code
from shlo_disc.jax_private.states import trace_context


@dataclass(frozen=True)
class Options:
    """A function under :func:`shlo_disc.jit`: what its traces and versions need of its options."""

    function: Callable[..., Any]
    jitted: Any
    """`jax.jit` of the function: it gives names, locations and static arguments, never a result."""
    name: str
    dynamic: bool | str
    shapes: Sequence[Any] | Mapping[str, Any] | None
    constraints: tuple[Guard, ...]
    compile: Compiler
    likely: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    donate_nums: frozenset[int] = frozenset()
    """Positions of positional arguments that a call may overwrite."""
    donate_names: frozenset[str] = frozenset()
    may_use_xla: bool = False
    """XLA runs what we cannot compile (`on_unsupported="xla"`)."""
    checked: bool = False
    """Every new shape is compared with a trace at its sizes."""
    told: set[str] = field(default_factory=set, compare=False)
    """Lines of the program that a message was logged for."""
    traces: Counter[str] = field(default_factory=Counter, compare=False)
    """How often it was traced with "symbols" and with "numbers", as JAX was asked."""
    first_code: int = field(default_factory=first_error_code, compare=False)
    """What `checkify` numbers errors from in every trace."""

    def at(self, target: str) -> Options:
        """The same, for programs of another target."""
        if target == self.compile.target:
            return self
        return replace(self, compile=self.compile.at(target))


class Call:
    """One call of a function: its array leaves, and everything else about it."""

    def __init__(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        positions: Sequence[int],
        named: dict[str, Any],
        static: tuple[Hashable, ...],
        place: Place,
    ) -> None:
        self.place = place
        """Where it runs."""
        self.args = args
        self.kwargs = kwargs
        self.positions = positions
        """Where the positional arguments that are not static stand."""
        self.named = named
        """The keyword arguments that are not static."""
        self.static = static
        self.dynamic = [args[k] for k in positions]
        self._function = options.function
        self._options = options
        self.captured: tuple[Any, ...] = ()
        """Tracers of outer traces that the function reads: the last of `values`."""
        self._captured_names: list[str] = []
        self.at_numbers: Any = None
        """The program traced at the sizes of the call, a `jax.stages.Traced`, if it is known."""
        self.looked_up: Any = None
        """The same, of a function that may be left with symbols by a later trace."""
        self.is_spared = False
        """True if no trace at the sizes of the call was made, for its program was confirmed."""
        self.values, self.tree = jax.tree.flatten((tuple(self.dynamic), named))
        self.types = []
        for index, value in enumerate(self.values):
            type_ = type_of(value)
            if type_ is None:
                raise not_an_array(value, self.names[index])
            refuse_wide_array(value, lambda: self.names, index)
            self.types.append(type_)
        self.shapes = tuple(shape for shape, _, _ in self.types)
        kinds = tuple((len(shape), dtype, weak) for shape, dtype, weak in self.types)
        self.family = (self.tree, kinds, static, trace_context(), self.place.target)
        """What versions are for: structure, ranks, dtypes, static arguments, configuration, target.
        """

    @cached_property
    def top_names(self) -> list[str]:
        """The parameters that take the positional arguments that are not static."""
        return positional_names(self._function, self.positions)

    def capturing(self, tracers: Sequence[Any], names: Sequence[str]) -> Call:
        """The same call with tracers of outer traces, arrays that it reads, as further leaves."""
        call = copy.copy(self)
        for derived in ("names", "leaves", "donated"):
            vars(call).pop(derived, None)
        call.captured = tuple(tracers)
        call._captured_names = list(names)
        call.values = [*self.values, *tracers]
        types = [type_ for type_ in map(type_of, tracers) if type_ is not None]
        call.types = [*self.types, *types]
        call.shapes = tuple(shape for shape, _, _ in call.types)
        tree, kinds, *rest = self.family
        more = tuple((len(shape), dtype, weak) for shape, dtype, weak in types)
        call.family = (tree, kinds + more, *rest)
        return call

    @cached_property
    def names(self) -> list[str]:
        """The path of each leaf."""
        own = leaf_names(self._function, self.dynamic, self.named, self.positions)
        return [*own, *self._captured_names]

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """Type and name of each leaf; a call that finds a version does not need them."""
        groups = top_level_of(self.dynamic, self.named)
        groups += [len(self.dynamic) + len(self.named)] * len(self.captured)
        return tuple(
            Leaf(name, *type_, group)
            for name, type_, group in zip(self.names, self.types, groups, strict=True)
        )

    @property
    def is_symbolic(self) -> bool:
        """True if a size is symbolic: the call is a part of a program of `jax.export`, or ours."""
        return any(export.is_symbolic_dim(size) for shape in self.shapes for size in shape)

    @property
    def own_leaves(self) -> tuple[Leaf, ...]:
        """Those of `leaves` that are no captured variables."""
        return self.leaves[: len(self.leaves) - len(self.captured)]

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """The leaves the user has given up."""
        options = self._options
        tops = [
            place in options.donate_nums
            or place - len(self.args) in options.donate_nums
            or name in options.donate_names
            for place, name in zip(self.positions, self.top_names, strict=True)
        ]
        tops += [name in options.donate_names for name in sorted(self.named)]
        tops.append(False)  # captured variables
        return tuple(k for k, leaf in enumerate(self.leaves) if tops[leaf.group])

    @property
    def is_concrete(self) -> bool:
        """True if every argument has a value: none is a tracer or abstract."""
        return not any(isinstance(x, (jax.core.Tracer, jax.ShapeDtypeStruct)) for x in self.values)

    def blueprint(self) -> Blueprint:
        """The call without its arrays."""
        args = tuple(None if k in self.positions else x for k, x in enumerate(self.args))
        kwargs = {name: x for name, x in self.kwargs.items() if name not in self.named}
        return Blueprint(args, kwargs, self.tree, tuple(self.positions), self.captured)


@dataclass(frozen=True)
class Blueprint:
    """A call without its arrays: what is needed to trace the function again."""

    args: tuple[Any, ...]
    """Positional arguments; None where arrays are."""
    kwargs: dict[str, Any]
    """Static keyword arguments."""
    tree: Any
    positions: tuple[int, ...]
    captured: tuple[Any, ...] = ()
    """Tracers that the function reads; `with_leaves` takes no leaves for them."""

    def with_leaves(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with abstract arrays as leaves."""
        dynamic, named = jax.tree.unflatten(self.tree, leaves)
        args = list(self.args)
        for place, value in zip(self.positions, dynamic, strict=True):
            args[place] = value
        return args, {**self.kwargs, **named}
