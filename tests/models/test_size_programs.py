"""Random integer programs on sizes, whose results are sizes and numbers, beside Python's integers.

Formulas of sizes grow with every choice between two of them. A compilation must stay short, and a
size that is too long for a formula is computed as a number.
"""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

import shlo_disc

I32, I1, VECTOR = "tensor<i32>", "tensor<i1>", "tensor<?xf32>"

ORDERS = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def truncated(a: int, b: int) -> int:
    """The quotient rounded towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


NUMBERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": min,
    "maximum": max,
    "divide": truncated,
    "remainder": lambda a, b: a - b * truncated(a, b),
}
TRUTHS = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@dataclass
class Program:
    """A program on the sizes of `arguments` vectors; numbers %x0, ... and truth values %t0, ..."""

    arguments: int
    lines: list[str] = field(default_factory=list)
    steps: list[Callable[[list[int], list[bool]], None]] = field(default_factory=list)
    numbers: int = 0
    truths: int = 0

    def __post_init__(self) -> None:
        for k in range(self.arguments):
            self.lines.append(
                f"%x{k} = stablehlo.get_dimension_size %a{k}, dim = 0 : ({VECTOR}) -> {I32}"
            )
        self.lines += [f"%c{k} = stablehlo.constant dense<{k}> : {I32}" for k in range(8)]
        self.numbers = self.arguments

    def number(self, op: str, a: int, b: int) -> int:
        """`a op b`; a factor `b` is at most 7, a divisor at least 1."""
        n = self.numbers
        right = f"%x{b}"
        least, most = (1, None) if op in ("divide", "remainder") else (None, None)
        if op == "multiply":
            most = 7
        if least is not None or most is not None:
            bound = "%c1" if most is None else "%c7"
            name = "maximum" if most is None else "minimum"
            self.lines.append(f"%b{n} = stablehlo.{name} {right}, {bound} : {I32}")
            right = f"%b{n}"

        def step(x: list[int], t: list[bool]) -> None:
            other = x[b] if least is None else max(x[b], least)
            x.append(NUMBERS[op](x[a], other if most is None else min(other, most)))

        return self._number(f"stablehlo.{op} %x{a}, {right} : {I32}", step)

    def choice(self, t: int, a: int, b: int) -> int:
        """`t ? a : b`."""
        line = f"stablehlo.select %t{t}, %x{a}, %x{b} : {I1}, {I32}"
        return self._number(line, lambda x, truths: x.append(x[a] if truths[t] else x[b]))

    def compare(self, order: str, a: int, b: int) -> int:
        """`a order b`."""
        line = f"stablehlo.compare {order}, %x{a}, %x{b} : ({I32}, {I32}) -> {I1}"
        return self._truth(line, lambda x, truths: truths.append(ORDERS[order](x[a], x[b])))

    def join(self, op: str, a: int, b: int) -> int:
        """`a op b` of truth values."""
        line = f"stablehlo.{op} %t{a}, %t{b} : {I1}"
        return self._truth(line, lambda x, truths: truths.append(TRUTHS[op](truths[a], truths[b])))

    def negation(self, a: int) -> int:
        """`not a`."""
        line = f"stablehlo.not %t{a} : {I1}"
        return self._truth(line, lambda x, truths: truths.append(not truths[a]))

    def _number(self, line: str, step: Callable[[list[int], list[bool]], None]) -> int:
        self.lines.append(f"%x{self.numbers} = {line}")
        self.steps.append(step)
        self.numbers += 1
        return self.numbers - 1

    def _truth(self, line: str, step: Callable[[list[int], list[bool]], None]) -> int:
        self.lines.append(f"%t{self.truths} = {line}")
        self.steps.append(step)
        self.truths += 1
        return self.truths - 1

    def text(self) -> str:
        """The results are the last number, and a vector of its magnitude modulo 7."""
        last = f"%x{self.numbers - 1}"
        lines = [
            *self.lines,
            f"%rest = stablehlo.remainder {last}, %c7 : {I32}",
            f"%size = stablehlo.abs %rest : {I32}",
            f"%shape = stablehlo.reshape %size : ({I32}) -> tensor<1xi32>",
            f"%vector = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> {VECTOR}",
            f"return %vector, {last} : {VECTOR}, {I32}",
        ]
        heads = ", ".join(f"%a{k}: {VECTOR}" for k in range(self.arguments))
        body = "\n".join(lines)
        return f"module {{ func.func @main({heads}) -> ({VECTOR}, {I32}) {{\n{body}\n}} }}"

    def check(self, sizes: Sequence[Sequence[int]]) -> None:
        start = time.process_time()
        compiled = shlo_disc.compile(self.text())
        assert time.process_time() - start < 15
        for given in sizes:
            numbers, truths = list(given), []
            for step in self.steps:
                step(numbers, truths)
            if max(map(abs, numbers)) >= 1 << 31:
                continue  # the program's own numbers wrap
            vector, last = compiled.run_numpy([np.zeros(n, "f4") for n in given])
            assert vector.shape == (abs(numbers[-1]) % 7,)
            assert last == numbers[-1]


def random_program(seed: int) -> Program:
    rng = random.Random(seed)
    p = Program(3)

    def recent(count: int) -> int:
        return rng.choice([rng.randrange(max(0, count - 4), count), rng.randrange(count)])

    for _ in range(rng.choice((6, 12, 25, 50))):
        a, b = recent(p.numbers), recent(p.numbers)
        kind = rng.choice(("number", "number", "compare", "join", "not", "choice", "choice"))
        if kind == "number":
            p.number(rng.choice(list(NUMBERS)), a, b)
        elif kind == "compare" or not p.truths:
            p.compare(rng.choice(list(ORDERS)), a, b)
        elif kind == "join":
            p.join(rng.choice(list(TRUTHS)), recent(p.truths), recent(p.truths))
        elif kind == "not":
            p.negation(recent(p.truths))
        else:
            p.choice(recent(p.truths), a, b)
    return p


SIZES = ((5, 3, 2), (1, 1, 1), (7, 2, 9), (0, 4, 3), (2, 0, 11))


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed):
    random_program(seed).check(SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 200))
def test_more_random_programs(seed):
    random_program(seed).check(SIZES)


def test_choices_between_terms_of_each_other():
    """A quotient, or the sum of three of the number and one: each has all before it twice."""
    p = Program(2)
    x = 0
    for _ in range(40):
        quotient = p.number("divide", x, 1)
        rest = p.number("remainder", x, 1)
        other = p.number("add", p.number("add", x, x), x)
        x = p.choice(p.compare("LT", rest, 1), quotient, other)
    p.check(((6, 2), (7, 2), (1, 2), (27, 3)))


@pytest.mark.parametrize("count", [12, 60])
def test_conditions_of_conditions(count):
    """Each has the one before it twice."""
    p = Program(3)
    truth = p.compare("GT", 0, 1)
    for _ in range(count):
        larger, smaller = p.compare("GT", 0, p.numbers - 1), p.compare("LT", 1, p.numbers - 1)
        p.number("add", 2, p.numbers - 1)
        first, second = p.join("and", truth, smaller), p.join("and", p.negation(truth), larger)
        truth = p.join("or", first, second)
        p.choice(truth, 0, 1)
    p.check(((5, 3, 1), (3, 5, 2), (1, 1, 1), (40, 2, 3)))
