"""What a call costs around the work: a tiny function called directly and inside jax.jit."""

from __future__ import annotations

from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
from benchmarks.harness import interleaved
from benchmarks.store import write


def dispatch(console: Console, quick: bool) -> None:
    """Microseconds of one call."""

    def tiny(x):
        return x + 1.0

    def deep(tree):
        return jax.tree.map(lambda x: x + 1.0, tree)

    ours, theirs = shlo_disc.jit(tiny), jax.jit(tiny)
    inside = jax.jit(lambda x: ours(x))  # noqa: PLW0108 - a program of its own around the call
    ours_deep, theirs_deep = shlo_disc.jit(deep), jax.jit(deep)
    x, host = jnp.ones(8), np.ones(8, np.float32)
    tree = {"layers": [{"w": jnp.ones(4), "b": jnp.ones(4)} for _ in range(32)]}
    shapes = [jnp.ones(n) for n in range(2, 34)]

    class Model:
        def __init__(self, function):
            self.apply = function(lambda self, x: x + 1.0, static_argnums=0)

        def __call__(self, x):
            return self.apply(self, x)

    models = Model(shlo_disc.jit), Model(jax.jit)
    power = [jit(lambda x, n: x**n, static_argnums=1) for jit in (shlo_disc.jit, jax.jit)]
    draw = [jit(lambda k, x: x + jax.random.bits(k) % 2) for jit in (shlo_disc.jit, jax.jit)]
    key = jax.random.key(0)
    tokens = np.zeros(8, np.int64)
    compiled = ours.lower(x).compile(), theirs.lower(x).compile()

    def fan(x):
        return [x + float(k) for k in range(64)]

    fans = shlo_disc.jit(fan), jax.jit(fan)

    def total(leaves):
        return sum(leaf[0] for leaf in leaves)

    totals = shlo_disc.jit(total), jax.jit(total)
    leaves = [jnp.ones(4) for _ in range(150)]

    losses = [jit(lambda w, x: jnp.tanh(x @ w).sum()) for jit in (shlo_disc.jit, jax.jit)]
    slopes = [jax.grad(loss) for loss in losses]
    w, few = jnp.ones((8, 8)), jnp.ones((4, 8))

    def in_turn(step):
        """Every result is the next call's argument, as in training and decoding."""
        state = x
        for _ in range(32):
            state = step(state)
        return state

    for array in shapes:
        theirs(array)
    cases = {
        "one array": (lambda: ours(x), lambda: theirs(x)),
        "one numpy array": (lambda: ours(host), lambda: theirs(host)),
        "static self": (lambda: models[0](x), lambda: models[1](x)),
        "static argument": (lambda: power[0](x, 2), lambda: power[1](x, 2)),
        "typed key": (lambda: draw[0](key, x), lambda: draw[1](key, x)),
        "int64 numpy array": (lambda: ours(tokens), lambda: theirs(tokens)),
        "compiled object": (lambda: compiled[0](x), lambda: compiled[1](x)),
        "150 arrays in, one out": (lambda: totals[0](leaves), lambda: totals[1](leaves)),
        "one array in, 64 out": (lambda: fans[0](x), lambda: fans[1](x)),
        "gradient outside jit": (lambda: slopes[0](w, few), lambda: slopes[1](w, few)),
        "64 arrays in a pytree": (lambda: ours_deep(tree), lambda: theirs_deep(tree)),
        "32 shapes in turn, one call": (
            lambda: [ours(a) for a in shapes],
            lambda: [theirs(a) for a in shapes],
        ),
        "32 calls, each on the last result": (lambda: in_turn(ours), lambda: in_turn(theirs)),
        "as a custom call inside jax.jit": (lambda: inside(x), lambda: theirs(x)),
    }
    table = Table(title="one call, µs")
    for column in ("call", "ours", "jax.jit", "ours / jax"):
        table.add_column(column, justify="left" if column == "call" else "right")
    rows = []
    for name, (a, b) in cases.items():
        times = interleaved({"ours": a, "jax": b}, seconds=0.5 if quick else 2, most=2000)
        count = 32 if name.startswith("32") else 1
        micro = {k: v.median * 1e3 / count for k, v in times.items()}
        rows.append({"call": name, **{f"{k}_us": v for k, v in micro.items()},
                     "spread": {k: asdict(v) for k, v in times.items()}})  # fmt: skip
        ratio = micro["ours"] / micro["jax"]
        table.add_row(name, f"{micro['ours']:.1f}", f"{micro['jax']:.1f}", f"{ratio:.2f}")
    console.print(table)
    console.print(str(write("dispatch", rows)))
