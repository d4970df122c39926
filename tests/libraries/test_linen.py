"""Programs of flax.linen: training steps and inference, as in its guides and examples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.libraries.harness import REASON, check

nn = pytest.importorskip("flax.linen", reason=REASON)
optax = pytest.importorskip("optax", reason=REASON)

from flax import struct  # noqa: E402
from flax.training import train_state  # noqa: E402

KEY = jax.random.key(0)


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def vectors(width, classes=3):
    def make(b, t, rng):
        return (
            rng.standard_normal((b, width), "f"),
            rng.integers(0, classes, (b,), "i4"),
        )

    return make


class TrainState(train_state.TrainState):
    batch_stats: Any
    key: jax.Array


class BatchNormPerceptron(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(16)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = nn.relu(x)
        x = nn.Dropout(0.3, deterministic=not train)(x)
        return nn.Dense(3)(x)


def batch_norm_state(optimizer):
    model = BatchNormPerceptron()
    variables = model.init(KEY, jnp.ones((2, 8)), train=False)
    return TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        batch_stats=variables["batch_stats"],
        key=jax.random.key(1),
        tx=optimizer,
    )


def batch_norm_step(state, x, labels):
    """flax's guides "Batch normalization" and "Dropout"."""
    dropout_key = jax.random.fold_in(state.key, state.step)

    def loss_of(params):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, x, train=True,
            rngs={"dropout": dropout_key}, mutable=["batch_stats"],
        )  # fmt: skip
        return cross_entropy(logits, labels), (logits, updates)

    (loss, (logits, updates)), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    state = state.replace(batch_stats=updates["batch_stats"])
    return state, {"loss": loss, "accuracy": (logits.argmax(-1) == labels).mean()}


@pytest.mark.slow
def test_perceptron_with_batch_norm_and_dropout_trains():
    state = batch_norm_state(optax.sgd(0.1, momentum=0.9))
    data = vectors(8)
    # Two rows of a batch become +1 and -1: their gradients cancel.
    check(batch_norm_step, lambda b, t, rng: (state, *data(b, t, rng)), tolerance=1e-3)


@pytest.mark.slow
def test_perceptron_with_batch_norm_predicts():
    state = batch_norm_state(optax.sgd(0.1))

    def predict(state, x):
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        return nn.softmax(state.apply_fn(variables, x, train=False))

    check(predict, lambda b, t, rng: (state, rng.standard_normal((b, 8), "f")))


class CNN(nn.Module):
    """flax/examples/mnist, with fewer channels."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(features=8, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.Conv(features=16, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))  # flatten
        x = nn.Dense(features=32)(x)
        x = nn.relu(x)
        return nn.Dense(features=10)(x)


def apply_model(state, images, labels):
    """flax/examples/mnist: gradients, loss and accuracy of a batch."""

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        one_hot = jax.nn.one_hot(labels, 10)
        return jnp.mean(optax.softmax_cross_entropy(logits=logits, labels=one_hot)), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), loss, jnp.mean(jnp.argmax(logits, -1) == labels)


@pytest.mark.slow
def test_mnist_trains():
    cnn = CNN()
    params = cnn.init(KEY, jnp.ones([1, 28, 28, 1]))["params"]
    state = train_state.TrainState.create(apply_fn=cnn.apply, params=params, tx=optax.sgd(0.1, 0.9))
    check(
        apply_model,
        lambda b, t, rng: (
            state, rng.standard_normal((b, 28, 28, 1), "f"), rng.integers(0, 10, (b,), "i4"),
        ),
    )  # fmt: skip


class ResidualNet(nn.Module):
    """Convolutions with batch norm, global pooling: images of any size."""

    @nn.compact
    def __call__(self, x, train):
        norm = lambda: nn.BatchNorm(use_running_average=not train)  # noqa: E731
        x = nn.relu(norm()(nn.Conv(8, (3, 3), use_bias=False)(x)))
        for features, strides in ((8, 1), (16, 2)):
            y = nn.Conv(features, (3, 3), strides, use_bias=False)(x)
            y = nn.relu(norm()(y))
            y = norm()(nn.Conv(features, (3, 3), use_bias=False)(y))
            if x.shape[-1] != features:
                x = nn.Conv(features, (1, 1), strides, use_bias=False)(x)
            x = nn.relu(x + y)
        return nn.Dense(5)(x.mean((1, 2)))


@pytest.mark.slow
def test_residual_net_trains_on_images_of_any_size():
    net = ResidualNet()
    variables = net.init(KEY, jnp.ones((1, 8, 8, 3)), train=False)

    def step(variables, x, labels):
        def loss_of(params):
            logits, updates = net.apply(
                variables | {"params": params}, x, train=True, mutable=["batch_stats"]
            )
            return cross_entropy(logits, labels), updates

        (loss, updates), grads = jax.value_and_grad(loss_of, has_aux=True)(variables["params"])
        params = jax.tree.map(lambda p, g: p - 0.1 * g, variables["params"], grads)
        return loss, {"params": params, **updates}

    check(
        step,
        lambda b, t, rng: (
            variables, rng.standard_normal((b, 2 * t, 2 * t + 6, 3), "f"),
            rng.integers(0, 5, (b,), "i4"),
        ),
    )  # fmt: skip


class Classifier(nn.Module):
    """A recurrent layer over sequences of different lengths."""

    cell: Any
    reverse: bool = False

    @nn.compact
    def __call__(self, words, lengths):
        x = nn.Embed(20, 8)(words)
        x = nn.RNN(self.cell)(x, seq_lengths=lengths)
        if self.reverse:
            x = jnp.concatenate(
                [x, nn.RNN(self.cell.copy(), reverse=True, keep_order=True)(x)], axis=-1
            )
        last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0]
        return nn.Dense(4)(last)


def sequences(b, t, rng):
    return (
        rng.integers(0, 20, (b, t), "i4"), rng.integers(1, t + 1, (b,), "i4"),
        rng.integers(0, 4, (b,), "i4"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("LSTMCell", marks=pytest.mark.slow),
        pytest.param("OptimizedLSTMCell", marks=pytest.mark.slow),
        pytest.param("GRUCell", marks=pytest.mark.slow),
        pytest.param("MGUCell", marks=pytest.mark.slow),
        pytest.param("SimpleCell", marks=pytest.mark.slow),
    ],
)
def test_recurrent_classifier_trains(cell):
    model = Classifier(getattr(nn, cell)(8), reverse=cell == "GRUCell")
    params = model.init(KEY, jnp.zeros((1, 3), "i4"), jnp.array([2]))
    default = cell == "SimpleCell"  # in every run of the tests, so it is small
    optimizer = optax.sgd(1e-1) if default else optax.adam(1e-3, eps=1e-4)
    state = optimizer.init(params)

    def step(params, state, words, lengths, labels):
        def loss_of(params):
            return cross_entropy(model.apply(params, words, lengths), labels)

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return loss, grads, optax.apply_updates(params, updates), state

    check(
        step,
        lambda b, t, rng: (params, state, *sequences(b, t, rng)),
        tolerance=1e-3,
        count=2 if default else 4,
    )


class DecoderLSTMCell(nn.RNNCellBase):
    """flax/examples/seq2seq: teacher forcing, or the sampled token of the step before."""

    features: int
    teacher_force: bool
    vocab_size: int

    @nn.compact
    def __call__(self, carry, x):
        lstm_state, last_prediction = carry
        if not self.teacher_force:
            x = last_prediction
        lstm_state, y = nn.LSTMCell(self.features)(lstm_state, x)
        logits = nn.Dense(features=self.vocab_size)(y)
        categorical_rng = self.make_rng("lstm")
        predicted_token = jax.random.categorical(categorical_rng, logits)
        prediction = jax.nn.one_hot(predicted_token, self.vocab_size, dtype=jnp.float32)
        return (lstm_state, prediction), (logits, prediction)

    @property
    def num_feature_axes(self):
        return 1


class Seq2seq(nn.Module):
    teacher_force: bool
    hidden_size: int
    vocab_size: int
    eos_id: int = 1

    @nn.compact
    def __call__(self, encoder_inputs, decoder_inputs):
        encoder = nn.RNN(nn.LSTMCell(self.hidden_size), return_carry=True, name="encoder")
        decoder = nn.RNN(
            DecoderLSTMCell(decoder_inputs.shape[-1], self.teacher_force, self.vocab_size),
            split_rngs={"params": False, "lstm": True},
            name="decoder",
        )
        seq_lengths = self.get_seq_lengths(encoder_inputs)
        encoder_state, _ = encoder(encoder_inputs, seq_lengths=seq_lengths)
        return decoder(decoder_inputs[:, :-1], initial_carry=(encoder_state, decoder_inputs[:, 0]))

    def get_seq_lengths(self, inputs):
        inputs = inputs[:, :, self.eos_id]
        seq_lengths = jnp.argmax(inputs, axis=-1)
        is_eos = jnp.any(inputs, axis=-1)
        return jnp.where(is_eos, seq_lengths + 1, inputs.shape[1])


def one_hots(rng, *sizes):
    return jax.nn.one_hot(rng.integers(0, 12, sizes), 12)


@pytest.mark.slow
@pytest.mark.parametrize("teacher_force", [True, False], ids=["train", "decode"])
def test_seq2seq(teacher_force):
    model = Seq2seq(teacher_force=teacher_force, hidden_size=12, vocab_size=12)
    params = model.init({"params": KEY, "lstm": KEY}, jnp.ones((1, 4, 12)), jnp.ones((1, 3, 12)))[
        "params"
    ]

    def apply(params, key, queries, answers):
        def loss_of(params):
            logits, predictions = model.apply(
                {"params": params}, queries, answers, rngs={"lstm": key}
            )
            labels = answers[:, 1:]
            mask = (labels.sum(-1) > 0).astype("f")
            return -((jax.nn.log_softmax(logits) * labels).sum(-1) * mask).mean(), predictions

        return jax.value_and_grad(loss_of, has_aux=True)(params)

    check(
        apply,
        lambda b, t, rng: (params, KEY, one_hots(rng, b, t), one_hots(rng, b, t + 1)),
        tolerance=1e-3,
    )


@struct.dataclass
class Config:
    width: int = 16
    heads: int = 4
    layers: int = 2
    words: int = 20
    rate: float = 0.1
    dtype: Any = jnp.float32


class Block(nn.Module):
    config: Config

    @nn.compact
    def __call__(self, x, mask, deterministic):
        c = self.config
        y = nn.LayerNorm(dtype=c.dtype)(x)
        y = nn.MultiHeadDotProductAttention(
            c.heads, dtype=c.dtype, dropout_rate=c.rate, deterministic=deterministic
        )(y, mask=mask)
        x = x + nn.Dropout(c.rate)(y, deterministic=deterministic)
        y = nn.LayerNorm(dtype=c.dtype)(x)
        y = nn.Dense(4 * c.width, dtype=c.dtype)(y)
        y = nn.gelu(y)
        y = nn.Dropout(c.rate)(y, deterministic=deterministic)
        return x + nn.Dense(c.width, dtype=c.dtype)(y)


class LanguageModel(nn.Module):
    """flax/examples/lm1b in short: padding and causal masks, learned positions, tied logits."""

    config: Config

    @nn.compact
    def __call__(self, words, deterministic=True):
        c = self.config
        embed = nn.Embed(c.words, c.width, dtype=c.dtype)
        positions = self.param("positions", nn.initializers.normal(0.02), (1, 32, c.width))
        x = embed(words) + positions[:, : words.shape[1]].astype(c.dtype)
        mask = nn.combine_masks(
            nn.make_attention_mask(words > 0, words > 0), nn.make_causal_mask(words)
        )
        for _ in range(c.layers):
            x = Block(c)(x, mask, deterministic)
        return embed.attend(nn.LayerNorm(dtype=c.dtype)(x)).astype("f")


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    [jnp.float32, jnp.bfloat16],
    ids=["float32", "bfloat16"],
)
def test_language_model_trains(dtype):
    model = LanguageModel(Config(dtype=dtype))
    params = model.init(KEY, jnp.zeros((1, 4), "i4"))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1e-4))
    state = optimizer.init(params)

    def step(params, state, words, key):
        def loss_of(params):
            logits = model.apply(params, words[:, :-1], deterministic=False, rngs={"dropout": key})
            labels = words[:, 1:]
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            weights = (labels > 0).astype("f")
            return (losses * weights).sum() / weights.sum()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return loss, grads, optax.apply_updates(params, updates), state

    check(
        step,
        lambda b, t, rng: (params, state, rng.integers(0, 20, (b, t + 1), "i4"), KEY),
        tolerance=5e-2 if dtype == jnp.bfloat16 else 2e-3,
    )


@pytest.mark.slow
def test_encoder_decoder_attends_across():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, source, target):
            embed = nn.Embed(20, 16)
            memory, x = embed(source), embed(target)
            mask = nn.make_attention_mask(target > 0, source > 0)
            x = nn.LayerNorm()(x + nn.SelfAttention(2)(x, mask=nn.make_causal_mask(target)))
            x = nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(2)(x, memory, mask=mask))
            return nn.DenseGeneral((2, 10), axis=-1)(x)

    model = Model()
    params = model.init(KEY, jnp.ones((1, 3), "i4"), jnp.ones((1, 4), "i4"))

    def step(params, source, target):
        return jax.value_and_grad(lambda p: (model.apply(p, source, target) ** 2).mean())(params)

    check(
        step,
        lambda b, t, rng: (
            params, rng.integers(1, 20, (b, t), "i4"), rng.integers(1, 20, (b, t + 3), "i4"),
        ),
    )  # fmt: skip


@pytest.mark.slow
def test_decoding_with_a_cache():
    """One token at a time; the cache is as long as the call that made it."""
    attention = nn.MultiHeadDotProductAttention(4, qkv_features=16, decode=True)

    def cache_of(b, t):
        return attention.init(KEY, jnp.ones((b, t, 16)))["cache"]

    params = attention.init(KEY, jnp.ones((1, 4, 16)))["params"]

    def decode(params, cache, x):
        y, updates = attention.apply({"params": params, "cache": cache}, x, mutable=["cache"])
        return y, updates["cache"]

    f = check(
        decode, lambda b, t, rng: (params, cache_of(b, t), rng.standard_normal((b, 1, 16), "f"))
    )
    cache, reference = cache_of(3, 5), cache_of(3, 5)
    for step in range(4):
        x = jnp.full((3, 1, 16), 0.1 * step, jnp.float32)
        y, cache = f(params, cache, x)
        want, reference = decode(params, reference, x)
        assert jnp.abs(y - want).max() < 1e-5
    assert f.cache_info().misses == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(lambda: nn.GroupNorm(4), id="GroupNorm"),
        pytest.param(nn.RMSNorm, id="RMSNorm"),
        pytest.param(nn.InstanceNorm, id="InstanceNorm"),
        pytest.param(lambda: nn.WeightNorm(nn.Dense(8)), id="WeightNorm"),
        pytest.param(lambda: nn.Conv(8, (3,), padding="CAUSAL"), id="Conv1D"),
        pytest.param(lambda: nn.Conv(8, (3,), padding="CIRCULAR"), id="ConvCircular"),
        pytest.param(lambda: nn.Conv(8, (3,), feature_group_count=8), id="Depthwise"),
        pytest.param(lambda: nn.ConvTranspose(8, (4,), strides=(2,)), id="ConvTranspose"),
        pytest.param(nn.PReLU, id="PReLU"),
        pytest.param(lambda: nn.Einsum((8, 2, 4), "btd,dhk->bthk"), id="Einsum"),
        pytest.param(lambda: lambda x: nn.max_pool(x, (2,), (2,), "SAME"), id="max_pool"),
        pytest.param(lambda: lambda x: nn.avg_pool(x, (2,), (1,)), id="avg_pool"),
        pytest.param(lambda: lambda x: nn.glu(x, -1), id="glu"),
    ],
)
def test_layer_and_its_gradient(layer):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = layer()(nn.Dense(8)(x))
            return nn.Dense(2)(x.reshape(*x.shape[:2], -1))

    model = Model()
    params = model.init(KEY, jnp.ones((2, 4, 8)))

    def step(params, x):
        def loss_of(params):
            y, _ = model.apply(params, x, mutable=True)
            return (y**2).mean(), y

        return jax.value_and_grad(loss_of, has_aux=True)(params)

    check(step, lambda b, t, rng: (params, rng.standard_normal((b, t, 8), "f")))


@pytest.mark.slow
def test_lifted_transformations():
    """nn.remat and nn.scan over layers, nn.vmap over an ensemble."""

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + nn.Dense(8)(nn.tanh(nn.LayerNorm()(x))), None

    class Deep(nn.Module):
        @nn.compact
        def __call__(self, x):
            layers = nn.scan(
                nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            x, _ = layers()(x, None)
            heads = nn.vmap(
                nn.Dense, in_axes=None, out_axes=0, axis_size=2,
                variable_axes={"params": 0}, split_rngs={"params": True},
            )  # fmt: skip
            return heads(3)(x)

    model = Deep()
    params = model.init(KEY, jnp.ones((2, 8)))

    def step(params, x):
        return jax.value_and_grad(lambda p: (model.apply(p, x) ** 2).sum())(params)

    check(step, lambda b, t, rng: (params, rng.standard_normal((b, t, 8), "f")))
