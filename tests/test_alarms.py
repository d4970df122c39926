"""The comparison of new versions with numbers leaves ordinary programs as they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests import alarms

SAMPLE = [
    *(("random programs", seed) for seed in range(20, 30)),
    ("random modules", 3),
    *(("functions of JAX", f"jax.numpy.{name}") for name in ("median", "roll")),
]


def test_a_sample_has_no_false_alarm():
    """`test_every_program` has all of them."""
    found = {}
    for kind, which in SAMPLE:
        found.setdefault(kind, {}).update(alarms.trace((kind, which)))
    text, good = alarms.summary(found)
    assert good, text
    assert not any(alarms for programs in found.values() for alarms in programs.values()), text


@pytest.mark.slow(minutes=30)
def test_every_program():
    """As `python -m tests.fuzz --alarms --count 500`."""
    found = {}
    for kind, which in alarms.jobs(range(500)):
        found.setdefault(kind, {}).update(alarms.trace((kind, which)))
    text, good = alarms.summary(found)
    assert good, text


def test_a_true_alarm_is_counted():
    def asks(x):
        return x * 2 if isinstance(x.shape[0], int) else x

    found = {"f": alarms.trace_calls(asks, [(np.ones(3, np.float32),)])}
    (note,) = found["f"]
    assert "d0 = 3" in note
    assert not alarms.summary({"kind": found})[1]
    assert alarms.summary({"kind": {**found, **{str(k): () for k in range(99)}}})[1]
    assert "1 refused" in alarms.summary({"kind": {"g": None, "h": ()}})[0]


def test_a_sum_over_a_size_of_one_is_like_a_sum_without_it():
    """The derivative of a broadcast sums over `d0`, but not over a dimension that is 1."""

    def step(scale, x):
        return jax.grad(lambda scale: (x * scale).sum())(scale)

    args = np.ones(4, np.float32), np.ones((1, 6, 4), np.float32)
    assert alarms.trace_calls(step, [args]) == ()
    again = np.ones(4, np.float32), np.ones((3, 1, 4), np.float32)
    assert alarms.trace_calls(step, [args, again]) == ()


MATRICES = np.ones((15, 5), "f"), np.ones((5, 6), "f"), np.ones((6, 4), "f")


def test_products_may_be_in_another_order():
    """JAX guesses the order for symbols, and takes the best one for numbers."""

    def product(a, b, c):
        return jnp.einsum("ij,jk,kl->il", a, b, c)

    def gradient(a, b, c):
        return jax.grad(lambda *x: jnp.sin(product(*x)).sum(), (0, 1, 2))(a, b, c)

    assert alarms.trace_calls(product, [MATRICES]) == ()
    assert alarms.trace_calls(gradient, [MATRICES]) == ()
    f = shlo_disc.jit(product)
    np.testing.assert_allclose(f(*MATRICES), product(*MATRICES))


def test_a_batch_of_one():
    """JAX takes the batch out of a product; where the batch is larger, nothing differs."""
    args = np.ones((1, 3, 6), "f"), np.ones((1, 6, 2), "f")
    assert alarms.trace_calls(jnp.matmul, [args]) == ()


def test_branches_for_one_element_that_select_values_of_several():
    """JAX chooses by a scalar where there is one element, and computes all of them for symbols."""
    x = np.ones(1, np.float32)
    assert alarms.trace_calls(jax.scipy.special.exp1, [(x,)]) == ()
    assert alarms.trace_calls(lambda x: jnp.piecewise(x, [x < 0], [abs, jnp.sin]), [(x,)]) == ()


@pytest.mark.parametrize("row", [jnp.sin, jax.nn.softmax, lambda v: v @ v])
def test_the_derivative_of_a_sum_over_batches(row):
    """Its cotangent is 1; symbols hide that behind the padding of the last batch."""

    def program(x):
        return jax.grad(lambda x: jax.lax.map(row, x, batch_size=2).sum())(x)

    assert alarms.trace_calls(program, [(np.ones((6, 3), np.float32),)]) == ()


def test_another_operation_in_a_function_of_rows_is_found():
    def program(x):
        n = x.shape[0]

        def row(v):
            return jnp.sin(v) * 3 if isinstance(n, int) else jnp.sin(v) * 2

        return jax.lax.map(row, x, batch_size=2)

    (note,) = alarms.trace_calls(program, [(np.ones((6, 3), np.float32),)])
    assert "mul" in note


@pytest.mark.parametrize(
    "asks",
    [
        lambda x: x.sum(0) + 1 if isinstance(x.shape[1], int) else x.sum() + jnp.zeros(1),
        lambda x: x * 2 if isinstance(x.shape[1], int) and x.shape[1] == 1 else x,
    ],
)
def test_a_question_at_a_size_of_one_is_found(asks):
    (note,) = alarms.trace_calls(asks, [(np.ones((3, 1), np.float32),)])
    assert "= 1" in note
