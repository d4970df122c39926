"""Arrays that branches update: in place where nothing else needs them, and right where it does."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

pytest.importorskip("shlo_disc.ral._ral", reason="the runtime extension is not built here")

REAL = True
"""The real compiler and runtime, not the front end's stand-ins (see conftest)."""


def _set_or_kept(p, i, x, a):
    return lax.cond(p, lambda a: a.at[i].set(x[i]), lambda a: a, a)


def _updated_in_both(p, i, x, a):
    return lax.cond(p, lambda a: a.at[i].set(x[i] + a[0]), lambda a: a.at[-i].add(x[i]), a)


def _two_updates_or_reshaped(p, i, x, a):
    def twice(a):
        return a.at[i].set(x[i]).at[i - 1].add(a[i])

    def as_column(a):
        return a.reshape(-1, 1).at[i].set(x[i]).reshape(-1)

    return lax.switch(i % 3, [twice, lambda a: a, as_column], a)


def _nested(p, i, x, a):
    def deeper(a):
        return lax.cond(x[i] > 0, lambda a: a.at[i].mul(2.0), lambda a: a.at[0].add(1.0), a)

    return lax.cond(p, deeper, lambda a: a.at[i].set(0.0), a)


def _loop_in_branch(p, i, x, a):
    def loop(a):
        def step(j, a):
            return lax.cond(j % 2 == 0, lambda a: a.at[j].add(x[i]), lambda a: a, a)

        return lax.fori_loop(0, 3, step, a)

    return lax.cond(p, loop, lambda a: a, a)


def _another_array(p, i, x, a):
    return lax.cond(p, lambda: a.at[i].set(x[i]), lambda: x)


def _computed(p, i, x, a):
    return lax.cond(p, lambda: a.at[i].set(x[i]), lambda: a[::-1] * 0.5)


IN_PLACE = (
    _set_or_kept, _updated_in_both, _two_updates_or_reshaped, _nested, _loop_in_branch,
    _another_array, _computed,
)  # fmt: skip


def _loop(steps):
    """Carries an array for each of `steps`."""

    def program(x):
        def step(i, arrays):
            return [f(x[i] + i % 2 > 0.5, i, x, a) for f, a in zip(steps, arrays, strict=True)]

        start = [x * (k + 1) for k in range(len(steps))]
        return lax.fori_loop(0, x.shape[0], step, start)

    return program


def _sample(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(-1, 1, n).astype(np.float32)


def _compare(program):
    compiled, reference = shlo_disc.jit(program), jax.jit(program)
    for n in (1, 2, 13):
        for got, want in zip(compiled(_sample(n)), reference(_sample(n)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"n = {n}")
    return compiled


def test_branches_update_in_place():
    compiled = _compare(_loop(IN_PLACE))
    text = compiled.lower(_sample(13)).compile().as_text("disc")
    kinds = r'disc.buffers = \["([^"]*)"\][^\n]*kind = "(?:scatter|dynamic_update_slice)"'
    found = re.findall(kinds, text)
    assert len(found) >= len(IN_PLACE)
    assert set(found) == {"inplace"}


def test_what_is_read_later_is_kept():
    def program(x):
        def after_the_update(p, i, a):  # in its branch
            def change(a):
                b = a.at[i].set(1.0)
                return b, a + b

            return lax.cond(p, change, lambda a: (a, a), a)

        def exchanged(p, i, a, b):
            return lax.cond(p, lambda a, b: (a.at[i].set(b[0]), b), lambda a, b: (b, a), a, b)

        def twice(p, i, a):
            def change(a):
                b = a.at[i].set(2.0)
                return b, b

            return lax.cond(p, change, lambda a: (a, a * 2), a)

        def step(i, c):
            a, b, d, e, s = c
            p = x[i] > 0
            a, more = after_the_update(p, i, a)
            b, d = exchanged(p, i, b, d)
            e, other = twice(p, i, e)
            f = lax.cond(p, lambda e: e.at[i].set(3.0), lambda e: e, e)
            more += (e - f) * 7  # what was there before, behind the branches
            return a, b, d, f, s + more + other.at[0].set(5.0)

        outside = lax.cond(x[0] > 0, lambda a: a.at[0].set(7.0), lambda a: a, x * 3)
        last = lax.cond(x[0] > 0, lambda a: a.at[0].set(7.0), lambda a: a, x)
        return *lax.fori_loop(0, x.shape[0], step, (x, x * 2, x - 1, x + 1, x * 0)), outside, last

    _compare(program)


def _window(p, i, x, a):
    return jnp.where(p, lax.dynamic_update_slice(a, x[:1] + 1, (i - 1,)), a)


def _chosen_row(p, i, x, a):
    return jnp.where(p, a, a.at[jnp.stack([i, -i, 2 * i])].add(x[i], mode="drop"))


CHOSEN = (_window, _chosen_row, lambda p, i, x, a: jnp.where(p, a.at[i].set(x[i]), a))


def _sum(program):
    return lambda x: sum(jnp.sum(a * a) for a in program(x))


@pytest.mark.parametrize("is_derivative", [False, True])
def test_what_where_and_vmap_choose_is_updated_in_place(is_derivative):
    batched = jax.vmap(_loop(IN_PLACE[:2]))

    def program(x):
        loop = _loop(CHOSEN)
        if is_derivative:
            return [jax.grad(_sum(loop))(x)]
        return [*loop(x), *batched(jnp.stack([x, -x, x[::-1]]))]

    compiled = _compare(program)
    text = compiled.lower(_sample(13)).compile().as_text("disc")
    _, *loops = text.split("\n    } do {\n")
    assert loops
    for loop in loops:
        body = loop.split("\n    }\n")[0]
        written = re.findall(r'disc.buffers = \["((?!inplace)[^"]*)"\].* -> (tensor<.*)', body)
        assert not [kind for _, kind in written if "?" in kind], body
