"""Models in bfloat16 and float16, and programs that mix precisions; float64 where x64 is on."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.models.harness import assert_close, check, check_bits, compiled, normal, rng_of

HALVES = (ml_dtypes.bfloat16, np.float16)
SHAPES = ((3, 10), (1, 1), (2, 61), (16, 64))
half = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])


@half
def test_perceptron(dtype):
    def run(w1, w2, x):
        return jax.nn.relu(x @ w1) @ w2

    rng = rng_of(24, 48)
    w1 = normal(rng, 24, 48, scale=0.2).astype(dtype)
    w2 = normal(rng, 48, 7, scale=0.15).astype(dtype)
    check(run, [(w1, w2, normal(rng_of(b), b, 24).astype(dtype)) for b in (3, 1, 61)])


@half
def test_elementwise_rounding_is_exact(dtype):
    """One correctly rounded op on each element: the bits are determined."""

    def run(x, y):
        return x + y, x * y, x - y, jnp.maximum(x, y), jnp.sqrt(jnp.abs(x)), x.astype("float32")

    cases = []
    for b, n in SHAPES:
        rng = rng_of(b, n)
        cases.append((normal(rng, b, n).astype(dtype), normal(rng, b, n).astype(dtype)))
    check_bits(run, cases)


@half
def test_softmax_and_norm(dtype):
    def run(x):
        y = jax.nn.softmax(x, -1)
        return y, x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-3)

    check(run, [(normal(rng_of(*s), *s).astype(dtype),) for s in SHAPES])


def test_mixed_precision_attention():
    def run(q, k, v):
        scores = jnp.einsum("btd,bsd->bts", q, k, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(scores * 0.25, -1).astype(v.dtype)
        return jnp.einsum("bts,bsd->btd", weights, v)

    cases = []
    for b, t in ((3, 10), (1, 1), (2, 37)):
        rng = rng_of(b, t)
        cases.append(tuple(normal(rng, b, t, 16).astype(ml_dtypes.bfloat16) for _ in range(3)))
    check(run, cases)


def test_weak_python_scalars_do_not_widen():
    x = np.ones((4, 3), ml_dtypes.bfloat16)
    check_bits(lambda x: x * 2.0 + 1, [(x,), (x[:1],)])


def test_float64_under_x64():
    with jax.enable_x64(True):

        def run(x, w):
            return jnp.tanh(x @ w), jax.nn.softmax(x, -1), jnp.exp(x) + jnp.log(jnp.abs(x))

        f = compiled(run)
        for b in (3, 1, 33):
            x, w = rng_of(b).standard_normal((b, 20)), rng_of(20).standard_normal((20, 7))
            want = (
                np.tanh(x @ w),
                np.exp(x) / np.exp(x).sum(-1, keepdims=True),
                np.exp(x) + np.log(np.abs(x)),
            )
            assert_close(f(x, w), jax.jit(run)(x, w), want, f"batch {b}")
