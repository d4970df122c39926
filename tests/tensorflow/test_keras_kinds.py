"""Keras models of many kinds, with sizes that vary: one compilation, right at every size."""

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras", reason="needs the extra `tensorflow`: make test-tensorflow")

import shlo_disc.tensorflow  # noqa: E402
from tests.tensorflow.test_keras import varied  # noqa: E402

layers = keras.layers
SIZES = [(2, 7), (1, 1), (5, 3), (3, 13), (7, 16)]


def squeezed(x, channels):
    y = layers.GlobalAveragePooling2D(keepdims=True)(x)
    y = layers.Conv2D(channels // 4, 1, activation="relu")(y)
    return layers.Multiply()([x, layers.Conv2D(channels, 1, activation="sigmoid")(y)])


def images():
    given = keras.Input((None, None, 3))
    x = layers.ZeroPadding2D(1)(layers.Rescaling(1 / 127.5, offset=-1)(given))
    x = layers.Conv2D(8, 3, strides=2, use_bias=False)(x)
    x = layers.Activation("swish")(layers.BatchNormalization()(x))
    y = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    y = squeezed(layers.ReLU(6.0)(layers.BatchNormalization()(y)), 8)
    x = layers.Add()([x, layers.BatchNormalization()(layers.Conv2D(8, 1)(y))])
    x = layers.SeparableConv2D(16, 3, padding="same", strides=2)(x)
    x = layers.MaxPooling2D(2, padding="same")(layers.PReLU(shared_axes=[1, 2])(x))
    y = layers.AveragePooling2D(2, strides=1, padding="same")(x)
    x = layers.Concatenate()([y, layers.Conv2D(4, 3, padding="same", dilation_rate=2)(x)])
    x = layers.GlobalAveragePooling2D()(layers.Dropout(0.2)(x))
    return keras.Model(given, layers.Dense(10, activation="softmax")(x))


class Positions(layers.Layer):
    """Embeddings of tokens and of their places; token 0 is masked."""

    def __init__(self):
        super().__init__()
        self.tokens = layers.Embedding(50, 32, mask_zero=True)
        self.places = layers.Embedding(64, 32)
        self.supports_masking = True

    def call(self, x):
        return self.tokens(x) + self.places(keras.ops.arange(keras.ops.shape(x)[-1]))

    def compute_mask(self, x, mask=None):
        return self.tokens.compute_mask(x)


def added(x, y):
    return layers.LayerNormalization()(x + y)


def translation():
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("a", "b"))
    x = Positions()(source)
    x = added(x, layers.MultiHeadAttention(4, 8)(x, x))
    x = added(x, layers.Dense(32)(layers.Dense(64, activation="gelu")(x)))
    y = Positions()(target)
    y = added(y, layers.MultiHeadAttention(4, 8)(y, y, use_causal_mask=True))
    y = added(y, layers.MultiHeadAttention(4, 8)(y, x))
    return keras.Model([source, target], layers.Dense(50)(y))


def masked_encoder():
    """Each of the inputs has a length of its own; many broadcasts follow from one to another."""
    ids = keras.Input((None,), dtype="int32")
    kinds = keras.Input((None,), dtype="int32")
    mask = keras.Input((None,), dtype="bool")
    x = layers.LayerNormalization()(layers.Embedding(50, 32)(ids) + layers.Embedding(2, 32)(kinds))
    for _ in range(2):
        x = added(x, layers.MultiHeadAttention(4, 8)(x, x, attention_mask=mask[:, None, :]))
        x = added(x, layers.Dense(32)(layers.Dense(64, activation="gelu")(x)))
    return keras.Model([ids, kinds, mask], [x, layers.Dense(32, "tanh")(x[:, 0])])


def grouped_attention():
    given = keras.Input((None, 32))
    x = layers.RMSNormalization()(given)
    x = given + layers.GroupQueryAttention(8, 4, 2)(x, x, use_causal_mask=True)
    y = layers.RMSNormalization()(x)
    y = layers.Dense(64, "silu", use_bias=False)(y) * layers.Dense(64, use_bias=False)(y)
    return keras.Model(given, x + layers.Dense(32)(y))


def signals():
    given = keras.Input((None, 6))
    x = layers.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="relu")(given)
    x = layers.Conv1D(8, 3, padding="same", strides=2)(layers.MaxPooling1D(2, padding="same")(x))
    x = layers.Cropping1D((0, 1))(layers.UpSampling1D(2)(layers.LayerNormalization()(x)))
    x = layers.SeparableConv1D(4, 3, padding="same")(x)
    both = [layers.GlobalMaxPooling1D()(x), layers.GlobalAveragePooling1D()(x)]
    return keras.Model(given, layers.Dense(2)(layers.Concatenate()(both)))


def columns():
    """Several preprocessing layers; arguments and results are dictionaries."""
    numbers, age = keras.Input((3,), name="numbers"), keras.Input((1,), name="age")
    kinds = keras.Input((2,), dtype="int64", name="kinds")
    scaled = layers.Normalization()
    scaled.adapt(np.random.default_rng(0).standard_normal((50, 3)).astype("f") * 3 + 1)
    x = [
        scaled(numbers),
        layers.UnitNormalization()(numbers),
        layers.CategoryEncoding(5, "multi_hot")(kinds),
        layers.CategoryEncoding(5, "count")(kinds),
        layers.Discretization([10.0, 20.0, 40.0], output_mode="one_hot")(age),
        layers.Flatten()(layers.Embedding(5, 4)(kinds)),
    ]
    x = layers.Dense(16, activation="selu")(layers.Concatenate()(x))
    given = {"numbers": numbers, "age": age, "kinds": kinds}
    return keras.Model(given, {"p": layers.Dense(1, "sigmoid")(x), "q": layers.Dense(4)(x)})


def text(*then):
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(30, 12, mask_zero=True)(tokens)
    for layer in then:
        x = layer(x)
    return keras.Model(tokens, layers.Dense(3)(x))


RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape, np.float32)


def tokens(high, *shape):
    return RNG.integers(0, high, shape).astype(np.int32)


KINDS = {
    "images": (images, lambda b, s: 127 * floats(b, s + 16, 2 * s + 15, 3)),
    "translation": (translation, lambda b, s: [tokens(50, b, s), tokens(50, b, 2 * s + 1)]),
    "masked_encoder": (
        masked_encoder,
        lambda b, s: [
            tokens(50, b, s),
            tokens(2, b, s),
            np.arange(s)[None] < 1 + tokens(s, b, 1),
        ],
    ),
    "grouped_attention": (grouped_attention, lambda b, s: floats(b, s, 32)),
    "signals": (signals, lambda b, s: floats(b, s + 3, 6)),
    "columns": (
        columns,
        lambda b, s: {
            "numbers": floats(b, 3),
            "age": 60 * abs(floats(b, 1)),
            "kinds": tokens(5, b, 2).astype(np.int64),
        },
    ),
    "masked_gru": (
        lambda: text(layers.GRU(8, return_sequences=True), layers.GRU(6)),
        lambda b, s: tokens(3, b, s),
    ),
    "masked_lstm": (
        lambda: text(layers.Bidirectional(layers.LSTM(8, return_sequences=True)), layers.LSTM(6)),
        lambda b, s: tokens(3, b, s),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_as_keras(name):
    keras.utils.set_random_seed(0)
    build, given = KINDS[name]
    model = varied(build())
    run = shlo_disc.tensorflow.compile(model)
    assert "unknown location" not in run.explain()
    for sizes in SIZES:
        x = given(*sizes)
        got, want = run(x), model(x, training=False)
        tf.nest.assert_same_structure(got, want)
        for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * max(1, np.abs(b).max()))


def test_an_export_with_several_signatures(tmp_path):
    """`model.export` with dynamic batch, and a module with two endpoints of named arguments."""
    model = varied(signals())
    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = [tf.TensorSpec([None, None, 6], name="x")]
    archive.add_endpoint("serving_default", lambda x: model(x, training=False), spec)
    archive.add_endpoint("doubled", lambda x: {"y": 2 * model(x, training=False)}, spec)
    archive.write_out(tmp_path, verbose=False)
    plain = shlo_disc.tensorflow.compile(tmp_path)
    doubled = shlo_disc.tensorflow.compile(tmp_path, "doubled")
    for batch, length in SIZES:
        x = floats(batch, length + 3, 6)
        want = model(x, training=False).numpy()
        (got,) = tf.nest.flatten(plain(x=x))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(doubled(x=x)["y"], 2 * want, rtol=1e-4, atol=1e-5)
