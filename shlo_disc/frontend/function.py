"""A function under `shlo_disc.jit`: the way of a call, from its arguments to the results.

A call is looked up by structure, dtypes and shapes: a shape seen before costs one dictionary
look-up. A new shape is tested against the versions compiled so far, in C++ where no argument needs
a conversion; only a call that fits none of them compiles another, more general one.
"""

from __future__ import annotations

import functools
import logging
import time
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import export

from shlo_disc import locks, ral
from shlo_disc.errors import DeviceError, ShapeMismatchError, UnsupportedError
from shlo_disc.frontend import generic
from shlo_disc.frontend.call import Call, Options
from shlo_disc.frontend.family import Family
from shlo_disc.frontend.leaves import (
    Leaf,
    abstract,
    concrete,
    needs_no_conversion,
    positional_names,
    refuse_place,
    runs_natively,
)
from shlo_disc.frontend.lowered import LoweredModule
from shlo_disc.frontend.nesting import is_nested
from shlo_disc.frontend.primitive import call_program
from shlo_disc.frontend.program import CompiledCall
from shlo_disc.frontend.stages import Compiled, Lowered, Traced, VersionCalls
from shlo_disc.frontend.stated import parse_constraint, parse_likely
from shlo_disc.frontend.statics import static_arguments
from shlo_disc.frontend.tracing import PartOfOuterError
from shlo_disc.frontend.versions import Version
from shlo_disc.jax_private import (
    ArrayImpl,
    KeyArray,
    chosen_device,
    disable_jit,
    is_staging,
    key_of_words,
    numbers_sought,
    on_device,
    trace_context,
    usual_states,
)
from shlo_disc.report.render import render

if TYPE_CHECKING:
    from shlo_disc.report.profile import Profile

__all__ = ["CacheInfo", "JitFunction", "living"]

_log = logging.getLogger("shlo_disc")

_MAX_ENTRIES = 4096
"""Shapes one function remembers; a forgotten one costs microseconds to test again."""

_flatten = jax.tree_util.default_registry.flatten

_DISPATCHED: dict[str, Any] = {
    "array_type": ArrayImpl,
    "key_type": KeyArray,
    "flatten": _flatten,
    "trace_context": trace_context,
    "usual": usual_states,
}
"""What :class:`shlo_disc.ral.Dispatcher` needs to know of JAX."""


_living: weakref.WeakSet[JitFunction] = weakref.WeakSet()
_living_lock = locks.lock()


def living() -> list[JitFunction]:
    """The functions of :func:`jit` that somebody still holds."""
    with _living_lock:
        return list(_living)


class CacheInfo(NamedTuple):
    """As of `functools.lru_cache`; `misses` counts compilations.

    With several threads calling at once `hits` may be a little low.
    """

    hits: int
    misses: int
    maxsize: int | None
    currsize: int


def _compile(
    lowered: LoweredModule, shapes: Sequence[Sequence[str]] | None = None, **options: Any
) -> CompiledCall:
    from shlo_disc.compile import compile  # noqa: PLC0415 - MLIR is loaded when first needed

    return compile(lowered.source(shapes), **options)


class _Compiler:
    """The seam to the compiler, which counts.

    Versions and programs hold this object and not the function, which would then only be freed by
    Python's garbage collector.
    """

    def __init__(self) -> None:
        self._lock = locks.lock()
        self.count = 0

    def __call__(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        executable = self.part(lowered, **options)
        self.counted()
        return executable

    def part(self, lowered: LoweredModule, **options: Any) -> CompiledCall:
        return _compile(lowered, **options)

    def examine(self, lowered: LoweredModule) -> None:
        from shlo_disc.compile import examine  # noqa: PLC0415 - as above

        examine(lowered.source())

    def counted(self) -> None:
        with self._lock:
            self.count += 1


class _Entry:
    """What a call of known types and shapes does."""

    __slots__ = ("call", "finish", "leaves", "native", "shapes", "slow_calls", "version")

    def __init__(self, version: Version, executable: CompiledCall, call: Call) -> None:
        plain = all(map(needs_no_conversion, call.values, version.leaves))
        native = all(map(runs_natively, call.values))
        self.call = executable.call_leaves
        self.leaves: tuple[Leaf, ...] | None = None if plain else version.leaves
        """None when no argument needs a conversion."""
        tree: Any = version.out_tree(call.shapes)
        self.finish = version.finisher(tree)
        self.version = version
        self.shapes = call.shapes
        self.slow_calls = 0
        self.native = version.dispatch_entry(tree) if native else None

    @property
    def calls(self) -> int:
        """Calls after the first."""
        return self.slow_calls + (self.native.calls if self.native is not None else 0)

    def run(self, leaves: list[Any]) -> Any:
        """The results in the function's structure."""
        if self.leaves is not None:
            leaves = [concrete(x, leaf) for x, leaf in zip(leaves, self.leaves, strict=True)]
        return self.finish(self.call(leaves))


class JitFunction(ral.Dispatcher):
    """A function under :func:`jit`; call it as the function itself.

    At sizes no version fits, one more is compiled. A call raises TypeError (an argument that is no
    array), ShapeMismatchError (sizes that break what was stated), UnsupportedError (an operation
    the compiler does not cover), and what the function itself raises when it is traced.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        shapes: Sequence[Any] | Mapping[str, Any] | None = None,
        constraints: str | Iterable[str] = (),
        likely: Mapping[str, int | Iterable[int]] | None = None,
        dynamic: bool | str = "auto",
        static_argnums: int | Iterable[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Iterable[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
        name: str | None = None,
        on_unsupported: str = "error",
        background: bool = False,
    ) -> None:
        if not callable(function):
            raise TypeError(f"shlo_disc.jit needs a function, got {function!r}")
        if dynamic not in (True, False, "auto", "checked"):
            raise ValueError(f"dynamic must be 'auto', 'checked', True or False, got {dynamic!r}")
        if on_unsupported not in ("error", "xla"):
            raise ValueError(f"on_unsupported must be 'error' or 'xla', got {on_unsupported!r}")
        constraints = [constraints] if isinstance(constraints, str) else list(constraints)
        self._given: dict[str, Any] = {
            "shapes": shapes,
            "constraints": constraints,
            "likely": likely,
            "dynamic": dynamic,
            "static_argnums": static_argnums,
            "static_argnames": static_argnames,
            "donate_argnums": donate_argnums,
            "donate_argnames": donate_argnames,
            "name": name,
            "on_unsupported": on_unsupported,
            "background": background,
        }
        if constraints and shapes is None:
            raise ValueError("constraints need shapes, which give the sizes their names")
        # Calls that `_entries` knows run without Python where no argument needs a conversion.
        generic.install()
        self._static_nums, self._static_names = static_arguments(
            function, static_argnums, static_argnames
        )
        self._setting = {
            **_DISPATCHED,
            "static_nums": self._static_nums,
            "static_names": tuple(sorted(self._static_names)),
        }
        super().__init__(**self._setting)
        functools.update_wrapper(self, function, updated=())
        for key, value in vars(function).items() if hasattr(function, "__dict__") else ():
            if not hasattr(type(self), key):  # what the function has under another name
                self.__dict__.setdefault(key, value)
        nums, names = static_arguments(function, donate_argnums, donate_argnames)
        if (both := set(nums) & set(self._static_nums)) or set(names) & set(self._static_names):
            raise ValueError(f"arguments cannot be static and donated: {sorted(both) or names}")
        self._has_static = bool(self._static_nums or self._static_names)
        self._donates = bool(nums or names)
        jitted = jax.jit(
            function,
            static_argnums=self._static_nums or None,
            static_argnames=self._static_names or None,
            keep_unused=True,
        )
        self._compiler = _Compiler()
        self._options = Options(
            function=function,
            jitted=jitted,
            name=str(name or getattr(function, "__name__", type(function).__name__)),
            dynamic="auto" if dynamic == "checked" else dynamic,
            checked=dynamic == "checked",
            shapes=shapes,
            constraints=tuple(parse_constraint(text) for text in constraints),
            compile=self._compiler,
            likely=parse_likely(likely, shapes),
            donate_nums=frozenset(nums),
            donate_names=frozenset(names),
            may_use_xla=on_unsupported == "xla",
        )
        self._lock = locks.reentrant_lock()  # static values compare in the user's code
        """Of the tables of versions and calls; not held while anything is traced or compiled."""
        self._entries: dict[tuple[Any, ...], _Entry] = {}
        self._families: dict[tuple[Any, ...], Family] = {}
        self._families_of_xla: set[tuple[Any, ...]] = set()
        """Those of calls that XLA runs, because we cannot compile them."""
        self._fallbacks: dict[str, None] = {}
        """What XLA runs in place of a program of ours, and why."""
        self._background = background
        self._hits = 0
        """Calls that `calls` of no entry counts."""
        with _living_lock:
            _living.add(self)

    # -- calling --------------------------------------------------------------------------------

    def _call_slowly(self, *args: Any, **kwargs: Any) -> Any:
        """A call the dispatcher does not know, or that fails."""
        if disable_jit.value:
            return self._options.function(*args, **kwargs)
        if is_staging():
            return self._in_a_trace(self._describe(args, kwargs))
        try:
            if (device := chosen_device()) is None:
                results = self._call_in_python(args, kwargs)
            else:
                results = self._call_there(device, args, kwargs)
        except DeviceError as error:
            self._tell_once(f"runs as jax.jit runs it on the devices of its arguments: {error}")
            return self._as_jax(*args, **kwargs)
        if any(sought := numbers_sought()):
            self._look_for(*sought, results, args, kwargs)
        return results

    def _call_there(self, device: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call under `jax.default_device(device)`: results that nothing commits go there.

        Raises DeviceError for another device than a CPU.
        """
        place = jax.local_devices(backend=device)[0] if isinstance(device, str) else device
        if place.platform != "cpu":
            raise DeviceError(f"jax.default_device is {place}")
        with jax.default_device(None):  # the same versions as elsewhere
            results = self._call_in_python(args, kwargs)
        return jax.tree.map(lambda x: _placed(x, place), results)

    def _tell_once(self, text: str) -> None:
        """Log that XLA runs something in our place, and let :meth:`explain` tell it."""
        if text not in self._fallbacks:
            self._fallbacks[text] = None
            _log.warning("%s %s", self._options.name, text)

    def _look_for(
        self, nans: bool, infinities: bool, results: Any, args: Any, kwargs: dict[str, Any]
    ) -> None:
        """Raise FloatingPointError for NaN or infinity in the results, as JAX does."""
        for leaf in jax.tree.leaves(results):
            if type(leaf) is not ArrayImpl or not jax.numpy.issubdtype(leaf.dtype, np.inexact):
                continue
            numbers = np.asarray(leaf)
            for sought, test, what in ((nans, np.isnan, "nan"), (infinities, np.isinf, "inf")):
                if sought and test(numbers).any():
                    if not self._donates:
                        self._options.jitted(*args, **kwargs)  # it names the operation
                    raise FloatingPointError(
                        f"invalid value ({what}) encountered in {self._options.name}"
                    )

    def _call_in_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        positions, named, static = self._split(args, kwargs)
        leaves, tree = _flatten((tuple(args[k] for k in positions), named))
        types = [part for leaf in leaves for part in _type_of(leaf)]
        key = (tree, trace_context(), static, *types)
        entry = self._entries.get(key)
        if entry is None:
            call = Call(self._options, args, kwargs, positions, named, static)
            return self._new_call(key, call)
        entry.slow_calls += 1
        return entry.run(leaves)

    def _split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[int], dict[str, Any], tuple[Hashable, ...]]:
        """Positions of the dynamic positional arguments, dynamic keyword arguments, static key."""
        if not self._has_static:
            return range(len(args)), kwargs, ()
        nums = {k if k >= 0 else k + len(args) for k in self._static_nums}
        positions = [k for k in range(len(args)) if k not in nums]
        named = {k: v for k, v in kwargs.items() if k not in self._static_names}
        static: list[tuple[Any, type, Any]] = [
            (k, type(args[k]), args[k]) for k in sorted(nums) if k < len(args)
        ]
        static += [(k, type(v), v) for k, v in sorted(kwargs.items()) if k in self._static_names]
        for place, kind, value in static:
            try:
                hash(value)
            except TypeError:
                function = self._options.function
                where = place if isinstance(place, str) else positional_names(function, [place])[0]
                raise ValueError(
                    f"static argument {where} is a {kind.__name__}, which cannot be hashed"
                ) from None
        return positions, named, tuple(static)

    def _describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return Call(self._options, args, kwargs, *self._split(args, kwargs))

    def _new_call(self, key: tuple[Any, ...], call: Call) -> Any:
        """A call of types and sizes that are new, or of tracers."""
        if any(isinstance(value, jax.core.Tracer) for value in call.values):
            return self._in_a_trace(call)
        refuse_place(call.values, lambda: call.names)
        return self._or_by_jax(call, lambda: self._first_call(key, call))

    def _first_call(self, key: tuple[Any, ...], call: Call) -> Any:
        start = time.perf_counter()
        family = self._family(call)
        version = family.version(call)
        known = version.is_compiled
        if self._background and version.compiles_meanwhile():
            return self._as_jax(*call.args, **call.kwargs)
        version, executable = family.compiled(call, version)
        entry = _Entry(version, executable, call)
        try:
            results = entry.run(call.values)
        except ShapeMismatchError as error:
            # The compiled program knows of a condition that JAX did not tell us about.
            version = family.specialised(call, error)
            entry, known = _Entry(version, version.executable, call), False
            results = entry.run(call.values)
        self._tell_parts(version)
        if not known:
            seconds = time.perf_counter() - start
            _log.info("%s: the first call took %.2f s", self._options.name, seconds)
        with self._lock:
            if self._families.get(call.family) is not family:
                return results  # the cache was cleared meanwhile
            if len(self._entries) + len(self._found()) >= _MAX_ENTRIES:
                self._forget_entries()
            self._entries[key] = entry
            if entry.native is not None:
                self._add(call.args, call.kwargs, entry.native)
                family.update_offers()
                self._offer(call.args, call.kwargs, family.offers)
            self._hits += known
        return results

    def _tell_parts(self, version: Version) -> None:
        """Tell what XLA runs of a version that runs in parts."""
        if version.is_in_parts and (told := version.in_parts.told):
            self._tell_once(f"runs in parts; XLA runs, compiled for every shape: {'; '.join(told)}")

    def _family(self, call: Call) -> Family:
        with self._lock:
            family = self._families.get(call.family)
            if family is None:
                family = self._families[call.family] = Family(self._options)
            return family

    def _in_a_trace(self, call: Call) -> Any:
        return self._or_by_jax(call, lambda: self._traced_call(call))

    def _traced_call(self, call: Call) -> Any:
        """Inside a transformation of JAX: one equation that calls the compiled program."""
        if is_nested() or any(
            export.is_symbolic_dim(size) for shape in call.shapes for size in shape
        ):
            # Part of another program with symbolic sizes, which is compiled as a whole.
            return self._options.jitted(*call.args, **call.kwargs)
        # Where XLA may run the call, it has to be known now whether we can compile it.
        family = self._family(call)
        version = family.ready(call)[0] if self._options.may_use_xla else family.version(call)
        if version.is_in_parts:
            self._tell_parts(version)
            if not version.in_parts.keeps_rules:
                raise UnsupportedError("XLA runs a part of a custom_jvp or custom_vjp function")
        raw = [
            jax.random.key_data(value) if leaf.is_key else _as_array(value)
            for value, leaf in zip(call.values, version.leaves, strict=True)
        ]
        dims = tuple(version.pattern.values(call.shapes).items())
        if version.is_in_parts:
            results = version.in_parts.run(raw, dict(dims))
        else:
            results = list(call_program(raw, version.program, dims))
        for index, implementation in version.keys:
            results[index] = jax.random.wrap_key_data(results[index], impl=implementation)
        return jax.tree.unflatten(version.out_tree(call.shapes), results)

    def _or_by_jax(self, call: Call, run: Callable[[], Any]) -> Any:
        """`run()`, or the call as `jax.jit` makes it; that is told once, and by :meth:`explain`.

        JAX runs a function that is a part of the program around it, and where `on_unsupported`
        allows that, one that we cannot compile; else UnsupportedError is raised.
        """
        if call.family not in self._families_of_xla:
            try:
                return run()
            except PartOfOuterError as why:
                text = f"runs as a part of the program around it, which XLA compiles: {why}"
            except UnsupportedError as why:
                if not self._options.may_use_xla:
                    raise
                self._families_of_xla.add(call.family)
                self._families.pop(call.family, None)
                text = f"runs as jax.jit runs it, once compiled for every shape: {why}"
            self._tell_once(text)
        return self._as_jax(*call.args, **call.kwargs)

    @functools.cached_property
    def _as_jax(self) -> Any:
        """`jax.jit` of the function with its static and donated arguments."""
        options = self._options
        return jax.jit(
            options.function,
            static_argnums=self._static_nums or None,
            static_argnames=self._static_names or None,
            donate_argnums=tuple(options.donate_nums) or None,
            donate_argnames=tuple(options.donate_names) or None,
            keep_unused=True,
        )

    # -- looking inside -------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The function traced with these arguments (arrays or `jax.ShapeDtypeStruct`s)."""
        traced = self._as_jax.trace(*args, **kwargs)
        return Traced(lambda: traced, lambda: self.lower(*args, **kwargs))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The results for these arguments as `jax.ShapeDtypeStruct`s; nothing runs."""
        return self._options.jitted.eval_shape(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The version for these arguments (arrays or `jax.ShapeDtypeStruct`s), traced.

        A version that fits is used; otherwise one is made, and calls will use it.
        """
        call = self._describe(args, kwargs)
        found = self._family(call).version(call)
        # Without the arrays, which need not stay alive.
        specs = call.blueprint().with_leaves(
            [abstract(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in call.leaves]
        )

        def trace() -> Any:
            return self._as_jax.trace(*specs[0], **specs[1])

        def compiled() -> Compiled:
            again = self._describe(tuple(specs[0]), specs[1])
            version, executable = self._family(again).compiled(again, found)
            calls = VersionCalls(
                lambda args, kwargs: self._call_version(version, args, kwargs), **self._setting
            )
            sizes = version.pattern.values(again.shapes)
            return Compiled(version.name, executable, version.pattern, calls, trace, sizes)

        return Lowered(found.name, found.lowered, found.pattern, compiled, trace)

    def _call_version(
        self, version: Version, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ral.DispatchEntry | None, Any]:
        """The results, and what runs more calls like this one."""
        call = self._describe(args, kwargs)
        family = self._families.get(call.family)
        if family is None or version not in family.versions:
            raise TypeError(
                f"{version.name} was compiled for other types or another structure of arguments"
            )
        broken = version.pattern.mismatch(call.shapes)
        if broken is not None:
            raise ShapeMismatchError(f"{version.name}: {broken}")
        entry = _Entry(version, version.executable, call)
        return entry.run(call.values), entry.native, version.offer

    def warmup(self, *calls: tuple[Any, ...] | Mapping[str, Any]) -> None:
        """Compile what these calls need, now; nothing runs.

        A call is a tuple of positional arguments or a dict of keyword arguments; arrays may be
        `jax.ShapeDtypeStruct`s. One compilation serves many sizes: a call for each kind of
        arguments is enough, with sizes that differ from each other and from 1. Raises what the
        calls would raise; with `background=True` a function is compiled here all the same.
        """
        for given in calls:
            args, kwargs = ((), dict(given)) if isinstance(given, Mapping) else (given, {})
            call = self._describe(args, kwargs)
            try:
                self._family(call).ready(call)
            except UnsupportedError:
                if not self._options.may_use_xla:
                    raise

    def statistics(self) -> dict[str, Any]:
        """The row of this function in :func:`shlo_disc.stats`."""
        versions = [v for family in list(self._families.values()) for v in family.versions]
        return {
            "name": self._options.name,
            "versions": len(versions),
            "compilations": self._compiler.count,
            "hits": self._all_hits(),
            "compiling": sum(version.is_compiling for version in versions),
            "by_xla": bool(self._families_of_xla),
        }

    def explain(self, format: str = "text") -> str:
        """Every version: the sizes of each argument, what is assumed of them, why, and which line
        of the program asked for it; of compiled versions also :meth:`Executable.explain`, with the
        number of calls that took each variant. Text also tells what XLA runs instead, and why.

        `format`: "text", "json" (a list of the compiled versions) or "html" (one self-contained
        page with their graphs of kernels). Raises ValueError for another.
        """
        versions = [v for family in self._families.values() for v in family.versions]
        if format != "text":
            compiled = [version for version in versions if version.is_compiled]
            return render([row for version in compiled for row in self._rows(version)], format)
        if not versions and not self._fallbacks:
            return f"{self._options.name} has not been called yet"
        told = [f"{self._options.name} {text}" for text in self._fallbacks]
        for number, version in enumerate(versions, 1):
            told.append(f"version {number} of {version}")
            if version.is_compiling:
                told[-1] += "\nis being compiled; jax.jit runs its calls meanwhile"
            if version.is_compiled:
                told[-1] += f"\n{render(self._rows(version), format)}"
        return "\n\n".join(told)

    def _rows(self, version: Version) -> list[dict[str, Any]]:
        """The compiled programs of a version: one, or those of its parts."""
        pattern = version.pattern
        if version.is_in_parts:
            programs = [program.executable for program in version.in_parts.programs]
            return [
                {**program.describe(), "assumes": list(map(str, pattern.notes))}
                for program in programs
            ]
        calls = []
        for entry in list(self._entries.values()):
            values = pattern.solve(entry.shapes) if entry.version is version else None
            if values is not None:
                sizes = dict(zip(pattern.symbols, values, strict=True))
                calls.append((sizes, entry.calls + 1))
        offered = version.offer[1] if version.offer is not None else None
        for found in self._found():
            if offered is not None and found.version is offered:
                calls.append((pattern.values(found.shapes or ()), found.calls))
        assumed = [*(guard.note for guard in pattern.guards), *pattern.notes]
        notes = list(dict.fromkeys(str(note) for note in assumed))
        return [{**version.executable.describe(calls=calls), "assumes": notes}]

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Time every kernel of a call with these arguments, beside the floor of this machine.

        Compiles if need be. Raises what a call raises.
        """
        call = self._describe(args, kwargs)
        version, executable = self._family(call).ready(call)
        leaves = [concrete(x, leaf) for x, leaf in zip(call.values, version.leaves, strict=True)]
        return executable.profile(*leaves)

    def guards(self) -> list[str]:
        """What the versions assume of sizes, one sentence each, with reason and source line."""
        found: dict[str, None] = {}
        for family in self._families.values():
            for version in family.versions:
                pattern = version.pattern
                found.update(dict.fromkeys(str(guard.note) for guard in pattern.guards))
                found.update(dict.fromkeys(str(note) for note in pattern.notes))
                found.update(dict.fromkeys(version.asked_by_rules()))
        return list(found)

    def cache_info(self) -> CacheInfo:
        """Calls answered by what was compiled already, compilations, None, versions kept."""
        versions = sum(len(family.versions) for family in self._families.values())
        return CacheInfo(self._all_hits(), self._compiler.count, None, versions)

    def _all_hits(self) -> int:
        calls = [entry.calls for entry in list(self._entries.values())]
        return self._hits + sum(calls) + sum(entry.calls for entry in self._found())

    def _forget_entries(self) -> None:
        self._hits = self._all_hits()
        self._entries.clear()
        self._forget()

    def cache_clear(self) -> None:
        """Forget every version."""
        with self._lock:
            self._forget_entries()
            self._families.clear()
            self._families_of_xla.clear()
            self._hits = self._compiler.count = 0

    clear_cache = cache_clear
    """The name `jax.jit` has for it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: `self` is the first argument, a pytree or static."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        """For `copy` and `pickle`: the function and its options, not what was compiled."""
        return _remade, (self._options.function, self._given)

    def __repr__(self) -> str:
        return f"<shlo_disc.jit of {self._options.function!r}>"


def _placed(result: Any, device: jax.Device) -> Any:
    """A result on the default device; one on the device of a committed argument stays there."""
    if type(result) is KeyArray:
        return key_of_words(result._impl.name, _placed(result._base_array, device))
    return result if result.committed else on_device(result, device)


def _as_array(value: Any) -> Any:
    # JAX makes an equation of `asarray` of a tracer: a derivative then takes a third longer.
    return value if isinstance(value, jax.core.Tracer) else jax.numpy.asarray(value)


def _remade(function: Callable[..., Any], options: dict[str, Any]) -> JitFunction:
    return JitFunction(function, **options)


def _type_of(leaf: Any) -> tuple[Any, Any, Any]:
    """(shape, dtype, kind) of a leaf that need not be a jax.Array; kinds keep conversions apart."""
    if type(leaf) is ArrayImpl:
        return leaf.shape, leaf.dtype, leaf.weak_type
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return leaf.shape, leaf.dtype, type(leaf)
    if hasattr(leaf, "__jax_array__"):
        shape, dtype, _ = _type_of(leaf.__jax_array__())
        return shape, dtype, type(leaf)
    return None, None, type(leaf)
