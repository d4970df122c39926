"""Writes random modules: arguments, steps of the makers in `ops.TABLE`, results."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.fuzz.draws import Draws, NothingFits
from tests.fuzz.program import Argument, Block, Body, Shapes, Step, Value, free_names
from tests.fuzz.text import types as known
from tests.fuzz.text.module import Module
from tests.fuzz.text.types import Facts
from tests.gpu.as_gpu import asked

CALLS = 2
MAX_ELEMENTS = 400
_LONG = (16, 32, 33, 64, 65, 100, 128, 129, 257, 300)
"""Sizes at which kernels of GPUs have several tiles and warps."""
MAX_RANK = 4

Result = tuple[str, Shapes, Facts]


def facts(value: Value) -> Facts:
    found: Any = value.facts
    return found


class Names:
    """Fresh names and every value that has one."""

    def __init__(self, most: int) -> None:
        self.most = most
        """Elements of a value."""
        self.count = 0
        self.values: dict[str, Value] = {}

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"


class Scope(Draws):
    """The values a step may read, and the steps of one block."""

    def __init__(
        self,
        rng: random.Random,
        names: Names,
        visible: Iterable[Value],
        dtypes: Sequence[str],
        makers: Mapping[Any, float],
        depth: int = 0,
    ) -> None:
        super().__init__(rng, visible)
        self.names = names
        self.dtypes = list(dtypes)
        self.makers = makers
        self.steps: list[Step] = []
        self.made: list[Value] = []
        self.depth = depth

    def inner(self, parameters: Iterable[Value], captures: bool = True) -> Scope:
        """The scope of a body: everything here, and its parameters."""
        outside = self.values if captures else []
        visible = [*outside, *parameters]
        return Scope(self.rng, self.names, visible, self.dtypes, self.makers, self.depth + 1)

    def define(self, letter: str, dtype: str, shapes: Shapes, known_of: Facts) -> Value:
        """A named value that no step gives: an argument, a parameter."""
        value = Value(self.names.fresh(letter), dtype, shapes, _shaped(known_of, shapes))  # type: ignore[arg-type]
        self.names.values[value.name] = value
        return value

    def add(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[Result | None],
        attributes: str = "",
        bodies: Sequence[Body] = (),
    ) -> list[Value]:
        """The results of a step. Raises NothingFits where one of them is None or too large."""
        made = []
        for result in results:
            if result is None:
                raise NothingFits
            dtype, shapes, found = result
            if found.special and dtype in known.FINITE:
                raise NothingFits  # what infinities and NaN become is open
            large = max(int(np.prod(s)) for s in shapes) > self.names.most
            if op != "constant" and (large or len(shapes[0]) > MAX_RANK):
                raise NothingFits
            made.append((dtype, shapes, found))
        values = [self.define("v", *m) for m in made]
        name = op if "." in op else f"stablehlo.{op}"
        names = tuple(v.name for v in values)
        step = Step(
            names, f"{name} {attributes}".strip(), tuple(o.name for o in operands), tuple(bodies)
        )
        self.steps.append(step)
        self.read.update(step.operands)
        self.values += values
        self.made += values
        return values

    def one(
        self,
        op: str,
        operands: Sequence[Value],
        result: Result | None,
        attributes: str = "",
        bodies: Sequence[Body] = (),
    ) -> Value:
        """As `add`, for one result."""
        return self.add(op, operands, [result], attributes, bodies)[0]

    def constant(self, numbers: Any, dtype: str) -> Value:
        """A `constant` with the elements of an array."""
        array = np.asarray(numbers)
        with np.errstate(all="ignore"):
            array = array.astype(known.dtype_of(dtype))
        shape = array.shape
        kind = f"tensor<{'x'.join([*map(str, shape), dtype])}>"
        wide = np.abs(array.astype(np.complex128)) if array.size else np.zeros(1)
        magnitude = float(np.max(wide[np.isfinite(wide)], initial=0.0))
        real = Facts(magnitude, grain=0 if dtype in known.INTEGER else 3)
        if dtype not in known.INTEGER and array.size:
            parts = np.asarray(array.astype(np.complex128))
            both = np.concatenate([parts.real.ravel(), parts.imag.ravel()])
            if magnitude > 2.0**20 or not np.array_equal(both * 8, np.round(both * 8)):
                real = replace(real, grain=None)
        text = known.dense(array, dtype)
        return self.one(
            "constant", [], (dtype, (shape,) * CALLS, real), f"value = dense<{text}> : {kind}"
        )

    def block(self, results: Sequence[Value]) -> Block:
        return Block(tuple(self.steps), tuple(v.name for v in results))

    def body(
        self, parameters: Sequence[Value], results: Sequence[Value], *, is_fixed: bool = False
    ) -> Body:
        """This scope as a region, or a function."""
        names = tuple(p.name for p in parameters)
        block = self.block(results)
        return Body(self.names.fresh("f"), "", "", names, block, "", is_fixed)

    def grow(self, count: int) -> None:
        """Add about `count` random steps."""
        added = 0
        for _ in range(8 * count):
            if added >= count:
                return
            maker = self.rng.choices(list(self.makers), list(self.makers.values()))[0]
            with contextlib.suppress(NothingFits):
                added += maker(self) is not None

    # --- values a maker needs -------------------------------------------------------------------

    def shape_operand(
        self, sizes: Sequence[tuple[Value, int] | int], dtype: str | None = None
    ) -> Value:
        """A rank-1 integer tensor with these sizes: of values' dimensions, or numbers."""
        dtype = dtype or self.rng.choice(["i32", "i64"])
        if not sizes or all(isinstance(s, int) for s in sizes):
            return self.constant(np.array(sizes, np.int64), dtype)
        parts = []
        one = ((1,),) * CALLS
        for size in sizes:
            if isinstance(size, int):
                parts.append(self.constant(np.array([size]), dtype))
                continue
            value, axis = size
            numbers = tuple((s[axis],) for s in value.shapes)
            scalar = self.one(
                "get_dimension_size",
                [value],
                ("i32", ((),) * CALLS, Facts(MAX_ELEMENTS, grain=0, known=numbers)),
                f"dimension = {axis} : i64",
            )
            if dtype == "i64":
                scalar = self.one("convert", [scalar], ("i64", ((),) * CALLS, facts(scalar)))
            parts.append(self.one("reshape", [scalar], (dtype, one, facts(scalar))))
        if len(parts) == 1:
            return parts[0]
        rows = [self.known_of(p) for p in parts]
        together = tuple(tuple(n for row in rows for n in row[c]) for c in range(CALLS))
        shapes = ((len(parts),),) * CALLS
        found = Facts(MAX_ELEMENTS, grain=0, known=together)
        return self.one("concatenate", parts, (dtype, shapes, found), "dimension = 0 : i64")

    def known_of(self, value: Value) -> known.Known:
        """The elements of a small integer value at every call."""
        found = facts(value).known
        if found is not None:
            return found
        (step,) = [s for s in self.steps if s.results == (value.name,)]
        assert step.text.startswith("stablehlo.constant")
        inside = step.text.partition("dense<")[2].partition(">")[0].strip("[]")
        return (tuple(int(n) for n in inside.split(",")),) * CALLS


def _shaped(found: Facts, shapes: Shapes) -> Facts:
    """Facts with a mask of dynamic dimensions: those that differ, and those that were noted."""
    rank = len(shapes[0])
    noted = found.dynamic if len(found.dynamic) == rank else (False,) * rank
    differ = tuple(len({s[axis] for s in shapes}) > 1 for axis in range(rank))
    return replace(found, dynamic=tuple(a or b for a, b in zip(noted, differ, strict=True)))


_COMMON = ("f32", "i32", "i1", "f32", "bf16", "f16", "f64", "i64", "i8", "ui8")


def generate(seed: int) -> Module:
    """The module of a seed; for a GPU every third one is long."""
    rng = random.Random(seed)
    is_long = bool(asked()) and seed % 3 == 0
    names = Names(10 * MAX_ELEMENTS if is_long else MAX_ELEMENTS)
    rare = [*known.FLOAT, *known.INTEGER, *known.COMPLEX, "i1"]
    dtypes = [*rng.sample(_COMMON, 3), *rng.sample(rare, 2)]
    scope = Scope(rng, names, (), dtypes, _makers(rng))
    arguments = []
    sizes = _sizes(rng)
    if is_long:
        sizes += [(s,) * CALLS for s in rng.sample(_LONG, 3)]
    special = rng.random() < 0.15
    for _ in range(rng.randint(1, 4)):
        argument, found = _argument(scope, sizes, special)
        value = scope.define("x", argument.dtype, argument.shapes, found)
        scope.values.append(value)
        arguments.append(replace(argument, name=value.name))
    scope.grow(rng.randint(3, 12))
    read = {name for step in scope.steps for name in free_names(step)}
    ends = [v for v in scope.made if v.name not in read] or scope.made or scope.values
    ends = [v for v in ends if not known.is_quantized(v.dtype)] or scope.values[:1]
    chosen = rng.sample(ends, min(len(ends), rng.randint(1, 6)))
    return Module(seed, False, tuple(arguments), scope.block(chosen), names.values)


def _makers(rng: random.Random) -> dict[Any, float]:
    """The makers of a module with their weights: mostly a few of them, which then meet often."""
    from tests.fuzz.text.table import TABLE

    if rng.random() < 0.3:
        return TABLE
    chosen = rng.sample(list(TABLE), rng.randint(6, 16))
    return {maker: TABLE[maker] for maker in chosen}


def _sizes(rng: random.Random) -> list[tuple[int, ...]]:
    """Sizes at both calls: some differ, most do not."""
    fixed = [(s,) * CALLS for s in rng.sample((1, 2, 3, 4, 5, 7, 8), 3)]
    if rng.random() < 0.04:
        fixed.append((0,) * CALLS)
    if rng.random() < 0.5:
        return fixed
    moving = []
    for _ in range(2):
        drawn = [rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 16)) for _ in range(CALLS)]
        if rng.random() < 0.06:
            drawn[1] = 0
        moving.append(tuple(drawn))
    return [*fixed, *moving, *moving]


def _argument(scope: Scope, sizes: list[tuple[int, ...]], special: bool) -> tuple[Argument, Facts]:
    rng = scope.rng
    rank = rng.choices(range(5), (2, 4, 6, 4, 2))[0]
    axes = [rng.choice(sizes) for _ in range(rank)]
    shapes = tuple(tuple(a[call] for a in axes) for call in range(CALLS))
    while max(int(np.prod(s)) for s in shapes) > scope.names.most:
        axes.pop()
        shapes = tuple(tuple(a[call] for a in axes) for call in range(CALLS))
    dtype = rng.choice(scope.dtypes)
    kind, found = _kind(scope, dtype, special)
    if scope.chance(0.1):
        found = replace(found, dynamic=tuple(scope.chance(0.3) for _ in axes))
    return Argument("", dtype, shapes, kind, rng.randrange(1000)), found


def _kind(scope: Scope, dtype: str, special: bool) -> tuple[str, Facts]:
    if dtype == "i1":
        return "bool", Facts(1, grain=0)
    if dtype in known.INTEGER:
        if scope.chance(0.3):
            return "wide", Facts(known.largest(dtype), grain=0)
        return "small", Facts(9, grain=0)
    if special:
        return "special", Facts(4 * 2**0.5, grain=None, special=True)
    if scope.chance(0.4):
        return "normal", Facts(4 * 2**0.5, grain=None)
    exact = known.fits(dtype, 4, 3) and not known.is_complex(dtype)
    return "grid", Facts(4 * 2**0.5, grain=3 if exact else None)
