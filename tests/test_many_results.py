"""Calls with many results on a CPU: XLA runs those whose sizes come again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.jax.calls import runs
from shlo_disc.jax.function import JitFunction

CALLS = 3


def sixteen(x, y):
    return [x * k + y for k in range(14)], {"sum": jnp.sum(x), "last": x[-1:]}


@pytest.fixture
def through(monkeypatch):
    """The arguments of calls that XLA runs."""
    monkeypatch.setattr(runs, "RESULTS_BEFORE_XLA", CALLS * runs.MANY_RESULTS)
    calls = []
    call_through = JitFunction._call_through

    def spy(self, *args, **kwargs):
        calls.append(args)
        return call_through(self, *args, **kwargs)

    monkeypatch.setattr(JitFunction, "_call_through", spy)
    return calls


def test_calls_that_come_again_run_through_xla(through):
    f = shlo_disc.jit(sixteen)
    for n in (5, 300):
        for kind in (jnp.asarray, np.asarray):
            through.clear()
            x, y = (kind(np.arange(n, dtype=np.float32) + k) for k in range(2))
            for _ in range(CALLS + 3):
                got = f(x, y)
                jax.tree.map(np.testing.assert_array_equal, got, jax.jit(sixteen)(x, y))
                assert jax.tree.structure(got) == jax.tree.structure(sixteen(x, y))
            assert 2 <= len(through) <= 3  # the first call of all is not counted
    assert f.cache_info().misses == 1


def test_few_results_donated_arguments_and_effects_do_not(through):
    few = shlo_disc.jit(lambda x, y: sixteen(x, y)[0])
    given = shlo_disc.jit(lambda x, y: (*sixteen(x, y), x * 2), donate_argnums=0)
    seen = []

    def tells(x, y):
        jax.debug.callback(lambda v: seen.append(float(v)), x[0])
        return sixteen(x, y)

    y = jnp.ones(4)
    for f in (few, given, shlo_disc.jit(tells)):
        for k in range(CALLS + 3):
            jax.block_until_ready(f(jnp.full(4, k, jnp.float32), y))
    jax.effects_barrier()
    assert not through
    assert seen == list(range(CALLS + 3))
