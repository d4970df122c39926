"""Programs of equinox: arrays and the rest of a module are partitioned, as `filter_jit` does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.libraries.harness import REASON, check

eqx = pytest.importorskip("equinox", reason=REASON)
optax = pytest.importorskip("optax", reason=REASON)

KEY = jax.random.key(0)


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def training_step(model, loss_of, optimizer):
    """(step, its first arguments): the model's arrays are arguments, the rest is closed over."""
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def step(params, state, *batch):
        model = eqx.combine(params, static)
        loss, grads = eqx.filter_value_and_grad(loss_of)(model, *batch)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        model = eqx.apply_updates(model, updates)
        return loss, eqx.filter(model, eqx.is_inexact_array), state

    return step, (params, optimizer.init(params))


def check_training(model, loss_of, data, optimizer=None, tolerance=1e-3):
    step, first = training_step(model, loss_of, optimizer or optax.adam(1e-3, eps=1e-4))
    return check(step, lambda b, t, rng: (*first, *data(b, t, rng)), tolerance=tolerance)


def test_perceptron_trains():
    model = eqx.nn.MLP(in_size=8, out_size=1, width_size=16, depth=2, key=KEY)

    def loss_of(model, x, y):
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    check_training(
        model, loss_of,
        lambda b, t, rng: (rng.standard_normal((b, 8), "f"), rng.standard_normal((b, 1), "f")),
        optax.sgd(0.1),
    )  # fmt: skip


@pytest.mark.slow
def test_perceptron_predicts():
    model = eqx.nn.MLP(8, 3, 16, 2, activation=jax.nn.gelu, key=KEY)
    params, static = eqx.partition(model, eqx.is_array)

    def predict(params, x):
        return jax.nn.softmax(jax.vmap(eqx.combine(params, static))(x))

    check(predict, lambda b, t, rng: (params, rng.standard_normal((b, 8), "f")))


class RNN(eqx.Module):
    """The example "Train RNN", for sequences of any length."""

    cell: eqx.Module
    linear: eqx.nn.Linear
    hidden_size: int = eqx.field(static=True)

    def __init__(self, cell, hidden_size, key):
        ckey, lkey = jax.random.split(key)
        self.hidden_size = hidden_size
        self.cell = cell(4, hidden_size, key=ckey)
        self.linear = eqx.nn.Linear(hidden_size, 1, key=lkey)

    def __call__(self, x):
        hidden = jnp.zeros((self.hidden_size,))
        if isinstance(self.cell, eqx.nn.LSTMCell):
            hidden = hidden, hidden

        def f(carry, inp):
            return self.cell(inp, carry), None

        out, _ = jax.lax.scan(f, hidden, x)
        out = out[0] if isinstance(out, tuple) else out
        return jax.nn.sigmoid(self.linear(out))


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell"])
def test_recurrent_classifier_trains(cell):
    def loss_of(model, x, y):
        predicted = jax.vmap(model)(x)[:, 0]
        return -jnp.mean(y * jnp.log(predicted) + (1 - y) * jnp.log(1 - predicted))

    check_training(
        RNN(getattr(eqx.nn, cell), 8, KEY), loss_of,
        lambda b, t, rng: (
            rng.standard_normal((b, t, 4), "f"), rng.integers(0, 2, (b,)).astype("f"),
        ),
    )  # fmt: skip


class CNN(eqx.Module):
    """The example "CNN on MNIST"."""

    layers: list

    def __init__(self, key):
        key1, key2, key3 = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(1, 3, kernel_size=4, key=key1),
            eqx.nn.MaxPool2d(kernel_size=2),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(1728, 32, key=key2),
            jax.nn.sigmoid,
            eqx.nn.Linear(32, 10, key=key3),
            jax.nn.log_softmax,
        ]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.slow
def test_mnist_trains():
    def loss_of(model, x, y):
        predicted = jax.vmap(model)(x)
        return -jnp.mean(jnp.take_along_axis(predicted, jnp.expand_dims(y, 1), axis=1))

    check_training(
        CNN(KEY), loss_of,
        lambda b, t, rng: (
            rng.standard_normal((b, 1, 28, 28), "f"), rng.integers(0, 10, (b,), "i4"),
        ),
        optax.adamw(1e-3, eps=1e-4),
    )  # fmt: skip


class Stateful(eqx.Module):
    """The guide "Stateful operations": batch norm."""

    norm1: eqx.nn.BatchNorm
    linear1: eqx.nn.Linear
    norm2: eqx.nn.BatchNorm
    linear2: eqx.nn.Linear

    def __init__(self, key):
        key1, key2 = jax.random.split(key)
        self.norm1 = eqx.nn.BatchNorm(input_size=3, axis_name="batch", mode="batch")
        self.linear1 = eqx.nn.Linear(3, 16, key=key1)
        self.norm2 = eqx.nn.BatchNorm(input_size=16, axis_name="batch", mode="batch")
        self.linear2 = eqx.nn.Linear(16, 2, key=key2)

    def __call__(self, x, state):
        x, state = self.norm1(x, state)
        x = jax.nn.relu(self.linear1(x))
        x, state = self.norm2(x, state)
        return self.linear2(x), state


@pytest.mark.slow
def test_batch_norm_state():
    model, state = eqx.nn.make_with_state(Stateful)(KEY)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.adam(5e-2, eps=1e-3)
    optimizer_state = optimizer.init(params)

    def compute_loss(model, state, xs, ys):
        batch_model = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        logits, state = batch_model(xs, state)
        return cross_entropy(logits, ys), state

    def step(params, state, optimizer_state, xs, ys):
        model = eqx.combine(params, static)
        (loss, state), grads = eqx.filter_value_and_grad(compute_loss, has_aux=True)(
            model, state, xs, ys
        )
        updates, optimizer_state = optimizer.update(grads, optimizer_state)
        model = eqx.apply_updates(model, updates)
        return loss, eqx.filter(model, eqx.is_inexact_array), state, optimizer_state

    check(
        step,
        lambda b, t, rng: (
            params, state, optimizer_state,
            rng.standard_normal((b + 1, 3), "f"), rng.integers(0, 2, (b + 1,), "i4"),
        ),
        tolerance=1e-2,
    )  # fmt: skip


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, width, heads, key):
        key1, key2 = jax.random.split(key)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(heads, width, dropout_p=0.1, key=key1)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, activation=jax.nn.gelu, key=key2)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, mask, key):
        key1, key2 = jax.random.split(key)
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y, mask=mask, key=key1)
        y = jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))
        return x + self.dropout(y, key=key2)


class Encoder(eqx.Module):
    """The example "BERT": embeddings, padding mask, encoder layers."""

    words: eqx.nn.Embedding
    positions: eqx.nn.Embedding
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, key, width=16, heads=4):
        keys = jax.random.split(key, 5)
        self.words = eqx.nn.Embedding(20, width, key=keys[0])
        self.positions = eqx.nn.Embedding(32, width, key=keys[1])
        self.blocks = [Block(width, heads, k) for k in keys[2:4]]
        self.head = eqx.nn.Linear(width, 3, key=keys[4])

    def __call__(self, words, key):
        x = jax.vmap(self.words)(words) + jax.vmap(self.positions)(jnp.arange(words.shape[-1]))
        mask = jnp.broadcast_to((words > 0)[None, :], (words.shape[-1],) * 2)
        for block, k in zip(self.blocks, jax.random.split(key, len(self.blocks)), strict=True):
            x = block(x, mask, k)
        return self.head(x[0])


@pytest.mark.slow
def test_encoder_trains():
    def loss_of(model, words, labels, key):
        logits = jax.vmap(model)(words, jax.random.split(key, words.shape[0]))
        return cross_entropy(logits, labels)

    check_training(
        Encoder(KEY), loss_of,
        lambda b, t, rng: (
            rng.integers(1, 20, (b, t), "i4"), rng.integers(0, 3, (b,), "i4"), KEY,
        ),
        tolerance=2e-3,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(lambda: eqx.nn.Conv1d(4, 4, 3, padding=1, key=KEY), id="Conv1d"),
        pytest.param(lambda: eqx.nn.GroupNorm(2, 4), id="GroupNorm"),
        pytest.param(lambda: eqx.nn.RMSNorm(4), id="RMSNorm"),
        pytest.param(eqx.nn.PReLU, id="PReLU"),
        pytest.param(lambda: eqx.nn.AvgPool1d(2), id="AvgPool1d"),
        pytest.param(lambda: eqx.nn.AdaptiveAvgPool1d(1), id="AdaptiveAvgPool1d"),
        pytest.param(lambda: eqx.nn.WeightNorm(eqx.nn.Linear(4, 4, key=KEY)), id="WeightNorm"),
    ],
)
def test_layer_and_its_gradient(layer):
    layer = layer()
    by_row = isinstance(layer, (eqx.nn.RMSNorm, eqx.nn.WeightNorm))
    params, static = eqx.partition(layer, eqx.is_inexact_array)

    def step(params, x):
        def loss_of(params, x):
            model = eqx.combine(params, static)
            one = (lambda row: jax.vmap(model)(row.T)) if by_row else model
            return (jax.vmap(one)(x) ** 2).sum()

        return jax.value_and_grad(loss_of, argnums=(0, 1))(params, x)

    check(
        step,
        lambda b, t, rng: (
            params, rng.standard_normal((b, 4, t + 2), "f"),
        ),
    )  # fmt: skip


@pytest.mark.slow
def test_checkpointed_scan_over_layers():
    """The guide "Improve compilation speed": layers stacked by `filter_vmap`, applied by scan."""
    layers = eqx.filter_vmap(lambda key: eqx.nn.Linear(8, 8, key=key))(jax.random.split(KEY, 3))
    params, static = eqx.partition(layers, eqx.is_array)

    def step(params, x):
        def forward(params, x):
            @jax.checkpoint
            def f(x, dynamic):
                layer = eqx.combine(dynamic, static)
                return x + jax.nn.tanh(layer(x)), None

            return jax.lax.scan(f, x, params)[0]

        return jax.value_and_grad(
            lambda params: (jax.vmap(forward, in_axes=(None, 0))(params, x) ** 2).mean()
        )(params)

    check(step, lambda b, t, rng: (params, rng.standard_normal((b, 8), "f")))
