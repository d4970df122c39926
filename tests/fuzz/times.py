"""`python -m tests.fuzz.times --count 100`: times of random programs of loops, beside `jax.jit`.

Loops that index, slice, gather and update arrays, nested, batched, and their derivatives. Each runs
at a small and a large size, in turns with `jax.jit`, and the shortest run counts. A program is slow
if its time at the large size is more than twice that of `jax.jit`, and grows too fast if that is so
of the quotient of both sizes. Results must be equal at both sizes, too.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import jax
import numpy as np

import shlo_disc

SMALL, LARGE, LARGE_WHOLE = 10, 10_000, 1_000
"""Sizes; the last for programs whose steps compute with whole arrays."""

SECONDS = 0.3
"""Time for the runs at one size."""

LEAST_SPEED = 0.5
LARGEST = 1e6
"""Elements of results that are compared."""

NOISE = 20e-6
"""Seconds: of a program below, the time of a call is what is measured."""

_WRAPPED = {
    "value": "lambda x, k: f(x, k)",
    "gradient": "lambda x, k: jax.grad(lambda x: jnp.sum(f(x, k)))(x)",
    "both": "lambda x, k: jax.value_and_grad(lambda x: jnp.sum(f(x, k)))(x)",
    "batch": "lambda x, k: jax.vmap(f, (0, 0))"
    "(jnp.stack([x, x * 2, -x]), jnp.stack([k, k[::-1], k // 2]))",
    "batch of gradients": "lambda x, k: jax.vmap(jax.grad(lambda x, k: jnp.sum(f(x, k))), (0, 0))"
    "(jnp.stack([x, -x]), jnp.stack([k, k[::-1]]))",
}  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """A program, and the size at which it is timed."""

    source: str
    columns: int
    """Of `x`; 0: it is a vector."""
    large: int

    @staticmethod
    def of(seed: int) -> Timed:
        """Program `seed`."""
        return _Writer(random.Random(seed)).program()

    def function(self) -> Callable[..., Any]:
        """`program(x, k)`."""
        names: dict[str, Any] = {}
        exec(self.source, names)
        program: Callable[..., Any] = names["program"]
        return program

    def arguments(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """An array of `n` rows, and `n` of its indices, some of them twice."""
        rng = np.random.default_rng(n)
        shape = (n, self.columns) if self.columns else (n,)
        x = rng.uniform(-1, 1, shape).astype(np.float32)
        return x, rng.integers(0, n, n).astype(np.int32)


class _Writer:
    """Draws a program."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.columns = rng.choice((0, 0, 3, 4, 16))
        self.is_whole = rng.random() < 0.2
        """True if a step computes with all of `x`."""
        self.carries_array = not self.is_whole and rng.random() < 0.35

    def read(self, array: str) -> str:
        """A scalar of `array`, which has the shape of `x`."""
        rng = self.rng
        place = rng.choice(("i", "i", "n - 1 - i", "k[i]", "i // 2", "i - 1"))
        window = rng.choice((2, 4, 8))
        forms = [f"{array}[{place}]"]
        if not self.columns:
            forms += [
                f"jax.lax.dynamic_slice({array}, ({place},), ({window},))",
                f"{array}[jnp.stack([{place}, k[i]])]",
                f"{array}.at[{place}].get(mode='fill', fill_value=0)",
                f"{array}[::-1][{place}]",
            ]
        else:
            column = rng.randrange(self.columns)
            forms += [
                f"{array}[{place}, {column}]",
                f"{array}[{place}, i % {self.columns}]",
                f"jax.lax.dynamic_slice({array}, ({place}, 0), ({window}, {self.columns}))",
                f"{array}[jnp.stack([{place}, k[i]])]",
                f"{array}.T[:, {place}]",
                f"{array}[:, {column}][{place}]",
            ]
        return f"jnp.sum({rng.choice(forms)})"

    def whole(self) -> str:
        """A scalar that is computed from all of `x`."""
        last = "(-1)" if self.columns else "()"
        x = "jnp.abs(x - x[i])" if self.rng.random() < 0.6 else "(x * jnp.cos(s))"
        row = self.rng.choice((f"{x}.mean{last}", f"{x}.max{last}", f"({x} * {x}).mean{last}"))
        return self.rng.choice((f"jnp.mean(jnp.sqrt({row} + 1))", f"jnp.max({row})"))

    def step(self) -> list[str]:
        """The lines of a step: `i`, `s` and, of the shape of `x`, `a` are there.

        A change of `s` becomes smaller from step to step: rounding errors are not magnified.
        """
        rng = self.rng
        outer = rng.choice(("jnp.sin", "jnp.tanh", "jnp.cos"))
        terms = ["0.5 * s"] + [self.read("x") for _ in range(rng.choice((1, 1, 2)))]
        if self.is_whole:
            terms.append(self.whole())
        if self.carries_array and rng.random() < 0.7:
            terms.append(f"0.1 * {self.read('a')}")
        lines = [f"s = {outer}({' + '.join(terms)})"]
        if self.carries_array:
            place = rng.choice(("i", "k[i]", "n - 1 - i"))
            value = rng.choice(("s", "s * 0.5", f"0.5 * a[{place}] + s"))
            kind = rng.choice(("set", "set", "add", "add"))
            lines.append(f"a = a.at[{place}].{kind}({value})")
        return lines

    def program(self) -> Timed:
        """A whole program."""
        rng = self.rng
        carried = "s, a" if self.carries_array else "s"
        start = "jnp.float32(0), x * 0.5" if self.carries_array else "jnp.float32(0)"
        body = ["def step(i, c):", f"    {carried} = c", *(f"    {x}" for x in self.step())]
        body.append(f"    return ({carried})")
        kind = rng.choice(("fori", "fori", "scan", "map", "while", "nested"))
        if kind == "map" and self.carries_array:
            kind = "scan"
        loop = {
            "fori": [f"return total(jax.lax.fori_loop(0, n, step, ({start})))"],
            "scan": [
                "def one(c, i):",
                "    c = step(i, c)",
                f"    return c, {'c[0]' if self.carries_array else 'c'} * 2",
                f"c, ys = jax.lax.scan(one, ({start}), jnp.arange(n))",
                "return total(c) + ys.sum()",
            ],
            "map": [f"return jax.lax.map(lambda i: step(i, {start}), jnp.arange(n)).sum()"],
            "while": [
                "going = lambda c: c[0] < n",
                "more = lambda c: (c[0] + 1, step(c[0], c[1]))",
                f"return total(jax.lax.while_loop(going, more, (0, ({start})))[1])",
            ],
            "nested": [
                "at = lambda i, j: (4 * i + j) % n",
                "inner = lambda i, c: jax.lax.fori_loop(0, 4, lambda j, c: step(at(i, j), c), c)",
                f"return total(jax.lax.fori_loop(0, (n + 3) // 4, inner, ({start})))",
            ],
        }[kind]
        of_total = "c[0] + c[1].sum()" if self.carries_array else "c"
        ways = ["value", "batch"] if kind == "while" else list(_WRAPPED)
        if self.is_whole or self.carries_array:
            ways = [way for way in ways if "batch" not in way]
        lines = [
            "import jax", "import jax.numpy as jnp", "", "def f(x, k):", "    n = x.shape[0]",
            f"    total = lambda c: {of_total}", *(f"    {x}" for x in (*body, *loop)), "",
            f"program = {_WRAPPED[rng.choice(ways)]}", "",
        ]  # fmt: skip
        return Timed("\n".join(lines), self.columns, LARGE_WHOLE if self.is_whole else LARGE)


@dataclass(frozen=True)
class Times:
    """Seconds of a call."""

    ours: float
    xla: float

    @property
    def speed(self) -> float:
        """How many times as fast as XLA's code this is."""
        return self.xla / self.ours


def measured(program: Timed, seconds: float = SECONDS) -> tuple[list[Times], str]:
    """The times at both sizes, and what is wrong with the results, if anything."""
    function = program.function()
    ours, xla = shlo_disc.jit(function), jax.jit(function)
    times, wrong = [], ""
    for n in (SMALL, program.large):
        arguments = program.arguments(n)
        found, wanted = ours(*arguments), xla(*arguments)
        for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
            most = np.abs(want).max(initial=0)
            if not most < LARGEST:  # the program magnifies rounding errors
                continue
            if not np.allclose(got, want, rtol=1e-3, atol=1e-3 * most):
                wrong = f"results differ at n = {n} by {np.abs(got - want).max()} of {most}"
        shlo_disc.finish_compiling()
        least, end, count = [np.inf, np.inf], time.perf_counter() + seconds, 0
        while count < 3 or (time.perf_counter() < end and count < 1000):
            for k, run in enumerate((ours, xla)):
                begin = time.perf_counter()
                jax.block_until_ready(run(*arguments))
                least[k] = min(least[k], time.perf_counter() - begin)
            count += 1
        times.append(Times(*least))
    return times, wrong


def problem(times: list[Times]) -> str:
    """What is wrong with times at both sizes, if anything."""
    small, large = times
    said = f"{large.ours * 1e3:.3f} ms, jax.jit {large.xla * 1e3:.3f} ms"
    if large.ours < NOISE or large.speed >= LEAST_SPEED:
        return ""
    growth = (large.ours / small.ours) / (large.xla / small.xla)
    if growth > 1 / LEAST_SPEED:
        return f"grows {growth:.1f} times as fast: {said}"
    return f"{large.speed:.2f} of the speed: {said}"


@click.command(context_settings={"show_default": True})
@click.option("--count", default=100, help="Programs.")
@click.option("--seed", default=0, help="The number of the first one.")
@click.option("--minutes", default=0.0, help="Stop after so many minutes; 0: when all are done.")
@click.option("--show", is_flag=True, help="Print the first program, and measure nothing.")
@click.option("--every", is_flag=True, help="Print the times of all programs.")
def main(count: int, seed: int, minutes: float, show: bool, every: bool) -> None:
    """Compare times of random programs of loops."""
    logging.disable(logging.WARNING)
    if show:
        print(Timed.of(seed).source)
        return
    end, bad, done, speeds = time.monotonic() + 60 * (minutes or 1e9), 0, 0, []
    for number in range(seed, seed + count):
        if time.monotonic() > end:
            break
        try:
            times, said = measured(Timed.of(number))
            speeds.append(times[1].speed)
            said = said or problem(times)
            if every and not said:
                print(f"seed {number}: {times[0].speed:.2f} {times[1].speed:.2f}", flush=True)
        except Exception as error:  # any is a mistake of ours
            said = f"{type(error).__name__}: {error}".split("\n")[0]
        done += 1
        if said:
            bad += 1
            print(f"seed {number}: {said}", flush=True)
    middle = f"{np.median(speeds):.2f}" if speeds else "-"
    print(f"{done} programs, {bad} slow or wrong, median speed at the larger size {middle}")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
