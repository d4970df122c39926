"""Calls from programs back into Python, which do next to nothing; beside `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from rich.console import Console

import shlo_disc
from benchmarks.harness import Case, compare

ROUNDS = 100


def _same(x: Any) -> Any:
    return x


def _nothing(*_: Any) -> None:
    pass


def _like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def debug(x: jax.Array) -> jax.Array:
    """What `jax.debug.print` is, without the text."""
    jax.debug.callback(_nothing, x)
    return x * 2


def pure(x: jax.Array) -> Any:
    """A function of NumPy."""
    return jax.pure_callback(_same, _like(x), x) * 2


def ordered(x: jax.Array) -> Any:
    """Three calls in order."""
    for _ in range(3):
        x = io_callback(_same, _like(x), x, ordered=True)
    return x


def _loop(step: Callable[[Any], Any], x: jax.Array) -> Any:
    return lax.fori_loop(0, ROUNDS, lambda _, c: step(c), x)


def debug_in_a_loop(x: jax.Array) -> Any:
    """One in every round."""
    return _loop(debug, x)


def pure_in_a_loop(x: jax.Array) -> Any:
    """One in every round, which waits for its result."""
    return _loop(lambda c: jax.pure_callback(_same, _like(c), c), x)


def ordered_in_a_loop(x: jax.Array) -> Any:
    """One in every round, in order."""
    return _loop(lambda c: io_callback(_same, _like(c), c, ordered=True), x)


def pure_of_rows(x: jax.Array) -> Any:
    """One for each row."""
    return jax.vmap(lambda v: jax.pure_callback(_same, _like(v), v, vmap_method="sequential"))(x)


def debug_of_rows(x: jax.Array) -> Any:
    """One for each row, without a result."""
    return jax.vmap(debug)(x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "debug.callback": (debug, (100,)),
    "pure_callback": (pure, (100,)),
    "pure_callback of 4 MB": (pure, (1000, 1000)),
    "io_callback, ordered, three": (ordered, (100,)),
    f"debug.callback in a loop of {ROUNDS}": (debug_in_a_loop, (100,)),
    f"pure_callback in a loop of {ROUNDS}": (pure_in_a_loop, (100,)),
    f"io_callback, ordered, in a loop of {ROUNDS}": (ordered_in_a_loop, (100,)),
    "pure_callback of 100 rows": (pure_of_rows, (100, 8)),
    "debug.callback of 100 rows": (debug_of_rows, (100, 8)),
}
"""Functions, and the shape of their argument."""


def _waiting(function: Callable[..., Any], x: jax.Array) -> Callable[[], Any]:
    """A call, with all that it calls."""

    def call() -> Any:
        found = jax.block_until_ready(function(x))
        jax.effects_barrier()
        return found

    return call


def callbacks(console: Console, quick: bool) -> None:
    """Every program of `PROGRAMS`; half the speed of `jax.jit` is the target."""

    def cases() -> Iterator[Case]:
        for name, (function, shape) in PROGRAMS.items():
            x = jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
            calls: dict[str, Any] = {
                "ours": _waiting(shlo_disc.jit(function), x),
                "jax.jit": _waiting(jax.jit(function), x),
            }
            yield Case(name, calls, inputs=(x,))

    compare(console, "callbacks", "callbacks", cases(), seconds=0.3 if quick else 1.5)
