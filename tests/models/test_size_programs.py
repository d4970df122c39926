"""Random integer programs on sizes, whose results are sizes and numbers, beside Python's integers.

Formulas of sizes grow with every choice between two of them. A compilation must stay short, and a
size that is too long for a formula is computed as a number.
"""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import shlo_disc

I32, I1, VECTOR = "tensor<i32>", "tensor<i1>", "tensor<?xf32>"
Values = list[int]
Step = tuple[list[str], Callable[[Values], int]]

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


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": min,
    "maximum": max,
    "divide": truncated,
    "remainder": lambda a, b: a - b * truncated(a, b),
}


def binary(op: str, n: int, a: int, b: int, number: int) -> Step:
    """Value `n` is `a op b`; a factor is at most `number`, a divisor at least 1."""
    if op == "multiply":
        bound, limited = f"%b{n} = stablehlo.minimum %x{b}, %c{number} : {I32}", min
    elif op in ("divide", "remainder"):
        number = 1
        bound, limited = f"%b{n} = stablehlo.maximum %x{b}, %c1 : {I32}", max
    else:
        lines = [f"%x{n} = stablehlo.{op} %x{a}, %x{b} : {I32}"]
        return lines, lambda v: BINARY[op](v[a], v[b])
    lines = [bound, f"%x{n} = stablehlo.{op} %x{a}, %b{n} : {I32}"]
    return lines, lambda v: BINARY[op](v[a], limited(v[b], number))


def choice(order: str, n: int, a: int, b: int, c: int, d: int) -> Step:
    """Value `n` is `a order b ? c : d`."""
    lines = [
        f"%t{n} = stablehlo.compare {order}, %x{a}, %x{b} : ({I32}, {I32}) -> {I1}",
        f"%x{n} = stablehlo.select %t{n}, %x{c}, %x{d} : {I1}, {I32}",
    ]
    return lines, lambda v: v[c] if ORDERS[order](v[a], v[b]) else v[d]


def joined_choice(join: str, n: int, a: int, b: int, c: int, d: int) -> Step:
    """Value `n` is `a > b join c < d ? c : d`."""
    lines = [
        f"%t{n} = stablehlo.compare GT, %x{a}, %x{b} : ({I32}, {I32}) -> {I1}",
        f"%u{n} = stablehlo.compare LT, %x{c}, %x{d} : ({I32}, {I32}) -> {I1}",
        f"%w{n} = stablehlo.{join} %t{n}, %u{n} : {I1}",
        f"%x{n} = stablehlo.select %w{n}, %x{c}, %x{d} : {I1}, {I32}",
    ]
    both = all if join == "and" else any
    return lines, lambda v: v[c] if both((v[a] > v[b], v[c] < v[d])) else v[d]


def random_step(rng: random.Random, n: int) -> Step:
    a, b, c, d = (rng.choice([rng.randrange(max(0, n - 4), n), rng.randrange(n)]) for _ in "abcd")
    kind = rng.choice(["binary", "binary", "choice", "choice", "joined"])
    if kind == "choice":
        return choice(rng.choice(list(ORDERS)), n, a, b, c, d)
    if kind == "joined":
        return joined_choice(rng.choice(["and", "or"]), n, a, b, c, d)
    return binary(rng.choice(list(BINARY)), n, a, b, rng.randrange(1, 8))


def text_of(arguments: int, steps: Sequence[Step]) -> str:
    """The results are the last value, and a vector of its magnitude modulo 7."""
    lines = [
        f"%x{k} = stablehlo.get_dimension_size %a{k}, dim = 0 : ({VECTOR}) -> {I32}"
        for k in range(arguments)
    ]
    lines += [f"%c{k} = stablehlo.constant dense<{k}> : {I32}" for k in range(8)]
    lines += [line for step, _ in steps for line in step]
    last = f"%x{arguments + len(steps) - 1}"
    lines += [
        f"%rest = stablehlo.remainder {last}, %c7 : {I32}",
        f"%size = stablehlo.abs %rest : {I32}",
        f"%shape = stablehlo.reshape %size : ({I32}) -> tensor<1xi32>",
        f"%vector = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> {VECTOR}",
        f"return %vector, {last} : {VECTOR}, {I32}",
    ]
    heads = ", ".join(f"%a{k}: {VECTOR}" for k in range(arguments))
    body = "\n".join(lines)
    return f"module {{ func.func @main({heads}) -> ({VECTOR}, {I32}) {{\n{body}\n}} }}"


def check(arguments: int, steps: Sequence[Step], sizes: Sequence[Sequence[int]]) -> None:
    start = time.process_time()
    compiled = shlo_disc.compile(text_of(arguments, steps))
    assert time.process_time() - start < 15
    for given in sizes:
        values = list(given)
        for _, step in steps:
            values.append(step(values))
        if max(map(abs, values)) >= 1 << 31:
            continue  # the program's own numbers wrap
        vector, last = compiled.run_numpy([np.zeros(n, "f4") for n in given])
        assert vector.shape == (abs(values[-1]) % 7,)
        assert last == values[-1]


SIZES = ((5, 3, 2), (1, 1, 1), (7, 2, 9), (0, 4, 3), (2, 0, 11))


def run(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((6, 12, 25, 50))
    check(3, [random_step(rng, 3 + k) for k in range(count)], SIZES)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed):
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 200))
def test_more_random_programs(seed):
    run(seed)


def test_choices_between_terms_of_each_other():
    """A quotient, or three times the number and one: each step has all steps before twice."""

    def step(k: int) -> list[Step]:
        n = 2 + 5 * k
        x = n - 1 if k else 0
        return [
            binary("remainder", n, x, 1, 1),
            binary("divide", n + 1, x, 1, 1),
            binary("multiply", n + 2, x, 1, 3),
            binary("add", n + 3, n + 2, 1, 1),
            choice("LT", n + 4, n, 1, n + 1, n + 3),
        ]

    steps = [s for k in range(40) for s in step(k)]
    check(2, steps, ((6, 2), (7, 2), (1, 2), (27, 3)))
