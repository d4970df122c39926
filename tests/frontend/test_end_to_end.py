"""The front end on the real compiler and runtime: direct calls, and the custom call inside XLA."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.ir.mlir import ops_of
from tests.refused import unchanged

pytest.importorskip("shlo_disc.ral._ral", reason="the runtime extension is not built here")

REAL = True


def F(*shape):
    rng = np.random.default_rng(sum(shape))
    return jnp.asarray(rng.standard_normal(shape).astype(np.float32))


def layer(w, x):
    return jnp.maximum(x @ w, 0).sum(0)


def loss(f):
    return lambda w, x: (f(w, x) * f(w, x)).sum()


SIZES = ((4, 5, 3), (1, 2, 1), (16, 16, 16), (7, 13, 29))


def compare(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_direct_calls_compile_once():
    f = shlo_disc.jit(layer)
    for k, n, b in SIZES:
        out = f(F(k, n), np.asarray(F(b, k)))
        assert isinstance(out, jax.Array)
        assert not out._committed
        compare(out, layer(F(k, n), F(b, k)))
    assert f.cache_info() == (len(SIZES) - 1, 1, None, 1)


def test_weak_types_and_scalars():
    f = shlo_disc.jit(lambda x, s: (x * s, s + 1))
    for n in (3, 8):
        y, s = f(F(n).astype(jnp.bfloat16), 2.5)
        assert (y.dtype, s.dtype, s.weak_type) == (jnp.bfloat16, np.float32, True)
    assert f.cache_info().misses == 1


TRANSFORMATIONS = {
    "jit": lambda f: jax.jit(lambda w, x: f(w, x) + 1),
    "grad": lambda f: jax.jit(jax.grad(loss(f), (0, 1))),
    "jvp": lambda f: lambda w, x: jax.jvp(f, (w, x), (w, x)),
    "vmap": lambda f: lambda w, x: jax.vmap(f, (None, 0))(w, jnp.stack([x, x * 2, -x])),
    "scan": lambda f: (
        lambda w, x: jax.lax.scan(
            lambda c, x: (c + f(w, x), None), jnp.zeros(w.shape[1]), jnp.stack([x, -x])
        )[0]
    ),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_inside_transformations(name):
    transform = TRANSFORMATIONS[name]
    f = shlo_disc.jit(layer)
    misses = set()
    for k, n, b in SIZES[:3]:
        compare(transform(f)(F(k, n), F(b, k)), transform(layer)(F(k, n), F(b, k)))
        misses.add(f.cache_info().misses)
    assert len(misses) == 1


def test_sizes_that_no_argument_shows_travel_beside_the_arguments():
    f = shlo_disc.jit(jnp.sum)
    for n in (3, 8):
        compare(jax.grad(f)(F(n)), jnp.ones(n))
        compare(jax.jit(jax.grad(f))(F(n)), jnp.ones(n))


def test_stages_of_the_real_compiler():
    lowered = shlo_disc.jit(layer).lower(F(4, 5), F(3, 4))
    assert "stablehlo.dot_general" in lowered.as_text("stablehlo")
    assert "disc.fusion" in lowered.as_text("disc")
    assert "func.func" in lowered.as_text("kernels")
    assert "define" in lowered.as_text("llvm")


def test_what_is_not_compiled_is_refused_by_name():
    with pytest.raises(
        shlo_disc.UnsupportedError,
        match=r"\.py:\d+: stablehlo.rng is not compiled: its numbers must differ from run to run",
    ):
        shlo_disc.jit(unchanged)(F(4, 4))


def test_what_is_refused_with_symbols_is_compiled_for_each_shape(caplog, monkeypatch):
    def refuse(module):  # JAX writes such a window for symbols only
        if ops_of(module, "stablehlo.custom_call"):
            raise shlo_disc.UnsupportedError("window dilations of a window")
        return 0

    def pooled(x, y):
        spread = (y.shape[0],)
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (2,), (1,), "SAME", window_dilation=spread
        )

    # The package has a function of the same name as the module.
    module = importlib.import_module("shlo_disc.ingest.normalize")
    monkeypatch.setattr(module, "expand_windows", refuse)
    f = shlo_disc.jit(pooled)
    for n, m in ((8, 2), (9, 3), (8, 2), (8, 3)):
        compare(f(F(n), F(m)), jax.jit(pooled)(F(n), F(m)))
    assert f.cache_info() == (1, 3, None, 3)
    assert len([r for r in caplog.records if "window dilations of a window" in r.message]) == 1
    assert f.explain().count("every size is a constant: ") == 3
    with pytest.raises(shlo_disc.UnsupportedError, match="window dilations of a window"):
        shlo_disc.jit(pooled, dynamic=True)(F(8), F(2))


def test_dilations_of_windows_are_symbols():
    def pooled(x, y):
        spread = (y.shape[0],)
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (2,), (1,), "SAME", window_dilation=spread
        )

    f = shlo_disc.jit(pooled)
    for n, m in ((8, 2), (9, 3), (8, 2), (8, 3)):
        compare(f(F(n), F(m)), jax.jit(pooled)(F(n), F(m)))
    assert f.cache_info().misses == 1


def test_what_is_refused_with_constants_too_is_refused(caplog):
    f = shlo_disc.jit(lambda x, y: unchanged(x)[: y.shape[0]])
    for n in (4, 5, 4):
        with pytest.raises(shlo_disc.UnsupportedError, match="rng"):
            f(F(n), F(3))
    assert f.cache_info() == (0, 0, None, 0)
    assert not caplog.records
