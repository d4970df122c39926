"""`python -m tests.fuzz.regions --count 200`: random programs of regions with sizes from data.

Nested `if`, `case` and `while` over vectors of integers, whose sizes data and loop counters give.
No interpreter runs such types, so a program is written together with a model of it in NumPy. A
call must raise if a value it returns depends on an operation whose sizes are wrong. It may raise
if any operation that runs is wrong, and must otherwise give the model's values.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError, UnsupportedError
from tests.gpu.as_gpu import TARGET, as_gpu

VECTOR, SCALAR, FLAG, ONE = "tensor<?xi32>", "tensor<i32>", "tensor<i1>", "tensor<1xi32>"
MOST = 3000
"""Elements; a call in which a vector grows beyond them is left out."""

WRONG = None
"""What the model has for a result of wrong sizes, and for all that depends on it."""


class WrongSizesError(Exception):
    """An operation of the model has operands of wrong sizes, or reads a WRONG value."""


class TooLargeError(Exception):
    """A vector of the model has more than MOST elements."""


@dataclass
class Env:
    """The values of one run of the model."""

    values: dict[str, Any]
    wrong: list[str] = field(default_factory=list)
    """Operations of wrong sizes that ran."""

    def __getitem__(self, name: str) -> Any:
        value = self.values[name]
        if value is WRONG:
            raise WrongSizesError(name)
        return value

    def inner(self, more: dict[str, Any]) -> Env:
        """The values of a region."""
        return Env({**self.values, **more}, self.wrong)


@dataclass
class Step:
    """An operation: its text, and what its results are."""

    text: str
    results: Sequence[str]
    model: Callable[[Env], Sequence[Any]]


@dataclass
class Block:
    """The operations of a region, and those values that later ones may read."""

    rng: random.Random
    names: Iterator[str]
    vectors: list[str]
    scalars: list[str]
    depth: int = 0
    steps: list[Step] = field(default_factory=list)

    def run(self, env: Env) -> None:
        """Run the model."""
        for step in self.steps:
            try:
                values = step.model(env)
            except WrongSizesError:
                env.wrong.append(step.text)
                values = [WRONG] * len(step.results)
            env.values.update(zip(step.results, values, strict=True))

    def text(self, ends: Sequence[str], types: Sequence[str], end: str) -> str:
        """The operations, and `end` with these values."""
        lines = [step.text for step in self.steps]
        lines.append(f"{end} {', '.join('%' + e for e in ends)} : {', '.join(types)}")
        return "\n".join("  " + line for text in lines for line in text.split("\n"))

    def inside(self, vectors: Sequence[str] = (), scalars: Sequence[str] = ()) -> Block:
        """An empty region with block arguments."""
        seen = [*self.vectors, *vectors], [*self.scalars, *scalars]
        return Block(self.rng, self.names, *seen, self.depth + 1)

    def vector(self) -> str:
        return self.rng.choice(self.vectors[-5:] if self.rng.random() < 0.7 else self.vectors)

    def scalar(self) -> str:
        return self.rng.choice(self.scalars[-5:] if self.rng.random() < 0.7 else self.scalars)

    def add(self, text: str, operands: Sequence[str], kinds: str, model: Callable[..., Any]) -> str:
        """An operation with one result; `text` has the operands' names in place of {0}, {1}."""
        name = next(self.names)
        filled = text.format(*("%" + o for o in operands))
        line = f"%{name} = stablehlo.{filled} : {kinds}"
        self.steps.append(Step(line, [name], lambda env: [model(*(env[o] for o in operands))]))
        return name

    def constant(self, number: int) -> str:
        return self.add(f"constant dense<{number}>", [], SCALAR, lambda: np.int32(number))

    def sized(self, scalar: str) -> str:
        """A scalar as an operand that holds one size."""
        kinds = f"({SCALAR}) -> {ONE}"
        return self.add("reshape {0}", [scalar], kinds, lambda s: np.reshape(s, 1))

    def small(self) -> str:
        """A number of data that is a small size."""
        mask = self.constant(self.rng.choice([1, 3, 5, 8]))
        return self.add("and {0}, {1}", [self.scalar(), mask], SCALAR, np.bitwise_and)

    def flag(self) -> str:
        direction, model = self.rng.choice(
            [("LT", np.less), ("EQ", np.equal), ("GE", np.greater_equal)]
        )
        kinds = f"({SCALAR}, {SCALAR}) -> {FLAG}"
        given = [self.scalar(), self.scalar()]
        return self.add(f"compare {direction}, {{0}}, {{1}}", given, kinds, model)

    def grow(self, count: int) -> None:
        """Add operations, with those that they need."""
        for _ in range(count):
            nested = 5 if self.depth < 3 else 0
            kind = self.rng.choices([_OPS, _CONTROL], [12, nested])[0]
            self.rng.choice(kind)(self)


# --- operations ----------------------------------------------------------------------------------


def _negate(b: Block) -> None:
    b.vectors.append(b.add("negate {0}", [b.vector()], VECTOR, np.negative))


def _add(b: Block) -> None:
    x, y = b.vector(), b.vector()
    if b.depth == 0 and b.rng.random() < 0.7:
        y = x
    b.vectors.append(b.add("add {0}, {1}", [x, y], VECTOR, _sum_of_equal))


def _sum_of_equal(x: Any, y: Any) -> Any:
    _check(len(x) == len(y))
    return x + y


def _check(holds: bool) -> None:
    if not holds:
        raise WrongSizesError


def _scaled(b: Block) -> None:
    x, kinds = b.vector(), f"({VECTOR}) -> {SCALAR}"
    size = b.sized(b.add("get_dimension_size {0}, dim = 0", [x], kinds, _size))
    spread = _broadcast_to(b, size)
    b.vectors.append(b.add("multiply {0}, {1}", [x, spread], VECTOR, np.multiply))


def _size(x: Any) -> Any:
    return np.int32(len(x))


def _broadcast_to(b: Block, size: str) -> str:
    text, kinds = "dynamic_broadcast_in_dim {0}, {1}, dims = []", f"({SCALAR}, {ONE}) -> {VECTOR}"
    return b.add(text, [b.scalar(), size], kinds, lambda s, n: np.full(n, s, "i4"))


def _broadcast(b: Block) -> None:
    b.vectors.append(_broadcast_to(b, b.sized(b.small())))


def _iota(b: Block) -> None:
    kinds = f"({ONE}) -> {VECTOR}"
    model = lambda n: np.arange(n[0], dtype="i4")  # noqa: E731
    b.vectors.append(b.add("dynamic_iota {0}, dim = 0", [b.sized(b.small())], kinds, model))


def _joined(*vectors: Any) -> Any:
    if sum(map(len, vectors)) > MOST:
        raise TooLargeError
    return np.concatenate(vectors)


def _concatenate(b: Block) -> None:
    kinds = f"({VECTOR}, {VECTOR}) -> {VECTOR}"
    given = [b.vector(), b.vector()]
    b.vectors.append(b.add("concatenate {0}, {1}, dim = 0", given, kinds, _joined))


def _first(b: Block) -> None:
    x, count = b.vector(), b.rng.randint(0, 3)
    kind = f"tensor<{count}xi32>"

    def first(x: Any) -> Any:
        _check(len(x) >= count)
        return x[:count]

    piece = b.add(f"slice {{0}} [0:{count}]", [x], f"({VECTOR}) -> {kind}", first)
    kinds = f"({kind}, {VECTOR}) -> {VECTOR}"
    b.vectors.append(b.add("concatenate {0}, {1}, dim = 0", [piece, x], kinds, _joined))


def _slice(b: Block) -> None:
    step = b.constant(b.rng.randint(1, 2))
    given = [b.vector(), *(b.sized(s) for s in (b.constant(0), b.small(), step))]

    def sliced(x: Any, start: Any, limit: Any, step: Any) -> Any:
        _check(0 <= limit[0] <= len(x))
        return x[start[0] : limit[0] : step[0]]

    kinds = f"({VECTOR}, {ONE}, {ONE}, {ONE}) -> {VECTOR}"
    b.vectors.append(b.add("real_dynamic_slice {0}, {1}, {2}, {3}", given, kinds, sliced))


def _pad(b: Block) -> None:
    high = b.constant(b.rng.randint(-1, 1))
    sizes = [b.sized(s) for s in (b.small(), high, b.constant(0))]

    def padded(x: Any, value: Any, low: Any, high: Any, _: Any) -> Any:
        _check(len(x) + low[0] + high[0] >= 0)
        whole = [np.full(low[0], value, "i4"), x, np.full(max(high[0], 0), value, "i4")]
        return np.concatenate(whole)[: len(x) + low[0] + high[0]]

    kinds = f"({VECTOR}, {SCALAR}, {ONE}, {ONE}, {ONE}) -> {VECTOR}"
    given = [b.vector(), b.scalar(), *sizes]
    b.vectors.append(b.add("dynamic_pad {0}, {1}, {2}, {3}, {4}", given, kinds, padded))


def _row_sums(b: Block) -> None:
    sizes = [b.sized(b.small()), b.sized(b.constant(2))]
    kinds = f"({ONE}, {ONE}) -> tensor<2xi32>"
    shape = b.add("concatenate {0}, {1}, dim = 0", sizes, kinds, _joined)

    def rows(x: Any, shape: Any) -> Any:
        _check(len(x) == 2 * shape[0])
        return x.reshape(shape)

    kinds = f"({VECTOR}, tensor<2xi32>) -> tensor<?x?xi32>"
    matrix = b.add("dynamic_reshape {0}, {1}", [b.vector(), shape], kinds, rows)
    text = "reduce({0} init: {1}) applies stablehlo.add across dimensions = [1]"
    kinds = f"(tensor<?x?xi32>, {SCALAR}) -> {VECTOR}"
    given = [matrix, b.constant(0)]
    b.vectors.append(b.add(text, given, kinds, lambda x, _: x.sum(1, dtype="i4")))


def _sum(b: Block) -> None:
    text = "reduce({0} init: {1}) applies stablehlo.add across dimensions = [0]"
    model = lambda x, s: np.append(x, s).sum(dtype="i4")  # noqa: E731
    kinds = f"({VECTOR}, {SCALAR}) -> {SCALAR}"
    b.scalars.append(b.add(text, [b.vector(), b.scalar()], kinds, model))


def _length(b: Block) -> None:
    kinds = f"({VECTOR}) -> {SCALAR}"
    b.scalars.append(b.add("get_dimension_size {0}, dim = 0", [b.vector()], kinds, _size))


def _arithmetic(b: Block) -> None:
    name = b.rng.choice(["add", "subtract", "minimum", "maximum"])
    model: Any = getattr(np, name)
    given = [b.scalar(), b.scalar()]
    b.scalars.append(b.add(f"{name} {{0}}, {{1}}", given, SCALAR, model))


# --- regions -------------------------------------------------------------------------------------


def _branches(b: Block, name: str, chosen: str, count: int) -> None:
    types = [VECTOR] * b.rng.randint(0, 2) + [SCALAR] * b.rng.randint(0, 1) or [VECTOR]
    bodies = []
    for _ in range(count):
        body = b.inside()
        body.grow(b.rng.randint(0, 4))
        bodies.append((body, [body.vector() if t is VECTOR else body.scalar() for t in types]))
    results = [next(b.names) for _ in types]
    regions = [f"{{\n{body.text(ends, types, 'stablehlo.return')}\n}}" for body, ends in bodies]
    kind = FLAG if name == "if" else SCALAR
    text = (
        f'{", ".join("%" + r for r in results)} = "stablehlo.{name}"(%{chosen}) '
        f"({', '.join(regions)}) : ({kind}) -> ({', '.join(types)})"
    )

    def model(env: Env) -> Sequence[Any]:
        number = int(env[chosen])
        number = 1 - number if name == "if" else number if 0 <= number < count else count - 1
        body, ends = bodies[number]
        inner = env.inner({})
        body.run(inner)
        return [inner.values[e] for e in ends]

    b.steps.append(Step(text, results, model))
    _keep(b, results, types)


def _keep(b: Block, results: Sequence[str], types: Sequence[str]) -> None:
    for result, kind in zip(results, types, strict=True):
        (b.vectors if kind is VECTOR else b.scalars).append(result)


def _if(b: Block) -> None:
    _branches(b, "if", b.flag(), 2)


def _case(b: Block) -> None:
    _branches(b, "case", b.small(), b.rng.randint(1, 3))


def _while(b: Block) -> None:
    """A counter from 0 to a small number; vectors that may change their sizes; a scalar."""
    rng, limit = b.rng, b.small()
    vectors, scalars = rng.randint(0, 2), rng.randint(0, 1)
    types = [SCALAR] + [VECTOR] * vectors + [SCALAR] * scalars
    initial = [b.constant(0)]
    initial += [b.vector() for _ in range(vectors)] + [b.scalar() for _ in range(scalars)]
    heads = [next(b.names) for _ in types]
    given = heads[1 : 1 + vectors], [heads[0], *heads[1 + vectors :]]
    body, test = b.inside(*given), b.inside(*given)
    body.grow(rng.randint(0, 4))
    ends = [body.add("add {0}, {1}", [heads[0], body.constant(1)], SCALAR, np.add)]
    ends += [rng.choice([head, body.vector(), body.vector()]) for head in given[0]]
    ends += [body.scalar() for _ in range(scalars)]
    if rng.random() < 0.3:
        test.grow(1)
    kinds = f"({SCALAR}, {SCALAR}) -> {FLAG}"
    go = test.add("compare LT, {0}, {1}", [heads[0], limit], kinds, np.less)
    name = next(b.names)
    results = [f"{name}#{k}" for k in range(len(types))] if len(types) > 1 else [name]
    carried = ", ".join(f"%{h} = %{i}" for h, i in zip(heads, initial, strict=True))
    text = (
        f"%{name}:{len(types)} = stablehlo.while({carried}) : {', '.join(types)}\n"
        f"cond {{\n{test.text([go], [FLAG], 'stablehlo.return')}\n}} do {{\n"
        f"{body.text(ends, types, 'stablehlo.return')}\n}}"
    )

    def model(env: Env) -> Sequence[Any]:
        now = [env.values[i] for i in initial]
        while True:
            heads_now = dict(zip(heads, now, strict=True))
            tested, inner = env.inner(heads_now), env.inner(heads_now)
            test.run(tested)
            if not tested[go]:
                return now
            body.run(inner)
            now = [inner.values[e] for e in ends]

    b.steps.append(Step(text, results, model))
    _keep(b, results, types)


_OPS = [
    _add, _arithmetic, _broadcast, _concatenate, _first, _iota, _length, _negate, _pad, _row_sums,
    _scaled, _slice, _sum,
]  # fmt: skip
_CONTROL = [_case, _if, _while]


# --- programs ------------------------------------------------------------------------------------


@dataclass
class Program:
    """A program with two vectors and two scalars as arguments."""

    block: Block
    results: list[str]

    @staticmethod
    def of(seed: int) -> Program:
        """The program of a seed."""
        rng = random.Random(seed)
        block = Block(rng, (f"v{k}" for k in range(100_000)), ["x", "y"], ["s", "k"])
        block.grow(rng.randint(2, 5))
        ends = [block.vectors[-1], block.vector(), block.scalars[-1], block.scalar()]
        return Program(block, ends)

    def text(self) -> str:
        """As StableHLO."""
        types = [VECTOR, VECTOR, SCALAR, SCALAR]
        heads = ", ".join(f"%{n}: {t}" for n, t in zip("xysk", types, strict=True))
        body = self.block.text(self.results, types, "return")
        return f"func.func @main({heads}) -> ({', '.join(types)}) {{\n{body}\n}}\n"

    def problem(self, seed: int) -> str:
        """What is wrong with what shlo_disc makes of it, at arguments of `seed`; empty: nothing."""
        with as_gpu() as gpu:
            told = self._told(seed, gpu.target if gpu else "cpu")
            fault = gpu.fault() if gpu else None
        return f"fault: {fault[1]}" if fault else told

    def _told(self, seed: int, target: str) -> str:
        try:
            made = shlo_disc.compile(self.text(), target=target)
        except UnsupportedError as error:
            return f"unsupported: {error}"
        for arguments in _calls(seed):
            env = Env(dict(zip("xysk", arguments, strict=True)))
            try:
                with np.errstate(over="ignore"):
                    self.block.run(env)
            except TooLargeError:
                continue
            wanted = [env.values[r] for r in self.results]
            try:
                found = made.run_numpy(arguments)
            except (ShapeMismatchError, InvalidModuleError) as error:
                if not env.wrong:
                    return f"{arguments}: refused: {error}"
                continue
            if any(want is WRONG for want in wanted):
                return f"{arguments}: not refused: {env.wrong[0]}"
            for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
                if not np.array_equal(got, want) or np.shape(got) != np.shape(want):
                    return f"{arguments}: result {number}: {got} instead of {want}"
        return ""


def _calls(seed: int) -> Iterator[list[Any]]:
    rng = np.random.default_rng(seed)
    for n, m in ((3, 3), (4, 2), (0, 1), (6, 6), (2, 2)):
        for _ in range(2):
            x, y = (rng.integers(-4, 6, k).astype("i4") for k in (n, m))
            yield [x, y, np.int32(rng.integers(-3, 9)), np.int32(rng.integers(0, 4))]


@click.command()
@click.option("--count", default=200, show_default=True, help="Programs to check.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--minutes", default=0.0, help="Stop after this time (0: when all are checked).")
@click.option("--target", default="", help="Run for a GPU, as of `python -m tests.fuzz`.")
@click.option("--show", is_flag=True, help="Print the program of --seed and end.")
def main(count: int, seed: int, minutes: float, target: str, show: bool) -> None:
    """Check random programs of regions."""
    os.environ[TARGET] = target
    if show:
        print(Program.of(seed).text())
        return
    end, wrong, done = time.monotonic() + 60 * (minutes or 1e9), 0, 0
    for number in range(seed, seed + count):
        if time.monotonic() > end:
            break
        try:
            problem = Program.of(number).problem(number)
        except Exception as error:  # any is a mistake of ours
            problem = f"{type(error).__name__}: {error}"
        done += 1
        if problem:
            wrong += 1
            print(f"seed {number}: {problem}", flush=True)
    print(f"{done} programs, {wrong} wrong")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
