"""Multi-layer perceptrons: inference, gradients passed as the function, a training step."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.harness import check, normal, rng_of

BATCHES = (3, 1, 16, 61, 128)


def parameters(*widths: int):
    rng = rng_of(*widths)
    return [
        {"w": normal(rng, m, n, scale=m**-0.5), "b": normal(rng, n, scale=0.1)}
        for m, n in itertools.pairwise(widths)
    ]


def perceptron(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params, x, y):
    return jnp.mean((jnp.tanh(perceptron(params, x)) - y) ** 2)


def data(batch: int, inputs: int = 20, outputs: int = 5):
    rng = rng_of(batch)
    return normal(rng, batch, inputs), normal(rng, batch, outputs)


def test_perceptron_at_every_batch_size():
    params = parameters(20, 33, 47, 5)
    check(perceptron, [(params, data(b)[0]) for b in BATCHES])


def test_first_call_with_batch_one_does_not_pin_the_batch():
    params = parameters(20, 33, 5)
    check(perceptron, [(params, data(b)[0]) for b in (1, 7, 64)])


def test_layer_widths_are_dynamic_too():
    cases = []
    for batch, inputs, hidden, outputs in ((3, 20, 33, 5), (8, 17, 64, 1), (1, 128, 31, 10)):
        cases.append((parameters(inputs, hidden, outputs), data(batch, inputs)[0]))
    check(perceptron, cases)


@pytest.mark.parametrize("activation", ["gelu", "silu", "softplus", "elu", "relu6", "sigmoid"])
def test_activation(activation):
    act = getattr(jax.nn, activation)
    cases = [(normal(rng_of(b, n), b, n, scale=3.0),) for b, n in ((3, 20), (1, 1), (17, 131))]
    check(lambda x: act(x) * 2.0 + x, cases)


def test_gradient_passed_as_the_function():
    params = parameters(20, 33, 5)
    check(jax.grad(loss), [(params, *data(b)) for b in (3, 1, 61)])


def test_value_and_gradient():
    params = parameters(20, 33, 5)
    check(jax.value_and_grad(loss), [(params, *data(b)) for b in (4, 1, 31)])


def test_one_step_of_gradient_descent_with_momentum():
    def step(params, velocity, x, y):
        gradient = jax.grad(loss)(params, x, y)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
        return jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity), velocity

    params = parameters(20, 33, 5)
    velocity = jax.tree.map(np.zeros_like, params)
    check(step, [(params, velocity, *data(b)) for b in (4, 1, 31)])


def test_second_derivative_by_vmap():
    def cubic(x):
        return jnp.sum(x**3 + jnp.sin(x))

    check(jax.vmap(jax.grad(cubic)), [(normal(rng_of(b, 7), b, 7),) for b in (3, 1, 32)])
