"""A program that runs in parts, because XLA runs some of it or because sizes come from data.

Compiled parts are programs with symbolic sizes like any other; equations that are not compiled run
by XLA at the sizes of each call; between two parts a size may be read from data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from jax import export

from shlo_disc.base import locks
from shlo_disc.base.callbacks import Attempts, attempts
from shlo_disc.base.errors import ForkError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.executables.devices import Place
from shlo_disc.jax.arguments.keys import as_keys, as_words, has_keys, on_words
from shlo_disc.jax.arguments.leaves import raw_spec
from shlo_disc.jax.arguments.plan import Pattern
from shlo_disc.jax.calls.compiler import Compiler
from shlo_disc.jax.derived.primitive import call_program
from shlo_disc.jax.derived.program import Program, Sizes
from shlo_disc.jax.equations.at_sizes import closed_at, read, run_equations
from shlo_disc.jax.equations.partition import (
    COMPILED,
    READ,
    XLA,
    Flat,
    Part,
    closed_part,
    symbols_of_part,
)
from shlo_disc.jax.equations.unsupported import kinds_of
from shlo_disc.jax.sizes.messages import without_frames
from shlo_disc.jax.sizes.symbolic import SizeScope
from shlo_disc.jax.versions.tracing import InParts
from shlo_disc.jax_private.arrays import ArrayImpl

_log = logging.getLogger("shlo_disc")

_MOST = 32
"""Sets of answers about sizes from data that one version is traced for, before it is an error."""


@dataclass(frozen=True)
class Trial:
    """A function traced with symbols, whose sizes from data were assumed."""

    program: Program
    told: InParts

    @property
    def hints(self) -> dict[str, int]:
        """The values of all symbols in the trace."""
        return {**self.program.traced_at, **self.told.fresh}

    def accepts(self, known: Mapping[int, int], sizes: Mapping[str, int]) -> bool:
        """True if the trace is right for the sizes from data that are known, by their index."""
        values = dict(sizes)
        for index, value in known.items():
            symbol = self.told.symbols.get(index)
            if symbol is not None:
                if value < 1:
                    return False
                values[symbol] = value
            elif value != self.told.assumed.get(index, value):
                return False
        return all(question.allows(values) for question in self.told.questions)


Retrace = Callable[[Mapping[str, int], Mapping[int, int]], Trial]
"""`(sizes, sizes from data)`: the function traced at these sizes; of those from data some may be
known, by their index."""


class _OtherSizesError(Exception):
    """A size from data is not as the trace assumed."""

    def __init__(self, known: Mapping[int, int]) -> None:
        self.known = dict(known)


class Segmented:
    """The function of a version, in parts; what :class:`CompiledCall` asks for.

    Any number of threads may call it. Construction raises what compilation raises.
    """

    stands_in = False

    def __init__(
        self,
        name: str,
        pattern: Pattern,
        traced: Trial,
        retrace: Retrace,
        compiler: Compiler,
        *,
        may_use_xla: bool,
        donated: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._may_use_xla = may_use_xla
        self._pattern = pattern
        self._retrace = retrace
        self._compiler = compiler
        self._donated = tuple(donated)
        self._lock = locks.reentrant_lock()
        self._variants: tuple[_Variant, ...] = (_Variant(name, traced, compiler, may_use_xla),)
        compiler.counted()

    @property
    def keeps_rules(self) -> bool:
        """False if derivatives of the user's own (`custom_vjp`) are not in the parts."""
        return all(variant.kinds.keeps_rules for variant in self._variants)

    @property
    def told(self) -> list[str]:
        """What XLA runs, and why: `fft (model.py:7): element type complex64 is not compiled`."""
        return list(dict.fromkeys(text for v in self._variants for text in v.kinds.told()))

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UnsupportedError: an artifact has one program."""
        why = "; ".join(self.told) or "sizes come from data"
        raise UnsupportedError(
            f"{self.name} cannot be saved: it runs in parts, and an artifact has one program: {why}"
        )

    def call_leaves(self, leaves: Sequence[Any], place: Place | None = None) -> list[Any]:
        """Run on concrete arrays; donated ones are deleted. Each part runs where its arrays are."""
        # Typed keys come as words: the type of a key gives the last sizes.
        shapes = [
            np.shape(leaf)[: len(dims)]
            for leaf, dims in zip(leaves, self._pattern.dims, strict=True)
        ]
        results = self.run(leaves, self._pattern.values(shapes))
        given = [leaves[k] for k in self._donated if type(leaves[k]) is ArrayImpl]
        results = [jax.numpy.array(x) if any(x is leaf for leaf in given) else x for x in results]
        for leaf in given:
            leaf.delete()
        return results

    def run(self, leaves: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The results for arrays or tracers of these sizes.

        Raises UnsupportedError where a size would have to be read from a tracer.
        """
        with attempts() as calls:
            return self._run(leaves, sizes, calls)

    def _run(self, leaves: Sequence[Any], sizes: Mapping[str, int], calls: Attempts) -> list[Any]:
        known: Mapping[int, int] = {}
        for _ in range(_MOST):
            for variant in self._variants:
                if variant.traced.accepts(known, sizes):
                    calls.position = 0
                    try:
                        return variant.run(leaves, sizes)
                    except _OtherSizesError as error:
                        known = error.known
            with self._lock:
                if not any(v.traced.accepts(known, sizes) for v in self._variants):
                    _log.info("%s: traced anew, because sizes from data are %s", self.name,
                              ", ".join(map(str, known.values())))  # fmt: skip
                    traced = self._retrace(sizes, known)
                    made = _Variant(self.name, traced, self._compiler, self._may_use_xla)
                    self._variants = (*self._variants, made)
                    self._compiler.counted()
        raise UnsupportedError(
            f"{self.name} asks about sizes from data in more than {_MOST} ways; compute with them "
            "(jnp.where) instead of asking"
        )

    # -- what an executable tells -----------------------------------------------------------------

    @property
    def programs(self) -> list[Program]:
        """The compiled parts, in order."""
        return [step.program for v in self._variants for step in v.steps if step.program]

    @property
    def fingerprint(self) -> int:
        """There is no one program for an FFI target."""
        raise UnsupportedError(f"{self.name} runs in parts; each has a number of its own")

    def compile_for_all_sizes(self) -> None:
        """Have the kernels that no call has needed compiled in the background."""
        for program in self.programs:
            program.executable.compile_for_all_sizes()

    def as_text(self, stage: str = "disc") -> str:
        """The compiled parts at a stage of compilation, one after the other."""
        return "\n\n".join(
            f"// part {number}\n{program.executable.as_text(stage)}"
            for number, program in enumerate(self.programs, 1)
        )

    def describe(self, *_: Any, **__: Any) -> dict[str, Any]:
        """There is no one program to describe; see `programs`."""
        raise UnsupportedError(f"{self.name} runs in parts; f.explain() describes each")

    def profile(self, *_: Any) -> Any:
        """There is no one program to time."""
        raise UnsupportedError(f"{self.name} runs in parts, which cannot be profiled together yet")

    def cost_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Operations and bytes of each compiled part: `part 1: flops`."""
        return self._of_parts(lambda program: program.executable.cost_analysis(sizes))

    def memory_analysis(self, sizes: Mapping[str, int] | None = None) -> dict[str, str | int]:
        """Bytes of each compiled part: `part 1: temp_size_in_bytes`."""
        return self._of_parts(lambda program: program.executable.memory_analysis(sizes))

    def _of_parts(self, ask: Callable[[Program], Mapping[str, str | int]]) -> dict[str, str | int]:
        return {
            f"part {number}: {key}": value
            for number, program in enumerate(self.programs, 1)
            for key, value in ask(program).items()
        }


class _Variant:
    """The parts of one trace."""

    def __init__(self, name: str, traced: Trial, compiler: Compiler, may_use_xla: bool) -> None:
        self.name = name
        self.traced = traced

        def refuse(flat: Flat, part: Part) -> Exception | None:
            try:
                program = self._program(flat, part, "part", compiler)
                compiler.examine(program.lowered_for(compiler.platform))
            except ForkError:
                raise
            except Exception as error:
                return without_frames(error)
            return None

        kinds = kinds_of(traced.program.jaxpr, refuse if may_use_xla else lambda *_: None)
        if kinds.reasons and not may_use_xla:
            raise UnsupportedError(f"{name}: {kinds.told()[0]}")
        while True:
            self.kinds = kinds
            self.steps = [self._step(part, compiler) for part in kinds.parts]
            late = {id(e): str(s.error) for s in self.steps if s.error for e in s.part.equations}
            if not late:
                break
            if not may_use_xla:
                refused = next(s.error for s in self.steps if s.error)
                self.steps = []
                try:
                    raise refused
                finally:
                    del refused  # this frame is in its traceback
            kinds = kinds.with_reasons(late)

    def _step(self, part: Part, compiler: Compiler) -> _Step:
        """A part, compiled; or with the error that the compiler raised late."""
        if part.kind != COMPILED:
            return _Step(self.kinds.flat, part, None)
        program = self._program(self.kinds.flat, part, "part", compiler)
        step = _Step(self.kinds.flat, part, program)
        try:
            program.executable  # noqa: B018 - compiles
        except UnsupportedError as error:
            step.error = without_frames(error)
        except jax.errors.InconclusiveDimensionOperation as error:  # a rule of JAX wants a number
            reason = str(error).splitlines()[0]
            step.error = UnsupportedError(f"{self.name}: {reason}")
        return step

    def _program(self, flat: Flat, part: Part, suffix: str, compiler: Compiler) -> Program:
        """A part as a program with symbols."""
        whole, hints = self.traced.program, self.traced.hints
        with whole.scope.asking(hints):
            jaxpr: Any = closed_part(flat, part)
            if has_keys(jaxpr):
                jaxpr = jax.make_jaxpr(on_words(jaxpr))(*map(raw_spec, jaxpr.in_avals))
        return _part_program(
            jaxpr, whole.scope, f"{self.name}_{suffix}", compiler, hints, whole.likely
        )

    def run(self, leaves: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """Raises _OtherSizesError for a size from data that the trace did not assume."""
        flat = self.kinds.flat
        values = dict(flat.constants)
        values.update(zip(flat.arguments, leaves, strict=True))
        known: dict[int, int] = {}
        all_sizes = dict(sizes)
        for step in self.steps:
            if step.part.kind == READ:
                self._read(step, values, known, all_sizes)
            else:
                results = step.run([values[v] for v in step.part.inputs], all_sizes)
                values.update(zip(step.part.outputs, results, strict=True))
        results = [read(values, atom) for atom in flat.results]
        # A tracer that is an argument may stand for an array of NumPy, as under vmap.
        given = {id(leaf) for leaf in leaves if isinstance(leaf, jax.core.Tracer)}
        return [
            x if isinstance(x, jax.Array) and id(x) not in given else _AS_ARRAY(x) for x in results
        ]

    def _read(
        self, step: _Step, values: dict[Any, Any], known: dict[int, int], sizes: dict[str, int]
    ) -> None:
        """Read the sizes of one part."""
        for equation in step.part.equations:
            count = values[equation.invars[0]]
            if isinstance(count, jax.core.Tracer):
                raise UnsupportedError(
                    f"{self.name} reads a size from data, which has no number inside jax.jit or "
                    "vmap; call it outside, or give a bound (size=) in the function"
                )
            index = equation.params["index"]
            known[index] = value = int(count)
            if not self.traced.accepts(known, sizes):
                raise _OtherSizesError(known)
            symbol = self.traced.told.symbols.get(index)
            if symbol is not None:
                sizes[symbol] = value
            values[equation.outvars[0]] = np.arange(value, dtype=np.int32)


_AS_ARRAY = jax.jit(lambda x: x)
"""A result that is an argument or a constant, with the type JAX gives it."""


class _Step:
    """A part, ready to run."""

    def __init__(self, flat: Flat, part: Part, program: Program | None) -> None:
        self.part = part
        self.program = program
        self.error: UnsupportedError | None = None
        self._symbols = tuple(sorted(symbols_of_part(part)))
        self._by_xla = None if part.kind != XLA else _by_xla(flat, part)

    def run(self, arguments: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The outputs of the part at these sizes."""
        if self.program is None:
            assert self._by_xla is not None
            at = tuple((symbol, sizes[symbol]) for symbol in self._symbols)
            return list(self._by_xla(at, *arguments))
        raw = [*map(as_words, arguments, (v.aval for v in self.part.inputs))]
        dims = tuple((symbol, sizes[symbol]) for symbol in self.program.symbols)
        results = call_program(raw, self.program, dims)
        return [*map(as_keys, results, (v.aval for v in self.part.outputs))]


def _by_xla(flat: Flat, part: Part) -> Callable[..., list[Any]]:
    """`(sizes, *inputs) -> outputs`: `jax.jit` of the equations, compiled for each shape."""

    def run(sizes: Sizes, *arguments: Any) -> list[Any]:
        values = dict(flat.constants)
        values.update(zip(part.inputs, arguments, strict=True))
        run_equations(part.equations, values, dict(sizes))
        return [read(values, v) for v in part.outputs]

    run.__name__ = run.__qualname__ = "_".join(
        dict.fromkeys(equation.primitive.name for equation in part.equations)
    )[:60]
    return jax.jit(run, static_argnums=0)


def _part_program(
    jaxpr: Any,
    scope: SizeScope,
    name: str,
    compiler: Compiler,
    hints: Mapping[str, int],
    likely: Mapping[str, tuple[int, ...]],
    numbers: Sizes = (),
) -> Program:
    """A part as a program; JAX's rules may ask for constants in place of its symbols."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    part = Part(COMPILED, tuple(inner.eqns), tuple(inner.invars), tuple(inner.outvars))
    symbols = sorted(symbols_of_part(part) | scope.constrained)

    def again(sizes: Sizes, constants: frozenset[str]) -> Program:
        known = {symbol: value for symbol, value in sizes if symbol in constants}
        fresh = scope.anew(dict(sizes), known)
        others: dict[str, Any] = dict(known)
        for symbol in symbols:
            if symbol not in known:
                (others[symbol],) = export.symbolic_shape(symbol, scope=fresh)
        with fresh.asking(dict(sizes)):
            fixed = closed_at(jaxpr, others)
        return _part_program(
            fixed, fresh, name, compiler, dict(sizes), likely, tuple(known.items())
        )

    return Program(
        jaxpr,
        symbols,
        scope,
        name,
        compiler.of_parts,
        likely={s: values for s, values in likely.items() if s in symbols},
        traced_at=hints,
        again=again,
        constants=numbers,
    )
