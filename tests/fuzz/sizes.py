"""Random programs that write one size in two ways, and combine arrays of both.

Chunks, frames, strides, pools, crops and repeats of sequences, as people write them. Each row of
`LENGTHS` has ways of making an array of one length out of a sequence of `n` numbers. A program
takes two of them, and combines the arrays by a function that needs equal lengths (`PAIRS`); more
such steps follow. It has one length for every call, so one compilation is enough.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz.facts import Facts
from tests.fuzz.program import Argument, Block, Body, Program, Step, Value


class Length(NamedTuple):
    """A length that a program gives an array; `n` is the sequence's."""

    of: Callable[[int, int], int]
    """The length for `n` and `k`."""
    least: Callable[[int], int]
    """The least `n` for `k`: what is shorter, JAX refuses or leaves empty."""
    ways: tuple[str, ...]
    """Texts over `{x}`, `{n}` and the number `{k}` that have it."""


_CONV = "lax.conv_general_dilated({x}[None, None], jnp.ones((1, 1, {k})), ({k},), '%s')[0, 0]"
_POOL = "lax.reduce_window({x}, 0.0, lax.add, ({w},), ({s},), '%s')"

LENGTHS: dict[str, Length] = {
    "chunks": Length(
        lambda n, k: -(-n // k),
        lambda k: 2 * k,
        (
            "{x}[::{k}]",
            "{x}[jnp.arange(({n} - 1) // {k} + 1) * {k}]",
            "jnp.pad({x}, (0, -{n} % {k})).reshape(-1, {k}).sum(1)",
            "jnp.pad({x}, (0, ({n} + {k} - 1) // {k} * {k} - {n})).reshape(-1, {k})[:, 0]",
            "jnp.concatenate([{x}, jnp.zeros(-{n} % {k})]).reshape(-1, {k}).max(1)",
            "jnp.arange(-(-{n} // {k})) * 0.01",
            "jnp.arange(({n} + {k} - 1) // {k}) / {n}",
            "jnp.arange(0, {n}, {k}) * 0.02",
            "jnp.ones(({n} + -{n} % {k}) // {k})",
            "jnp.linspace(0.0, 1.0, -(-{n} // {k}))",
            "jnp.resize({x}, -(-{n} // {k}))",
            _POOL.replace("{w}", "{k}").replace("{s}", "{k}") % "SAME",
            _CONV % "SAME",
        ),
    ),
    "halves": Length(
        lambda n, _: n - n // 2,
        lambda _: 4,
        (
            "{x}[{n} // 2:]",
            "{x}[::2]",
            "jnp.flip({x})[: {n} - {n} // 2]",
            "jnp.split({x}, [{n} // 2])[1]",
            "jnp.arange(({n} + 1) // 2) * 0.1",
        ),
    ),
    "whole chunks": Length(
        lambda n, k: n // k,
        lambda k: 2 * k,
        (
            "{x}[{k} - 1::{k}]",
            "{x}[: {n} // {k}]",
            "{x}[: {n} // {k} * {k}].reshape(-1, {k}).sum(1)",
            "{x}[: {n} - {n} % {k}].reshape({n} // {k}, {k})[:, 0]",
            "jnp.arange(({n} - {k}) // {k} + 1) * 0.1",
            "jnp.arange({n} // {k}) * 0.1",
            _POOL.replace("{w}", "{k}").replace("{s}", "{k}") % "VALID",
            _CONV % "VALID",
        ),
    ),
    "frames": Length(
        lambda n, k: (n - 4) // k + 1,
        lambda k: 4 + k,
        (
            "{x}[jnp.arange(1 + ({n} - 4) // {k})[:, None] * {k} + jnp.arange(4)].sum(1)",
            "{x}[: {n} - 3 : {k}]",
            "{x}[3::{k}]",
            "jnp.arange(0, {n} - 3, {k}) / 16",
            "jnp.arange(({n} - 4 + {k}) // {k}) * 0.1",
            "jax.vmap(lambda i: lax.dynamic_slice({x}, (i,), (4,)).sum())"
            "(jnp.arange(0, {n} - 3, {k}))",
            _POOL.replace("{w}", "4").replace("{s}", "{k}") % "VALID",
        ),
    ),
    "sequence": Length(
        lambda n, _: n,
        lambda k: k,
        (
            "{x}",
            "jnp.concatenate([{x}[::2], {x}[1::2]])",
            "jnp.concatenate([{x}[{n} // {k}:], {x}[: {n} // {k}]])",
            "jnp.repeat({x}, {k}).reshape(-1, {k})[:, 0]",
            "jnp.pad({x}, (0, -{n} % {k}))[: {n}]",
            "jnp.arange(2 * {n} // 2) * 0.01",
            "jnp.repeat({x}[::{k}], {k})[: {n}]",
        ),
    ),
    "cropped": Length(
        lambda n, k: n // k * k,
        lambda k: 2 * k,
        (
            "{x}[: {n} // {k} * {k}]",
            "{x}[: {n} - {n} % {k}]",
            "jnp.repeat({x}[: {n} // {k}], {k})",
            "jnp.repeat({x}[{k} - 1::{k}], {k})",
            "jnp.arange({k} * ({n} // {k})) * 0.01",
            "{x}[: {n} // {k} * {k}].reshape(-1, {k}).T.reshape(-1)",
        ),
    ),
    "padded": Length(
        lambda n, k: n + -n % k,
        lambda k: 2 * k,
        (
            "jnp.pad({x}, (0, -{n} % {k}))",
            "jnp.concatenate([{x}, jnp.zeros(-(-{n} // {k}) * {k} - {n})])",
            "jnp.repeat({x}[::{k}], {k})",
            "jnp.arange(({n} + {k} - 1) // {k} * {k}) * 0.01",
            "jnp.zeros({n} + -{n} % {k}).at[: {n}].set({x})",
        ),
    ),
    "longer": Length(
        lambda n, k: n + k,
        lambda k: k,
        (
            "jnp.concatenate([{x}, {x}[: {k}]])",
            "jnp.pad({x}, (1, {k} - 1))",
            "jnp.arange({n} + {k}) * 0.01",
            "jnp.insert({x}, 0, jnp.ones({k}))",
        ),
    ),
}  # fmt: skip
"""Every length, by name."""

PAIRS = (
    "jax.vmap(lambda a, b: a * b)($0, $1)",
    "jax.vmap(lambda a, b: jnp.where(a > 0.037, a, b))($0, $1)",
    "lax.map(lambda t: t[0] * t[1], ($0, $1))",
    "lax.scan(lambda c, t: (c * 0.5 + t[0] * t[1], c), 0.0, ($0, $1))[1]",
    "lax.scan(lambda c, t: (c + t, c), 0.0, $0, length=$1.shape[0])[1]",
    "lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), ($0, $1))[1]",
    "jnp.stack([$0, $1]).sum(0)",
    "jnp.stack([$0, $1], 1).max(1)",
    "jnp.concatenate([$0[:, None], $1[:, None]], 1).sum(1)",
    "jnp.column_stack([$0, $1])[:, 0]",
    "$0 * $1",
    "jnp.where($0 > 0.037, $0, $1)",
    "jnp.einsum('i,i->i', $0, $1)",
    "jnp.outer($0, $1).sum(0)",
    "lax.cond($0.sum() > 0.037, lambda: $0 * 1.0, lambda: $1 * 1.0)",
    "lax.fori_loop(0, 3, lambda i, c: c * 0.5 + $1, $0 * 1.0)",
    "jax.jvp(jnp.sin, ($0 * 1.0,), ($1 * 1.0,))[1]",
    "jax.vjp(jnp.sin, $0 * 1.0)[1]($1 * 1.0)[0]",
    "jax.vmap(lambda a: jax.vmap(lambda b, c: a * b + c)($0, $1).sum())($1)",
    "jax.vmap(jnp.vectorize(lambda a, b: a + b))($0, $1)",
    "lax.dynamic_update_slice($0 * 1.0, $1 * 1.0, (0,))",
    "lax.map(lambda t: t[0] + t[1], ($0, $1), batch_size=2)",
    "jax.lax.select($0 > 0.037, $0 * 1.0, $1 * 1.0)",
    "jax.checkpoint(lambda a, b: jnp.sin(a) * b)($0, $1)",
    "jax.jit(lambda a, b: a - b)($0, $1)",
)
"""Functions of two arrays of one length; the result has it, too."""

CALLS = 4
_SIZES = (*range(9, 26), 32, 48, 61, 64)
_ERROR = 2e-3
"""Far more than rounding moves any value: results go through tanh."""


class _Program:
    """A program while it is drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lengths = tuple(self.rng.sample(_SIZES, CALLS))
        self.names = (f"v{number}" for number in range(2, 1000))
        self.values: dict[str, Value] = {}
        self.steps: list[Step] = []

    def value(self, name: str, lengths: tuple[int, ...]) -> str:
        shapes = tuple((n,) for n in lengths)
        self.values[name] = Value(name, "float32", shapes, Facts(1.0, _ERROR, None))
        return name

    def step(self, text: str, operands: tuple[str, ...], lengths: tuple[int, ...]) -> str:
        name = self.value(next(self.names), lengths)
        self.steps.append(Step((name,), text, operands))
        return name

    def of(self, name: str) -> tuple[int, ...]:
        return self.values[name].sizes(0)

    def pair(self, sequences: list[str]) -> str:
        """Two arrays of one length, made of sequences that have one length, and both combined."""
        rng = self.rng
        lengths = self.of(sequences[0])
        k = rng.choice((2, 2, 3, 4))
        fit = [row for row in LENGTHS.values() if min(lengths) >= row.least(k)]
        row = rng.choice(fit)
        found = tuple(row.of(n, k) for n in lengths)
        members = [
            self.step(way.format(x="$0", n="$0.shape[0]", k=k), (rng.choice(sequences),), found)
            for way in rng.sample(row.ways, 2)
        ]
        return self.step(f"jnp.tanh({rng.choice(PAIRS)})", tuple(members), found)


def generate(seed: int) -> Program:
    """The program of a seed."""
    drawn = _Program(seed)
    rng = drawn.rng
    sequences = ["x0", "x1"] if rng.random() < 0.4 else ["x0"]
    for name in sequences:
        drawn.value(name, drawn.lengths)
    result = drawn.pair(sequences)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        if min(drawn.of(result)) >= 8:
            result = drawn.pair([result])
    arguments = tuple(
        Argument(name, "float32", drawn.values[name].shapes, "unit", seed + number)
        for number, name in enumerate(sequences)
    )
    block = Block(tuple(drawn.steps), (result,))
    if rng.random() < 0.3:
        body = Body("f1", "x0", "", ("x0",), block, "jnp.sum($0)")
        name = drawn.value(next(drawn.names), drawn.lengths)
        block = Block((Step((name,), "jnp.tanh(jax.grad($F0)($0))", ("x0",), (body,)),), (name,))
    return Program(seed, False, arguments, block, drawn.values)
