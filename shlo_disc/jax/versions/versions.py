"""A version of a function: traced with symbols, compiled once for every shape that fits it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
from jax import export

from shlo_disc import ral
from shlo_disc.base import locks
from shlo_disc.base.threads import begins, lets_others_run
from shlo_disc.executables.devices import Place
from shlo_disc.jax.arguments.donations import taken_over, warn_of_kept
from shlo_disc.jax.arguments.keys import has_keys, on_words, typed_keys_of
from shlo_disc.jax.arguments.leaves import raw_spec
from shlo_disc.jax.arguments.places import usual_place
from shlo_disc.jax.arguments.plan import Shapes
from shlo_disc.jax.calls.call import Call, Options
from shlo_disc.jax.calls.compiled_call import CompiledCall, compiled_once
from shlo_disc.jax.calls.runs import Runs, calls_before_xla
from shlo_disc.jax.derived.program import Program, Sizes
from shlo_disc.jax.sizes.structure import has_sizes, tree_at
from shlo_disc.jax.sizes.symbolic import SizeScope
from shlo_disc.jax.versions.modes import Mode
from shlo_disc.jax.versions.segmented import Segmented, Trial
from shlo_disc.jax.versions.symbols.choice import Choice
from shlo_disc.jax.versions.symbols.search import Found
from shlo_disc.jax.versions.tracing import Concrete, InParts, Trace, Traced, problem_of
from shlo_disc.jax_private.jaxprs import inputs_used

_log = logging.getLogger("shlo_disc")

_starting = locks.lock()


class Version(Runs):
    """A function for one structure and dtypes, at every shape that fits `pattern`."""

    address = 0
    """As of functions without code: what is compiled in the background for it comes last."""

    def __init__(
        self, options: Options, call: Call, found: Found[Traced], trace: Trace, mode: Mode
    ) -> None:
        self.name = options.name
        self.mode = mode
        """That of its family when it was traced."""
        self._target = call.place.target
        self.leaves = call.leaves
        self.pattern = found.choice.pattern
        self.lowered, self.jaxpr = found.program
        self.donates = bool(call.donated)
        """True if calls may overwrite an argument."""
        donated, kept = taken_over(call.donated, self.jaxpr, found.choice.current)
        warn_of_kept(self.name, [call.leaves[k].name for k in kept])
        self._traced = found.traced.pattern
        self.has_static_sizes = has_sizes(self.lowered.out_tree)
        """True if the structure of the results has sizes, which differ from call to call."""
        self._source = _Source(options, call, found, trace, donated)
        self._in_parts: Segmented | None = None
        """Not in the source, which its programs hold."""
        self._lock = locks.lock()
        self.keys = typed_keys_of(self.lowered.out_avals)
        self.not_kept = ""
        """Why every process traces it with symbols first, behind "it"; "" if it need not."""
        self.finished: Callable[[], Callable[[], None] | None] = lambda: None
        """What :meth:`finish` calls, if it still lives."""
        self._offer: tuple[ral.SizePattern, ral.DispatchEntry] | None = None
        if call.captured:
            self.program  # noqa: B018 - while the captured variables can be read
            self._source.forget_function()

    def remember(self, sizes: Sizes, jaxpr: Any) -> None:
        """`jaxpr` is the program at these sizes, for programs derived from it that need numbers.

        For versions with captured variables, whose function cannot be traced later.
        """
        self._source.at_numbers[sizes] = jaxpr

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The arguments whose elements the program needs; `jax.jit` takes any for the others."""
        return tuple(k for k, is_used in enumerate(inputs_used(self.jaxpr)) if is_used)

    @property
    def is_compiled(self) -> bool:
        """True once it has been compiled."""
        return self._in_parts is not None or self._source.is_done

    def unlike(self, shapes: Shapes, concrete_at: Concrete) -> tuple[str, str] | None:
        """How the version differs from a trace at the sizes of a call, and the line; or None."""
        program = self.lowered, self.jaxpr
        return problem_of(program, self._traced, self.pattern, shapes, concrete_at)

    def out_tree(self, shapes: Shapes) -> Any:
        """The structure of the results of a call with arguments of these shapes."""
        if not self.has_static_sizes:
            return self.lowered.out_tree
        return tree_at(self.lowered.out_tree, self._traced.values(shapes))

    @property
    def executable(self) -> CompiledCall:
        """The compiled program; raises UnsupportedError."""
        return self.in_parts if self.is_in_parts else self._source.executable()

    @property
    def is_in_parts(self) -> bool:
        """True if the version runs in parts: XLA runs some of it, or sizes come from data."""
        return isinstance(self.lowered, InParts)

    @property
    def in_parts(self) -> Segmented:
        """The parts of a version that runs in parts, compiled."""
        with self._lock:
            if self._in_parts is None:
                self._in_parts = self._source.in_parts()
            return self._in_parts

    @property
    def needs_xla(self) -> bool:
        """True if XLA runs a part of the version, which is compiled."""
        return self.is_compiled and self.is_in_parts and bool(self.in_parts.told)

    @property
    def fresh(self) -> Mapping[int, int]:
        """What the trace assumed of sizes from data, by the index of their read."""
        return self.lowered.assumed if isinstance(self.lowered, InParts) else {}

    def soon(self) -> CompiledCall:
        """The compiled program, or one that stands in until :meth:`finish`."""
        return self.in_parts if self.is_in_parts else self._source.executable(may_stand_in=True)

    @property
    def stands_in(self) -> bool:
        """True if the compiled program has kernels for short sizes of another first call."""
        return self.executable.stands_in

    def finish(self) -> None:
        """Compile the program that another one stands in for, and have calls find it."""
        self.compiles_uncounted()
        self._source.exactly()
        self._offer = None
        if (tell := self.finished()) is not None:
            tell()

    def compiles_uncounted(self) -> None:
        """The program was counted before: it was loaded for a call."""
        self._source.leave_uncounted()

    def compiles_meanwhile(self) -> bool:
        """Have a thread compile the version; True until it has."""
        return not self.is_in_parts and self._source.begin()

    @property
    def is_compiling(self) -> bool:
        """True while a thread compiles the version in the background."""
        return self._source.is_under_way

    @property
    def offer(self) -> tuple[ral.SizePattern, ral.DispatchEntry] | None:
        """The version for the C++ dispatcher, which tests and runs it at new sizes.

        None when Python is needed: to compile it, to make a structure with sizes of the results,
        or for numbers of more than 64 bits. None where JAX's default device has another target.
        """
        if self._offer is None and self.is_compiled and not self.has_static_sizes:
            place = usual_place()
            if place.target != self._target:
                return None
            try:
                pattern = self.pattern.native
            except OverflowError:
                return None
            entry = self.dispatch_entry(self.lowered.out_tree, place)
            self._offer = None if entry is None else (pattern, entry)
        return self._offer

    def calls_before_xla(self, place: Place) -> int | None:
        """Calls of the same sizes after which XLA runs the program, as a custom call.

        None where XLA would copy arguments that are donated, and for programs with effects.
        """
        if self.jaxpr.effects or (self.donates and (place.is_cpu or self.in_place is None)):
            return None
        return calls_before_xla(place, 0 if self.is_in_parts else len(self.lowered.out_avals))

    @cached_property
    def in_place(self) -> Mapping[int, int] | None:
        """Result by donated argument, in whose memory the compiled program may write it.

        None where a custom call in place is not written: for programs in parts, sizes that no array
        tells, and results of weak types.
        """
        host = None if self.is_in_parts else getattr(self.executable, "host", None)
        if host is None or self.program.needs_carrier:
            return None
        if any(aval.weak_type for aval in self.program.out_avals):
            return None
        return dict(host.reuses)

    @cached_property
    def program(self) -> Program:
        """The version as a program for transformations of JAX; shares the executable."""
        return self._source.program()

    def asked_by_rules(self) -> list[str]:
        """What rules of the user (`custom_vjp`) asked about sizes in derived programs."""
        if "program" not in self.__dict__:
            return []
        return [
            f"{q} in derived programs: {q.reason} ({q.where})" for q in self.program.questions()
        ]

    def __str__(self) -> str:
        return (
            f"{self.name}: {', '.join(self.pattern.symbols) or 'no symbols'}\n{self.pattern.text()}"
        )


class _Source:
    """What a version was traced from: makes its executable, and its programs, at other sizes too.

    The version and its programs hold this object; it holds neither.
    """

    def __init__(
        self,
        options: Options,
        call: Call,
        found: Found[Traced],
        trace: Trace,
        donated: tuple[int, ...],
    ) -> None:
        # No more of the options: a program outlives the function, and the tracers it may read.
        self._name, self._compile = options.name, options.compile
        self._counted = options.compile
        self._may_use_xla = options.may_use_xla
        self._keeps_symbols = options.dynamic is True
        self.lowered, self._jaxpr = found.program
        self._choice, self._pattern = found.choice, found.choice.pattern
        self._was_merged = found.choice.dims != found.traced.dims
        self._trace: Trace | None = trace
        self._names = [leaf.name for leaf in call.leaves]
        self._sizes = found.choice.texts()
        """The sizes of every argument, for the compiler: equal sizes have equal names."""
        self._donated = donated
        given = options.likely
        self.likely = {name: given[name] for name in given if name in self._pattern.symbols}
        """Likely values of those sizes that are symbols of the version."""
        self._unlikely = sorted(given.keys() - self.likely.keys())
        self.at_numbers: dict[Sizes, Any] = {}
        """Jaxprs by the sizes they were traced at, where the function cannot be traced again."""
        self._executable: CompiledCall | None = None
        self._lock = locks.lock()
        self._thread: threading.Thread | None = None

    # -- the executable, made when it is first asked for ------------------------------------------

    @property
    def is_done(self) -> bool:
        return self._executable is not None

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def leave_uncounted(self) -> None:
        self._counted = self._compile.of_parts

    def begin(self) -> bool:
        """Compile in a thread of its own, unless one tried that; True while it does.

        What it could not compile, :meth:`executable` tries again, and raises.
        """
        if self._executable is not None:
            return False
        with _starting:
            if self._thread is None:
                # Python waits for it at exit: it must not run while JAX is taken down.
                thread = threading.Thread(
                    target=self._try, name=f"shlo_disc compiles {self._name}", daemon=False
                )
                self._thread = thread if begins(thread) else None
        return self.is_under_way

    def _try(self) -> None:
        start = time.perf_counter()
        name = self._name
        _log.info("%s is compiled in the background; jax.jit runs it meanwhile", name)
        try:
            self.executable()
        except Exception as error:
            _log.warning("%s could not be compiled in the background: %s", name, error)
        else:
            _log.info("%s was compiled in %.2f s", name, time.perf_counter() - start)

    def executable(self, *, may_stand_in: bool = False) -> CompiledCall:
        with self._lock:
            if self._executable is None:
                self._executable = self._compiled(may_stand_in)
            return self._executable

    def exactly(self) -> CompiledCall:
        """One that does not stand in."""
        if (found := self.executable()).stands_in:
            found = self._compiled(may_stand_in=False)  # calls run the other one meanwhile
            self._executable = found
        return found

    @lets_others_run
    def _compiled(self, may_stand_in: bool) -> CompiledCall:
        assert not isinstance(self.lowered, InParts)
        if self._unlikely:
            _log.info("%s: %s is no symbol of this version, so none of its likely sizes has a "
                      "kernel", self._name, ", ".join(self._unlikely))  # fmt: skip
        hints = self._choice.hints
        return compiled_once(
            self.lowered,
            self._counted,
            name=self._name,
            names=self._names,
            weak_results=[bool(aval.weak_type) for aval in self.lowered.out_avals],
            shapes=self._sizes,
            seen={s: hints[s] for s in sorted(self._pattern.symbols) if s in hints},
            **({"likely": self.likely} if self.likely else {}),
            **({"donated": self._donated} if self._donated else {}),
            **({"may_stand_in": True} if may_stand_in else {}),
        )

    def in_parts(self) -> Segmented:
        """The program in parts, compiled."""
        choice, trace, told = self._choice, self._trace, self.lowered
        assert isinstance(told, InParts)
        assert trace is not None, "functions with captured variables do not run in parts"

        def retrace(sizes: Mapping[str, int], known: Mapping[int, int]) -> Trial:
            at = replace(choice.copy(), hints={s: sizes[s] for s in choice.pattern.symbols})
            told, jaxpr = trace(at, known)
            assert isinstance(told, InParts)
            return Trial(self._made(jaxpr, at), told)

        if self._was_merged:
            first = retrace(choice.hints, told.assumed)
        else:
            first = Trial(self._made(self._jaxpr, choice), told)
        return Segmented(
            self._name,
            self._pattern,
            first,
            retrace,
            self._compile,
            may_use_xla=self._may_use_xla,
            donated=self._donated,
        )

    # -- programs for transformations of JAX ------------------------------------------------------

    def program(self) -> Program:
        """The program as it was traced."""
        # Rules of transformations compare sizes, too: they need equal sizes as one symbol.
        jaxpr = self._traced(self._choice) if self._was_merged else self._jaxpr
        return self._made(jaxpr, self._choice)

    def forget_function(self) -> None:
        """Let go of the function: from now on programs at other sizes come from `at_numbers`."""
        self._trace = None

    def _traced(self, choice: Choice) -> Any:
        assert self._trace is not None, "the program of a version is made once"
        return self._trace(choice)[1]

    def anew(self, sizes: Sizes, constants: frozenset[str]) -> Program:
        """The program traced at other sizes that fit the pattern, some as constants.

        All sizes are constants where the function reads captured variables. Raises
        InconclusiveDimensionOperation for sizes the user wants to stay symbols.
        """
        symbols = self._choice.pattern.symbols
        if self._trace is None:
            constants = frozenset(symbols)
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
        jaxpr = self.at_numbers[sizes] if self._trace is None else self._traced(choice)
        return self._made(jaxpr, choice, known)

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
            self.exactly,
            self.likely,
            choice.hints,
            again=self.anew,
            constants=constants,
            guards=choice.pattern.guards,
        )
        if not has_keys(jaxpr):
            return program
        # The same program on raw key data, as the executable has it.
        specs = [raw_spec(aval) for aval in program.in_avals]
        with program.scope.asking(choice.hints):
            return program.derive(
                on_words(jaxpr),
                specs,
                "raw",
                executable=self.exactly,
                again=lambda fresh, *_: fresh,
            )
