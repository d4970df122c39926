"""Weights computed where the product reads them: dequantisation, scales; against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import kernels


def per_column(x, q, s):
    return x @ (q.astype(x.dtype) * s)


def per_row(x, q, s):
    return x @ (q.astype(x.dtype) * s[0])


def with_zero_point(x, q, s):
    return jax.nn.relu(x @ ((q.astype(x.dtype) - 3.0) * s) + 1.0)


def batched(x, q, s):
    return jnp.einsum("btk,bkn->btn", jnp.stack([x, x]), jnp.stack([q, q]).astype(x.dtype) * s)


def of_bfloat16(x, q, s):
    return x @ (q.astype(jnp.bfloat16).astype(x.dtype) * s)


WAYS = [per_column, per_row, with_zero_point, batched, of_bfloat16]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_every_size(way, dtype):
    rng = np.random.default_rng(0)
    compiled = shlo_disc.jit(way)
    for m, k, n in [
        (5, 8, 12),
        (1, 1, 1),
        (130, 70, 66),
        (17, 300, 99),
        (1, 129, 40),
        (3, 600, 17),
    ]:
        x = rng.standard_normal((m, k)).astype(np.float32)
        q = rng.integers(-100 if np.dtype(dtype).kind == "i" else 0, 100, (k, n)).astype(dtype)
        s = rng.random(n).astype(np.float32) + 0.5
        with jax.enable_x64(True):
            want = jax.jit(way)(jnp.asarray(x, jnp.float64), q, jnp.asarray(s, jnp.float64))
        got = np.asarray(compiled(x, q, s))
        scale = 2.0**-20 * np.max(np.abs(want), initial=1.0)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=16 * scale)


def test_the_weight_is_never_stored_as_floats():
    x, q, s = np.ones((5, 8), np.float32), np.ones((8, 12), np.int8), np.ones(12, np.float32)
    assert kernels(per_column, x, q, s) == ["dense"]
    assert kernels(with_zero_point, x, q, s) == ["dense"]


def test_what_is_not_a_number_in_a_scale_stays_in_its_column():
    x, q = np.ones((3, 40), np.float32), np.ones((40, 21), np.int8)
    s = np.ones(21, np.float32)
    s[4], s[20] = np.nan, np.inf
    got = np.asarray(shlo_disc.jit(per_column)(x, q, s))
    np.testing.assert_array_equal(got, np.broadcast_to(s * 40, got.shape))
