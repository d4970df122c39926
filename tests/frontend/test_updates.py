"""Programs that write into part of an array (scatter, update slices, max-pooling) against JAX."""

from __future__ import annotations

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

_RNG = np.random.default_rng(0)


def _floats(*sizes: int) -> np.ndarray:
    return _RNG.standard_normal(sizes).astype(np.float32)


def _ints(below: int, *sizes: int) -> np.ndarray:
    return _RNG.integers(-1, below, sizes).astype(np.int32)


def _pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


_WINDOWS = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)
)


def _add_to_itself(x, i):
    y = jnp.sin(x)
    return y.at[i].add(y)


def _indexed_by_itself(x):
    y = x % 5
    return y.at[y].set(7)


PROGRAMS: dict[str, tuple[Callable, list[tuple]]] = {
    "windows_partly_outside": (
        lambda x, i, u: lax.scatter_add(x, i, u, _WINDOWS, mode="drop"),
        [
            (_floats(n), np.array([[-1], [0], [n - 2], [n - 3]], np.int32), _floats(4, 3))
            for n in (3, 10)
        ],
    ),
    "operand_is_update": (
        _add_to_itself,
        [(_floats(n, 4), _ints(n, n)) for n in (1, 9)],
    ),
    "operand_is_index": (
        _indexed_by_itself,
        [(_ints(50, n),) for n in (5, 9)],
    ),
    "carry_kept": (
        lambda x: lax.fori_loop(0, 4, lambda i, c: (c[0].at[i].add(c[1][0]), c[0]), (x, x)),
        [(_floats(n),) for n in (4, 9)],
    ),
    "embedding_gradient": (
        jax.grad(lambda t, i, w: jnp.sum(t[i] * w)),
        [(_floats(20, 65), abs(_ints(20, *s)), _floats(*s, 65)) for s in ((2, 5), (1, 1))],
    ),
    "max_pool_gradient": (
        jax.grad(lambda x, g: jnp.sum(_pool(x) * g)),
        [
            (_floats(b, h, h, 4), _floats(b, (h + 1) // 2, (h + 1) // 2, 4))
            for b, h in ((1, 9), (3, 1))
        ],
    ),
    "scan": (
        lambda xs: lax.scan(lambda c, x: (c + x, c * 2), jnp.zeros(xs.shape[1:]), xs),
        [(_floats(t, b),) for t, b in ((5, 3), (1, 1))],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_jax_at_several_sizes(name):
    function, cases = PROGRAMS[name]
    compiled = shlo_disc.jit(function)
    for arguments in cases:
        got, want = compiled(*arguments), jax.jit(function)(*arguments)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


def test_scan_stacks_its_outputs_in_place():
    function, cases = PROGRAMS["scan"]
    text = shlo_disc.jit(function).lower(*cases[0]).compile().as_text("disc")
    assert (
        'disc.buffers = ["inplace"], disc.stored = 0 : i64, kind = "dynamic_update_slice"' in text
    )
    assert '"disc.empty"' in text
