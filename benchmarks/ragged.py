"""A network over the tokens that are there, beside one over the padded batch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import shlo_disc
import shlo_disc.numpy as snp
from benchmarks.harness import interleaved
from benchmarks.store import write

WIDTH, HIDDEN, LAYERS = 256, 1024, 2
BATCHES = ((8, 64), (12, 100), (16, 128), (32, 256), (64, 96))
FULL = 0.25
"""The mean length of a sequence beside the longest one's."""

TARGET = 2.0
"""Times the speed of the padded program, at least."""


def ragged(console: Console, quick: bool) -> None:
    """Pre-norm GELU blocks on padded batches whose sequences are about a quarter full."""
    rng = np.random.default_rng(0)
    params = [
        tuple(jnp.asarray(rng.normal(0, shape[0] ** -0.5, shape), jnp.float32)
              for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH)))
        for _ in range(LAYERS)
    ]  # fmt: skip
    ours, padded = shlo_disc.jit(at_tokens), jax.jit(at_all)
    table = Table(title=f"{LAYERS} blocks {WIDTH} to {HIDDEN}: ms a batch")
    for column in ("batch", "full", "ours, tokens only", "jax.jit, padded", "speed"):
        table.add_column(column, justify="left" if column == "batch" else "right")
    rows = []
    for batch, length in BATCHES[: 2 if quick else None]:
        lengths = rng.integers(1, max(2, round(2 * FULL * length)), batch)
        lengths[0] = length
        mask = jnp.arange(length) < jnp.asarray(lengths)[:, None]
        x = jnp.asarray(rng.normal(size=(batch, length, WIDTH)), jnp.float32)
        np.testing.assert_allclose(ours(params, x, mask), padded(params, x, mask), 1e-3, 1e-4)
        times = interleaved(
            {
                "ours": lambda x=x, mask=mask: ours(params, x, mask),
                "jax": lambda x=x, mask=mask: padded(params, x, mask),
            },
            seconds=0.5 if quick else 4,
        )
        speed = times["jax"].median / times["ours"].median
        full = float(mask.mean())
        table.add_row(f"{batch} x {length}", f"{full:.0%}", f"{times['ours'].median:.2f}",
                      f"{times['jax'].median:.2f}", f"{speed:.1f}")  # fmt: skip
        rows.append({"batch": batch, "length": length, "full": full, "speed": speed,
                     **{name: asdict(spread) for name, spread in times.items()}})  # fmt: skip
    console.print(table)
    made = ours.cache_info().misses
    console.print(f"{made} compilation of ours, {len(rows)} of jax.jit (target: {TARGET} x)")
    console.print(str(write("ragged", rows, compilations=made, target=TARGET)))


def at_tokens(params: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    """The blocks at the tokens alone; elsewhere the result is 0."""
    place = snp.flatnonzero(mask)
    tokens = x.reshape(-1, WIDTH)
    return jnp.zeros_like(tokens).at[place].set(_blocks(params, tokens[place])).reshape(x.shape)


def at_all(params: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    """The blocks at every place of the batch; where no token is the result is 0."""
    return jnp.where(mask[..., None], _blocks(params, x), 0)


def _blocks(params: Any, x: jax.Array) -> jax.Array:
    for up, down in params:
        x = x + jax.nn.gelu(jax.nn.standardize(x) @ up) @ down
    return x
