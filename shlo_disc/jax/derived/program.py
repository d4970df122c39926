"""Programs with symbolic sizes, and those JAX derives from them.

Derived programs are made with public JAX (`jax.linearize`, `jax.linear_transpose`, `jax.vmap`) on
symbolic shapes, so nothing here depends on how JAX represents them. Where a rule of JAX refuses
symbols, the sizes in its way become constants: the program is traced anew with their numbers, once
for every value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from shlo_disc.base import locks
from shlo_disc.base.errors import ForkError, UnsupportedError
from shlo_disc.base.threads import lets_others_run
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.arguments.leaves import abstract, spec_of
from shlo_disc.jax.arguments.plan import Guard, Pattern
from shlo_disc.jax.calls.compiled_call import CompiledCall, compiled_once
from shlo_disc.jax.calls.compiler import Compiler
from shlo_disc.jax.calls.lowered import LoweredModule, lowered_module
from shlo_disc.jax.derived.constant_sizes import Anew, Make, OtherFormError, with_constants
from shlo_disc.jax.derived.derived import Linearized
from shlo_disc.jax.derived.splits.splits import Split, split_along
from shlo_disc.jax.derived.splits.staged import Staged
from shlo_disc.jax.equations.dependence import dependent
from shlo_disc.jax.sizes.nesting import BusyError, in_turn, nested
from shlo_disc.jax.sizes.symbolic import Question, SizeScope
from shlo_disc.jax_private.extend import jaxpr_as_fun
from shlo_disc.jax_private.jaxprs import named_axes
from shlo_disc.jax_private.states import held_weakly

Sizes = tuple[tuple[str, int], ...]
"""The values of a program's symbols, by name."""


class Program:
    """A function of arrays with symbolic sizes, traced; compiled when it is first run."""

    def __init__(
        self,
        jaxpr: Any,
        symbols: Sequence[str],
        scope: SizeScope,
        name: str,
        compile: Compiler,
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
        self._lowered: dict[str, LoweredModule] = {}
        """By the platform that chooses branches of `lax.platform_dependent`."""
        self._ran_at: Sizes | None = None
        """Values for which :meth:`at` is this program, as was found last."""
        self._compiled: CompiledCall | None = None
        self._elsewhere: dict[str, CompiledCall] = {}
        """The program compiled for other targets than its own."""
        self._turn = locks.reentrant_lock()
        """Held while something is derived, by code of the user too."""
        self._tables = locks.lock()
        """Held while the fields above are read and written."""

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Is told that XLA runs the program where it is not compiled; None: that is an error."""
        return self._compile.tell

    @cached_property
    def by_xla(self) -> Any:
        """`jax.jit` of the program, whose sizes are numbers."""
        return jax.jit(self.run)

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
        return tuple(bool(jnp.issubdtype(aval.dtype, np.inexact)) for aval in self.out_avals)

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
        program, _ = self.found("lowered", sizes, lambda program, _: program._lower_own())
        program._ran_at = sizes
        return program

    def _lower_own(self) -> None:
        if self._given is None:
            self._lower(self._compile.platform)

    def _lower(self, platform: str) -> None:
        if platform not in self._lowered:
            specs = [spec_of(aval) for aval in self.in_avals]
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
            self._lowered[platform] = lowered_module(self.name, jitted, specs, {}, platform)

    @property
    def executable(self) -> CompiledCall:
        """The program, compiled; equal programs are compiled once. See :meth:`at`."""
        # No `cached_property`: in Python 3.11 it has one lock for the programs of all threads.
        if self._compiled is None:
            self._compiled = (
                self._compile_now(self._compile) if self._given is None else self._given()
            )
        return self._compiled

    def executable_for(self, target: str) -> CompiledCall:
        """As `executable`, for a target: compiled once for each."""
        if target == self._compile.target:
            return self.executable
        found = self._elsewhere.get(target)
        if found is None:
            found = self._elsewhere[target] = self._compile_now(self._compile.at(target))
        return found

    def _compile_now(self, compile: Compiler) -> CompiledCall:
        options: dict[str, Any] = {"likely": self.likely} if self.likely else {}
        options["seen"] = {s: n for s, n in self.traced_at.items() if s in self.symbols}
        weak = [bool(aval.weak_type) for aval in self.out_avals]
        if any(weak):
            options["weak_results"] = weak
        lowered = self.lowered_for(compile.platform)
        return compiled_once(lowered, compile, name=self.name, **options)

    def lowered_for(self, platform: str) -> LoweredModule:
        """The program as the compiler takes it, with a carrier of its symbols if need be."""
        if platform not in self._lowered:
            with self.scope.asking(self.traced_at):
                self._lower(platform)
        return self._lowered[platform]

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

    # -- derived programs -----------------------------------------------------------------------

    def _fits(self, values: Mapping[str, int]) -> bool:
        """True if what the program assumes of the sizes is true of `values`."""
        return self.scope.allows(values) and all(values[name] == v for name, v in self.constants)

    def memo(self, key: Any, sizes: Sizes, make: Make, more: tuple[str, ...] = ()) -> Any:
        """What `make` derives, made once; see `found`."""
        return self.found(key, sizes, make, more)[1]

    def found(
        self, key: Any, sizes: Sizes, make: Make, more: tuple[str, ...] = ()
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
            program = self.anew(sizes, own)
        try:
            try:
                return program, program.made(key, values, make, needs.intersection(more))
            except BusyError:
                program = self.anew(sizes, own)
                return program, program.made(key, values, make, needs.intersection(more))
        except (UnsupportedError, ForkError):
            raise
        except Exception as error:
            return with_constants(self, key, sizes, make, more, program, error)

    def _fitting(self, sizes: Sizes, own: frozenset[str]) -> Program:
        """The program at these sizes, with the constants `own`: this one, or it traced anew."""
        values = dict(sizes)
        with in_turn(self._turn):
            for program in (self, *self._siblings):
                if program._fits(values) and own <= {name for name, _ in program.constants}:
                    return program
            program = self.anew(sizes, own)
            self.add(program)
            return program

    def add(self, sibling: Program) -> None:
        """Keep this program, traced anew, for sizes that it fits."""
        with self._tables:
            self._siblings.append(sibling)

    def need(self, key: Any, names: frozenset[str]) -> None:
        """Let these symbols be constants from now on in what is derived as `key`."""
        with self._tables:
            self._needs[key] = self._needs.get(key, frozenset()) | names

    def anew(self, sizes: Sizes, constants: frozenset[str]) -> Program:
        """The program at these sizes, with these and its own constants as numbers."""
        program = self._again(sizes, constants.union(name for name, _ in self.constants))
        values = dict(sizes)
        if _signature(program, values) != _signature(self, values):
            raise OtherFormError("the program has other arguments with constant sizes")
        return program

    @lets_others_run
    def made(
        self, key: Any, values: Mapping[str, int], make: Make, constants: frozenset[str]
    ) -> Any:
        """What `make` derives from this very program. Raises BusyError, and what `make` does."""
        full = key, tuple((name, values[name]) for name in sorted(constants))
        with in_turn(self._turn):
            if full not in self._derived:
                with self.scope.asking(values) as session, nested():
                    made = make(self, constants)
                self._derived[full] = made
                self.scope.answers += session.questions.values()
            return self._derived[full]

    def note(self, reasons: Iterable[Question]) -> None:
        """Keep why sizes are constants in what is derived."""
        with self._tables:
            self._reasons += reasons

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

    def __repr__(self) -> str:
        return f"<{self.name} of {', '.join(str(aval) for aval in self.in_avals)}>"


held_weakly(Program)


def _signature(program: Program, values: Mapping[str, int]) -> list[Any]:
    """The types of arguments and results at these values of the symbols."""
    return [
        (tuple(Expr.parse(str(size)).evaluate(values) for size in aval.shape), aval.dtype)
        for aval in (*program.in_avals, *program.out_avals)
    ]


def _programs_of(derived: Any) -> tuple[Program, ...]:
    if isinstance(derived, Staged):
        return tuple(stage.program for stage in derived.stages)
    if isinstance(derived, Linearized):
        return derived.programs
    return (derived,) if isinstance(derived, Program) else ()
