"""Programs of flax.nnx: modules are split into graph and state, as its guides do for `jax.jit`."""

import jax
import jax.numpy as jnp
import pytest

from tests.libraries.harness import REASON, check

nnx = pytest.importorskip("flax.nnx", reason=REASON)
optax = pytest.importorskip("optax", reason=REASON)


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def training_step(loss_of):
    """The guide "Performance considerations": a step over split state, jitted by `jax.jit`."""

    def step(graphdef, state, *batch):
        model, optimizer, metrics = nnx.merge(graphdef, state)
        model.train()
        loss, grads = nnx.value_and_grad(loss_of)(model, *batch)
        metrics.update(loss=loss)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer, metrics)), loss

    return step


def split(model, optimizer):
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    return nnx.split((model, nnx.Optimizer(model, optimizer, wrt=nnx.Param), metrics))


def check_training(model, loss_of, data, optimizer=None, tolerance=1e-3, count=4):
    graphdef, state = split(model, optimizer or optax.adamw(1e-3, eps=1e-4))
    step = training_step(loss_of)
    return check(
        lambda state, *batch: step(graphdef, state, *batch),
        lambda b, t, rng: (state, *data(b, t, rng)),
        tolerance=tolerance,
        count=count,
    )


def labelled(*shape, classes=4):
    def make(b, t, rng):
        sizes = [{"b": b, "t": t}.get(size, size) for size in shape]
        return rng.standard_normal(sizes, "f"), rng.integers(0, classes, (b,), "i4")

    return make


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(8, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.dropout(self.norm(self.linear(x)))))


def classify(model, x, labels):
    return cross_entropy(model(x), labels)


@pytest.mark.slow
def test_perceptron_with_batch_norm_and_dropout_trains():
    check_training(Perceptron(nnx.Rngs(0)), classify, labelled("b", 8), optax.sgd(0.1), count=2)


@pytest.mark.slow
def test_graphdef_as_a_static_argument():
    """As in the guide: `@partial(jax.jit, static_argnums=0)`."""
    graphdef, state = split(Perceptron(nnx.Rngs(0)), optax.sgd(0.1))
    data = labelled("b", 8)
    check(
        training_step(classify),
        lambda b, t, rng: (graphdef, state, *data(b, t, rng)),
        static_argnums=0,
        tolerance=1e-3,
    )


@pytest.mark.slow
def test_perceptron_predicts():
    model = Perceptron(nnx.Rngs(0))
    model.eval()
    graphdef, state = nnx.split(model)

    def predict(state, x):
        return nnx.softmax(nnx.merge(graphdef, state)(x))

    check(predict, lambda b, t, rng: (state, rng.standard_normal((b, 8), "f")))


@pytest.mark.slow
def test_merge_and_update_of_the_parameters_only():
    """`nnx.split(model, nnx.Param, ...)`: gradients of plain functions of the parameters."""
    graphdef, params, rest = nnx.split(Perceptron(nnx.Rngs(0)), nnx.Param, ...)

    def step(params, rest, x, labels):
        def loss_of(params):
            model = nnx.merge(graphdef, params, rest, copy=True)
            loss = classify(model, x, labels)
            _, _, updated = nnx.split(model, nnx.Param, ...)
            return loss, updated

        (loss, rest), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        return loss, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), rest

    data = labelled("b", 8)
    check(step, lambda b, t, rng: (params, rest, *data(b, t, rng)), tolerance=1e-3)


class CNN(nnx.Module):
    """The MNIST tutorial, with fewer channels."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 4, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(4, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.025, rngs=rngs)
        self.conv2 = nnx.Conv(4, 8, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm2 = nnx.BatchNorm(8, rngs=rngs)
        self.linear1 = nnx.Linear(8 * 7 * 7, 16, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=0.025, rngs=rngs)
        self.linear2 = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x):
        x = self.batch_norm1(self.dropout1(self.conv1(x)))
        x = nnx.avg_pool(nnx.relu(x), window_shape=(2, 2), strides=(2, 2))
        x = self.batch_norm2(self.conv2(x))
        x = nnx.avg_pool(nnx.relu(x), window_shape=(2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nnx.relu(self.dropout2(self.linear1(x)))
        return self.linear2(x)


@pytest.mark.slow
def test_mnist_trains():
    check_training(CNN(nnx.Rngs(0)), classify, labelled("b", 28, 28, 1, classes=10))


class Recurrent(nnx.Module):
    def __init__(self, cell, rngs):
        self.embed = nnx.Embed(20, 8, rngs=rngs)
        self.rnn = nnx.RNN(cell(8, 8, rngs=rngs))
        self.out = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, words, lengths):
        x = self.rnn(self.embed(words), seq_lengths=lengths)
        return self.out(jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["LSTMCell", "OptimizedLSTMCell", "GRUCell", "SimpleCell"])
def test_recurrent_classifier_trains(cell):
    check_training(
        Recurrent(getattr(nnx, cell), nnx.Rngs(0)),
        lambda model, words, lengths, labels: cross_entropy(model(words, lengths), labels),
        lambda b, t, rng: (
            rng.integers(0, 20, (b, t), "i4"), rng.integers(1, t + 1, (b,), "i4"),
            rng.integers(0, 4, (b,), "i4"),
        ),
    )  # fmt: skip


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, width, dropout_rate=0.1, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.norm1(x), mask=mask)
        return x + self.dropout(self.down(nnx.gelu(self.up(self.norm2(x)))))


class MiniGPT(nnx.Module):
    """The tutorial "Train a miniGPT": learned positions, causal mask."""

    def __init__(self, rngs, width=16, layers=2):
        self.words = nnx.Embed(20, width, rngs=rngs)
        self.positions = nnx.Embed(32, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs) for _ in range(layers)])
        self.head = nnx.Linear(width, 20, rngs=rngs)

    def __call__(self, words):
        x = self.words(words) + self.positions(jnp.arange(words.shape[1])[None, :])
        mask = nnx.make_causal_mask(words)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


@pytest.mark.slow
def test_mini_gpt_trains():
    check_training(
        MiniGPT(nnx.Rngs(0)),
        lambda model, words: cross_entropy(model(words[:, :-1]), words[:, 1:]),
        lambda b, t, rng: (rng.integers(0, 20, (b, t + 1), "i4"),),
        tolerance=2e-3,
    )


@pytest.mark.slow
def test_decoding_with_a_cache():
    attention = nnx.MultiHeadAttention(4, 16, decode=True, rngs=nnx.Rngs(0))

    def made(b, t):
        attention.init_cache((b, t, 16))
        return nnx.split(attention)

    graphdef, _ = made(2, 3)

    def decode(state, x):
        model = nnx.merge(graphdef, state)
        return model(x), nnx.state(model)

    check(decode, lambda b, t, rng: (made(b, t)[1], rng.standard_normal((b, 1, 16), "f")))


@pytest.mark.slow
def test_scan_over_layers():
    """The guide "Scan over layers": parameters stacked by vmap, applied by scan."""

    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def made(rngs):
        return nnx.Linear(8, 8, rngs=rngs)

    graphdef, state = nnx.split(made(nnx.Rngs(0)))

    def step(state, x):
        def loss_of(state):
            layers = nnx.merge(graphdef, state)

            @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
            def forward(layer, x):
                return x + nnx.tanh(layer(x))

            return (forward(layers, x) ** 2).mean()

        return jax.value_and_grad(loss_of)(state)

    check(step, lambda b, t, rng: (state, rng.standard_normal((b, t, 8), "f")))
