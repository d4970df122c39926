"""Random programs of integers, flags, loops and branches on a device that the host cannot reach.

The oracle is Python: the same program on NumPy's numbers. All arithmetic is in whole numbers, so
results are equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from tests.lower.device import Stream, StreamMemory, emitted

NUMBERS, MOST_STEPS = 4, 4
SIZES = (1, 3, 8)

State = dict[str, Any]
"""The numbers `0` to `3`, the flag `f` and the array `x`."""

Program = list[tuple[Any, ...]]


def program(r: random.Random, depth: int) -> Program:
    """Statements: a name, then what it is about."""
    return [statement(r, depth) for _ in range(r.randint(2, 4))]


def statement(r: random.Random, depth: int) -> tuple[Any, ...]:
    names = ["number", "number", "flag", "sum", "place", "element", "add", "put", "move"]
    names += ["if", "for", "while"] * (depth > 0)
    name = r.choice(names)
    k, i, j = (r.choice("0123") for _ in range(3))
    if name == "if":
        return name, condition(r), program(r, depth - 1), program(r, depth - 1)
    if name == "for":
        return name, i, k, program(r, depth - 1)
    if name == "while":
        return name, condition(r), program(r, depth - 1)
    if name == "number":
        return name, k, i, j, r.choice("+-*"), r.randint(-3, 3)
    return (name, condition(r)) if name == "flag" else (name, k, i)


def condition(r: random.Random) -> tuple[str, str]:
    return r.choice(
        [("flag", ""), ("odd", r.choice("0123")), ("less", r.choice("012")), ("data", "")]
    )


class Numpy:
    """Runs a program at once."""

    @staticmethod
    def choose(flag: Any, yes: Callable[[State], State], no: Any, state: State) -> State:
        return yes(state) if flag else no(state)

    @staticmethod
    def repeat(go: Callable[[State], Any], step: Callable[[State], State], state: State) -> State:
        while go(state):
            state = step(state)
        return state

    @staticmethod
    def number(value: Any) -> Any:
        return np.int32(value)

    @staticmethod
    def element(x: Any, i: Any) -> Any:
        return x[Numpy.place(x, i)]

    @staticmethod
    def put(x: Any, i: Any) -> Any:
        out = x.copy()
        out[Numpy.place(x, i)] = x[0] + 3
        return out

    @staticmethod
    def place(x: Any, i: Any) -> int:
        return min(max(int(i) + (len(x) if i < 0 else 0), 0), len(x) - 1)


class Jax:
    """Writes a program."""

    @staticmethod
    def choose(flag: Any, yes: Callable[[State], State], no: Any, state: State) -> State:
        return lax.cond(flag, yes, no, state)

    @staticmethod
    def repeat(go: Callable[[State], Any], step: Callable[[State], State], state: State) -> State:
        return lax.while_loop(go, step, state)

    @staticmethod
    def number(value: Any) -> Any:
        return jnp.int32(value)

    @staticmethod
    def element(x: Any, i: Any) -> Any:
        return lax.dynamic_slice(x, (i,), (1,))[0]

    @staticmethod
    def put(x: Any, i: Any) -> Any:
        return lax.dynamic_update_slice(x, x[:1] + 3, (i,))


def holds(what: tuple[str, str], s: State) -> Any:
    name, k = what
    if name == "flag":
        return s["f"]
    if name == "odd":
        return s[k] % 2 == 1
    return s[k] < s["3"] if name == "less" else s["x"].sum() % 3 == 0


def after(steps: Program, s: State, by: Any) -> State:
    """The state after a program; `by` is Numpy or Jax."""
    for name, *what in steps:
        s = s | _changes(name, what, s, by)
    return s


def _changes(name: str, what: list[Any], s: State, by: Any) -> State:
    if name == "if":
        test, yes, no = what
        return by.choose(holds(test, s), lambda t: after(yes, t, by), lambda t: after(no, t, by), s)
    if name == "for":
        i, k, inner = what
        return _counted(by, s, k, lambda _: True, s[i] % MOST_STEPS, inner)
    if name == "while":
        test, inner = what
        return _counted(by, s, None, lambda t: holds(test, t), MOST_STEPS, inner)
    if name == "number":
        k, i, j, op, c = what
        found = {"+": s[i] + s[j] + c, "-": s[i] - s[j] + c, "*": s[i] * s[j] + c}[op]
        return {k: by.number(found % 97)}
    if name == "flag":
        return {"f": holds(what[0], s)}
    k, i = what
    x = s["x"]
    changes = {
        "sum": lambda: {k: by.number(x.sum() % 17)},
        "place": lambda: {k: by.number(x.argmax())},
        "element": lambda: {k: by.number(by.element(x, s[i]))},
        "add": lambda: {"x": (x + s[i]) % 101},
        "put": lambda: {"x": by.put(x, s[i])},
        "move": lambda: {k: s[i], i: s[k]},
    }
    return changes[name]()


def _counted(
    by: Any, s: State, k: str | None, go: Callable[[State], Any], most: Any, inner: Program
) -> State:
    """A loop of at most so many steps; it counts in number `k`, too, before the step."""

    def step(pair: tuple[Any, State]) -> tuple[Any, State]:
        count, t = pair
        return by.number(count + 1), after(inner, t | ({k: count} if k else {}), by)

    begin = by.number(0), s
    return by.repeat(lambda pair: (pair[0] < most) & go(pair[1]), step, begin)[1]


def start(number: Any, x: Any, by: Any) -> State:
    numbers = {str(k): by.number(3 * k - 1) for k in range(NUMBERS)}
    return numbers | {"2": number, "f": number > 2, "x": x}


@pytest.mark.parametrize(
    "seed", [k if k < 20 else pytest.param(k, marks=pytest.mark.slow) for k in range(100)]
)
def test_a_random_program(seed):
    steps = program(random.Random(seed), 2)
    names = export.symbolic_shape("n")
    specs = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct(names, jnp.int32)

    def run(number: Any, x: Any) -> State:
        return after(steps, start(number, x, Jax), Jax)

    made = emitted(export.export(jax.jit(run))(*specs).mlir_module(), StreamMemory())
    for n in SIZES:
        x = np.random.default_rng(n).integers(0, 100, n).astype(np.int32)
        for number in (np.int32(-2), np.int32(5)):
            got = Stream().run(made, [np.asarray(number), x])
            want = after(steps, start(number, x, Numpy), Numpy)
            for name, mine in zip(sorted(want), got, strict=True):
                np.testing.assert_array_equal(mine, want[name], err_msg=f"{name}, n = {n}: {steps}")
