"""Gradients of loops, whose lists grow and shrink: one compilation, right at every size."""

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras", reason="needs the extra `tensorflow`: make test-tensorflow")

import shlo_disc.tensorflow  # noqa: E402
from shlo_disc.base.errors import UnsupportedError  # noqa: E402

layers = keras.layers
W = tf.Variable(0.3 * np.random.default_rng(0).standard_normal((4, 4), np.float32))


def array(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, np.float32))


def same(got, want, tolerance=1e-4):
    tf.nest.assert_same_structure(got, want, expand_composites=True)
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
        a, b = (tf.convert_to_tensor(each) for each in (a, b))
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        scale = max(1e-2, np.abs(b.numpy()).max(initial=0))
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance * scale)


def gradients(function, *more):
    """The function and its gradients with respect to its argument, and to `more`."""

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, [x, *more])

    return both


def counted(x):
    """A known number of steps; reads a variable."""
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(a @ W)), (0, x))[1]


def rows(x):
    """A step for each row, whose index is data."""
    return tf.while_loop(
        lambda i, a: i < tf.shape(x)[0], lambda i, a: (i + 1, tf.tanh(a) + x[i]), (0, tf.zeros(4))
    )[1]


def early(x):
    """Ends by data, after at most as many steps as there are rows."""
    return tf.while_loop(
        lambda i, a: (i < tf.shape(x)[0]) & (tf.reduce_sum(a) < 4.0),
        lambda i, a: (i + 1, a * 1.5 + tf.abs(x[i]) * a),
        (0, tf.ones(4)),
    )[1]


def by_data(x):
    """Ends by data alone, within a number of iterations that is stated."""
    return tf.while_loop(
        lambda a: tf.reduce_sum(a) < 50.0, lambda a: (a * a + 1.0,), (x,), maximum_iterations=5
    )[0]


SIZES = (3, 1, 7)


@pytest.mark.parametrize(
    ("functions", "more"),
    [
        ((counted,), [W]),
        ((rows, early, by_data), []),
        ((lambda x: tf.scan(lambda a, r: tf.tanh(a + r), x),), []),
        ((lambda x: tf.map_fn(lambda r: tf.tanh(r) * tf.reduce_sum(r), x),), []),
    ],
    ids=["counted", "ends", "scan", "map"],
)
def test_gradients_of_loops(functions, more):
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def every(x):
        return [gradients(function, *more)(x) for function in functions]

    run = shlo_disc.tensorflow.compile(every)
    for seed, size in enumerate(SIZES):
        x = array(size, 4, seed=seed)
        same(run(x), every(x))


def test_a_loop_that_nothing_bounds():
    def model(x):
        return tf.while_loop(lambda a: tf.reduce_sum(a) < 9.0, lambda a: (a * a + 1.0,), (x,))[0]

    message = r"test_loops\.py:\d+: EmptyTensorList: a list that grows .* maximum_iterations"
    with pytest.raises(UnsupportedError, match=message):
        shlo_disc.tensorflow.compile(gradients(model), [tf.TensorSpec([None, 4])])


def test_a_loop_that_ends_by_data_before_it_begins():
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def model(x):
        total = tf.zeros([4])
        for i in tf.range(tf.shape(x)[0]):
            total += x[i]
            if tf.reduce_sum(total) > 3:
                break
        return total

    run = shlo_disc.tensorflow.compile(model)
    for size in (0, 1, 5, 40):
        x = tf.abs(array(size, 4, seed=size))
        same(run(x), model(x))


def recurrent(*then):
    given = keras.Input((None, 6))
    x = given
    for layer in then:
        x = layer(x)
    return keras.Model(given, layers.Dense(4)(x))


def classifier():
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(30, 6, mask_zero=True)(tokens)
    return keras.Model(tokens, layers.Dense(4)(layers.GRU(5)(x)))


MODELS = {
    "lstm": lambda: recurrent(layers.LSTM(8)),
    "gru": lambda: recurrent(layers.GRU(8, return_sequences=True), layers.GlobalMaxPooling1D()),
    "stacked": lambda: recurrent(
        layers.LSTM(5, return_sequences=True), layers.Bidirectional(layers.SimpleRNN(4))
    ),
    "masked": classifier,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training_steps_of_recurrent_layers(name):
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    (given,) = model.inputs

    @tf.function(
        input_signature=[
            tf.TensorSpec(given.shape, given.dtype),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=False))
        return loss, tape.gradient(loss, [weight.value for weight in model.trainable_variables])

    run = shlo_disc.tensorflow.compile(step)
    rng = np.random.default_rng(0)
    for batch, length in ((2, 7), (1, 1), (5, 3), (3, 13)):
        x = array(batch, length, 6, seed=length)
        if given.dtype == "int32":
            x = tf.constant(rng.integers(0, 30, (batch, length)).astype(np.int32))
        y = tf.constant(rng.integers(0, 4, batch).astype(np.int32))
        same(run(x, y), step(x, y))
