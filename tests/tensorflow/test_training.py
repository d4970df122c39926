"""Losses and gradients of Keras models as functions: one compilation, right at every size."""

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras", reason="needs the extra `tensorflow`: make test-tensorflow")

import shlo_disc.tensorflow  # noqa: E402
from shlo_disc.base.errors import UnsupportedError  # noqa: E402

layers = keras.layers
SIZES = [(2, 7), (1, 1), (5, 3), (3, 13), (7, 16)]


def dense():
    return keras.Sequential([
        keras.Input((8,)),
        layers.Dense(16, activation="gelu"),
        layers.LayerNormalization(),
        layers.Dense(4),
    ])  # fmt: skip


def language():
    """Gradients of the embedding are IndexedSlices."""
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(50, 16)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, "relu")(x)))
    return keras.Model(tokens, layers.Dense(4)(x))


def images(*first):
    return keras.Sequential([
        keras.Input((None, None, 4)), *first, layers.GlobalAveragePooling2D(), layers.Dense(4)
    ])  # fmt: skip


MODELS = {
    "dense": (dense, lambda b, s: (b, 8)),
    "language": (language, lambda b, s: (b, s)),
    "convolutions": (
        lambda: images(
            layers.Conv2D(8, 3, padding="same", strides=2),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, activation="relu"),
        ),
        lambda b, s: (b, s + 12, s + 14, 4),
    ),
    "depthwise": (
        lambda: images(
            layers.DepthwiseConv2D(3, padding="same"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Conv2DTranspose(3, 2, strides=2),
        ),
        lambda b, s: (b, s + 2, s + 4, 4),
    ),
    "padded_pool": (
        lambda: images(layers.Conv2D(8, 3), layers.MaxPooling2D(2, padding="same")),
        lambda b, s: (b, s + 4, s + 5, 4),
    ),
}


def step_of(model):
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    (given,) = model.inputs
    labels = tf.TensorSpec(model.outputs[0].shape[:-1], tf.int32)

    @tf.function(input_signature=[tf.TensorSpec(given.shape, given.dtype), labels])
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=False))
        weights = [weight.value for weight in model.trainable_variables]
        return loss, tape.gradient(loss, weights)

    return step


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name):
    keras.utils.set_random_seed(0)
    build, shape = MODELS[name]
    model = build()
    step = step_of(model)
    run = shlo_disc.tensorflow.compile(step)
    rng = np.random.default_rng(0)
    for batch, length in SIZES:
        full = shape(batch, length)
        x = rng.standard_normal(full, np.float32)
        if name == "language":
            x = rng.integers(0, 50, full).astype(np.int32)
        y = rng.integers(0, 4, full[: 2 if name == "language" else 1]).astype(np.int32)
        got, want = run(x, y), step(x, y)
        tf.nest.assert_same_structure(got, want, expand_composites=True)
        for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
            assert type(a) is type(b) or not isinstance(b, tf.IndexedSlices)
            a, b = (tf.convert_to_tensor(each).numpy() for each in (a, b))
            assert a.shape == b.shape
            scale = max(1e-2, np.abs(b).max())
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * scale)


def test_a_function_that_changes_a_variable():
    count = tf.Variable(0.0, name="count")

    def model(x):
        count.assign_add(1.0)
        return x + count

    message = r"test_training\.py:\d+: AssignAddVariableOp changes the variable count; "
    with pytest.raises(UnsupportedError, match=message):
        shlo_disc.tensorflow.compile(model, [tf.TensorSpec([None])])
    assert count.numpy() == 0
