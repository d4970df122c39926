"""Programs with symbolic sizes, and those JAX derives from them.

Derived programs are made with public JAX (`jax.linearize`, `jax.linear_transpose`, `jax.vmap`) on
symbolic shapes, so nothing here depends on how JAX represents them. Where a rule of JAX refuses
symbols, the sizes in its way become constants: the program is traced anew with their numbers, once
for every value.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend.core import jaxpr_as_fun

from shlo_disc import flags, locks
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import ForkError, UnsupportedError
from shlo_disc.frontend.dependence import dependent
from shlo_disc.frontend.leaves import abstract
from shlo_disc.frontend.lowered import LoweredModule, lowered_module
from shlo_disc.frontend.messages import ShapeError
from shlo_disc.frontend.nesting import BusyError, in_turn, nested
from shlo_disc.frontend.plan import Guard, Pattern
from shlo_disc.frontend.sizes import Question, SizeScope
from shlo_disc.frontend.splits import Split, split_along
from shlo_disc.frontend.staged import Staged
from shlo_disc.jax_private import held_weakly, named_axes, without_mesh
from shlo_disc.threads import lets_others_run

if TYPE_CHECKING:
    from shlo_disc.report.profile import Profile

__all__ = ["CompiledCall", "Program", "Sizes", "compiled_once"]

_log = logging.getLogger("shlo_disc")

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


_TRIALS = 6
"""Sizes that are tried one by one as constants when an error of JAX names none."""


_NO_LINEARIZATION = "Linearization failed to produce known values"
"""How JAX says that an operation has a derivative in forward mode only."""


class _OtherFormError(Exception):
    """A program traced anew is called in another way: JAX keeps other values for a derivative."""


class Anew(Protocol):
    """Traces a program once more."""

    def __call__(self, sizes: Sizes, constants: frozenset[str]) -> Program:
        """The program traced at `sizes`, with the symbols `constants` as these numbers.

        Raises whatever the trace raises, and InconclusiveDimensionOperation for a symbol that the
        user wants to stay one.
        """


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
        again: Anew,
        constants: Sizes = (),
        batches: Sequence[str] = (),
        guards: Sequence[Guard] = (),
    ) -> None:
        self.jaxpr = jaxpr
        """Closed; its arguments are exactly the program's."""
        self.symbols = tuple(symbols)
        self.constants = constants
        """Symbols of the function that are numbers here, because a rule of JAX needs them."""
        self.batches = tuple(batches)
        """Those of `symbols` that are sizes of batches."""
        self.guards = tuple(guards)
        """What the version assumes of sizes."""
        self.scope = scope
        self.name = name
        self.likely = dict(likely or {})
        """Values of symbols to have specialised kernels for, in derived programs too."""
        self._compile = compile
        self._given = executable
        self.traced_at = dict(traced_at or {})
        """The values of the symbols in the trace."""
        self._again = again
        self._siblings: list[Program] = []
        self._derived: dict[Any, Any] = {}
        self._depends: dict[tuple[bool, ...], tuple[bool, ...]] = {}
        self._needs: dict[Any, frozenset[str]] = {}
        """The symbols that have to be constants for a derived program, by its key."""
        self._reasons: list[Question] = []
        self._lowered: LoweredModule | None = None
        self._ran_at: Sizes | None = None
        """Values for which :meth:`at` is this program, as was found last."""
        self._compiled: CompiledCall | None = None
        self._turn = locks.reentrant_lock()
        """Held while something is derived, by code of the user too."""
        self._tables = locks.lock()
        """Held while the fields above are read and written."""

    @property
    def in_avals(self) -> list[Any]:
        """The abstract arguments."""
        return list(self.jaxpr.in_avals)

    @property
    def out_avals(self) -> list[Any]:
        """The abstract results."""
        return list(self.jaxpr.out_avals)

    @cached_property
    def smooth(self) -> tuple[bool, ...]:
        """Which results have tangents: those of floating point."""
        return tuple(_is_smooth(aval) for aval in self.out_avals)

    def depends(self, moving: tuple[bool, ...]) -> tuple[bool, ...]:
        """For every result: False only if no argument in `moving` can change it."""
        found = self._depends.get(moving)
        if found is None:
            found = self._depends[moving] = dependent(self.jaxpr, moving)
        return found

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
    def needs_axes(self) -> bool:
        """True for a program with collectives over axes of the program around it.

        Rules of the user may have them (`custom_vjp`) where the function itself has none.
        """
        return bool(named_axes(self.jaxpr))

    def at(self, sizes: Sizes) -> Program:
        """The program to run for these values of the symbols.

        It is this one if JAX can lower it, and asks nothing that has another answer for them.
        """
        if self._given is not None or sizes == self._ran_at:
            return self
        program, _ = self._found("lowered", sizes, lambda program, _: program._lower())
        program._ran_at = sizes
        return program

    def _lower(self) -> None:
        if self._given is None and self._lowered is None:
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
            self._lowered = lowered_module(self.name, jitted, specs, {})

    @property
    def executable(self) -> CompiledCall:
        """The program, compiled; equal programs are compiled once. See :meth:`at`."""
        # No `cached_property`: in Python 3.11 it has one lock for the programs of all threads.
        if self._compiled is None:
            self._compiled = self._compile_now() if self._given is None else self._given()
        return self._compiled

    def _compile_now(self) -> CompiledCall:
        options: dict[str, Any] = {"likely": self.likely} if self.likely else {}
        weak = [bool(aval.weak_type) for aval in self.out_avals]
        if any(weak):
            options["weak_results"] = weak
        return compiled_once(self.lowered, self._compile, name=self.name, **options)

    @property
    def lowered(self) -> LoweredModule:
        """The program as the compiler takes it, with a carrier of its symbols if need be."""
        if self._lowered is None:
            with self.scope.asking(self.traced_at):
                self._lower()
        assert self._lowered is not None
        return self._lowered

    def result_avals(self, sizes: Sizes) -> list[Any]:
        """The results for these values of the symbols."""
        values = dict(sizes)
        return [
            aval.update(shape=tuple(Expr.parse(str(s)).evaluate(values) for s in aval.shape))
            for aval in self.out_avals
        ]

    def shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        """The shapes of arguments, then of results, for these values of the symbols."""
        return [shape for shape, _ in _signature(self, dict(sizes))]

    def with_numbers(self, sizes: Sizes) -> Program:
        """The same program with a constant for every symbol.

        Raises UnsupportedError where JAX derives another one from constant sizes, and where the
        user wants sizes to stay symbols.
        """
        self._need("numbers", frozenset(self.symbols))
        try:
            return self._found("numbers", sizes, lambda *_: None)[0]
        except (_OtherFormError, jax.errors.InconclusiveDimensionOperation) as error:
            raise UnsupportedError(
                f"{self.name} cannot be a part of the program around it ({error}); call that, "
                "checkify or a vmap with an axis name, inside shlo_disc.jit"
            ) from error

    # -- blocks of a program --------------------------------------------------------------------

    @cached_property
    def splits(self) -> dict[str, Split | str]:
        """Each symbol, with how the program is split along it, or the reason why it is not."""
        return {symbol: split_along(self.jaxpr, symbol) for symbol in self.symbols}

    def runs_at(self, sizes: Sizes) -> bool:
        """True if this very program computes what it stands for at `sizes`, those of a block."""
        values = dict(sizes)
        known = [guard for guard in self.guards if guard.symbols() <= values.keys()]
        if not self._fits(values) or not all(guard.holds(values) for guard in known):
            return False
        return self.at(sizes) is self

    def staged(self, sizes: Sizes, symbols: frozenset[str]) -> Staged:
        """The program of a block along `symbols`, in stages between which blocks add up sums.

        The program may be split along each of the symbols.
        """

        def make(program: Program, _: frozenset[str]) -> Staged:
            every = [program.splits[symbol] for symbol in sorted(symbols)]
            splits = [split for split in every if isinstance(split, Split)]

            def stage(function: Callable[..., Any], avals: Sequence[Any], number: int) -> Program:
                return program.derive(
                    function,
                    [_spec(aval) for aval in avals],
                    f"stage{number}",
                    again=lambda fresh, at, _: fresh.staged(at, symbols).stages[number].program,
                )

            with without_mesh():
                return Staged(program.jaxpr, splits, stage)

        staged: Staged = self._memo(("staged", symbols), sizes, make)
        return staged

    # -- derived programs -----------------------------------------------------------------------

    def _fits(self, values: Mapping[str, int]) -> bool:
        """True if what the program assumes of the sizes is true of `values`."""
        return self.scope.allows(values) and all(values[name] == v for name, v in self.constants)

    def _memo(self, key: Any, sizes: Sizes, make: _Make, more: tuple[str, ...] = ()) -> Any:
        return self._found(key, sizes, make, more)[1]

    def _found(
        self, key: Any, sizes: Sizes, make: _Make, more: tuple[str, ...] = ()
    ) -> tuple[Program, Any]:
        """What `make` derives, for these values of the symbols, and the program it is derived from.

        `make` gets a program and those of `more`, the symbols it adds, that shall be constants.

        Rules of the user (`custom_jvp`, `custom_vmap`) may ask about sizes, and JAX keeps what a
        rule traced. Sizes that break an answer therefore get the program traced anew; so do sizes
        that a rule needs as numbers.
        """
        values = dict(sizes)
        with self._tables:
            needs = self._needs.get(key, frozenset())
        own = needs.difference(more)
        try:
            program = self._fitting(sizes, own)
        except BusyError:  # a program of this thread alone, for which nobody waits
            program = self._anew(sizes, own)
        try:
            try:
                return program, program._made(key, values, make, needs.intersection(more))
            except BusyError:
                program = self._anew(sizes, own)
                return program, program._made(key, values, make, needs.intersection(more))
        except (UnsupportedError, ForkError):
            raise
        except Exception as error:
            return self._with_constants(key, sizes, make, more, program, error)

    def _fitting(self, sizes: Sizes, own: frozenset[str]) -> Program:
        """The program at these sizes, with the constants `own`: this one, or it traced anew."""
        values = dict(sizes)
        with in_turn(self._turn):
            for program in (self, *self._siblings):
                if program._fits(values) and own <= {name for name, _ in program.constants}:
                    return program
            program = self._anew(sizes, own)
            self._add(program)
            return program

    def _add(self, sibling: Program) -> None:
        with self._tables:
            self._siblings.append(sibling)

    def _need(self, key: Any, names: frozenset[str]) -> None:
        """Let these symbols be constants from now on in what is derived as `key`."""
        with self._tables:
            self._needs[key] = self._needs.get(key, frozenset()) | names

    def _anew(self, sizes: Sizes, constants: frozenset[str]) -> Program:
        """The program at these sizes, with these and its own constants as numbers."""
        program = self._again(sizes, constants.union(name for name, _ in self.constants))
        values = dict(sizes)
        if _signature(program, values) != _signature(self, values):
            raise _OtherFormError("the program has other arguments with constant sizes")
        return program

    @lets_others_run
    def _made(
        self, key: Any, values: Mapping[str, int], make: _Make, constants: frozenset[str]
    ) -> Any:
        full = key, tuple((name, values[name]) for name in sorted(constants))
        with in_turn(self._turn):
            if full not in self._derived:
                with self.scope.asking(values) as session, nested():
                    made = make(self, constants)
                self._derived[full] = made
                self.scope.answers += session.questions.values()
            return self._derived[full]

    def _with_constants(
        self,
        key: Any,
        sizes: Sizes,
        make: _Make,
        more: tuple[str, ...],
        program: Program,
        error: Exception,
    ) -> tuple[Program, Any]:
        """What `make` derives with constants for the sizes in JAX's way; raises without any.

        Those the error names are tried first, then those of batches, then each alone. An error that
        stays when all sizes are constants is one of the user's program.
        """
        values = dict(sizes)
        every = frozenset((*program.symbols, *more))
        problem = ShapeError(error, {name: values[name] for name in every})

        def attempt(constants: frozenset[str]) -> tuple[Program, Any]:
            own = constants.difference(more)
            fresh = program._anew(sizes, own) if own else program
            try:
                return fresh, fresh._made(key, values, make, constants.intersection(more))
            except BusyError:
                fresh = program._anew(sizes, own)
                return fresh, fresh._made(key, values, make, constants.intersection(more))

        def first(trials: Iterable[frozenset[str]]) -> tuple[frozenset[str], Program, Any] | None:
            for constants in trials:
                try:
                    return constants, *attempt(constants)
                except (UnsupportedError, ForkError):
                    raise
                except Exception as other:
                    _log.debug("%s: not with %s: %s", self.name, sorted(constants), other)
                    if constants == every and not isinstance(other, _OtherFormError):
                        other.add_note(f"with symbolic sizes: {error}")
                        raise other from error
            return None

        one = problem.must_be_constant()
        named = one.symbols() if one is not None else every.intersection(problem.named())
        batches = frozenset((*program.batches, *more))
        found = first(s for s in dict.fromkeys((named, batches)) if s and s != every)
        whole = first([every]) if found is None else None
        if found is None and len(every) > 1:
            last = (*program.symbols, *more)[: -_TRIALS - 1 : -1]
            found = first(frozenset([name]) for name in last)
        found = found or whole
        if found is None:
            try:
                raise error
            finally:
                del error, problem  # this frame is in its traceback
        constants, fresh, made = found
        if fresh is not program:
            self._add(fresh)
        self._need(key, constants)
        with self._tables:
            self._reasons += [
                Question(
                    Expr.symbol(name),
                    "==",
                    Expr.const(values[name]),
                    problem.sentence,
                    problem.where,
                )
                for name in sorted(constants)
            ]
        _log.warning(
            "%s: %s made a constant in a derived program, compiled again for other values: %s",
            self.name,
            ", ".join(sorted(constants)) + (" is" if len(constants) == 1 else " are"),
            problem.sentence,
        )
        return fresh, made

    def questions(self) -> list[Question]:
        """What was asked about sizes in programs derived from this one, and their constants."""
        found: dict[Question, None] = {}
        for program in self._relatives():
            found.update(dict.fromkeys((*program.scope.answers, *program._reasons)))
        return list(found)

    def _relatives(self) -> Iterator[Program]:
        for program in (self, *self._siblings):
            yield program
            for derived in list(program._derived.values()):
                for inner in _programs_of(derived):
                    yield from inner._relatives()

    def derive(
        self,
        function: Callable[..., Any],
        specs: Sequence[Any],
        suffix: str,
        more: Mapping[str, int | None] | None = None,
        *,
        executable: Callable[[], CompiledCall] | None = None,
        again: Callable[[Program, Sizes, frozenset[str]], Program],
    ) -> Program:
        """`function` of flat arrays as a program in this scope.

        `more`: symbols it adds, or the values of those that are constants. `again` derives it once
        more, from this program traced anew.
        """
        function.__name__ = function.__qualname__ = name = f"{self.name}_{suffix}"
        anew, added = self._again, dict(more or {})

        def from_the_start(sizes: Sizes, constants: frozenset[str]) -> Program:
            # Holds neither this program nor the derived one: they hold each other already.
            return again(anew(sizes, constants.difference(added)), sizes, constants)

        jaxpr = jax.jit(function, keep_unused=True).trace(*specs).jaxpr
        if len(jaxpr.in_avals) != len(specs):
            raise UnsupportedError(
                f"a custom_jvp or custom_vjp rule of {self.name} reads a variable of the program "
                "around it; pass it as an argument of the rule's function"
            )
        batches = [name for name, value in added.items() if value is None]
        return Program(
            jaxpr,
            (*self.symbols, *batches),
            self.scope,
            name,
            self._compile,
            executable,
            self.likely,
            self.scope.session.hints,
            again=from_the_start,
            constants=(
                *self.constants,
                *((name, value) for name, value in added.items() if value is not None),
            ),
            batches=(*self.batches, *batches),
            guards=self.guards,
        )

    def linearized(self, nonzero: tuple[bool, ...], sizes: Sizes) -> _Linearized | None:
        """The program with what its derivative needs, and the derivative itself.

        None if JAX cannot split them (`lax.reduce_window` of a function that is no known one):
        there is no reverse mode, and :meth:`pushed_forward` has the derivative. `nonzero`: which
        arguments have tangents.
        """

        def make(program: Program, _: frozenset[str]) -> _Linearized | None:
            try:
                return _Linearized(program, nonzero)
            except ValueError as error:
                if _NO_LINEARIZATION not in str(error):
                    raise
                return None

        linear: _Linearized | None = self._memo(("linearized", nonzero), sizes, make)
        return linear

    def _split(self, nonzero: tuple[bool, ...], sizes: Sizes) -> _Linearized:
        linear = self.linearized(nonzero, sizes)
        assert linear is not None
        return linear

    def pushed_forward(self, nonzero: tuple[bool, ...], sizes: Sizes) -> Program:
        """`(arguments, tangents) -> (results, tangents of the smooth ones)`."""

        def make(program: Program, _: frozenset[str]) -> Program:
            specs = [_spec(aval) for aval in program.in_avals]
            moving = [spec for spec, nz in zip(specs, nonzero, strict=True) if nz]

            def push(*args: Any) -> list[Any]:
                arguments, tangents = args[: len(specs)], args[len(specs) :]
                known = [x for x, nz in zip(arguments, nonzero, strict=True) if not nz]

                def function(*unknown: Any) -> list[Any]:
                    return program.run(*_merged(nonzero, unknown, known))

                unknown = [x for x, nz in zip(arguments, nonzero, strict=True) if nz]
                results, slopes = jax.jvp(function, unknown, list(tangents))
                kept = zip(slopes, program.smooth, strict=True)
                return [*results, *(x for x, smooth in kept if smooth)]

            return program.derive(
                push,
                [*specs, *moving],
                "jvp",
                again=lambda fresh, at, _: fresh.pushed_forward(nonzero, at),
            )

        program: Program = self._memo(("pushed forward", nonzero), sizes, make)
        return program

    def transposed(
        self, linear: tuple[bool, ...], nonzero: tuple[bool, ...], sizes: Sizes
    ) -> Program:
        """`(other arguments, cotangents) -> cotangents of the linear arguments`."""

        def make(program: Program, _: frozenset[str]) -> Program:
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
                again=lambda fresh, at, _: fresh.transposed(linear, nonzero, at),
            )

        program: Program = self._memo(("transposed", linear, nonzero), sizes, make)
        return program

    def batched(
        self,
        axes: tuple[int | None, ...],
        count: int,
        sizes: Sizes,
        constants: frozenset[str] = frozenset(),
        axis_name: Hashable = None,
    ) -> tuple[Program, str]:
        """The program over a batch of `count`, and the symbol of its size, a constant if it is one
        of `constants`. Results that depend on the batch have it in front.

        `axis_name`: what rules of the user may call the axis of the batch.
        """
        taken = {*self.symbols, *(name for name, _ in self.constants)}
        symbol = next(name for k in range(len(taken) + 1) if (name := f"v{k}") not in taken)

        def make(program: Program, constants: frozenset[str]) -> Program:
            size: Any = count
            if symbol not in constants:
                (size,) = export.symbolic_shape(symbol, scope=program.scope)
            specs = []
            for aval, axis in zip(program.in_avals, axes, strict=True):
                shape = list(aval.shape)
                if axis is not None:
                    shape.insert(axis, size)
                specs.append(_spec(aval.update(shape=tuple(shape))))

            depends = program.depends(tuple(axis is not None for axis in axes))

            def batch(*args: Any) -> Any:
                results = jax.vmap(program.run, in_axes=axes, axis_name=axis_name)(*args)
                return [x if d else x[0] for x, d in zip(results, depends, strict=True)]

            return program.derive(
                batch,
                specs,
                "vmap",
                {symbol: count if symbol in constants else None},
                again=lambda fresh, at, names: fresh.batched(
                    axes, dict(at)[symbol], at, names, axis_name
                )[0],
            )

        key = "batched", axes, axis_name
        self._need(key, constants & {symbol})
        return self._memo(key, (*sizes, (symbol, count)), make, (symbol,)), symbol

    def __repr__(self) -> str:
        return f"<{self.name} of {', '.join(str(aval) for aval in self.in_avals)}>"


held_weakly(Program)


class _Linearized:
    """A program split: `forward` gives results and residuals, `tangent` is linear."""

    def __init__(self, program: Program, nonzero: tuple[bool, ...]) -> None:
        shape_of: list[Any] = []
        count = len(program.out_avals)

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
            again=lambda fresh, at, _: fresh._split(nonzero, at).forward,
        )
        tree = shape_of[-1]
        self._place_residuals(full, count)
        keep = [*range(count), *self._kept]

        def trimmed(*args: Any) -> list[Any]:
            results = full.run(*args)
            return [results[k] for k in keep]

        self.forward = full.derive(trimmed, specs, "", again=lambda fresh, *_: fresh)
        self.forward.name = full.name
        residuals = [_spec(aval) for aval in full.out_avals[count:]]
        tangents = [_spec(aval) for aval, nz in zip(program.in_avals, nonzero, strict=True) if nz]

        def tangent(*args: Any) -> list[Any]:
            linear = jax.tree.unflatten(tree, args[: len(residuals)])
            results = linear(*args[len(residuals) :])
            return [x for x, smooth in zip(results, program.smooth, strict=True) if smooth]

        self.tangent = program.derive(
            tangent,
            [*residuals, *tangents],
            "tangent",
            again=lambda fresh, at, _: fresh._split(nonzero, at).tangent,
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


_Make: TypeAlias = Callable[[Program, frozenset[str]], Any]


def _signature(program: Program, values: Mapping[str, int]) -> list[Any]:
    """The types of arguments and results at these values of the symbols."""
    return [
        (tuple(Expr.parse(str(size)).evaluate(values) for size in aval.shape), aval.dtype)
        for aval in (*program.in_avals, *program.out_avals)
    ]


def _programs_of(derived: Any) -> tuple[Program, ...]:
    if isinstance(derived, _Linearized):
        return derived.forward, derived.tangent
    if isinstance(derived, Staged):
        return tuple(stage.program for stage in derived.stages)
    return (derived,) if isinstance(derived, Program) else ()


def _spec(aval: Any) -> jax.ShapeDtypeStruct:
    return abstract(aval.shape, aval.dtype, aval.weak_type)


def _merged(mask: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    a, b = iter(chosen), iter(others)
    return [next(a) if use else next(b) for use in mask]


def _is_smooth(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, np.inexact))


# ---- compiled programs, by their bytes --------------------------------------------------------

_programs: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_pending: dict[str, Any] = {}
_programs_lock = locks.lock()


def compiled_once(
    lowered: LoweredModule, compile: Callable[..., CompiledCall], **options: Any
) -> CompiledCall:
    """`compile(lowered, **options)`; equal programs alive at the same time are compiled once."""
    data = lowered.data
    digest = hashlib.sha256(data.encode() if isinstance(data, str) else data)
    known = lowered.dims, lowered.constraints
    digest.update(repr((known, sorted(options.items()), flags.fusion())).encode())
    key = digest.hexdigest()
    with _programs_lock:
        lock = _pending.setdefault(key, locks.lock())
    with lock:  # programs that differ are compiled side by side
        found: CompiledCall | None = _programs.get(key)
        if found is None:
            found = _programs[key] = compile(lowered, **options)
    with _programs_lock:
        _pending.pop(key, None)
    return found
