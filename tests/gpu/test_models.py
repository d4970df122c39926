"""Models through `shlo_disc.jit` on the stand-in for a GPU: one compilation, five shapes each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from examples import bert
from tests.gpu.test_jit import gpu  # noqa: F401 - a fixture

pytest.importorskip("llvmlite")

HIGHEST = functools.partial(jax.default_matmul_precision, "highest")


def check(f: Any, plain: Callable[..., Any], calls: list[tuple[Any, ...]], atol: float) -> None:
    """`f` gives what `plain` gives in float32, by at most one compilation."""
    for arguments in calls:
        with HIGHEST():
            got, want = f(*arguments), plain(*arguments)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(a, "f8"), np.asarray(b, "f8"), atol=atol)
    assert f.cache_info().misses == 1


@pytest.fixture
def small_bert(monkeypatch: pytest.MonkeyPatch) -> bert.Params:
    for name, value in {"HIDDEN": 48, "HEADS": 3, "VOCABULARY": 101, "POSITIONS": 40}.items():
        monkeypatch.setattr(bert, name, value)
    return bert.init(layers=2)


def test_two_layers_of_bert(stand_in, gpu, small_bert):  # noqa: F811
    f = shlo_disc.jit(bert.bert)
    rng = np.random.default_rng(0)
    calls = []
    for size, length in ((2, 7), (3, 16), (2, 33), (5, 2), (4, 9)):
        ids = rng.integers(0, 101, (size, length)).astype(np.int32)
        mask = (rng.random((size, length)) < 0.8).astype(np.float32)
        mask[:, 0] = 1
        calls.append((small_bert, ids, mask))
    check(f, jax.jit(bert.bert), calls, atol=2e-5)
    assert not stand_in.errors


def lstm(weights: dict[str, jax.Array], inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inputs [T, B, D] -> all outputs [T, B, H] and the last state."""
    hidden = weights["u"].shape[0]

    def step(state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ weights["w"] + h @ weights["u"] + weights["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((inputs.shape[1], hidden))
    (h, _), outputs = jax.lax.scan(step, (zero, zero), inputs)
    return outputs, h


def test_an_lstm_never_waits_for_the_device(stand_in, gpu):  # noqa: F811
    rng = np.random.default_rng(1)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape) * 0.3, jnp.float32)

    weights = {"w": array(6, 32), "u": array(8, 32), "b": array(32)}
    f = shlo_disc.jit(lstm)
    shapes = ((5, 2), (9, 3), (2, 4), (12, 2), (3, 7))
    calls = [(weights, array(*shape, 6)) for shape in shapes]
    check(f, jax.jit(lstm), calls, atol=2e-6)
    long, short = ((weights, array(steps, 2, 6)) for steps in (40, 4))
    waits = []
    for arguments in (short, long):
        before = stand_in.count("waits")
        result = f(*arguments)
        waits.append(stand_in.count("waits") - before)
        jax.block_until_ready(result)
    assert waits[0] == waits[1], "a step waits for the device"


def converging(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Halves until the sum is small: how often depends on data."""

    def goes_on(state: Any) -> jax.Array:
        return jnp.sum(state[0]) > 1.0

    return jax.lax.while_loop(goes_on, lambda s: (s[0] * 0.5, s[1] + 1), (x, jnp.int32(0)))


def test_a_loop_on_data_and_branches(stand_in, gpu):  # noqa: F811
    def program(x: jax.Array, choice: jax.Array) -> Any:
        small, steps = converging(jnp.abs(x))
        branch = jax.lax.cond(choice > 0, lambda a: a + 1, lambda a: a @ a.T @ a, x)
        return small, steps, branch

    f = shlo_disc.jit(program)
    rng = np.random.default_rng(2)
    calls = []
    for k, shape in enumerate(((3, 4), (7, 2), (2, 9), (5, 5), (4, 3))):
        x = jnp.asarray(rng.standard_normal(shape), jnp.float32)
        calls.append((x, jnp.int32(k % 2)))
    check(f, jax.jit(program), calls, atol=1e-5)


def test_a_training_step_with_donation(stand_in, gpu):  # noqa: F811
    def loss(w: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x @ w["in"] + w["bias"])
        return jnp.mean((hidden @ w["out"] - y) ** 2)

    def step(w: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, gradient), value

    rng = np.random.default_rng(3)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape) * 0.5, jnp.float32)

    ours = {"in": array(4, 9), "bias": array(9), "out": array(9, 2)}
    theirs = jax.tree.map(jnp.copy, ours)
    f, plain = shlo_disc.jit(step, donate_argnums=0), jax.jit(step)
    for batch in (3, 8, 2, 17, 5):
        x, y = array(batch, 4), array(batch, 2)
        before = ours
        with HIGHEST():
            (ours, a), (theirs, b) = f(ours, x, y), plain(theirs, x, y)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
        np.testing.assert_allclose(a, b, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert f.cache_info().misses == 1
