"""The call of a compiled program inside JAX's transformations.

`shlo_disc_call` is an ordinary primitive with two parameters: a :class:`Program`, which is a jaxpr
with *symbolic* sizes, and the values of its symbols. On the CPU it lowers to one XLA FFI custom
call. A derivative, transpose or batched form of a program is again such a program, traced with
symbols and compiled once for all shapes. The values are explicit because a derived program need not
have an argument that shows every symbol: the gradient of a sum gets only a scalar.

Derived programs are made with public JAX (`jax.linearize`, `jax.linear_transpose`, `jax.vmap`) on
symbolic shapes, so nothing here depends on how JAX represents them.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from shlo_disc import flags
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import UnsupportedError
from shlo_disc.frontend.leaves import abstract
from shlo_disc.frontend.plan import Pattern
from shlo_disc.frontend.sizes import Question, SizeScope
from shlo_disc.jax_private import (
    ArrayImpl,
    export_whole,
    held_weakly,
    manual_axes,
    varying_alike,
)

if TYPE_CHECKING:
    from shlo_disc.report.profile import Profile

__all__ = ["CompiledCall", "Program", "call_p", "call_program", "compiled_once"]

Sizes = tuple[tuple[str, int], ...]
"""The values of a program's symbols, by name."""


class CompiledCall(Protocol):
    """What a program is compiled to (`shlo_disc.executable.Executable`)."""

    @property
    def fingerprint(self) -> int:
        """The attribute that names the program to the FFI target."""

    def call_leaves(self, leaves: Sequence[Any]) -> list[Any]:
        """Run on concrete arrays."""

    def as_text(self, stage: str = "disc") -> str:
        """The program at a stage of compilation."""

    def describe(
        self,
        sizes: Mapping[str, int] | None = None,
        calls: Sequence[tuple[Mapping[str, int], int]] = (),
    ) -> dict[str, Any]:
        """Its kernels and memory, as data (`report.describe`)."""

    def profile(self, *arrays: Any) -> Profile:
        """Times of its kernels."""

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Operations and bytes of a call."""

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Bytes of arguments, results and temporary memory."""


class Program:
    """A function of arrays with symbolic sizes, traced; compiled when it is first run."""

    def __init__(
        self,
        jaxpr: Any,
        symbols: Sequence[str],
        scope: SizeScope,
        name: str,
        compile: Callable[..., CompiledCall],
        executable: Callable[[], CompiledCall] | None = None,
        likely: Mapping[str, tuple[int, ...]] | None = None,
        traced_at: Mapping[str, int] | None = None,
        *,
        again: Callable[[Sizes], Program],
    ) -> None:
        self.jaxpr = jaxpr
        """Closed; its arguments are exactly the program's."""
        self.symbols = tuple(symbols)
        self.scope = scope
        self.name = name
        self.likely = dict(likely or {})
        """Values of symbols to have specialised kernels for, in derived programs too."""
        self._compile = compile
        self._given = executable
        self._traced_at = dict(traced_at or {})
        self._again = again
        self._siblings: list[Program] = []
        self._derived: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @property
    def in_avals(self) -> list[Any]:
        """The abstract arguments."""
        return list(self.jaxpr.in_avals)

    @property
    def out_avals(self) -> list[Any]:
        """The abstract results."""
        return list(self.jaxpr.out_avals)

    @property
    def run(self) -> Callable[..., list[Any]]:
        """The program as a JAX function of flat arguments."""
        function: Callable[..., list[Any]] = jaxpr_as_fun(self.jaxpr)
        return function

    @cached_property
    def needs_carrier(self) -> bool:
        """Is there a symbol that the shapes of the arguments do not determine?"""
        dims = tuple(tuple(Expr.parse(str(size)) for size in aval.shape) for aval in self.in_avals)
        pattern = Pattern(tuple("" for _ in dims), dims)
        return not pattern.is_solvable or set(pattern.symbols) != set(self.symbols)

    @cached_property
    def executable(self) -> CompiledCall:
        """The program, compiled; equal programs are compiled once."""
        if self._given is not None:
            return self._given()
        specs = [_spec(aval) for aval in self.in_avals]
        run = self.run
        count = len(specs)
        if self.needs_carrier:
            # An argument without elements whose sizes are the symbols.
            text = "(" + "".join(f"{symbol}, " for symbol in self.symbols) + "0)"
            carrier = export.symbolic_shape(text, scope=self.scope)
            specs.append(abstract(carrier, np.float32))

        def call(*args: Any) -> list[Any]:
            return run(*args[:count])

        call.__name__ = call.__qualname__ = self.name
        jitted = jax.jit(call, keep_unused=True)
        with self.scope.asking(self._traced_at):
            program = export_whole(jitted, specs, {})
        likely = {"likely": self.likely} if self.likely else {}
        return compiled_once(program, self._compile, name=self.name, **likely)

    def result_avals(self, sizes: Sizes) -> list[Any]:
        """The results for these values of the symbols."""
        values = dict(sizes)
        return [
            aval.update(shape=tuple(Expr.parse(str(s)).evaluate(values) for s in aval.shape))
            for aval in self.out_avals
        ]

    # -- derived programs -----------------------------------------------------------------------

    def _memo(self, key: Any, sizes: Sizes, make: Callable[[Program], Any]) -> Any:
        """What `make` derives from the program, for these values of the symbols.

        Rules of the user (`custom_jvp`, `custom_vmap`) may ask about sizes, and JAX keeps what a
        rule traced. Sizes that break an answer therefore get the program traced anew.
        """
        values = dict(sizes)
        with self._lock:
            program = next((p for p in (self, *self._siblings) if p.scope.allows(values)), None)
            if program is None:
                program = self._again(sizes)
                self._siblings.append(program)
        with program._lock:
            if key not in program._derived:
                with program.scope.asking(values) as session:
                    program._derived[key] = make(program)
                program.scope.answers += session.questions.values()
            return program._derived[key]

    def questions(self) -> list[Question]:
        """What rules asked about sizes in programs derived from this one."""
        programs = (self, *self._siblings)
        return [question for program in programs for question in program.scope.answers]

    def derive(
        self,
        function: Callable[..., Any],
        specs: Sequence[Any],
        suffix: str,
        *more: str,
        executable: Callable[[], CompiledCall] | None = None,
        again: Callable[[Program, Sizes], Program],
    ) -> Program:
        """`function` of flat arrays as a program in this scope, with `more` symbols.

        `again` derives it once more, from this program traced anew.
        """
        function.__name__ = function.__qualname__ = name = f"{self.name}_{suffix}"
        mine, anew = frozenset(self.symbols), self._again

        def from_the_start(sizes: Sizes) -> Program:
            # Holds neither this program nor the derived one: they hold each other already.
            return again(anew(tuple(item for item in sizes if item[0] in mine)), sizes)

        jaxpr = jax.jit(function, keep_unused=True).trace(*specs).jaxpr
        symbols = (*self.symbols, *more)
        return Program(
            jaxpr,
            symbols,
            self.scope,
            name,
            self._compile,
            executable,
            self.likely,
            self.scope.session.hints,
            again=from_the_start,
        )

    def _own(self, sizes: Sizes) -> Sizes:
        return tuple((name, value) for name, value in sizes if name in self.symbols)

    def linearized(self, nonzero: tuple[bool, ...], sizes: Sizes) -> _Linearized:
        """The program with what its derivative needs, and the derivative itself.

        `nonzero`: which arguments have tangents.
        """
        linear: _Linearized = self._memo(
            ("linearized", nonzero), sizes, lambda program: _Linearized(program, nonzero)
        )
        return linear

    def transposed(
        self, linear: tuple[bool, ...], nonzero: tuple[bool, ...], sizes: Sizes
    ) -> Program:
        """`(other arguments, cotangents) -> cotangents of the linear arguments`."""

        def make(program: Program) -> Program:
            specs = [_spec(aval) for aval in program.in_avals]
            out = [_spec(aval) for aval, nz in zip(program.out_avals, nonzero, strict=True) if nz]
            rest = [spec for spec, is_linear in zip(specs, linear, strict=True) if not is_linear]
            into = [spec for spec, is_linear in zip(specs, linear, strict=True) if is_linear]

            def transpose(*args: Any) -> Any:
                known, cotangents = args[: len(rest)], list(args[len(rest) :])

                def function(*unknown: Any) -> list[Any]:
                    results = program.run(*_merged(linear, unknown, known))
                    return [x for x, nz in zip(results, nonzero, strict=True) if nz]

                return jax.linear_transpose(function, *into)(cotangents)

            return program.derive(
                transpose,
                [*rest, *out],
                "transpose",
                again=lambda fresh, at: fresh.transposed(linear, nonzero, fresh._own(at)),
            )

        program: Program = self._memo(("transposed", linear, nonzero), sizes, make)
        return program

    def batched(
        self, axes: tuple[int | None, ...], count: int, sizes: Sizes
    ) -> tuple[Program, str]:
        """The program over a batch of `count`, results with the batch in front; and the symbol of
        its size.
        """
        symbol = next(
            name for k in range(len(self.symbols) + 1) if (name := f"v{k}") not in self.symbols
        )

        def make(program: Program) -> Program:
            (size,) = export.symbolic_shape(symbol, scope=program.scope)
            specs = []
            for aval, axis in zip(program.in_avals, axes, strict=True):
                shape = list(aval.shape)
                if axis is not None:
                    shape.insert(axis, size)
                specs.append(_spec(aval.update(shape=tuple(shape))))

            def batch(*args: Any) -> Any:
                return jax.vmap(program.run, in_axes=axes)(*args)

            return program.derive(
                batch,
                specs,
                "vmap",
                symbol,
                again=lambda fresh, at: fresh.batched(axes, dict(at)[symbol], fresh._own(at))[0],
            )

        return self._memo(("batched", axes), (*sizes, (symbol, count)), make), symbol

    def __repr__(self) -> str:
        return f"<{self.name} of {', '.join(str(aval) for aval in self.in_avals)}>"


held_weakly(Program)


class _Linearized:
    """A program split: `forward` gives results and residuals, `tangent` is linear."""

    def __init__(self, program: Program, nonzero: tuple[bool, ...]) -> None:
        shape_of: list[Any] = []
        count = len(program.out_avals)
        self.smooth = tuple(_is_smooth(aval) for aval in program.out_avals)

        def forward(*args: Any) -> Any:
            known = [x for x, nz in zip(args, nonzero, strict=True) if not nz]

            def function(*unknown: Any) -> list[Any]:
                return program.run(*_merged(nonzero, unknown, known))

            unknown = [x for x, nz in zip(args, nonzero, strict=True) if nz]
            results, linear = jax.linearize(function, *unknown)
            residuals, tree = jax.tree.flatten(linear)
            shape_of.append(tree)
            return [*results, *residuals]

        specs = [_spec(aval) for aval in program.in_avals]
        full = program.derive(
            forward,
            specs,
            "forward",
            again=lambda fresh, at: fresh.linearized(nonzero, fresh._own(at)).forward,
        )
        tree = shape_of[-1]
        self._place_residuals(full, count)
        keep = [*range(count), *self._kept]

        def trimmed(*args: Any) -> list[Any]:
            results = full.run(*args)
            return [results[k] for k in keep]

        self.forward = full.derive(trimmed, specs, "", again=lambda fresh, _: fresh)
        self.forward.name = full.name
        residuals = [_spec(aval) for aval in full.out_avals[count:]]
        tangents = [_spec(aval) for aval, nz in zip(program.in_avals, nonzero, strict=True) if nz]

        def tangent(*args: Any) -> list[Any]:
            linear = jax.tree.unflatten(tree, args[: len(residuals)])
            results = linear(*args[len(residuals) :])
            return [x for x, smooth in zip(results, self.smooth, strict=True) if smooth]

        self.tangent = program.derive(
            tangent,
            [*residuals, *tangents],
            "tangent",
            again=lambda fresh, at: fresh.linearized(nonzero, fresh._own(at)).tangent,
        )

    def _place_residuals(self, full: Program, count: int) -> None:
        """Residuals that are arguments or results need not be results of their own (weights!)."""
        inner = getattr(full.jaxpr, "jaxpr", full.jaxpr)
        arguments = {id(v): k for k, v in enumerate(inner.invars)}
        results = {id(v): k for k, v in reversed(list(enumerate(inner.outvars)))}
        self._kept: list[int] = []
        self._sources: list[tuple[str, int]] = []
        for k in range(count, len(inner.outvars)):
            variable = inner.outvars[k]
            first = results[id(variable)]
            if id(variable) in arguments:
                self._sources.append(("argument", arguments[id(variable)]))
            elif first < count:
                self._sources.append(("result", first))
            elif first in self._kept:
                self._sources.append(("result", count + self._kept.index(first)))
            else:
                self._kept.append(k)
                self._sources.append(("result", count + len(self._kept) - 1))

    def residuals(self, arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The residuals out of the arguments and results of `forward`."""
        places = {"argument": arguments, "result": results}
        return [places[kind][k] for kind, k in self._sources]


def _spec(aval: Any) -> jax.ShapeDtypeStruct:
    return abstract(aval.shape, aval.dtype, aval.weak_type)


def _merged(mask: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    a, b = iter(chosen), iter(others)
    return [next(a) if use else next(b) for use in mask]


def _is_smooth(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, np.inexact))


# ---- compiled programs, by their bytes --------------------------------------------------------

_programs: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_pending: dict[str, threading.Lock] = {}
_programs_lock = threading.Lock()


def compiled_once(
    exported: export.Exported, compile: Callable[..., CompiledCall], **options: Any
) -> CompiledCall:
    """`compile(exported, **options)`; equal programs alive at the same time are compiled once."""
    digest = hashlib.sha256(exported.mlir_module_serialized)
    digest.update(repr((sorted(options.items()), flags.fusion())).encode())
    key = digest.hexdigest()
    with _programs_lock:
        lock = _pending.setdefault(key, threading.Lock())
    with lock:  # programs that differ are compiled side by side
        found: CompiledCall | None = _programs.get(key)
        if found is None:
            found = _programs[key] = compile(exported, **options)
    with _programs_lock:
        _pending.pop(key, None)
    return found


# ---- the primitive ----------------------------------------------------------------------------

call_p: Any = Primitive("shlo_disc_call")
call_p.multiple_results = True


def call_program(arguments: Sequence[Any], program: Program, sizes: Sizes) -> list[Any]:
    """The results of a program under whatever transformations are in force."""
    # All arguments must vary over the same manual axes, or gradients under shard_map are wrong.
    arguments = varying_alike(arguments)
    results: list[Any] = call_p.bind(*arguments, program=program, sizes=sizes)
    return results


def _abstract(*arguments: Any, program: Program, sizes: Sizes) -> list[Any]:
    return manual_axes("shlo_disc_call", arguments, program.result_avals(sizes))


def _carrier(program: Program, sizes: Sizes) -> tuple[int, ...]:
    values = dict(sizes)
    return (*(values[symbol] for symbol in program.symbols), 0)


def _evaluate(*arguments: Any, program: Program, sizes: Sizes) -> list[Any]:
    leaves = [x if type(x) is ArrayImpl else np.asarray(x) for x in arguments]
    executable = program.executable
    if program.needs_carrier:
        leaves.append(np.zeros(_carrier(program, sizes), np.float32))
    return executable.call_leaves(leaves)


def _ffi_call(
    executable: CompiledCall, results: Sequence[Any], carrier: tuple[int, ...] | None
) -> Callable[..., Any]:
    """The custom call as a JAX function."""
    attributes: dict[str, Any] = {"executable": np.int64(executable.fingerprint)}
    if carrier is not None:
        attributes["sizes"] = np.asarray(carrier, np.int64)
    call = jax.ffi.ffi_call(_target(), results)
    return lambda *arguments: call(*arguments, **attributes)


def _target() -> str:
    from shlo_disc.ral import FFI_TARGET  # noqa: PLC0415 - only real executables need the runtime

    return FFI_TARGET


def _lower(*arguments: Any, program: Program, sizes: Sizes) -> Any:
    results = [abstract(a.shape, a.dtype) for a in program.result_avals(sizes)]
    carrier = _carrier(program, sizes) if program.needs_carrier else None
    return _ffi_call(program.executable, results, carrier)(*arguments)


_lower_call = mlir.lower_fun(_lower, multiple_results=True)


def _lower_on_cpu(context: Any, *arguments: Any, program: Program, sizes: Sizes) -> Any:
    # The module names the program by a number: until XLA has compiled it, and so found the program,
    # somebody must keep the program alive.
    context.module_context.add_keepalive(program.executable)
    return _lower_call(context, *arguments, program=program, sizes=sizes)


def _lower_elsewhere(context: Any, *arguments: Any, program: Program, sizes: Sizes) -> Any:
    raise UnsupportedError(
        f"{program.name} is compiled for the CPU, but was used in a jax.jit for "
        f"{', '.join(context.module_context.platforms)}. Call it outside that jit, or run the jit "
        "on the CPU: with jax.default_device(jax.devices('cpu')[0])."
    )


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, sizes: Sizes
) -> tuple[list[Any], list[Any]]:
    # Two calls, so that partial evaluation can run the first and keep the second for later.
    nonzero = tuple(type(t) is not ad.Zero for t in tangents)
    linear = program.linearized(nonzero, sizes)
    results = call_program(primals, linear.forward, sizes)
    residuals = linear.residuals(primals, results)
    moving = [t for t, nz in zip(tangents, nonzero, strict=True) if nz]
    slopes = iter(call_program([*residuals, *moving], linear.tangent, sizes))
    outputs = results[: len(program.out_avals)]
    return outputs, [
        next(slopes) if smooth else ad.Zero(jax.typeof(x).to_tangent_aval())
        for x, smooth in zip(outputs, linear.smooth, strict=True)
    ]


def _transpose(
    cotangents: Sequence[Any], *arguments: Any, program: Program, sizes: Sizes
) -> list[Any]:
    linear = tuple(isinstance(x, ad.UndefinedPrimal) for x in arguments)
    nonzero = tuple(type(c) is not ad.Zero for c in cotangents)
    known = [x for x, is_linear in zip(arguments, linear, strict=True) if not is_linear]
    given = [c for c, nz in zip(cotangents, nonzero, strict=True) if nz]
    back = iter(call_program([*known, *given], program.transposed(linear, nonzero, sizes), sizes))
    return [next(back) if is_linear else None for is_linear in linear]


def _batch(
    arguments: Sequence[Any], axes: Sequence[Any], *, program: Program, sizes: Sizes
) -> tuple[list[Any], list[int]]:
    places = tuple(None if axis is None else int(axis) for axis in axes)
    size = next(
        x.shape[axis] for x, axis in zip(arguments, places, strict=True) if axis is not None
    )
    if size == 0:  # symbols are at least 1, and there is nothing to compute
        empty = [jnp.zeros((0, *a.shape), a.dtype) for a in program.result_avals(sizes)]
        return empty, [0] * len(empty)
    batched, symbol = program.batched(places, size, sizes)
    results = call_program(arguments, batched, (*sizes, (symbol, size)))
    return results, [0] * len(results)


call_p.def_impl(_evaluate)
call_p.def_abstract_eval(_abstract)
ad.primitive_jvps[call_p] = _jvp
ad.primitive_transposes[call_p] = _transpose
batching.primitive_batchers[call_p] = _batch
mlir.register_lowering(call_p, _lower_elsewhere)
mlir.register_lowering(call_p, _lower_on_cpu, platform="cpu")
