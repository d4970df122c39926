"""Row work behind a product, in its launch: layer-norm, softmax of logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.cases import slow
from tests.children import at_once
from tests.models.harness import check, kernels, layer_norm, normal, rng_of

SHAPES = ((3, 5, 24), (1, 256, 256), (128, 300, 768), (300, 100, 70), (5, 33, 17), (70, 450, 3),
          (1000, 64, 64), (257, 1, 500))  # fmt: skip
"""(rows, products of a sum, columns)"""


def case(m, k, n, dtype=np.float32):
    r = rng_of(m, k, n)
    x, w = normal(r, m, k), normal(r, k, n, scale=max(k, 1) ** -0.5)
    # Columns far apart: nearly equal ones would magnify the rounding of the product.
    residual = normal(r, m, n) + 4 * np.linspace(-1, 1, n)
    return tuple(a.astype(dtype) for a in (x, w, residual, normal(r, n)))


def post_norm(x, w, residual, scale):
    return layer_norm(x @ w + residual) * scale


def test_a_layer_norm_behind_a_product():
    assert kernels(post_norm, *case(*SHAPES[0])) == ["dense"]
    check(post_norm, [case(*s) for s in SHAPES])


def test_what_is_normalised_is_a_result_too():
    def function(x, w, residual, scale):
        y = x @ w + residual
        return y, layer_norm(y) * scale

    assert kernels(function, *case(*SHAPES[0])) == ["dense"]
    check(function, [case(*s) for s in SHAPES[:-1]])


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_half(dtype):
    check(post_norm, [case(*s, dtype) for s in SHAPES[:3]])


def test_double():
    with jax.enable_x64(True):
        f = shlo_disc.jit(post_norm)
        for sizes in SHAPES[:3]:
            args = case(*sizes, np.float64)
            # No more exact truth here than XLA, which adds in another order.
            np.testing.assert_allclose(f(*args), jax.jit(post_norm)(*args), rtol=1e-11, atol=1e-13)


def test_probabilities_of_logits():
    def function(x, w):
        logits = jnp.einsum("btk,kn->btn", x, w)
        return jax.nn.log_softmax(logits), jnp.argmax(logits, -1)

    cases = [
        (normal(rng_of(b, t, k), b, t, k), normal(rng_of(k, n), k, n))
        for b, t, k, n in ((2, 3, 8, 9), (1, 1, 64, 1000), (4, 50, 16, 40))
    ]
    assert kernels(function, *cases[0]) == ["dense"]
    check(function, cases)


def test_weights_that_are_computed():
    """Nothing to keep packed: the kernel copies blocks of them."""

    def function(x, w, residual, scale):
        return post_norm(x, jnp.sin(w).T, residual, scale)

    def transposed(m, k, n):
        x, w, residual, scale = case(m, k, n)
        return x, w.T, residual, scale

    check(function, [transposed(*s) for s in SHAPES[:-1]])


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 4, 8),
        (4, 0, 8),
        *slow([((4, 8, 0),), ((0, 0, 0),)]),
    ],
)
def test_nothing_to_compute(sizes):
    check(post_norm, [case(*sizes)])


def test_nothing_known_to_be_nothing():
    """Rows of static size 0."""

    def function(x, w, residual, scale):
        y = layer_norm(residual + x.reshape(0, 3, 8) @ w) * scale
        return jnp.tanh(y) @ w

    zeros = np.zeros
    check(
        function,
        [(zeros((0, 3, 2, 4), "f4"), zeros((8, 8), "f4"), zeros((0, 3, 8), "f4"), zeros(8, "f4"))],
    )


def test_rows_in_another_order_are_a_kernel_of_their_own():
    def function(x, w):
        return jax.nn.softmax((x @ w).T)

    x, w, *_ = case(6, 5, 7)
    assert kernels(function, x, w) == ["dense", "row"]
    check(function, [(x, w)])


def test_rows_of_one_sum():
    def function(x, y, w):
        total = x @ y  # has no dimensions
        return jax.nn.softmax(w * total), (w + total).sum(), jnp.argmax(w - total, 0)

    r = rng_of(1)
    check(function, [(normal(r, n), normal(r, n), normal(r, m, n)) for n, m in ((4, 3), (1, 1))])


def test_from_many_threads():
    """Calls at the same time have counters of their own."""
    f = shlo_disc.jit(post_norm)
    args = [jnp.asarray(a) for a in case(200, 64, 96)]
    expected = np.asarray(f(*args))

    def work(_):
        for _ in range(100):
            np.testing.assert_array_equal(np.asarray(f(*args)), expected)

    at_once(work, range(8))


def test_gradient():
    check(jax.grad(lambda *a: jnp.sum(post_norm(*a) ** 3), (0, 1)), [case(5, 12, 9)])


def test_a_reduction_in_front_of_the_rows():
    """The sums of `y` are added where the product is, and are none of its rows."""

    def function(x, w, y):
        return jax.nn.softmax(x @ w + y.sum(0))

    def arguments(m, k, n):
        return *case(m, k, n)[:2], normal(rng_of(m, n), 3, m, n)

    assert kernels(function, *arguments(5, 8, 16)) == ["dense"]
    check(function, [arguments(5, 8, 16), arguments(33, 70, 100)])
