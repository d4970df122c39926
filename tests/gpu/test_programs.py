"""Whole programs under `shlo_disc.jit` on the stand-in, five shapes each with one compilation."""

from __future__ import annotations

import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from tests.children import at_once

HIDDEN, HEADS, VOCABULARY = 16, 2, 11
SHAPES = ((2, 3), (3, 5), (4, 7), (2, 6), (5, 4))


@pytest.fixture(autouse=True)
def _all_digits():
    """GPUs round operands of products to tf32 at the default precision."""
    before = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "highest")
    yield
    jax.config.update("jax_default_matmul_precision", before)


def drawn(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape) * 0.3, "float32")


def normalised(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def layer(p, x, mask):
    b, t, h = x.shape

    def heads(w):
        return (x @ w).reshape(b, t, HEADS, h // HEADS).transpose(0, 2, 1, 3)

    q, k, v = heads(p["q"]), heads(p["k"]), heads(p["v"])
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(h // HEADS) + mask[:, None, None, :]
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, t, h)
    x = normalised(x + mixed @ p["o"], p["s1"], p["b1"])
    return normalised(x + jax.nn.gelu(x @ p["up"]) @ p["down"], p["s2"], p["b2"])


def weights():
    def one(seed):
        square = {name: drawn(seed + i, HIDDEN, HIDDEN) for i, name in enumerate("qkvo")}
        wide = {
            "up": drawn(seed + 5, HIDDEN, 2 * HIDDEN),
            "down": drawn(seed + 6, 2 * HIDDEN, HIDDEN),
        }
        ones, zeros = jnp.ones(HIDDEN), jnp.zeros(HIDDEN)
        return square | wide | {"s1": ones, "b1": zeros, "s2": ones, "b2": zeros}

    return {"table": drawn(99, VOCABULARY, HIDDEN), "layers": [one(0), one(10)]}


def bert(p, words, mask):
    x = p["table"][words]
    for one in p["layers"]:
        x = layer(one, x, mask)
    return x


def lstm(p, xs):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], p["h"].shape[0]))
    return jax.lax.scan(step, (zero, zero), xs)


def until_small(x):
    """Halves rows until the largest element is below 1: the number of steps is data."""
    return jax.lax.while_loop(
        lambda s: jnp.max(jnp.abs(s[0])) >= 1, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0)
    )


def branches(x):
    return jax.lax.cond(x.sum() > 0, lambda a: a @ a.T, lambda a: jnp.exp(a) @ a.T, x)


def loss(p, x, y):
    h = jnp.tanh(x @ p["w"] + p["b"])
    return ((h @ p["v"] - y) ** 2).mean()


def trained(p, x, y):
    value, slopes = jax.value_and_grad(loss)(p, x, y)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, p, slopes)


def words_of(b, t):
    words = jnp.asarray(np.random.default_rng(b * t).integers(0, VOCABULARY, (b, t)))
    return weights(), words, jnp.where(jnp.arange(t) < t - 1, 0.0, -1e9) + jnp.zeros((b, 1))


def batch(b, t):
    p = {"w": drawn(1, 6, 8), "b": drawn(2, 8), "v": drawn(3, 8, 2)}
    return p, drawn(b, b * t, 6), drawn(t, b * t, 2)


PROGRAMS = {
    "bert": (bert, words_of),
    "lstm": (lstm, lambda b, t: ({"x": drawn(1, 6, 32), "h": drawn(2, 8, 32)}, drawn(3, t, b, 6))),
    "while": (until_small, lambda b, t: (drawn(b, b, t) * 2.0**t,)),
    "cond": (branches, lambda b, t: (drawn(b + t, b, t) + (b - 3) * 0.5,)),
    "gradient": (trained, batch),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_five_shapes_and_one_compilation(stand_in, gpu, name):
    function, arguments = PROGRAMS[name]
    f = shlo_disc.jit(function)
    launches = stand_in.count("launches")
    for b, t in SHAPES:
        given = arguments(b, t)
        got, want = f(*given), jax.jit(function)(*given)
        assert jax.tree.structure(got) == jax.tree.structure(want)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(g, w, rtol=3e-5, atol=3e-6)
    assert f.cache_info().misses == 1
    assert stand_in.count("launches") > launches + 5
    assert not stand_in.errors


def test_training_in_donated_memory_from_eight_threads(stand_in, gpu):
    f = shlo_disc.jit(trained, donate_argnums=0)
    alone = []
    for seed in range(8):
        p, x, y = batch(3 + seed, 4)
        values = []
        for _ in range(3):
            value, p = jax.jit(trained)(p, x, y)
            values.append(float(value))
        alone.append(values)

    def work(seed: int) -> None:
        p, x, y = batch(3 + seed, 4)
        for step in range(3):
            before = p
            value, p = f(p, x, y)
            assert all(w.is_deleted() for w in jax.tree.leaves(before))
            assert abs(float(value) - alone[seed][step]) <= 1e-5

    at_once(work, range(8))


def test_faults_in_a_program_lose_nothing(stand_in, gpu):
    f = shlo_disc.jit(lstm)
    function, arguments = PROGRAMS["lstm"]
    given = arguments(3, 5)
    want = jax.jit(function)(*given)

    def is_right() -> bool:
        equal = functools.partial(np.allclose, rtol=3e-5, atol=3e-6)
        return all(jax.tree.leaves(jax.tree.map(equal, f(*given), want)))

    assert is_right()
    gc.collect()
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    for step in range(12):
        if step % 3 == 0:
            stand_in.library.stand_in_refuse_launch(step % 7, 701)
        elif step % 3 == 1:
            stand_in.library.stand_in_fault(step % 5, 700)
        else:
            stand_in.library.stand_in_lose(46)
        with pytest.raises(DeviceError):
            f(*given)
        stand_in.library.stand_in_reset()
        stand_in.library.stand_in_strict(0)
        assert is_right()
    gc.collect()
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held
    assert not stand_in.pending


def test_a_layer_of_halves(stand_in, gpu):
    """Long sums of few tiles take two launches and a workspace."""

    def layer(x, w, b):
        return jax.nn.gelu(x @ w + b)

    rng = np.random.default_rng(0)
    w, b = (jnp.asarray(rng.normal(size=s) * 0.05, "bfloat16") for s in ((4096, 128), 128))
    f = shlo_disc.jit(layer)
    for rows in (256, 129):
        x = jnp.asarray(rng.normal(size=(rows, 4096)) * 0.1, "bfloat16")
        launches = stand_in.count("launches")
        got = np.asarray(f(x, w, b), "float32")
        assert stand_in.count("launches") - launches == 2
        want = layer(*(a.astype("float32") for a in (x, w, b)))
        np.testing.assert_allclose(got, want, atol=0.05, rtol=0.05)
    assert f.cache_info().misses == 1


@pytest.mark.parametrize(("width", "is_in_place"), [("m", False), (3, False), (4, True), (8, True)])
def test_results_are_stacked_where_whole_accesses_may_store_them(stand_in, gpu, width, is_in_place):
    """Kernels store 16 bytes at once from where an array begins: a slice may begin elsewhere."""

    def stacked(x):
        return jax.lax.map(lambda row: row * row + row, x)

    f = shlo_disc.jit(stacked) if width == "m" else shlo_disc.jit(stacked, shapes=[f"n, {width}"])
    for n in (2, 5):
        m = 5 if width == "m" else width
        x = drawn(n, n, m)
        launches = stand_in.count("launches")
        np.testing.assert_array_equal(f(x), np.asarray(jax.jit(stacked)(x)))
        a_step = 1 if is_in_place else 2
        assert stand_in.count("launches") - launches in (a_step * n, a_step * n + 1)
