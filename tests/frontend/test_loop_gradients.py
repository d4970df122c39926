"""Gradients of loops that index arrays: each step updates in place, and adds what it should."""

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

COLUMNS = 3


def _add(total: np.ndarray, place: object, value: float) -> None:
    total[place] += value


# (what a step reads, what its derivative adds to that of x at step i; k: indices from -2 to n + 1)
READS: dict[str, tuple[Callable, Callable]] = {
    "row": (lambda x, k, i: x[i], lambda g, k, i, n: _add(g, i, 1)),
    "two rows": (
        lambda x, k, i: x[i] * 2 + x[i // 2],
        lambda g, k, i, n: (_add(g, i, 2), _add(g, i // 2, 1)),
    ),
    "element": (
        lambda x, k, i: x[i, i % COLUMNS],
        lambda g, k, i, n: _add(g, (i, i % COLUMNS), 1),
    ),
    "clamped window": (
        lambda x, k, i: lax.dynamic_slice(x, (k[i], 1), (2, 2)),
        lambda g, k, i, n: _add(g, slice(_first(k[i], n), _first(k[i], n) + 2), _HALF),
    ),
    "dropped rows": (
        lambda x, k, i: x.at[jnp.stack([k[i], k[i], i])].get(mode="fill", fill_value=0),
        lambda g, k, i, n: [
            _add(g, j + n * (j < 0), 1) for j in (k[i], k[i], i) if -n <= j < n
        ],
    ),
    "column": (lambda x, k, i: x.T[:, i], lambda g, k, i, n: _add(g, i, 1)),
    "reshaped": (
        lambda x, k, i: x.reshape(-1)[i * COLUMNS],
        lambda g, k, i, n: _add(g, (i, 0), 1),
    ),
    "rounded": (
        lambda x, k, i: x.astype(jnp.bfloat16)[i].astype(jnp.float32),
        lambda g, k, i, n: _add(g, i, 1),
    ),
}  # fmt: skip
_HALF = np.array([0.0, 1.0, 1.0])


def _first(k: int, n: int) -> int:
    """Where a window of two rows begins that is to begin at `k`."""
    return min(max(k + n * (k < 0), 0), n - 2)


def _fori(read, x, k):
    def step(i, s):
        return s + jnp.sum(read(x, k, i)) * (i + 1)

    return lax.fori_loop(0, x.shape[0], step, 0.0)


def _scan(read, x, k):
    def step(s, i):
        value = jnp.sum(read(x, k, i))
        return s, value * (i + 1)

    return lax.scan(step, 0.0, jnp.arange(x.shape[0]))[1].sum()


def _gradient(read, loop):
    return jax.grad(lambda x, k: loop(read, x, k))


def _want(adds: Callable, x: np.ndarray, k: np.ndarray) -> np.ndarray:
    total = np.zeros(x.shape)
    for i in range(len(x)):
        step = np.zeros(x.shape)
        adds(step, k, i, len(x))
        total += step * (i + 1)
    return total


def _sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    k = rng.integers(-2, n + 2, n).astype(np.int32)
    return rng.standard_normal((n, COLUMNS)).astype(np.float32), k


def _updates(compiled: Callable, *arguments: np.ndarray) -> list[str]:
    """Where each update of a part of an array writes."""
    text = compiled.lower(*arguments).compile().as_text("disc")
    kinds = r'disc.buffers = \["([^"]*)"\][^\n]*kind = "(?:scatter|dynamic_update_slice)"'
    return re.findall(kinds, text)


@pytest.mark.parametrize("name", READS)
def test_a_step_adds_what_it_has_read_in_place(name):
    read, adds = READS[name]
    compiled = shlo_disc.jit(_gradient(read, _scan if name in ("row", "rounded") else _fori))
    for n in (2, 13):
        x, k = _sample(n)
        np.testing.assert_allclose(compiled(x, k), _want(adds, x, k), rtol=1e-5)
    found = _updates(compiled, *_sample(13))
    assert found
    assert set(found) == {"inplace"}


def test_a_batch_of_loops_adds_in_place():
    gathered = _gradient(lambda x, k, i: x[k[i]], _fori)
    compiled = shlo_disc.jit(jax.vmap(gathered))
    for n in (2, 13):
        (x, k), (y, j) = _sample(n), _sample(n)
        x, k = np.stack([x, y]), np.stack([np.abs(k) % n, np.abs(j[::-1]) % n])
        want = [_want(lambda g, k, i, n: _add(g, k[i], 1), *one) for one in zip(x, k, strict=True)]
        np.testing.assert_allclose(compiled(x, k), np.stack(want), rtol=1e-5)
    assert set(_updates(compiled, x, k)) == {"inplace"}


def test_a_loop_that_reads_what_it_writes():
    def f(x, k):
        def step(i, a):
            return a.at[k[i]].set(jnp.sin(a[i - 1]) * x[i, 0]).at[i].add(a[k[i]], mode="drop")

        return lax.fori_loop(1, x.shape[0], step, x[:, 1]).sum()

    compiled, reference = shlo_disc.jit(jax.grad(f)), jax.jit(jax.grad(f))
    for n in (2, 13):
        x, k = _sample(n)
        np.testing.assert_allclose(compiled(x, k), reference(x, k), rtol=1e-4, atol=1e-5)


def test_a_loop_that_reads_columns_of_what_it_writes():
    def f(x, k):
        def step(i, a):
            b = a.T
            e = jnp.transpose(a.reshape(-1, COLUMNS, 1), (2, 0, 1))
            read = b[:, i] * jnp.arange(COLUMNS) + b[i % COLUMNS, k[i]] + e[0, i] + e[:, k[i], 1]
            return a.at[k[i]].set(jnp.sin(read + lax.dynamic_slice(b, (1, i), (1, 1))[0]))

        return lax.fori_loop(0, x.shape[0], step, x)

    compiled, reference = shlo_disc.jit(f), jax.jit(f)
    for n in (2, 13):
        x, k = _sample(n)
        np.testing.assert_allclose(compiled(x, k), reference(x, k), rtol=1e-5, atol=1e-6)
    _, loop = compiled.lower(x, k).compile().as_text("disc").split("} do {")
    wide = re.findall(r"stablehlo.transpose.*-> (tensor<.*\?.*\?.*|tensor<3x\?.*)", loop)
    assert not wide
    assert _updates(compiled, x, k) == ["inplace"]


def test_loops_in_loops_update_one_array():
    def gradient(x, k):
        def row(i, s):
            return lax.fori_loop(0, COLUMNS, lambda j, s: s + x[k[i], j] * (i + j + 1), s)

        return lax.fori_loop(0, x.shape[0], row, 0.0)

    def table(x):
        n = x.shape[0]

        def row(i, a):
            def cell(j, a):
                return a.at[i, j].set(jnp.minimum(a[i - 1, j], a[i, j - 1]) + x[j, 0])

            return lax.fori_loop(1, n, cell, a)

        return lax.fori_loop(1, n, row, jnp.zeros((n, n)))

    summed, filled = shlo_disc.jit(jax.grad(gradient)), shlo_disc.jit(table)
    for n in (2, 13):
        x, k = _sample(n)
        k = abs(k) % n
        total, cells = np.zeros(x.shape), np.zeros((n, n))
        for i in range(n):
            total[k[i]] += i + 1 + np.arange(COLUMNS)
            for j in range(1, n) if i else ():
                cells[i, j] = min(cells[i - 1, j], cells[i, j - 1]) + x[j, 0]
        np.testing.assert_allclose(summed(x, k), total, rtol=1e-5)
        np.testing.assert_allclose(filled(x), cells, rtol=1e-4, atol=1e-5)
    assert set(_updates(summed, x, k)) == set(_updates(filled, x)) == {"inplace"}


def test_a_loop_in_a_loop_that_returns_one_array_twice():
    def f(x):
        def inner(j, c):
            a = c[1].at[j].add(c[0][0])
            return a, a

        def outer(i, c):
            return c[0] + 1, lax.fori_loop(0, 2, inner, c)[1]

        return lax.fori_loop(0, 3, outer, (x, x * 2))

    compiled, reference = shlo_disc.jit(f), jax.jit(f)
    for n in (2, 13):
        x = _sample(n)[0]
        for got, want in zip(compiled(x), reference(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_an_array_that_is_read_after_its_update_is_kept():
    def f(x):
        def step(a, i):
            return a + jnp.zeros_like(a).at[i].set(a[i] + 1), (a[0], a.sum())

        return lax.scan(step, x, jnp.arange(x.shape[0]))

    compiled, reference = shlo_disc.jit(f), jax.jit(f)
    for n in (1, 13):
        x = np.linspace(0, 1, n, dtype=np.float32)
        for got, want in zip(*map(jax.tree.leaves, (compiled(x), reference(x))), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_sum_in_a_loop_is_not_part_of_what_comes_before():
    def f(x, k):
        n = x.shape[0]
        counts = lax.fori_loop(0, n, lambda i, a: a.at[k[i]].add(1.0), jnp.zeros(n))
        chosen = lax.cond(n > 1, lambda: jnp.zeros(n).at[k[0]].add(2.0), lambda: jnp.zeros(n))
        return lax.fori_loop(0, 3, lambda i, c: (c + counts) * 2 + chosen, x[:, 0])

    compiled = shlo_disc.jit(f)
    for n in (2, 13):
        x, k = _sample(n)
        k = abs(k) % n
        counts, want = np.bincount(k, minlength=n), x[:, 0]
        for _ in range(3):
            want = (want + counts) * 2 + 2 * (np.arange(n) == k[0])
        np.testing.assert_allclose(compiled(x, k), want, rtol=1e-6)
