"""Draws a typed program from a seed.

A step is proposed as text over values that are there; JAX says what type it has at every call, and
whether it is legal; its facts say whether results can be compared. What fails is dropped, and
another step is proposed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from tests.fuzz import facts as known
from tests.fuzz.draws import Draws, NothingFits
from tests.fuzz.facts import Facts
from tests.fuzz.program import (
    Argument,
    Block,
    Body,
    Program,
    Shapes,
    Step,
    Value,
    free_names,
    function,
    step_source,
)
from tests.gpu.as_gpu import asked

Type = tuple[str, Shapes]
Environment = dict[str, Facts]
Rule = Callable[[Environment, Sequence[str], Sequence[Type]], list[Facts] | None]
"""The facts of the results from those of everything there; None: the step is not wanted."""

CALLS = 4
MAX_ELEMENTS = 20_000
MAX_RANK = 5

DTYPES = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"]
DTYPES += ["float16", "bfloat16", "float32", "complex64"]
DTYPES_X64 = [*DTYPES, "int64", "uint64", "float64", "complex128"]
_SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 32, 33)
_TILES = (16, 24, 32, 40, 48, 63, 64, 65, 96, 127, 128, 129, 136, 160)
_LONG = (200, 255, 256, 257, 500, 512, 513, 1000, 1024, 1025, 1792, 2047, 2048, 2049, 3000, 4100)
"""Sizes at which kernels of GPUs have several tiles, blocks and pieces."""


@dataclass(frozen=True)
class Draft:
    """A step that may be added."""

    text: str
    operands: Sequence[Value]
    rule: Rule
    results: int = 1
    bodies: tuple[Body, ...] = ()
    several: bool = False


@dataclass(frozen=True)
class Recorded:
    """A step that was added, with how to compute its facts again."""

    step: Step
    rule: Rule
    types: tuple[Type, ...]

    def analyze(self, environment: Environment) -> bool:
        """Add the facts of the results; False: they may not be compared."""
        found = self.rule(environment, self.step.operands, self.types)
        if found is None:
            return False
        environment |= dict(zip(self.step.results, found, strict=True))
        return True


class Names:
    """Fresh names and everything known of them."""

    def __init__(self, all_digits: bool = True) -> None:
        self.count = 0
        self.all_digits = all_digits
        self.types: dict[str, Type] = {}
        self.facts: Environment = {}

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"


class Scope(Draws):
    """The values a step may read, and the steps of one block."""

    def __init__(
        self, rng: random.Random, names: Names, x64: bool, visible: Iterable[Value], depth: int = 0
    ) -> None:
        super().__init__(rng, visible)
        self.names = names
        self.x64 = x64
        self.recorded: list[Recorded] = []
        self.made: list[Value] = []
        self.depth = depth

    def in_product(self, operand: Facts, dtype: str) -> Facts:
        """An operand of a product, as it is multiplied: f32 may be rounded to tf32."""
        is_rounded = not self.names.all_digits and dtype in ("float32", "complex64")
        return known.narrowed(operand) if is_rounded else operand

    @property
    def dtypes(self) -> list[str]:
        return DTYPES_X64 if self.x64 else DTYPES

    def inner(self, parameters: Iterable[Value]) -> Scope:
        """The scope of a body: everything here, and its parameters."""
        return Scope(self.rng, self.names, self.x64, [*self.values, *parameters], self.depth + 1)

    def define(self, letter: str, dtype: str, shapes: Shapes, facts: Facts) -> Value:
        """A named value that no step gives: an argument, a parameter."""
        name = self.names.fresh(letter)
        self.names.types[name], self.names.facts[name] = (dtype, shapes), facts
        return Value(name, dtype, shapes, facts)

    def add(self, draft: Draft | None) -> list[Value] | None:
        """The results of the step, when it is legal at every call and can be compared."""
        if draft is None:
            return None
        results = tuple(self.names.fresh("v") for _ in range(draft.results))
        operands = tuple(v.name for v in draft.operands)
        step = Step(results, draft.text, operands, draft.bodies, draft.several)
        types = self._types(step)
        if types is None:
            return None
        recorded = Recorded(step, draft.rule, types)
        environment = dict(self.names.facts)
        if not recorded.analyze(environment):
            return None
        self.names.facts = environment
        self.names.types |= dict(zip(results, types, strict=True))
        self.recorded.append(recorded)
        self.read.update(step.operands)
        made = [Value(n, *t, environment[n]) for n, t in zip(results, types, strict=True)]
        self.values += made
        self.made += made
        return made

    def _types(self, step: Step) -> tuple[Type, ...] | None:
        free = tuple(free_names(step))
        call = function(step_source(step, free), "step")
        found: list[list[jax.ShapeDtypeStruct]] = []
        for index in range(CALLS):
            operands = [
                jax.ShapeDtypeStruct(self.names.types[n][1][index], self.names.types[n][0])
                for n in free
            ]
            try:
                found.append(list(jax.eval_shape(call, *operands)))
            except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError):
                return None
            except (NotImplementedError, AssertionError, KeyError):
                return None  # JAX's own limits, such as a sum of an empty tuple of types
        types: list[Type] = []
        for result in range(len(found[0])):
            shapes = tuple(f[result].shape for f in found)
            dtypes = {str(f[result].dtype) for f in found}
            legal = len(dtypes) == 1 and dtypes <= set(self.dtypes)
            small = all(int(np.prod(s)) <= MAX_ELEMENTS for s in shapes)
            if not legal or not small or max(map(len, shapes)) > MAX_RANK:
                return None
            if len(set(map(len, shapes))) != 1:
                return None
            types.append((dtypes.pop(), shapes))
        return tuple(types)

    def block(self, results: Sequence[str]) -> Block:
        return Block(tuple(r.step for r in self.recorded), tuple(results))

    def grow(self, count: int) -> None:
        """Add about `count` random steps."""
        from tests.fuzz import ops

        added = 0
        for _ in range(6 * count):
            if added >= count:
                return
            with contextlib.suppress(NothingFits):
                added += self.add(ops.draft(self)) is not None


def generate(seed: int) -> Program:
    """The program of a seed; for a GPU half of them are long, and a third has products in tf32."""
    rng = random.Random(seed)
    x64 = seed % 5 == 4
    on_gpu = bool(asked())
    with jax.enable_x64(x64):
        return _generated(seed, rng, x64, on_gpu and seed % 2 == 1, not on_gpu or seed % 3 != 0)


def _generated(
    seed: int, rng: random.Random, x64: bool, is_long: bool, all_digits: bool
) -> Program:
    names = Names(all_digits)
    scope = Scope(rng, names, x64, ())
    arguments = []
    sizes = _symbols(rng)
    if is_long:
        sizes += _long_symbols(rng)
    special = rng.random() < 0.1
    for _ in range(rng.randint(1, 4)):
        argument, found = _argument(scope, sizes, special)
        value = scope.define("x", argument.dtype, argument.shapes, found)
        scope.values.append(value)
        arguments.append(Argument(value.name, *argument_rest(argument)))
    scope.grow(rng.randint(5, 25))
    read = {name for r in scope.recorded for name in free_names(r.step)}
    ends = [v for v in scope.made if v.name not in read] or scope.made or scope.values
    chosen = rng.sample(ends, min(len(ends), rng.randint(1, 6)))
    if scope.chance(0.05):
        chosen.append(scope.values[0])
    values = {
        name: Value(name, *kind, names.facts[name])
        for name, kind in names.types.items()
        if name in names.facts
    }
    structure = rng.choice(["tuple", "tuple", "dict", "nested"])
    block = scope.block([v.name for v in chosen])
    return Program(seed, x64, tuple(arguments), block, values, structure, all_digits)


def argument_rest(a: Argument) -> tuple[str, Shapes, str, int]:
    return a.dtype, a.shapes, a.kind, a.seed


def _symbols(rng: random.Random) -> list[tuple[int, ...]]:
    """Sizes at every call: some differ from call to call, some are the same in all."""
    symbols = []
    for _ in range(3):
        drawn = [rng.choice(_SIZES[: rng.choice((5, 9, 14))]) for _ in range(CALLS)]
        if rng.random() < 0.04:
            drawn[rng.randrange(1, CALLS)] = 0
        symbols.append(tuple(drawn))
    if rng.random() < 0.3:  # equal in the first call only
        symbols[1] = (symbols[0][0], *symbols[1][1:])
    fixed = [(s,) * CALLS for s in rng.sample((1, 2, 3, 4, 5, 8), 2)]
    return [*symbols, *fixed]


def _long_symbols(rng: random.Random) -> list[tuple[int, ...]]:
    """Sizes of tiles and of blocks at every call; the former are the same in all half the time."""
    tiles = [tuple(rng.choice(_TILES) for _ in range(CALLS)) for _ in range(2)]
    tiles = [(t[0],) * CALLS if rng.random() < 0.5 else t for t in tiles]
    return [*tiles, tuple(rng.choice((*_TILES, *_LONG)) for _ in range(CALLS))]


def _argument(scope: Scope, sizes: list[tuple[int, ...]], special: bool) -> tuple[Argument, Facts]:
    rng = scope.rng
    rank = rng.choices(range(5), (2, 4, 6, 4, 2))[0]
    axes = [rng.choice(sizes) for _ in range(rank)]
    shapes = tuple(tuple(a[call] for a in axes) for call in range(CALLS))
    while max(int(np.prod(s)) for s in shapes) > 4096:
        axes.pop()
        shapes = tuple(tuple(a[call] for a in axes) for call in range(CALLS))
    dtype = "float32" if scope.chance(0.35) else rng.choice(scope.dtypes)
    kind, found = _kind(scope, dtype, special)
    return Argument("", dtype, shapes, kind, rng.randrange(1000)), found


def _kind(scope: Scope, dtype: str, special: bool) -> tuple[str, Facts]:
    if known.is_bool(dtype):
        return "bool", Facts(1)
    if known.is_complex(dtype):
        return ("normal", Facts(6, grain=None)) if scope.chance(0.5) else ("grid", Facts(6, 0, 3))
    if known.is_float(dtype):
        if special:
            return "special", Facts(4, grain=3, special=True)
        return ("normal", Facts(4, grain=None)) if scope.chance(0.4) else ("grid", Facts(4, 0, 3))
    if scope.chance(0.25):
        return "wide", Facts(known.largest(dtype))
    return "small", Facts(9)
