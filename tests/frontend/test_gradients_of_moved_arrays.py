"""Gradients of loops that read an array turned around, cut, padded, joined, or in a branch.

The oracle moves the numbers of the elements with NumPy, and counts which a step reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

pytest.importorskip("shlo_disc.ral._ral", reason="the runtime extension is not built here")

REAL = True
"""The real compiler and runtime, not the front end's stand-ins (see conftest)."""

COLUMNS, NONE = 3, -1


def _padded(low: int, high: int, between: int) -> tuple[Callable, Callable]:
    """`lax.pad` of the rows, and the same of the numbers of elements."""

    def of_numbers(e: np.ndarray) -> np.ndarray:
        n = len(e)
        size = n + max(n - 1, 0) * between
        spread = np.full((size, *e.shape[1:]), NONE)
        spread[:: between + 1] = e
        out = np.full((size + low + high, *e.shape[1:]), NONE)
        for i, row in enumerate(spread):
            if 0 <= i + low < len(out):
                out[i + low] = row
        return out

    return lambda x: lax.pad(x, 0.0, [(low, high, between), (0, 0, 0)]), of_numbers


# (of an array of at least two rows, of the numbers of its elements)
MOVES: dict[str, tuple[Callable, Callable]] = {
    "reversed": (lambda x: x[::-1], lambda e: e[::-1]),
    "both reversed": (lambda x: x[::-1].T[::-1].T, lambda e: e[::-1, ::-1]),
    "without the first": (lambda x: x[1:], lambda e: e[1:]),
    "every other": (lambda x: x[::2], lambda e: e[::2]),
    "every other backwards": (lambda x: x[::-2], lambda e: e[::-2]),
    "joined": (
        lambda x: jnp.concatenate([x[::-1], x, x[:1]]),
        lambda e: np.concatenate([e[::-1], e, e[:1]]),
    ),
    "rolled": (lambda x: jnp.roll(x, 1, 0)[::-1], lambda e: np.roll(e, 1, 0)[::-1]),
    "padded": _padded(2, 1, 0),
    "cut at both ends": _padded(-1, 1, 0),
    "spread": _padded(1, -1, 2),
    "cut, then padded": (
        lambda x: _padded(1, 0, 0)[0](x[:-1])[::-1],
        lambda e: _padded(1, 0, 0)[1](e[:-1])[::-1],
    ),
}


def _row(x, k, i):
    return x[k[i]]


def _element(x, k, i):
    return x[k[i], i % COLUMNS]


def _dropped(x, k, i):
    return x.at[jnp.stack([k[i], i])].get(mode="fill", fill_value=0)


def _windows(x, k, i):
    return lax.dynamic_slice(x, (k[i], 0), (1, 2))


def _places(read: Callable, e: np.ndarray, k: int, i: int) -> np.ndarray:
    """The numbers that a step reads."""
    n = len(e)
    row = k + n * (k < 0)
    inside = min(max(row, 0), n - 1)
    if read is _dropped:
        return np.concatenate([e[j] for j in (row, i) if 0 <= j < n] or [[]])
    if read is _element:
        return e[inside, i % COLUMNS : i % COLUMNS + 1]
    return e[inside] if read is _row else e[inside, :2]


READS = (_row, _element, _dropped, _windows)
CASES = [(name, READS[k % len(READS)]) for k, name in enumerate(MOVES)]
CASES += [("joined", _dropped), ("padded", _dropped)]


def _want(move: Callable, read: Callable, x: np.ndarray, k: np.ndarray) -> np.ndarray:
    numbers, total = move(np.arange(x.size).reshape(x.shape)), np.zeros(x.size)
    for i in range(len(x)):
        for place in _places(read, numbers, k[i], i):
            if place != NONE:
                total[int(place)] += i + 1
    return total.reshape(x.shape)


def _gradient(f: Callable) -> Callable:
    """Of a loop that adds up `f(x, k, i) * (i + 1)`."""

    def loop(x, k):
        def step(i, s):
            return s + jnp.sum(f(x, k, i)) * (i + 1)

        return lax.fori_loop(0, x.shape[0], step, 0.0)

    return jax.grad(loop)


def _sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    k = rng.integers(-n - 2, n + 3, n).astype(np.int32)
    return rng.standard_normal((n, COLUMNS)).astype(np.float32), k


def _updates(compiled: Callable, *arguments: np.ndarray) -> list[str]:
    """Where each update of a part of an array writes."""
    text = compiled.lower(*arguments).compile().as_text("disc")
    kinds = r'disc.buffers = \["([^"]*)"\][^\n]*kind = "(?:scatter|dynamic_update_slice)"'
    return re.findall(kinds, text)


@pytest.mark.parametrize(("name", "read"), CASES)
def test_a_step_adds_in_place_to_what_was_moved(name, read):
    move, of_numbers = MOVES[name]
    compiled = shlo_disc.jit(_gradient(lambda x, k, i: read(move(x), k, i)))
    for n in (2, 3, 13):
        x, k = _sample(n)
        np.testing.assert_allclose(compiled(x, k), _want(of_numbers, read, x, k), rtol=1e-5)
    assert set(_updates(compiled, *_sample(13))) == {"inplace"}


def test_a_branch_adds_in_place():
    def f(x, k, i):
        return lax.switch(
            i % 4,
            [
                lambda: x[k[i], i % COLUMNS],
                lambda: x[i // 2, 0] + 2 * x[k[i], 1],
                lambda: lax.cond(k[i] > 0, lambda: 3 * x[k[i], 2], lambda: jnp.float32(i)),
                lambda: jnp.sum(x[k[i]]),
            ],
        )

    compiled = shlo_disc.jit(_gradient(f))
    for n in (1, 3, 13):
        x, k = _sample(n)
        want = np.zeros(x.shape)
        for i in range(n):
            row = min(max(k[i] + n * (k[i] < 0), 0), n - 1)
            if i % 4 == 0:
                want[row, i % COLUMNS] += i + 1
            elif i % 4 == 1:
                want[i // 2, 0] += i + 1
                want[row, 1] += 2 * (i + 1)
            elif i % 4 == 2 and k[i] > 0:
                want[row, 2] += 3 * (i + 1)
            elif i % 4 == 3:
                want[row] += i + 1
        np.testing.assert_allclose(compiled(x, k), want, rtol=1e-5)
    assert set(_updates(compiled, *_sample(13))) == {"inplace"}
