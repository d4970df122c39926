"""Scalars on the host: programs on a device that the host program reaches by operations only.

Each is compiled once, run at several sizes, and must read from the device as often as it says: the
host program waits there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from tests.lower.device import Emitted, Stream, StreamMemory, emitted

SIZES = (1, 4, 7)


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.5, 2, n).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A function of arguments, and how often it reads."""

    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    """At size n."""
    reads: Callable[[int], int]
    """At size n."""
    shapes: tuple[str, ...] = ("n",)
    """Of the arguments, with symbols."""


def never(n: int) -> int:
    return 0


def once(n: int) -> int:
    return 1


def fori(x):
    return lax.fori_loop(0, 10, lambda i, a: a * 0.5 + i * x, x)


def over_all(x):
    """The bound is a size."""
    return lax.fori_loop(0, x.shape[0], lambda i, a: a.at[i].add(i), x)


def lstm(x, w):
    def step(carry, row):
        h, c = carry
        i, f, o, g = jnp.split(h @ w + jnp.tile(row, 4), 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros(8), jnp.ones(8)), x)


def nested(x):
    def outer(i, a):
        return lax.fori_loop(0, i, lambda k, b: b + x * k, a) * 0.5

    return lax.fori_loop(0, 5, outer, x)


def while_small(x):
    return lax.while_loop(lambda a: a.sum() < 100, lambda a: a * 2, x)


def doublings(n: int) -> int:
    total, count = float(vector(n).sum()), 0
    while total < 100:
        total, count = 2 * total, count + 1
    return count


def while_small_counted(x):
    """The counter is a result, and one of two conditions."""
    return lax.while_loop(
        lambda s: (s[0] < 3) & (s[1].sum() < 100), lambda s: (s[0] + 1, s[1] * 2), (0, x)
    )


def branches_of_data(x):
    def step(a, row):
        return lax.cond(a.sum() > 2, lambda a: a - row, lambda a: a + row, a), None

    return lax.scan(step, jnp.zeros(1), x[:, None])[0]


def branches_of_counters(x):
    def step(i, a):
        ways = [lambda a: a + 1, lambda a: a * 2, lambda a: a - x]
        return lax.switch(i % 3, ways, a)

    return lax.fori_loop(0, 7, step, x)


def slices(x):
    def step(i, a):
        part = lax.dynamic_slice(a, (i,), (1,))
        return lax.dynamic_update_slice(a, part * 2 + i, (a.shape[0] - 1 - i,))

    return lax.fori_loop(0, x.shape[0], step, x)


def two_conditions_of_data(x):
    """Both are computed from data: a kernel computes whether both hold."""
    return lax.while_loop(lambda a: (a.sum() < 100) & (a.max() < 100), lambda a: a * 2, x)


def flag(x):
    """A flag is carried: kernels compute it, the condition asks for it."""

    def step(s):
        _, a = s
        return a.sum() * 2 < 100, a * 2

    return lax.while_loop(lambda s: s[0], step, (True, x))


def bound_given(n, x):
    """The argument is the bound of a loop in a loop."""

    def outer(i, a):
        return lax.fori_loop(0, n, lambda k, b: b + k, a) * 0.5

    return lax.fori_loop(0, 3, outer, x), n + 1


def start_given(n, x):
    return lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 2, s[1] + s[0]), (n, x))


def nobody_asks(n, x):
    return n * 3 + 1, x * (n + 2)


def bound_computed(x):
    """A kernel counts, and a loop runs so often."""
    count = (x > 1).sum()
    return lax.fori_loop(0, count, lambda i, a: a + i, x), count


def place_computed(x):
    """Kernels read where a kernel says: the host does not ask."""

    def step(i, a):
        k = jnp.argmax(a)
        return lax.dynamic_update_slice(a, a[:1] * 0.5, (k,)) + lax.dynamic_slice(a, (k,), (1,))

    return lax.fori_loop(0, 4, step, x)


def numbers_of_branches(x):
    """A branch gives numbers, which index."""

    def step(i, a):
        k = lax.cond(i % 2 == 0, lambda: 0, lambda: i // 2)
        return a.at[k].add(1.5)

    return lax.fori_loop(0, 6, step, x)


def changing_places(x):
    """Numbers of the host change places, beside one that is sometimes of the device's."""

    def step(i, s):
        p, q, r, t, a = s
        return q + i, p, t, jnp.int32(a.sum()), a + p * r

    return lax.fori_loop(0, 6, step, (1, 2, 3, 4, x))


def one_after_the_other(x):
    for k in range(4):
        _, x = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + s[0]), (k, x))
    return x


def loop_in_a_branch(p, x):
    def many(x):
        return lax.fori_loop(0, 3, lambda i, a: a * i + x, x), 3

    return lax.cond(p > 1, many, lambda x: (x, p), x)


def asked_for_twice(x):
    """A number of a kernel's is a condition in the loop, and one after it."""

    def step(s):
        count, a = s
        a = lax.cond(count % 2 == 0, lambda a: a * 2, lambda a: a * 3, a)
        return (a < 50).sum(), a

    count, x = lax.while_loop(lambda s: s[0] > 0, step, (1, x))
    return lax.cond(count == 0, lambda x: x + 1, lambda x: x, x), count


def steps_of_asked(n: int) -> int:
    count, a, steps = 1, vector(n), 0
    while count:
        a = a * (3 if count % 2 else 2)
        count, steps = int((a < 50).sum()), steps + 1
    return steps


def with_number(number: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (np.int32(number), vector(n))


def alone(n: int) -> tuple[Any, ...]:
    return (vector(n),)


def rows(n: int) -> tuple[Any, ...]:
    r = np.random.default_rng(n)
    return r.normal(size=(n, 8)).astype(np.float32), r.normal(size=(8, 32)).astype(np.float32) / 4


CASES = {
    "asked for twice": Case(asked_for_twice, alone, steps_of_asked),
    "bound computed": Case(bound_computed, alone, once),
    "bound given": Case(bound_given, with_number(4), once, ("", "n")),
    "branches of counters": Case(branches_of_counters, alone, never),
    "branches of data": Case(branches_of_data, alone, lambda n: n),
    "changing places": Case(changing_places, alone, never),
    "flag": Case(flag, alone, lambda n: max(doublings(n), 1)),
    "fori": Case(fori, alone, never),
    "loop in a branch": Case(loop_in_a_branch, with_number(2), once, ("", "n")),
    "lstm": Case(lstm, rows, never, ("n, 8", "8, 32")),
    "nested": Case(nested, alone, never),
    "nobody asks": Case(nobody_asks, with_number(5), never, ("", "n")),
    "numbers of branches": Case(numbers_of_branches, alone, never),
    "one after the other": Case(one_after_the_other, alone, never),
    "over all": Case(over_all, alone, never),
    "place computed": Case(place_computed, alone, never),
    "slices": Case(slices, alone, never),
    "start given": Case(start_given, with_number(-3), once, ("", "n")),
    "two conditions of data": Case(two_conditions_of_data, alone, lambda n: doublings(n) + 1),
    "while small": Case(while_small, alone, lambda n: doublings(n) + 1),
    "while small, counted": Case(
        while_small_counted, alone, lambda n: min(doublings(n), 3) + 1
    ),
}  # fmt: skip


def compiled(case: Case) -> Emitted:
    """One program for all sizes."""
    given = zip(case.shapes, case.arguments(3), strict=True)
    scope = export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), argument.dtype)
        for shape, argument in given
    ]
    return emitted(export.export(jax.jit(case.function))(*specs).mlir_module(), StreamMemory())


@pytest.mark.parametrize("name", CASES)
def test_results_and_reads(name):
    case = CASES[name]
    made = compiled(case)
    for n in SIZES:
        arguments = case.arguments(n)
        stream = Stream()
        got = stream.run(made, list(map(np.asarray, arguments)))
        for mine, want in zip(got, jax.tree.leaves(case.function(*arguments)), strict=True):
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)
        assert stream.done["read"] == case.reads(n), (n, stream.done)
