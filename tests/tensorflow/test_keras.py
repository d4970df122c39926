"""Models of Keras at any batch: alone, and inside `predict`."""

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras", reason="needs the extra `tensorflow`: make test-tensorflow")

import shlo_disc.tensorflow  # noqa: E402

layers = keras.layers


def application(build, size, **options):
    def made():
        model = build(
            weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None,
            **options,
        )  # fmt: skip
        return varied(model)

    return made, lambda b: (b, size, size, 3)


def varied(model):
    """`model` with statistics of its batch norms, and biases, that are not 0 and 1."""
    rng = np.random.default_rng(3)
    for weight in model.weights:
        shape = weight.shape
        if weight.path.endswith(("moving_variance", "gamma")):
            weight.assign(rng.uniform(0.5, 1.5, shape))
        elif weight.path.endswith(("moving_mean", "beta", "bias")):
            weight.assign(0.1 * rng.standard_normal(shape))
    return model


def attention_block():
    x = keras.Input((None, 32))
    y = layers.LayerNormalization()(x)
    y = x + layers.MultiHeadAttention(4, 8)(y, y)
    z = layers.Dense(64, activation="gelu")(layers.LayerNormalization()(y))
    return varied(keras.Model(x, y + layers.Dense(32)(z)))


def transformer():
    """Causal, with padding masked."""
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(100, 32, mask_zero=True)(tokens)
    for _ in range(2):
        y = layers.MultiHeadAttention(4, 8)(x, x, use_causal_mask=True)
        x = layers.LayerNormalization()(x + y)
        y = layers.Dense(32)(layers.Dense(64, activation="gelu")(x))
        x = layers.LayerNormalization()(x + y)
    return varied(keras.Model(tokens, layers.Dense(100)(x)))


def images():
    model = keras.Sequential([
        keras.Input((None, None, 3)),
        layers.Conv2D(8, 3, padding="same", strides=2, activation="relu"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(),
        layers.DepthwiseConv2D(3, padding="same"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(5),
    ])  # fmt: skip
    return varied(model)


def recurrent():
    return keras.Sequential([keras.Input((5, 8)), layers.LSTM(16, unroll=True)])


MODELS = {
    "mobilenet_v2": application(keras.applications.MobileNetV2, 64, alpha=0.35),
    "resnet50": application(keras.applications.ResNet50, 32),
    "efficientnet_b0": application(keras.applications.EfficientNetB0, 32),
    "attention": (attention_block, lambda b: (b, b + 4, 32)),
    "transformer": (transformer, lambda b: (b, 2 * b + 1)),
    "images": (images, lambda b: (b, b + 13, 2 * b + 18, 3)),
    "unrolled_lstm": (recurrent, lambda b: (b, 5, 8)),
}


def inputs(name, shape, seed):
    rng = np.random.default_rng(seed)
    if name == "transformer":
        return rng.integers(0, 100, shape).astype(np.int32)
    return rng.standard_normal(shape, np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_as_keras(name):
    keras.utils.set_random_seed(0)
    build, shape = MODELS[name]
    model = build()
    run = shlo_disc.tensorflow.compile(model)
    for batch in (2, 1, 5):
        x = inputs(name, shape(batch), batch)
        got, want = run(x).numpy(), model(x, training=False).numpy()
        assert got.shape == want.shape
        assert want.std() > 1e-3  # there is something to be wrong
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_attention_is_one_kernel():
    run = shlo_disc.tensorflow.compile(transformer())
    assert run.explain().count(" attention ") == 2


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_narrow_floats(policy):
    keras.utils.set_random_seed(0)
    with_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = attention_block()
    finally:
        keras.config.set_dtype_policy(with_policy)
    run = shlo_disc.tensorflow.compile(model)
    for batch in (2, 1):
        x = tf.cast(inputs("attention", (batch, 5, 32), batch), model.inputs[0].dtype)
        got, want = run(x), model(x, training=False)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(
            got.numpy().astype(float), want.numpy().astype(float), rtol=5e-2, atol=5e-2
        )


def test_random_layers_do_nothing():
    """As with `training=False`: dropout, noise and random images are refused nowhere."""
    model = keras.Sequential([
        keras.Input((None, None, 3)),
        layers.RandomFlip(),
        layers.GaussianNoise(0.5),
        layers.Conv2D(4, 3),
        layers.Dropout(0.5),
        layers.SpatialDropout2D(0.5),
    ])  # fmt: skip
    x = inputs("images", (2, 6, 7, 3), 0)
    run = shlo_disc.tensorflow.compile(model)
    np.testing.assert_allclose(run(x), model(x, training=False), rtol=1e-4, atol=1e-5)


def test_in_predict():
    model = images()
    run = shlo_disc.tensorflow.compile(model)

    class Fast(keras.Model):
        def call(self, x):
            return run(x)

    x = inputs("images", (7, 20, 22, 3), 0)
    got = Fast().predict(x, batch_size=3, verbose=0)  # batches of 3, 3 and 1
    np.testing.assert_allclose(got, model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)


def test_in_a_functional_model():
    model = attention_block()
    run = shlo_disc.tensorflow.compile(model)
    x = keras.Input((None, 32))
    whole = keras.Model(x, layers.Lambda(run)(x) * 2.0)
    given = inputs("attention", (3, 4, 32), 1)
    np.testing.assert_allclose(
        whole.predict(given, verbose=0), 2 * model(given).numpy(), rtol=1e-4, atol=1e-5
    )


def test_several_inputs_and_results():
    a, b = keras.Input((4,), name="a"), keras.Input((6,), name="b")
    model = keras.Model({"a": a, "b": b}, [layers.Dense(3)(a), layers.Dense(2)(b)])
    run = shlo_disc.tensorflow.compile(model)
    given = {"a": inputs("a", (3, 4), 0), "b": inputs("b", (3, 6), 1)}
    for got, want in zip(run(given), model(given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def of_tokens(*then):
    tokens = x = keras.Input((None,), dtype="int32")
    x = layers.Embedding(20, 8, mask_zero=True)(x)
    for layer in then:
        x = layer(x)
    return keras.Model(tokens, x)


def of_sequences(*then, shape=(None, 8)):
    return keras.Sequential([keras.Input(shape), *then])


RECURRENT = {
    "lstm": lambda: of_sequences(layers.LSTM(4)),
    "all_steps": lambda: of_sequences(layers.LSTM(4, return_sequences=True)),
    "known_length": lambda: of_sequences(layers.LSTM(4), shape=(5, 8)),
    "states": lambda: of_sequences(layers.LSTM(4, return_sequences=True, return_state=True)),
    "gru": lambda: of_sequences(layers.GRU(4)),
    "gru_of_1406": lambda: of_sequences(layers.GRU(4, reset_after=False, return_state=True)),
    "two": lambda: of_sequences(layers.LSTM(4, return_sequences=True), layers.GRU(3)),
    "both_ways": lambda: of_sequences(layers.Bidirectional(layers.LSTM(4, return_sequences=True))),
    "backwards": lambda: of_sequences(layers.SimpleRNN(4, go_backwards=True)),
    "cells": lambda: of_sequences(layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)])),
    "images": lambda: of_sequences(layers.ConvLSTM1D(3, 3, padding="same"), shape=(None, 6, 3)),
    "masked": lambda: of_tokens(layers.LSTM(4, return_sequences=True)),
    "masked_both_ways": lambda: of_tokens(layers.Bidirectional(layers.GRU(4)), layers.Dense(2)),
    "zeros_where_masked": lambda: of_tokens(
        layers.Bidirectional(layers.LSTM(4, return_sequences=True)), layers.LSTM(3)
    ),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name):
    keras.utils.set_random_seed(1)
    model = varied(RECURRENT[name]())
    run = shlo_disc.tensorflow.compile(model)
    rng = np.random.default_rng(0)
    (given,) = model.inputs
    for batch, length in ((2, 7), (1, 1), (5, 3), (3, 13)):
        sizes = iter((batch, length))
        shape = [next(sizes) if n is None else n for n in given.shape]
        x = rng.standard_normal(shape, np.float32)
        if given.dtype == "int32":
            x = rng.integers(0, 3, shape).astype(np.int32)  # a third is masked, in any place
        want = tf.nest.flatten(model(x, training=False))
        for a, b in zip(tf.nest.flatten(run(x)), want, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_model_that_has_not_been_built():
    with pytest.raises(TypeError, match="has not been built"):
        shlo_disc.tensorflow.compile(keras.Sequential([layers.Dense(3)]))
