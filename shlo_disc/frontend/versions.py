"""The versions of a function: one call described, versions for it found, traced and compiled."""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
from jax import export

from shlo_disc import ral
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.frontend.choice import Choice, data_groups, first_choice
from shlo_disc.frontend.compare import difference
from shlo_disc.frontend.leaves import (
    Leaf,
    abstract,
    is_key_dtype,
    leaf_names,
    not_an_array,
    positional_names,
    refuse_wide_array,
    top_level_of,
    type_of,
)
from shlo_disc.frontend.marks import marking
from shlo_disc.frontend.parameters import weights
from shlo_disc.frontend.plan import Guard, Note, Pattern, Shapes
from shlo_disc.frontend.program import CompiledCall, Program, Sizes, compiled_once
from shlo_disc.frontend.sizes import SizeScope
from shlo_disc.frontend.spellings import advice
from shlo_disc.frontend.stated import stated_pattern, stated_shapes
from shlo_disc.frontend.structure import has_sizes, tree_at
from shlo_disc.frontend.symbols import Found, choose_symbols
from shlo_disc.jax_private import checking, export_whole, key_impl, trace_context

__all__ = ["DIFFERS", "RECOMPILE_LIMIT", "Call", "Family", "Options", "Version", "inlining"]

_log = logging.getLogger("shlo_disc")

RECOMPILE_LIMIT = 8
"""More versions than this of one function earn a warning, as in torch.compile."""

DIFFERS = "the program differs where the size is a number"
"""How the reason of a size begins that is a constant because of the comparison with numbers."""


_EVERY_SIZE = "every size is a constant"

_CUSTOM_CALL = re.compile(r"no compatibility guarantees.*?custom_call @([\w.]+)", re.DOTALL)
"""JAX exports no custom calls but those it knows; shlo_disc compiles none of the others."""

_CALLBACK = (
    "{} calls back into Python (jax.debug.print, jax.pure_callback, io_callback; here {}); move "
    "that outside shlo_disc.jit"
)


Traced = tuple[export.Exported, Any]
"""An exported program and its jaxpr."""

Trace = Callable[[Choice], Traced]
"""Traces a function once more, with a given choice of symbols."""

Concrete = Callable[[Shapes], Any]
"""Traces a function at numbers, without symbols."""


class _Tracing(threading.local):
    active = False


_tracing = _Tracing()


def inlining() -> bool:
    """Is this thread tracing one of our functions? Others called inside are then part of it."""
    return _tracing.active


@dataclass(frozen=True)
class Options:
    """What :func:`shlo_disc.jit` was told."""

    function: Callable[..., Any]
    jitted: Any
    """`jax.jit` of the function: it gives names, locations and static arguments, never a result."""
    name: str
    dynamic: bool | str
    shapes: Sequence[Any] | Mapping[str, Any] | None
    constraints: tuple[Guard, ...]
    compile: Callable[..., CompiledCall]
    likely: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    donate_nums: frozenset[int] = frozenset()
    """Positions of positional arguments that a call may overwrite."""
    donate_names: frozenset[str] = frozenset()
    checked: bool = False
    """Every new shape is compared with a trace at its sizes."""
    told: set[str] = field(default_factory=set, compare=False)
    """Lines of the program that a message was logged for."""


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
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.positions = positions
        """Where the positional arguments that are not static stand."""
        self.named = named
        """The keyword arguments that are not static."""
        self.dynamic = [args[k] for k in positions]
        self._function = options.function
        self._options = options
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
        self.family = (self.tree, kinds, static, trace_context())
        """What versions are for: structure, ranks, dtypes, static arguments, configuration."""

    @cached_property
    def top_names(self) -> list[str]:
        """The parameters that take the positional arguments that are not static."""
        return positional_names(self._function, self.positions)

    @cached_property
    def names(self) -> list[str]:
        """The path of each leaf."""
        return leaf_names(self._function, self.dynamic, self.named, self.positions)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """Type and name of each leaf; a call that finds a version does not need them."""
        groups = top_level_of(self.dynamic, self.named)
        return tuple(
            Leaf(name, *type_, group)
            for name, type_, group in zip(self.names, self.types, groups, strict=True)
        )

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
        return tuple(k for k, leaf in enumerate(self.leaves) if tops[leaf.group])

    def blueprint(self) -> Blueprint:
        """The call without its arrays."""
        args = tuple(None if k in self.positions else x for k, x in enumerate(self.args))
        kwargs = {name: x for name, x in self.kwargs.items() if name not in self.named}
        return Blueprint(args, kwargs, self.tree, tuple(self.positions))


@dataclass(frozen=True)
class Blueprint:
    """A call without its arrays: what is needed to trace the function again."""

    args: tuple[Any, ...]
    """Positional arguments; None where arrays are."""
    kwargs: dict[str, Any]
    """Static keyword arguments."""
    tree: Any
    positions: tuple[int, ...]

    def with_leaves(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with abstract arrays as leaves."""
        dynamic, named = jax.tree.unflatten(self.tree, leaves)
        args = list(self.args)
        for place, value in zip(self.positions, dynamic, strict=True):
            args[place] = value
        return args, {**self.kwargs, **named}


class _Compilation:
    """The compiled program of a version, made when it is first asked for.

    A version and its :class:`Program` both hold this object, so neither needs to hold the other.
    """

    def __init__(self, options: Options, call: Call, found: Found[Traced]) -> None:
        self.exported = found.program[0]
        pattern = found.choice.pattern
        self._sizes = found.choice.texts()
        """The sizes of every argument, for the compiler: equal sizes have equal names."""
        given = options.likely
        self.likely = {name: given[name] for name in given if name in pattern.symbols}
        self._options = options
        self._names = [leaf.name for leaf in call.leaves]
        self._donated = call.donated
        self._executable: CompiledCall | None = None
        self._lock = threading.Lock()

    @property
    def is_done(self) -> bool:
        return self._executable is not None

    def executable(self) -> CompiledCall:
        with self._lock:
            if self._executable is None:
                options = self._options
                if gone := sorted(options.likely.keys() - self.likely.keys()):
                    _log.info("%s: %s is no symbol of this version, so none of its likely sizes "
                              "has a kernel", options.name, ", ".join(gone))  # fmt: skip
                self._executable = compiled_once(
                    self.exported,
                    options.compile,
                    name=options.name,
                    names=self._names,
                    weak_results=[bool(aval.weak_type) for aval in self.exported.out_avals],
                    shapes=self._sizes,
                    **({"likely": self.likely} if self.likely else {}),
                    **({"donated": self._donated} if self._donated else {}),
                )
            return self._executable


class Version:
    """A function for one structure and dtypes, at every shape that fits `pattern`."""

    def __init__(self, options: Options, call: Call, found: Found[Traced], trace: Trace) -> None:
        self.name = options.name
        self.leaves = call.leaves
        self.donated = call.donated
        self.pattern = found.choice.pattern
        self.exported, self.jaxpr = found.program
        self._traced = found.traced.pattern
        self._has_static_sizes = has_sizes(self.exported.out_tree)
        self._compilation = _Compilation(options, call, found)
        self._root = _Root(options, call, found, trace, self._compilation)
        self._offer: tuple[ral.SizePattern, ral.DispatchEntry] | None = None

    @property
    def is_compiled(self) -> bool:
        """Has it been compiled yet?"""
        return self._compilation.is_done

    def unlike(self, shapes: Shapes, concrete_at: Concrete) -> tuple[str, str] | None:
        """How the version differs from a trace at the sizes of a call, and the line; or None."""
        program = self.exported, self.jaxpr
        return _problem(program, self._traced, self.pattern, shapes, concrete_at)

    def out_tree(self, shapes: Shapes) -> Any:
        """The structure of the results of a call with arguments of these shapes."""
        if not self._has_static_sizes:
            return self.exported.out_tree
        return tree_at(self.exported.out_tree, self.traced_sizes(shapes))

    def traced_sizes(self, shapes: Shapes) -> dict[str, int]:
        """The symbols of the trace and their values in a call that fits the pattern."""
        return _sizes(self._traced, shapes)

    @property
    def likely(self) -> dict[str, tuple[int, ...]]:
        """Likely values of those sizes that are symbols of this version."""
        return self._compilation.likely

    @property
    def executable(self) -> CompiledCall:
        """The compiled program."""
        return self._compilation.executable()

    @property
    def keys(self) -> tuple[tuple[int, str], ...]:
        """(index, PRNG implementation) of results that are typed keys; they run as integers."""
        return self._root.keys

    @property
    def offer(self) -> tuple[ral.SizePattern, ral.DispatchEntry] | None:
        """The version for the C++ dispatcher, which tests and runs it at new sizes.

        None when Python is needed: to compile it, to make typed keys or a structure with sizes of
        the results, or for numbers of more than 64 bits.
        """
        if self._offer is None and self.is_compiled and not self.keys:
            executable = self.executable
            if not self._has_static_sizes and hasattr(executable, "dispatch_entry"):
                tree: Any = self.exported.out_tree
                only = jax.tree_util.treedef_is_leaf(tree)
                try:
                    pattern = self.pattern.native
                except OverflowError:
                    return None
                entry = executable.dispatch_entry(None if only else tree.unflatten)
                self._offer = (pattern, entry)
        return self._offer

    @cached_property
    def program(self) -> Program:
        """The version as a program for transformations of JAX; shares the executable."""
        return self._root.program()

    def asked_by_rules(self) -> list[str]:
        """What rules of the user (`custom_vjp`) asked about sizes in derived programs."""
        if "program" not in self.__dict__:
            return []
        return [
            f"{q.left} {q.relation} {q.right} in derived programs: {q.reason} ({q.where})"
            for q in self.program.questions()
        ]

    def __str__(self) -> str:
        return (
            f"{self.name}: {', '.join(self.pattern.symbols) or 'no symbols'}\n{self.pattern.text()}"
        )


class _Root:
    """Makes the program of a version for transformations of JAX, also at other sizes.

    It holds neither the version nor a program, which hold it.
    """

    def __init__(
        self,
        options: Options,
        call: Call,
        found: Found[Traced],
        trace: Trace,
        compilation: _Compilation,
    ) -> None:
        self._compile = options.compile
        self._name = options.name
        self._leaves = call.leaves
        self._jaxpr = found.program[1]
        self._choice = found.choice
        self._keeps_symbols = options.dynamic is True
        self._was_merged = found.choice.dims != found.traced.dims
        self._trace = trace
        self._compilation = compilation
        self.keys = tuple(
            (index, key_impl(aval.dtype))
            for index, aval in enumerate(compilation.exported.out_avals)
            if is_key_dtype(aval.dtype)
        )

    def program(self) -> Program:
        """The program as it was traced."""
        if self._was_merged:
            # Rules of transformations compare sizes, too: they need equal sizes as one symbol.
            return self._made(self._trace(self._choice)[1], self._choice)
        return self._made(self._jaxpr, self._choice)

    def anew(self, sizes: Sizes, constants: frozenset[str]) -> Program:
        """The program traced at other sizes that fit the pattern, some as constants.

        Raises InconclusiveDimensionOperation for sizes the user wants to stay symbols.
        """
        symbols = self._choice.pattern.symbols
        choice = replace(
            self._choice.copy(), hints={s: value for s, value in sizes if s in symbols}
        )
        if constants and (self._keeps_symbols or constants & choice.fixed):
            raise jax.errors.InconclusiveDimensionOperation(
                f"{self._name}: a derivative or batch needs the numbers of "
                f"{', '.join(sorted(constants))}, which were stated to be symbols"
            )
        choice.pin(sorted(constants), "a rule of JAX needs its number", "")
        known = tuple((name, value) for name, value in sizes if name in constants)
        return self._made(self._trace(choice)[1], choice, known)

    def _made(self, jaxpr: Any, choice: Choice, constants: Sizes = ()) -> Program:
        scopes = (
            size.scope
            for aval in jaxpr.in_avals
            for size in aval.shape
            if export.is_symbolic_dim(size)
        )
        program = Program(
            jaxpr,
            choice.pattern.symbols,
            next(scopes, None) or SizeScope((), {}),
            self._name,
            self._compile,
            self._compilation.executable,
            self._compilation.likely,
            choice.hints,
            again=self.anew,
            constants=constants,
        )
        if self.keys or any(leaf.is_key for leaf in self._leaves):
            return self._without_keys(program, choice)
        return program

    def _without_keys(self, program: Program, choice: Choice) -> Program:
        """The same program on raw key data, as the executable has it."""
        specs = []
        for aval in program.in_avals:
            raw = aval
            if is_key_dtype(aval.dtype):
                raw = jax.eval_shape(jax.random.key_data, abstract(aval.shape, aval.dtype))
            specs.append(abstract(raw.shape, raw.dtype, raw.weak_type))

        def function(*arguments: Any) -> list[Any]:
            wrapped = [
                jax.random.wrap_key_data(x, impl=key_impl(leaf.dtype)) if leaf.is_key else x
                for x, leaf in zip(arguments, self._leaves, strict=True)
            ]
            results = list(program.run(*wrapped))
            for index, _ in self.keys:
                results[index] = jax.random.key_data(results[index])
            return results

        with program.scope.asking(choice.hints):
            return program.derive(
                function,
                specs,
                "raw",
                executable=self._compilation.executable,
                again=lambda fresh, *_: fresh,
            )


@dataclass
class Family:
    """The versions for one structure, dtypes, static arguments and configuration."""

    options: Options
    versions: list[Version] = field(default_factory=list)
    _data: frozenset[int] = frozenset()
    """Arguments with many leaves that are no parameters."""
    _refused: Note | None = None
    """Why the program is refused with symbols, where it is not with constants."""
    _differs: bool = False
    """True once the program did something else with numbers than with symbols, unheard."""
    _chosen: dict[tuple[tuple[int, ...], ...], Version] = field(default_factory=dict)
    """Versions for the very shapes at which an older one fits, but may not be used."""
    offers: list[tuple[ral.SizePattern, ral.DispatchEntry]] = field(default_factory=list)
    """Versions among which the C++ dispatcher finds the one for new sizes, as `find` would."""

    def update_offers(self) -> None:
        """Make `offers` anew; to be called when versions came, or one was compiled.

        It ends before the first version that needs Python: an older one must not be passed by.
        """
        rows = []
        if not self.checked and not self._chosen:
            for version in self.versions:
                if version.offer is None:
                    break
                rows.append(version.offer)
        self.offers[:] = rows

    @property
    def checked(self) -> bool:
        """True if every new shape is compared with a trace at its sizes."""
        return self.options.checked or self._differs

    def find(self, call: Call) -> Version | None:
        """The version for these shapes: the oldest one that fits.

        Versions may add in different orders. Later versions change nothing for shapes that ran,
        however they are called: a result's bits do not depend on other calls.
        """
        chosen = self._chosen.get(call.shapes)
        if chosen is not None:
            return chosen
        for version in self.versions:
            if version.pattern.solve(call.shapes) is not None:
                return version
        return None

    def new(self, call: Call) -> Version:
        """A new version, traced but not compiled, which `find` returns from now on.

        Raises ShapeMismatchError when the call breaks what was stated.
        """
        options = self.options
        stated = stated_shapes(
            options.shapes, call.dynamic, call.named, call.top_names, call.leaves
        )
        rules = stated_pattern(stated, options.constraints, call.leaves)
        broken = rules.mismatch(call.shapes)
        if broken is not None:
            raise ShapeMismatchError(f"{options.name}: {broken}")
        # `_` is the size at hand, as in jax.export.
        said = [
            None
            if sizes is None
            else tuple(
                Expr.const(value) if size is None else size
                for size, value in zip(sizes, leaf.shape, strict=True)
            )
            for sizes, leaf in zip(stated, call.leaves, strict=True)
        ]
        before = [version.pattern for version in self.versions]
        if self._refused is not None:
            return self._for_these_shapes(call, self._refused)
        version = self._traced(call, options.dynamic, said, before)
        self._report(call, version)
        self.versions.append(version)
        self.update_offers()
        return version

    def specialised(self, call: Call, why: ShapeMismatchError) -> Version:
        """A version for the very shapes of a call that the compiled program refused."""
        check(self.options, call)  # the function itself may refuse them too, and say so better
        note = Note(_EVERY_SIZE, str(why))
        self._tell_shapes(call, note)
        return self._for_these_shapes(call, note)

    def without_symbols(self, call: Call, version: Version, why: UnsupportedError) -> Version:
        """A version for the very shapes of a call, compiled, in place of one that is refused.

        Later sizes get versions of their own, too. Raises `why` when constants are refused as well,
        or were not allowed.
        """
        if self.options.dynamic is True or not version.pattern.symbols:
            raise why
        self.versions.remove(version)
        note = Note(_EVERY_SIZE, str(why))
        made = self._for_these_shapes(call, note)
        try:
            made.executable  # noqa: B018 - compiles
        except UnsupportedError:
            self.versions.remove(made)
            del self._chosen[call.shapes]
            raise why from None
        self._refused = note
        self._tell_shapes(call, note)
        return made

    def confirmed(self, call: Call, version: Version) -> Version:
        """`version`, or one for the very shapes of a call at which the program differs from it."""
        problem = version.unlike(call.shapes, lambda shapes: check(self.options, call, shapes))
        if problem is None:
            return version
        text, where = problem
        note = Note(_EVERY_SIZE, f"the program differs at other sizes: {text}", where)
        self._tell_shapes(call, note)
        return self._for_these_shapes(call, note)

    def _tell_shapes(self, call: Call, why: Note) -> None:
        place = f" ({why.where})" if why.where else ""
        _log.warning(
            "%s: compiling for shapes %s only, because %s%s",
            self.options.name,
            call.shapes,
            why.reason,
            place,
        )

    def _for_these_shapes(self, call: Call, why: Note) -> Version:
        version = self._traced(call, False, [None] * len(call.leaves), [])
        version.pattern = replace(version.pattern, notes=(*version.pattern.notes, why))
        self._chosen[call.shapes] = version
        self.versions.append(version)
        self.update_offers()
        return version

    def _traced(
        self,
        call: Call,
        dynamic: bool | str,
        said: Sequence[Sequence[Expr | None] | None],
        before: Sequence[Pattern],
    ) -> Version:
        options = self.options
        choice = first_choice(call.leaves, dynamic, said, options.constraints, before, self._data)

        blueprint = call.blueprint()

        def trace(specs: Sequence[Any]) -> Traced:
            args, kwargs = blueprint.with_leaves(specs)
            outer, _tracing.active = _tracing.active, True
            try:
                # JAX shall not take inner traces of others, which have no marks.
                with marking(), checking("symbols"):
                    jaxpr = options.jitted.trace(*args, **kwargs).jaxpr
                    _refuse(options.name, jaxpr, len(specs))
                    # JAX has kept the trace under this context, so this only lowers it.
                    return export_whole(options.jitted, args, kwargs), jaxpr
            except NotImplementedError as error:
                if "host_callbacks" not in str(error):
                    raise
                raise UnsupportedError(_CALLBACK.format(options.name, "pure_callback")) from error
            except ValueError as error:
                if "checkify.check" in str(error):
                    raise PartOfOuterError(
                        f"{options.name} has a checkify.check, which the checkify.checkify around "
                        "it collects; call checkify inside shlo_disc.jit"
                    ) from error
                called = _CUSTOM_CALL.search(str(error))
                if called is None:
                    raise
                raise UnsupportedError(
                    f"{options.name}: custom_call @{called[1]} is not supported yet; keep this "
                    "part of the program outside shlo_disc.jit"
                ) from error
            finally:
                _tracing.active = outer

        def search(start: Choice) -> Found[Traced]:
            return choose_symbols(
                start,
                trace,
                lambda traced: traced[1],
                lambda: check(options, call),
                may_pin=dynamic is not True,
            )

        found = search(choice)
        if not before and dynamic == "auto":
            # An argument with many leaves was taken for parameters; its use says more.
            data = data_groups(call.leaves, weights(found.program[1]))
            if data:
                self._data = data
                choice = first_choice(call.leaves, dynamic, said, options.constraints, (), data)
                found = search(choice)
        if found.traced.live():
            concrete_at = functools.cache(lambda shapes: check(options, call, shapes))
            sure = _confirmed(found, search, call.shapes, concrete_at, dynamic is not True)
            self._differs |= sure is not found  # its answer at other sizes may differ, too
            found = sure

        def again(choice: Choice) -> Traced:
            specs, scope = choice.specs()
            with scope.asking(choice.hints, grows=True):
                return trace(specs)

        _log.debug("%s: %d traces, %.0f ms", options.name, found.traces, found.seconds * 1e3)
        return Version(options, call, found, again)

    def _report(self, call: Call, version: Version) -> None:
        name, count = self.options.name, len(self.versions)
        if not count:
            _log.info("%s: version 1\n%s", name, version.pattern.text())
            self._tell(version)
            return
        self._tell(version)
        reason = self.versions[-1].pattern.mismatch(call.shapes)
        _log.info(
            "%s: compiling version %d, because %s\n%s",
            name,
            count + 1,
            reason,
            version.pattern.text(),
        )
        if count == RECOMPILE_LIMIT:
            _log.warning(
                "%s: more than %d versions; the last one because %s. f.explain() tells what makes "
                "sizes constants; dynamic=True turns that into errors.",
                name,
                RECOMPILE_LIMIT,
                reason,
            )

    def _tell(self, version: Version) -> None:
        """Name the lines, once each, where the program itself makes a size a constant."""
        for note in version.pattern.notes:
            spelling = advice(note.reason)
            if spelling and note.where not in self.options.told:
                self.options.told.add(note.where)
                _log.warning("%s: %s; %s", self.options.name, note, spelling)


class PartOfOuterError(UnsupportedError):
    """The function only has a meaning as part of the program that JAX is tracing around it."""


def _refuse(name: str, jaxpr: Any, arguments: int) -> None:
    """Raise UnsupportedError for what can be traced but not compiled on its own."""
    kinds = {type(effect).__name__ for effect in jaxpr.effects}
    if kinds & {"ReadEffect", "WriteEffect", "AccumEffect"}:
        raise UnsupportedError(
            f"{name} reads or writes a jax.Ref; pass its value as an argument and return the next"
        )
    if len(jaxpr.in_avals) != arguments:
        raise PartOfOuterError(
            f"{name} reads a value that an outer transformation of JAX is tracing (a variable of "
            "the function around it); pass it as an argument"
        )
    for effect in jaxpr.effects:
        kind = type(effect).__name__
        if kind == "NamedAxisEffect":
            raise PartOfOuterError(
                f"{name} uses the axis name {effect.name!r} of an outer vmap or shard_map; move "
                "the collective outside shlo_disc.jit"
            )
        if "Callback" in kind or "Debug" in kind or "IO" in kind:
            raise UnsupportedError(_CALLBACK.format(name, kind))


def check(options: Options, call: Call, shapes: Shapes | None = None) -> Any:
    """The function traced with the call's own sizes, or those of `shapes`.

    Raises what the function raises then.
    """
    specs = [
        abstract(shape, leaf.dtype, leaf.weak_type)
        for shape, leaf in zip(shapes or call.shapes, call.leaves, strict=True)
    ]
    args, kwargs = call.blueprint().with_leaves(specs)
    outer, _tracing.active = _tracing.active, True
    try:
        with marking(), checking(True):
            return options.jitted.trace(*args, **kwargs)
    finally:
        _tracing.active = outer


_TRIALS = 6
"""Sizes that are tried one by one when a program does something else with numbers."""


def _confirmed(
    found: Found[Traced],
    search: Callable[[Choice], Found[Traced]],
    shapes: Shapes,
    concrete_at: Concrete,
    may_pin: bool,
) -> Found[Traced]:
    """`found`, or what is found with constants where the program does something else with them."""

    def problem_of(found: Found[Traced]) -> tuple[str, str] | None:
        traced, pattern = found.traced.pattern, found.choice.pattern
        return _problem(found.program, traced, pattern, shapes, concrete_at)

    problem = problem_of(found)
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
        if problem_of(again) is None:
            return again
    trial = found.traced.copy()
    if not trial.pin(symbols, reason, where):
        raise jax.errors.InconclusiveDimensionOperation(
            f"{reason} ({where}), but its sizes were stated in `shapes`"
        )
    return search(trial)


def _problem(
    program: Traced, traced: Pattern, pattern: Pattern, shapes: Shapes, concrete_at: Concrete
) -> tuple[str, str] | None:
    """How a program differs from a trace at the sizes of a call, and the line; or None.

    JAX spells operations of dimensions of size 1 in another way. Such a difference only counts if
    the programs differ at larger sizes, too.
    """
    sizes, concrete = _sizes(traced, shapes), concrete_at(shapes)
    problem = _unlike(program, sizes, concrete)
    if problem is None or 1 not in sizes.values():
        return problem
    larger = _larger(pattern, shapes)
    if larger is None or _unlike(program, sizes, concrete, units=False) is not None:
        return problem
    try:
        concrete = concrete_at(larger)
    except Exception:  # the function refuses these sizes, for a reason that no guard tells
        return problem
    return problem if _unlike(program, _sizes(traced, larger), concrete) else None


def _sizes(traced: Pattern, shapes: Shapes) -> dict[str, int]:
    values = traced.solve(shapes)
    assert values is not None, (traced, shapes)
    return dict(zip(traced.symbols, values, strict=True))


_LARGER = (2, 11, 101)
"""What sizes of 1 are replaced by: the first that fits the pattern, and the numbers after it."""


def _larger(pattern: Pattern, shapes: Shapes) -> Shapes | None:
    """Shapes that fit the pattern, with other sizes for symbols of 1; None if none is found."""
    sizes = _sizes(pattern, shapes)
    units = [symbol for symbol, value in sizes.items() if value == 1]
    for first in _LARGER:
        sizes.update({symbol: first + k for k, symbol in enumerate(units)})
        found = tuple(
            tuple(
                value if size is None else size.evaluate(sizes)
                for size, value in zip(*pair, strict=True)
            )
            for pair in zip(pattern.dims, shapes, strict=True)
        )
        if pattern.solve(found) is not None:
            return found
    return None


def _unlike(
    program: Traced, hints: Mapping[str, int], concrete: Any, *, units: bool = True
) -> tuple[str, str] | None:
    exported, jaxpr = program
    if tree_at(exported.out_tree, hints) != concrete.out_tree:
        return f"the result is {exported.out_tree}, but {concrete.out_tree} at these sizes", ""
    return difference(jaxpr, hints, concrete.jaxpr, units=units)
