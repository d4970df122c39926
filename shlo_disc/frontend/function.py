"""A function under `shlo_disc.jit`: the way of a call, from its arguments to the results.

A call is looked up by structure, dtypes and shapes: a shape seen before costs one dictionary
look-up. A new shape is tested against the versions compiled so far, in C++ where no argument needs
a conversion; only a call that fits none of them compiles another, more general one.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
import types
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from shlo_disc import locks, ral
from shlo_disc.errors import DeviceError, ShapeMismatchError, UnsupportedError
from shlo_disc.executable import foreign_call_error
from shlo_disc.frontend import generic
from shlo_disc.frontend.call import Call, Options
from shlo_disc.frontend.captured import with_captured
from shlo_disc.frontend.compiler import CountingCompiler
from shlo_disc.frontend.entries import Entry, type_parts
from shlo_disc.frontend.family import Family
from shlo_disc.frontend.leaves import (
    RefArgumentError,
    abstract,
    arrays_of,
    concrete,
    positional_names,
    refuse_place,
)
from shlo_disc.frontend.leaving import CallbackError, leaving
from shlo_disc.frontend.nesting import PartOfOuterError, is_nested
from shlo_disc.frontend.options import JitOptions
from shlo_disc.frontend.primitive import call_program
from shlo_disc.frontend.sharding_types import (
    is_sharded,
    may_be_sharded,
    result_specs,
    runs_in_blocks,
)
from shlo_disc.frontend.stages import Compiled, Lowered, Traced, VersionCalls
from shlo_disc.frontend.stated import parse_constraint, parse_likely
from shlo_disc.frontend.statics import static_arguments
from shlo_disc.frontend.versions import Version
from shlo_disc.jax_private import (
    ArrayImpl,
    KeyArray,
    chosen_device,
    disable_jit,
    is_staging,
    is_transforming,
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

_PART_OF_OUTER = "runs as a part of the program around it, which XLA compiles"
_BY_JAX = "runs as jax.jit runs it, once compiled for every shape"

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
        self._static_nums, self._static_names = static_arguments(
            function, options.static_argnums, options.static_argnames
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
        nums, names = static_arguments(function, options.donate_argnums, options.donate_argnames)
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
        self._compiler = CountingCompiler()
        self._options = Options(
            function=function,
            jitted=jitted,
            name=str(options.name or getattr(function, "__name__", type(function).__name__)),
            dynamic="auto" if options.dynamic == "checked" else options.dynamic,
            checked=options.dynamic == "checked",
            shapes=options.shapes,
            constraints=tuple(parse_constraint(text) for text in options.constraints),
            compile=self._compiler,
            likely=parse_likely(options.likely, options.shapes),
            donate_nums=frozenset(nums),
            donate_names=frozenset(names),
            may_use_xla=options.on_unsupported == "xla",
        )
        self._lock = locks.reentrant_lock()  # static values compare in the user's code
        """Of the tables of versions and calls; not held while anything is traced or compiled."""
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self._families: dict[tuple[Any, ...], Family] = {}
        self._capturing: set[tuple[Any, ...]] = set()
        """Those of calls that read variables of outer traces, without these variables."""
        self._families_of_xla: set[tuple[Any, ...]] = set()
        """Those of calls that XLA runs, because we cannot compile them."""
        self._on_several: dict[tuple[Any, ...], str] = {}
        """Why calls with arguments on several devices cannot run in blocks; empty if they can."""
        self._families_leaving: set[tuple[Any, ...]] = set()
        """Those whose program calls back into Python in branches: `_leaving` runs them."""
        self._fallbacks: dict[str, None] = {}
        """What XLA runs in place of a program of ours, and why."""
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
                return self._in_a_trace(self._describe(args, kwargs))
            if (device := chosen_device()) is None:
                results = self._call_in_python(args, kwargs)
            else:
                results = self._call_there(device, args, kwargs)
        except DeviceError as error:
            return self._on_devices(error, args, kwargs)
        except RefArgumentError as error:
            leaves = jax.tree.leaves((args, kwargs))
            if any(isinstance(x, jax.core.Tracer) and isinstance(x, jax.Ref) for x in leaves):
                self._tell_once(f"{_PART_OF_OUTER}: {error}")
            elif self._options.may_use_xla:
                self._tell_once(f"{_BY_JAX}: {error}")
            else:
                raise
            return self._as_jax(*args, **kwargs)
        if any(sought := numbers_sought()):
            self._look_for(*sought, results, args, kwargs)
        return results

    def _foreign_error(self, error: ral.ForeignError) -> Exception:
        """What the dispatcher raises where an FFI handler has failed."""
        return foreign_call_error(error)

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

    def _on_devices(self, why: DeviceError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with arguments elsewhere than on one CPU device, under `jax.jit`.

        Where they are sharded along dimensions that blocks of the function have, JAX compiles for
        new shapes one call of ours for each device; else it compiles the function.
        """
        call = self._describe(args, kwargs)
        arrays = arrays_of(call.values)
        places = [None if x is None else (x.sharding, x.committed) for x in arrays]
        key = call.family, call.shapes, *places
        if (text := self._on_several.get(key)) is None:
            text = self._why_not_in_blocks(call, arrays, why)
            if len(self._on_several) >= _MAX_ENTRIES:
                self._on_several.clear()
            self._on_several[key] = text
        if not text:
            return self._in_jax(*args, **kwargs)
        self._tell_once(f"runs as jax.jit runs it on the devices of its arguments: {text}")
        return self._as_jax(*args, **kwargs)

    def _why_not_in_blocks(self, call: Call, arrays: Sequence[Any], why: DeviceError) -> str:
        """Why a call cannot run in blocks on the devices of these arrays; empty if it can."""
        places = [frozenset(() if x is None else x.sharding.device_set) for x in arrays]
        if self._background or any(d.platform != "cpu" for place in places for d in place):
            return str(why)
        try:
            version = self._family(call).version(call)
        except UnsupportedError as error:
            return f"{why}; {error}"
        used = {places[k] for k in version.used}
        placed = [p for x, p in zip(arrays, places, strict=True) if x is not None and x.committed]
        if not used.issuperset(placed):
            return f"{why}; arguments that are not used are elsewhere"
        if version.is_in_parts or not runs_in_blocks(version.program, arrays):
            return str(why)
        return ""

    def _uses_one_device(self, call: Call) -> bool:
        """True if only arguments that the function does not use are not on one CPU device."""
        arrays = arrays_of(call.values)
        if self._given.keep_unused or len({a.sharding for a in arrays if a is not None}) < 2:
            return False
        try:
            used = self._family(call).version(call).used
            refuse_place([call.values[k] for k in used], lambda: call.names)
        except (DeviceError, UnsupportedError):
            return False
        return True

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
        if self._capturing and is_transforming():
            return self._in_a_trace(self._describe(args, kwargs))
        positions, named, static = self._split(args, kwargs)
        leaves, tree = _flatten((tuple(args[k] for k in positions), named))
        types = [part for leaf in leaves for part in type_parts(leaf)]
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
        try:
            refuse_place(call.values, lambda: call.names)
        except DeviceError:
            if not self._uses_one_device(call):
                raise
        return self._or_by_jax(call, lambda: self._call_on_arrays(key, call))

    def _call_on_arrays(self, key: tuple[Any, ...], call: Call) -> Any:
        if is_transforming():
            call = self._with_captured(call)
            if call.captured:
                return self._traced_call(call)
        return self._first_call(key, call)

    def _first_call(self, key: tuple[Any, ...], call: Call) -> Any:
        start = time.perf_counter()
        family = self._family(call)
        version = family.version(call)
        known = version.is_compiled
        if self._background and version.compiles_meanwhile():
            return self._as_jax(*call.args, **call.kwargs)
        version, executable = family.compiled(call, version)
        entry = Entry(version, executable, call)
        try:
            results = entry.run(call.values)
        except ShapeMismatchError as error:
            # The compiled program knows of a condition that JAX did not tell us about.
            version = family.specialised(call, error)
            entry, known = Entry(version, version.executable, call), False
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
                family = Family(self._options, captures=bool(call.captured))
                self._families[call.family] = family
            return family

    def _with_captured(self, call: Call) -> Call:
        """The call with the variables of outer traces that the function reads as further leaves."""
        family = self._families.get(call.family)
        if family is not None and family.versions and call.family not in self._capturing:
            return call
        try:
            found = with_captured(self._options, call)
        except PartOfOuterError:
            raise
        except Exception as error:  # tracing for a version raises it, unless the call has a mistake
            _log.debug("%s: no trace at the sizes of a call: %s", self._options.name, error)
            return call
        if found.captured:
            self._capturing.add(call.family)
        return found

    def _in_a_trace(self, call: Call) -> Any:
        return self._or_by_jax(call, lambda: self._traced_call(call))

    def _traced_call(self, call: Call) -> Any:
        """Inside a transformation of JAX: one equation that calls the compiled program."""
        if not (is_nested() or call.is_symbolic or call.captured):
            call = self._with_captured(call)
        if is_nested() or call.is_symbolic:
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
        if may_be_sharded():
            _refuse_shards(version, [jax.typeof(x) for x in raw])
        dims = tuple(version.pattern.values(call.shapes).items())
        if call.captured:
            version.remember(dims, call.at_numbers.jaxpr)
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
        if call.family in self._families_leaving:
            return self._call_leaving(call)
        if call.family not in self._families_of_xla:
            try:
                return run()
            except CallbackError as callback:
                if self._leaves(call, callback):
                    return self._call_leaving(call)
                return self._or_by_jax(call, run)
            except UnsupportedError as why:
                if not self._is_left_to_jax(call, why):
                    raise
        return self._as_jax(*call.args, **call.kwargs)

    def _is_left_to_jax(self, call: Call, why: UnsupportedError) -> bool:
        """True if JAX is to run a call and others like it, which is told."""
        if isinstance(why, PartOfOuterError):
            text = f"{_PART_OF_OUTER}: {why}"
        elif self._options.may_use_xla:
            self._families_of_xla.add(call.family)
            self._families.pop(call.family, None)
            text = f"{_BY_JAX}: {why}"
        else:
            return False
        self._tell_once(text)
        return True

    # -- callbacks in branches ------------------------------------------------------------------

    @functools.cached_property
    def _leaving(self) -> JitFunction:
        """The function without its callbacks; it also tells whether a call needs one."""
        given = dataclasses.replace(
            self._given,
            donate_argnums=None,
            donate_argnames=None,
            name=self._options.name,
            on_unsupported="error",
            background=False,
        )
        return JitFunction(leaving(self._options.function), given)

    def _leaves(self, call: Call, why: CallbackError) -> bool:
        """True if calls of this family run without their callbacks from now on.

        Not if a callback is outside a branch, or something else is not compiled: then False if XLA
        runs the callbacks, and otherwise the reason is raised.
        """
        refused: UnsupportedError = why
        if not self._donates:
            try:
                self._leaving._family(call).version(call)
            except UnsupportedError as other:
                # Of callbacks, the error of the whole function says more.
                refused = why if isinstance(other, CallbackError) else other
            else:
                self._families_leaving.add(call.family)
                self._families.pop(call.family, None)
                return True
        if not self._options.may_use_xla:
            try:
                raise refused from None
            finally:
                del refused, why  # this frame is in their traceback
        self._family(call).gives_callbacks_to_xla = True
        return False

    def _call_leaving(self, call: Call) -> Any:
        """A call of compiled code, made once more as `jax.jit` makes it where it needs a callback.

        Inside a transformation it is a part of the program around it.
        """
        if is_staging() or any(isinstance(value, jax.core.Tracer) for value in call.values):
            self._tell_once(
                "runs as a part of the program around it, which XLA compiles: it calls back into "
                "Python in a branch"
            )
            return self._as_jax(*call.args, **call.kwargs)
        try:
            left, results = self._leaving(*call.args, **call.kwargs)
        except UnsupportedError as why:
            self._families_leaving.discard(call.family)
            if not self._is_left_to_jax(call, why):
                raise
            return self._as_jax(*call.args, **call.kwargs)
        if not left:
            return results
        self._tell_once(
            "took a branch that calls back into Python; jax.jit runs such calls, once compiled for "
            "every shape"
        )
        return self._as_jax(*call.args, **call.kwargs)

    @functools.cached_property
    def _as_jax(self) -> Any:
        """`jax.jit` of the function with its static and donated arguments."""
        return self._under_jax(self._options.function)

    @functools.cached_property
    def _in_jax(self) -> Any:
        """`jax.jit` of a call of ours with its static and donated arguments."""

        @functools.wraps(self._options.function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs)

        return self._under_jax(call)

    def _under_jax(self, function: Callable[..., Any]) -> Any:
        options = self._options
        return jax.jit(
            function,
            static_argnums=self._static_nums or None,
            static_argnames=self._static_names or None,
            donate_argnums=tuple(options.donate_nums) or None,
            donate_argnames=tuple(options.donate_names) or None,
            keep_unused=self._given.keep_unused,
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
            if call.family in self._families_of_xla:
                continue
            try:
                self._tell_parts(self._family(call).ready(call)[0])
            except CallbackError as callback:
                if self._leaves(call, callback):
                    self._leaving.warmup(given)
                else:
                    self._tell_parts(self._family(call).ready(call)[0])
            except UnsupportedError as why:
                if not self._options.may_use_xla or not self._is_left_to_jax(call, why):
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
            "by_xla": bool(self._families_of_xla) or any(v.needs_xla for v in versions),
        }

    def explain(self, format: str = "text") -> str:
        """Every version: the sizes of each argument, what is assumed of them, why, and which line
        of the program asked for it; of compiled versions also :meth:`Executable.explain`, with the
        number of calls that took each variant. Text also tells what XLA runs instead, and why.

        `format`: "text", "json" (a list of the compiled versions) or "html" (one self-contained
        page with their graphs of kernels). Raises ValueError for another.
        """
        versions = [v for family in self._families.values() for v in family.versions]
        if self._families_leaving:
            inner: str = self._leaving.explain(format)
            if format != "text":
                return inner
            told = [f"{self._options.name} {text}" for text in self._fallbacks]
            told.append(f"{self._options.name} is compiled without its callbacks into Python")
            return "\n\n".join([*told, inner])
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
        if self._families_leaving:
            found.update(dict.fromkeys(self._leaving.guards()))
        return list(found)

    def cache_info(self) -> CacheInfo:
        """Calls answered by what was compiled already, compilations, None, versions kept."""
        versions = sum(len(family.versions) for family in self._families.values())
        own = CacheInfo(self._all_hits(), self._compiler.count, None, versions)
        if not self._families_leaving:
            return own
        inner = self._leaving.cache_info()
        return CacheInfo(
            own.hits + inner.hits, own.misses + inner.misses, None, versions + inner.currsize
        )

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
            self._capturing.clear()
            self._on_several.clear()
            self._families_leaving.clear()
            self.__dict__.pop("_leaving", None)
            self._hits = self._compiler.count = 0

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


def _placed(result: Any, device: jax.Device) -> Any:
    """A result on the default device; one on the device of a committed argument stays there."""
    if type(result) is KeyArray:
        return key_of_words(result._impl.name, _placed(result._base_array, device))
    return result if result.committed else on_device(result, device)


def _refuse_shards(version: Version, types: Sequence[Any]) -> None:
    """Raise PartOfOuterError for types that are sharded where the function has no blocks."""
    if is_sharded(*types) and (version.is_in_parts or result_specs(version.program, types) is None):
        raise PartOfOuterError(
            "arguments are sharded, by their types, over dimensions that blocks of the "
            f"function do not have: {', '.join(str(t) for t in types if is_sharded(t))}"
        )


def _as_array(value: Any) -> Any:
    # JAX makes an equation of `asarray` of a tracer: a derivative then takes a third longer.
    return value if isinstance(value, jax.core.Tracer) else jax.numpy.asarray(value)
