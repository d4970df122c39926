"""A function under `shlo_disc.jit`: the way of a call, from its arguments to the results.

A call is looked up by structure, dtypes and shapes: a shape seen before costs one dictionary
look-up. A new shape is tested against the versions compiled so far, in C++ where no argument needs
a conversion; only a call that fits none of them compiles another, more general one.
"""

from __future__ import annotations

import functools
import logging
import operator
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from shlo_disc import ral
from shlo_disc.base import flags, locks
from shlo_disc.base.errors import ArgumentPlaceError, ShapeMismatchError, UnsupportedError
from shlo_disc.executables.devices import Place, place_of
from shlo_disc.executables.foreign_errors import foreign_call_error
from shlo_disc.jax.arguments.leaves import (
    RefArgumentError,
    arrays_of,
    concrete,
    refuse_place,
    spec_of,
)
from shlo_disc.jax.arguments.options import JitOptions
from shlo_disc.jax.arguments.places import (
    default_place,
    moved,
    place_of_arrays,
    place_of_several,
    usual_place,
)
from shlo_disc.jax.arguments.stated import parse_constraint, parse_likely
from shlo_disc.jax.arguments.statics import Statics, static_arguments
from shlo_disc.jax.arguments.told import BY_JAX, Told
from shlo_disc.jax.calls.call import Call, Options
from shlo_disc.jax.calls.captured import with_captured
from shlo_disc.jax.calls.compiler import Compiler
from shlo_disc.jax.calls.entries import Entry, type_parts
from shlo_disc.jax.calls.under_jax import UnderJax, by_xla
from shlo_disc.jax.sizes.generic import generic
from shlo_disc.jax.sizes.nesting import PartOfOuterError, is_nested
from shlo_disc.jax.versions.family import Family
from shlo_disc.jax.versions.jit_devices import number_in, placed, why_not_in_blocks
from shlo_disc.jax.versions.jit_report import Report
from shlo_disc.jax.versions.kept_calls import KeptCalls
from shlo_disc.jax.versions.modes import Mode
from shlo_disc.jax.versions.stages import Compiled, Lowered, Traced, VersionCalls
from shlo_disc.jax.versions.traced_call import run_in_place, run_in_trace
from shlo_disc.jax.versions.versions import Version
from shlo_disc.jax_private.arrays import ArrayImpl, KeyArray
from shlo_disc.jax_private.states import (
    chosen_device,
    disable_jit,
    is_staging,
    is_transforming,
    numbers_sought,
    trace_context,
    usual_states,
)
from shlo_disc.lower.background import finish_later

if TYPE_CHECKING:
    from shlo_disc.report.profile import Profile

_log = logging.getLogger("shlo_disc")

_MAX_ENTRIES = 4096
"""Shapes one function remembers; a forgotten one costs microseconds to test again."""

_PART_OF_OUTER = "runs as a part of the program around it, which XLA compiles"

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


class _Counts(NamedTuple):
    hits: int
    misses: int
    maxsize: int | None
    currsize: int


class CacheInfo(_Counts):
    """As of `functools.lru_cache`; `misses` counts programs that were compiled or loaded.

    With several threads calling at once `hits` may be a little low.
    """

    loaded = 0
    """Of the misses, programs that an earlier process had compiled (docs/cache.md)."""

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, loaded={self.loaded})"


class JitFunction(ral.Dispatcher):
    """A function under :func:`jit`; call it as the function itself.

    At sizes no version fits, one more is compiled. A call raises TypeError (an argument that is no
    array), ShapeMismatchError (sizes that break what was stated), UnsupportedError (an operation
    the compiler does not cover), and what the function itself raises when it is traced.
    """

    def __init__(self, function: Callable[..., Any], options: JitOptions) -> None:
        if not callable(function):
            raise TypeError(f"shlo_disc.jit needs a function, got {function!r}")
        self._given = options
        # Calls that `_entries` knows run without Python where no argument needs a conversion.
        generic.install()
        self._statics = statics = Statics(
            function,
            *static_arguments(function, options.static_argnums, options.static_argnames),
        )
        self._setting = {
            **_DISPATCHED,
            "static_nums": statics.nums,
            "static_names": tuple(sorted(statics.names)),
        }
        super().__init__(**self._setting)
        functools.update_wrapper(self, function, updated=())
        for key, value in vars(function).items() if hasattr(function, "__dict__") else ():
            if not hasattr(type(self), key):  # what the function has under another name
                self.__dict__.setdefault(key, value)
        nums, names = static_arguments(function, options.donate_argnums, options.donate_argnames)
        if (both := set(nums) & set(statics.nums)) or set(names) & set(statics.names):
            raise ValueError(f"arguments cannot be static and donated: {sorted(both) or names}")
        self._donates = bool(nums or names)
        jitted = jax.jit(
            function,
            static_argnums=statics.nums or None,
            static_argnames=statics.names or None,
            keep_unused=True,
        )
        may_use_xla = (options.on_unsupported or flags.on_unsupported()) == "xla"
        name = str(options.name or getattr(function, "__name__", type(function).__name__))
        tell = Told(name)
        self._compiler = Compiler(tell=tell if may_use_xla else None)
        self._options = Options(
            function=function,
            jitted=jitted,
            name=name,
            dynamic="auto" if options.dynamic == "checked" else options.dynamic,
            checked=options.dynamic == "checked",
            shapes=options.shapes,
            constraints=tuple(parse_constraint(text) for text in options.constraints),
            compile=self._compiler,
            likely=parse_likely(options.likely, options.shapes),
            donate_nums=frozenset(nums),
            donate_names=frozenset(names),
            may_use_xla=may_use_xla,
        )
        self._lock = locks.reentrant_lock()  # static values compare in the user's code
        """Of the tables of versions and calls; not held while anything is traced or compiled."""
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self._families: dict[tuple[Any, ...], Family] = {}
        """How calls run, by :attr:`Call.family`."""
        self._jax = UnderJax(self._options, statics, options.keep_unused, tell)
        """What XLA runs in place of a program of ours."""
        self._background = options.background
        self._hits = 0
        """Calls that `calls` of no entry counts."""
        with _living_lock:
            _living.add(self)

    # -- calling --------------------------------------------------------------------------------

    def _call_slowly(self, *args: Any, **kwargs: Any) -> Any:
        """A call the dispatcher does not know, or that fails."""
        if disable_jit.value:
            return self._options.function(*args, **kwargs)
        try:
            if is_staging():
                return self._run(self._describe(args, kwargs))
            results = self._call_at(default_place(), args, kwargs)
        except ArgumentPlaceError as error:
            return self._on_devices(error, args, kwargs)
        except RefArgumentError as error:
            leaves = jax.tree.leaves((args, kwargs))
            if any(isinstance(x, jax.core.Tracer) and isinstance(x, jax.Ref) for x in leaves):
                self._jax.tell(f"{_PART_OF_OUTER}: {error}")
            elif self._options.may_use_xla:
                self._jax.tell(f"{BY_JAX}: {error}")
            else:
                raise
            return self._jax.function(*args, **kwargs)
        if any(sought := numbers_sought()) and (found := number_in(results, *sought)):
            if not self._donates:
                self._options.jitted(*args, **kwargs)  # it names the operation
            raise FloatingPointError(f"invalid value ({found}) encountered in {self._options.name}")
        return results

    def _call_at(self, default: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose arguments are at the default place, or else committed to another."""
        try:
            return self._call_in_python(args, kwargs, default)
        except ArgumentPlaceError as error:
            leaves, tree = _flatten((args, kwargs))
            try:
                place = place_of_arrays(leaves, default)
            except ArgumentPlaceError:
                raise error from None
            there = moved(leaves, place)
            if place == default and all(map(operator.is_, there, leaves)):
                raise
            args, kwargs = tree.unflatten(there)
            return self._call_in_python(args, kwargs, place)

    def _call_through(self, *args: Any, **kwargs: Any) -> Any:
        """A call at sizes that came before: a custom call of XLA's.

        `Version.calls_before_xla` says which. JAX 0.11 takes a result that XLA knows nothing of
        for ready. Our own calls on a GPU have to wait for the device.
        """
        if self._donates:
            return by_xla(self._in_place, args, kwargs, None)
        return by_xla(self._around, args, kwargs, self._call_directly)

    @functools.cached_property
    def _around(self) -> Any:
        """`jax.jit` of our calls."""
        return self._jax.calls_of(self)

    @functools.cached_property
    def _in_place(self) -> Any:
        """`jax.jit` of our calls, which overwrites what the function donates."""
        return self._jax.calls_of(self._trace_in_place)

    def _trace_in_place(self, *args: Any, **kwargs: Any) -> Any:
        call = self._describe(args, kwargs)
        return run_in_place(call, self._family(call).version(call))

    def _call_directly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self._describe(args, kwargs)
        return self._call_version(self._family(call).version(call), args, kwargs)[0]

    def _foreign_error(self, error: ral.ForeignError) -> Exception:
        """What the dispatcher raises where an FFI handler has failed."""
        return foreign_call_error(error)

    def _on_devices(
        self, why: ArgumentPlaceError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call with arguments elsewhere than on one device, under `jax.jit`.

        Where they are sharded along dimensions that blocks of the function have, JAX compiles for
        new shapes one call of ours for each device; else it compiles the function.
        """
        call = self._describe(args, kwargs)
        arrays = arrays_of(call.values)
        places = [None if x is None else (x.sharding, x.committed) for x in arrays]
        key, blocks = (call.shapes, *places), self._family(call).blocks
        if (text := blocks.get(key)) is None:
            text = self._why_not_in_blocks(call, arrays, why)
            if len(blocks) >= _MAX_ENTRIES:
                blocks.clear()
            blocks[key] = text
        if not text:
            return self._around(*args, **kwargs)
        self._jax.tell(f"runs as jax.jit runs it on the devices of its arguments: {text}")
        return self._jax.function(*args, **kwargs)

    def _why_not_in_blocks(self, call: Call, arrays: Sequence[Any], why: ArgumentPlaceError) -> str:
        """Why a call cannot run in blocks on the devices of these arrays; empty if it can."""
        if self._background or place_of_several(call.values) is None:
            return str(why)
        try:
            reason = why_not_in_blocks(self._family(call).version(call), arrays)
        except UnsupportedError as error:
            reason = str(error)
        return "" if reason is None else f"{why}; {reason}" if reason else str(why)

    def _uses_one_device(self, call: Call) -> bool:
        """True if only arguments that the function does not use are not on one CPU device."""
        arrays = arrays_of(call.values)
        if self._given.keep_unused or len({a.sharding for a in arrays if a is not None}) < 2:
            return False
        try:
            used = self._family(call).version(call).used
            refuse_place([call.values[k] for k in used], lambda: call.names, call.place)
        except (ArgumentPlaceError, UnsupportedError):
            return False
        return True

    def _call_in_python(self, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place) -> Any:
        """A call at `place`. Raises ArgumentPlaceError for an array that is elsewhere."""
        if chosen_device() is None:
            return self._call_from_here(args, kwargs, place)
        chosen = default_place().device
        with jax.default_device(None):  # the same versions as elsewhere
            results = self._call_from_here(args, kwargs, place)
        return jax.tree.map(lambda x: placed(x, chosen), results) if place.is_cpu else results

    def _call_from_here(self, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place) -> Any:
        if is_transforming() and any(f.may_capture for f in list(self._families.values())):
            return self._run(self._describe(args, kwargs))
        positions, named, static = self._statics.split(args, kwargs)
        leaves, tree = _flatten((tuple(args[k] for k in positions), named))
        types = [part for leaf in leaves for part in type_parts(leaf)]
        # All CPUs are one place: arrays say on which of them a program runs.
        where = None if place.is_cpu else place
        key = (tree, trace_context(), static, where, *types)
        entry = self._entries.get(key)
        if entry is None:
            call = Call(self._options, args, kwargs, positions, named, static, place)
            return self._new_call(key, call)
        # `jax.default_device` is hidden here: arrays alone say where XLA would run the call.
        goes_through = entry.goes_through_xla and place_of_arrays(leaves, usual_place()) == place
        entry.slow_calls += 1
        return self._call_through(*args, **kwargs) if goes_through else entry.run(leaves)

    def _describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """A call that is looked at: where it would run if nothing is in the way of that."""
        leaves = jax.tree.leaves((args, kwargs))
        try:
            place = place_of_arrays(leaves, default_place())
        except ArgumentPlaceError:
            several = place_of_several(leaves)
            place = several or place_of(jax.local_devices(backend="cpu")[0])
        return Call(self._options, args, kwargs, *self._statics.split(args, kwargs), place)

    def _new_call(self, key: tuple[Any, ...], call: Call) -> Any:
        """A call of types and sizes that are new, or of tracers."""
        if any(isinstance(value, jax.core.Tracer) for value in call.values):
            return self._run(call)
        try:
            refuse_place(call.values, lambda: call.names, call.place)
        except ArgumentPlaceError:
            if not self._uses_one_device(call):
                raise
        return self._run(call, key)

    def _run(self, call: Call, key: tuple[Any, ...] | None = None) -> Any:
        """The results of a call that no entry knows; `key` is that of its entry, None in a trace.

        JAX runs a function that is a part of the program around it, and where `on_unsupported`
        allows that, one that we cannot compile. That is told once, and by :meth:`explain`.
        """
        if not self._is_by_jax(call):
            try:
                found = self._with_captured(call) if key is None or is_transforming() else call
                if key is None or found.captured:
                    return self._traced_call(found)
                return self._first_call(key, call)
            except UnsupportedError as why:
                if not self._is_left_to_jax(call, why):
                    raise
        return self._jax.function(*call.args, **call.kwargs)

    def _is_by_jax(self, call: Call) -> bool:
        family = self._families.get(call.family)
        return family is not None and family.mode is Mode.BY_JAX

    def _is_left_to_jax(self, call: Call, why: UnsupportedError) -> bool:
        """True if JAX is to run a call and others like it, which is told."""
        if isinstance(why, PartOfOuterError):
            text = f"{_PART_OF_OUTER}: {why}"
        elif (family := self._family(call).left_to_jax()) is not None:
            self._families[call.family] = family
            text = f"{BY_JAX}: {why}"
        else:
            return False
        self._jax.tell(text)
        return True

    def _first_call(self, key: tuple[Any, ...], call: Call) -> Any:
        family = self._family(call)
        kept = KeptCalls(family.options, call)
        if not family.versions and not self._background:
            found = kept.found()
            if found is not None:
                if family.keeps_first_call(kept.abstract):
                    self._compiler.counted(was_loaded=True)
                return self._first_run(key, call, family, Entry(found, found.executable, call))
        try:
            return self._first_call_here(key, call, family, kept)
        finally:
            kept.done()

    def _first_call_here(
        self, key: tuple[Any, ...], call: Call, family: Family, kept: KeptCalls
    ) -> Any:
        """Make a first call that no earlier process is known to have made."""
        start = time.perf_counter()
        version = family.version(call)
        known = version.is_compiled
        if self._background and version.compiles_meanwhile():
            return self._jax.function(*call.args, **call.kwargs)
        version, executable = family.compiled(call, version, soon=True)
        entry = Entry(version, executable, call)
        kept.runs(executable)
        try:
            results = self._first_run(key, call, family, entry, is_hit=known)
        except ShapeMismatchError as error:
            # The compiled program knows of a condition that JAX did not tell us about.
            version = family.specialised(call, error)
            entry, known = Entry(version, version.executable, call), False
            results = self._first_run(key, call, family, entry)
        else:
            if not known and version.stands_in:
                version.finished = weakref.WeakMethod(self.forget_entries)
                finish_later(version)
            elif not known and version is family.versions[0]:
                kept.keep(version)
        self._tell_parts(version)
        if not known:
            seconds = time.perf_counter() - start
            _log.info("%s: the first call took %.2f s", self._options.name, seconds)
        return results

    def _first_run(
        self,
        key: tuple[Any, ...],
        call: Call,
        family: Family,
        entry: Entry,
        *,
        is_hit: bool = False,
    ) -> Any:
        """Run `entry`, which calls like this one find from now on."""
        results = entry.run(call.values)
        with self._lock:
            if self._families.get(call.family) is not family:
                return results  # the cache was cleared meanwhile
            if len(self._entries) + len(self._found()) >= _MAX_ENTRIES:
                self._forget_entries()
            self._entries[key] = entry
            if entry.native is not None and call.place == usual_place():
                self._add(call.args, call.kwargs, entry.native)
                family.update_offers()
                self._offer(call.args, call.kwargs, family.offers)
            self._hits += is_hit
        return results

    def _tell_parts(self, version: Version) -> None:
        """Tell what XLA runs of a version that runs in parts."""
        if version.is_in_parts and (told := version.in_parts.told):
            self._jax.tell(f"runs in parts; XLA runs, compiled for every shape: {'; '.join(told)}")

    def _family(self, call: Call) -> Family:
        with self._lock:
            family = self._families.get(call.family)
            if family is None:
                options = self._options.at(call.place.target)
                family = Family(options, captures=bool(call.captured))
                self._families[call.family] = family
            return family

    def _with_captured(self, call: Call) -> Call:
        """The call with the variables of outer traces that the function reads as further leaves."""
        family = self._families.get(call.family)
        is_known = family is not None and family.versions and not family.may_capture
        if is_known or is_nested() or call.is_symbolic:
            return call
        try:
            found = with_captured(self._options, call)
        except PartOfOuterError:
            raise
        except Exception as error:  # tracing for a version raises it, unless the call has a mistake
            _log.debug("%s: no trace at the sizes of a call: %s", self._options.name, error)
            return call
        if found.captured:
            self._family(call).may_capture = True
        return found

    def _traced_call(self, call: Call) -> Any:
        """Inside a transformation of JAX: one equation that calls the compiled program."""
        if is_nested() or call.is_symbolic:
            # Part of another program with symbolic sizes, which is compiled as a whole.
            return self._options.jitted(*call.args, **call.kwargs)
        version = self._family(call).version(call)
        if version.jaxpr.effects:
            raise PartOfOuterError("it calls back into Python in an order that JAX keeps")
        if version.is_in_parts:
            self._tell_parts(version)
            if not version.in_parts.keeps_rules:
                raise UnsupportedError("XLA runs a part of a custom_jvp or custom_vjp function")
        return run_in_trace(call, version)

    # -- looking inside -------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The function traced with these arguments (arrays or `jax.ShapeDtypeStruct`s)."""
        traced = self._jax.function.trace(*args, **kwargs)
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
        specs = call.blueprint().with_leaves([*map(spec_of, call.leaves)])

        def trace() -> Any:
            return self._jax.function.trace(*specs[0], **specs[1])

        def compiled() -> Compiled:
            again = self._describe(tuple(specs[0]), specs[1])
            version, executable = self._family(again).compiled(again, found)
            run = run_in_place if self._donates else run_in_trace
            calls = VersionCalls(
                lambda args, kwargs: self._call_version(version, args, kwargs),
                self._jax.calls_of(lambda *a, **k: run(self._describe(a, k), version)),
                can_repeat=not self._donates,
                **self._setting,
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
        entry = Entry(version, version.executable, call)
        return entry.run(call.values), entry.native, version.offer

    def warmup(self, *calls: tuple[Any, ...] | Mapping[str, Any]) -> None:
        """Compile what these calls need, now; nothing runs.

        A call is a tuple of positional arguments or a dict of keyword arguments; arrays may be
        `jax.ShapeDtypeStruct`s. One compilation serves many sizes: a call for each kind of
        arguments is enough, with sizes that differ from each other and from 1. Raises what the
        calls would raise; with `background=True` a function is compiled here all the same. What
        XLA will run in place of our program is told as in a call.
        """
        for given in calls:
            args, kwargs = ((), dict(given)) if isinstance(given, Mapping) else (given, {})
            call = self._describe(args, kwargs)
            if self._is_by_jax(call):
                continue
            try:
                version, compiled = self._family(call).ready(call)
                self._tell_parts(version)
                compiled.compile_for_all_sizes()
            except UnsupportedError as why:
                if not self._options.may_use_xla or not self._is_left_to_jax(call, why):
                    raise

    @property
    def _versions(self) -> list[Version]:
        return [v for family in list(self._families.values()) for v in family.versions]

    def statistics(self) -> dict[str, Any]:
        """The row of this function in :func:`shlo_disc.stats`."""
        versions, families = self._versions, list(self._families.values())
        return {
            "name": self._options.name,
            "versions": sum(family.count for family in families),
            "compilations": self._compiler.count,
            "hits": self._all_hits(),
            "compiling": sum(version.is_compiling for version in versions),
            "traces": dict(self._options.traces),
            "by_xla": any(family.mode is Mode.BY_JAX for family in families)
            or any(version.needs_xla for version in versions),
        }

    def explain(self, format: str = "text") -> str:
        """Every version: the sizes of each argument, what is assumed of them, why, and which line
        of the program asked for it; of compiled versions also :meth:`Executable.explain`, with the
        number of calls that took each variant. Text also tells what XLA runs instead, and why.

        `format`: "text", "json" (a list of the compiled versions) or "html" (one self-contained
        page with their graphs of kernels). Raises ValueError for another.
        """
        return self._report().rendered(format)

    def _report(self) -> Report:
        for family in list(self._families.values()):
            if (first := family.first_call) is not None:
                family.ready(first)
        told, entries = tuple(self._jax.tell.texts), list(self._entries.values())
        return Report(self._options.name, self._versions, told, entries, self._found())

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
        return self._report().guards()

    def cache_info(self) -> CacheInfo:
        """Calls answered by what was compiled already, compilations, None, versions kept."""
        versions = sum(family.count for family in self._families.values())
        info = CacheInfo(self._all_hits(), self._compiler.count, None, versions)
        info.loaded = self._compiler.loaded
        return info

    def _all_hits(self) -> int:
        calls = [entry.calls for entry in list(self._entries.values())]
        return self._hits + sum(calls) + sum(entry.calls for entry in self._found())

    def forget_entries(self) -> None:
        """Have the next call of each shape look for its version again."""
        with self._lock:
            self._forget_entries()

    def _forget_entries(self) -> None:
        self._hits = self._all_hits()
        self._entries.clear()
        self._forget()

    def cache_clear(self) -> None:
        """Forget every version."""
        with self._lock:
            self._forget_entries()
            self._families.clear()
            self._hits = 0
            self._compiler.forget()

    clear_cache = cache_clear
    """The name `jax.jit` has for it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: `self` is the first argument, a pytree or static."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        """For `copy` and cloudpickle: the function and its options, not what was compiled.

        `pickle` refuses it, as it refuses functions of `jax.jit`: the maker is local.
        """

        def remade(function: Callable[..., Any], options: JitOptions) -> JitFunction:
            return JitFunction(function, options)

        return remade, (self._options.function, self._given)

    def __repr__(self) -> str:
        return f"<shlo_disc.jit of {self._options.function!r}>"
