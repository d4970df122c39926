"""The models of the benchmarks: one compilation, several shapes, as jax.jit and float64 have it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from benchmarks.models import asr, crnn, dien, transformer_training

CASES = {
    "dien": (dien, ((3, 7), (1, 4), (5, 1))),
    "asr": (asr, ((1, 20), (2, 33))),
    "crnn": (crnn, ((1, 16), (2, 28))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_model_agrees_with_float64(name):
    model, shapes = CASES[name]
    params = model.init()
    compiled = shlo_disc.jit(model.function)

    def widened(x):
        return jnp.asarray(x, jnp.float64 if x.dtype == np.float32 else x.dtype)

    for shape in shapes:
        inputs = model.inputs(*shape)
        got = np.asarray(compiled(params, *inputs))
        with jax.enable_x64(True):
            want = np.asarray(jax.jit(model.function)(*jax.tree.map(widened, (params, *inputs))))
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=3e-6, err_msg=str(shape))
    assert compiled.cache_info().misses <= 2  # a size 1 may be one that decides something


@pytest.mark.slow
def test_a_training_step_agrees_with_float64():
    model = transformer_training
    params = model.init()
    compiled = shlo_disc.jit(model.function)
    for shape in ((2, 5, 4), (1, 7, 6)):
        inputs = model.inputs(*shape)
        loss, new = compiled(params, *inputs)
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
            want, expected = jax.jit(model.function)(wide, *inputs)
        np.testing.assert_allclose(loss, want, rtol=1e-5)
        for got, exact, before in zip(*map(jax.tree.leaves, (new, expected, wide)), strict=True):
            # What the step changed, not the weights around it.
            start = np.asarray(before)
            change, right = np.asarray(got) - start, np.asarray(exact) - start
            # Weights are kept in float32: a change smaller than their last bit is lost.
            atol = 2e-3 * np.abs(right).max() + 1e-7
            np.testing.assert_allclose(change, right, rtol=0, atol=atol)
    assert compiled.cache_info().misses <= 2
