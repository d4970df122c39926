"""Layers and lines of the model: in `explain()`, and in errors."""

import inspect
import re
import threading

import pytest
import tensorflow as tf

keras = pytest.importorskip("keras", reason="needs the extra `tensorflow`: make test-tensorflow")

import shlo_disc.tensorflow  # noqa: E402
from shlo_disc.base.errors import UnsupportedError  # noqa: E402

layers = keras.layers
X = [tf.TensorSpec([None, 8])]


def places(run):
    """What `explain()` says of each kernel: where it comes from, first."""
    return [kernel["where"] for kernel in run.executable.describe()["kernels"]]


def line_of(function, text):
    """`test_places.py:12`, of the line of `function` that has this comment."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [k for k, line in enumerate(lines) if line.rstrip().endswith(f"# {text}")]
    return f"test_places.py:{first + found}"


def everything(run):
    return [place for kernel in places(run) for place in kernel]


def test_layers_of_keras():
    """`second` runs first. Scopes have other numbers than the layers: `dense_1_1`, `dense_2`."""
    x = keras.Input((None, 8))
    dense = [layers.Dense(8, name=name) for name in ("dense", "dense_1")]
    attention = layers.MultiHeadAttention(2, 4, name="attention")
    y = dense[0](dense[1](x))
    run = shlo_disc.tensorflow.compile(keras.Model(x, attention(y, y)))
    found = [re.sub(r"\.py:\d+", "", kernel[0]) for kernel in places(run)]
    assert found[:2] == ["layer dense_1 (MatMul): dense", "layer dense (MatMul): dense"]
    assert "layer attention/attention_output (Einsum): einsum_dense" in found
    assert any("layer attention/query (Einsum): einsum_dense.py:" in p for p in everything(run))
    assert "unknown location" not in run.explain()


class Gate(layers.Layer):
    def __init__(self):
        super().__init__(name="gate")
        self.dense = layers.Dense(8, name="inner")

    def call(self, x):
        y = self.dense(x)  # dense
        return y * tf.sigmoid(x)  # gate


def test_lines_of_own_layers():
    model = keras.Sequential([keras.Input((8,)), Gate()])
    found = " ".join(everything(shlo_disc.tensorflow.compile(model)))
    assert re.search(rf"layer gate/inner \(MatMul\): \S*{line_of(Gate, 'dense')}\b", found)
    assert re.search(rf"layer gate \(Sigmoid\): \S*{line_of(Gate, 'gate')}\b", found)


def test_a_model_inside_a_function():
    """Its name tells it from others."""
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8, name="dense")], name="encoder")

    def function(x):
        return tf.sort(model(x))  # all

    found = everything(shlo_disc.tensorflow.compile(function, X))
    line = line_of(function, "all")
    assert any(
        place.startswith("layer encoder/dense (MatMul): ") and place.endswith(line)
        for place in found
    )
    assert any(place.endswith(line) and not place.startswith("layer") for place in found)


def test_loops_branches_and_inner_functions():
    @tf.function
    def inner(x):
        return tf.matmul(x, x, transpose_b=True)  # inner

    def model(x):
        y = inner(x)
        for _ in tf.range(3):
            if tf.reduce_sum(y) > 0:  # branch
                y = tf.tanh(y)  # loop
        return y

    run = shlo_disc.tensorflow.compile(model, X)
    found = " ".join(everything(run))
    assert line_of(inner, "inner") in found
    assert line_of(model, "loop") in found
    assert line_of(model, "branch") in found
    assert "unknown location" not in run.explain()


def test_a_recurrent_layer():
    model = keras.Sequential([keras.Input((None, 8)), layers.LSTM(4, name="memory")])
    run = shlo_disc.tensorflow.compile(model)
    assert any("layer memory/lstm_cell (MatMul): lstm.py:" in place for place in everything(run))
    assert "unknown location" not in run.explain()


def test_a_saved_model_has_names_of_nodes(tmp_path):
    keras.Sequential([keras.Input((8,)), layers.Dense(8, name="dense")], name="model").export(
        tmp_path, verbose=False
    )
    run = shlo_disc.tensorflow.compile(tmp_path)
    assert all(re.fullmatch(r"node model_1/dense_1/\w+", place) for place in everything(run))


def test_other_threads_are_not_noted():
    """Only the thread that compiles is, and nothing is left behind."""
    from tensorflow.python.eager import context

    model = keras.Sequential([keras.Input((8,)), layers.Dense(8)])
    seen = []

    class Watched(layers.Layer):
        def call(self, x):
            thread = threading.Thread(target=lambda: seen.append(context.context().op_callbacks))
            thread.start()
            thread.join()
            return x + 1

    model = keras.Sequential([keras.Input((8,)), Watched()])
    shlo_disc.tensorflow.compile(model)
    assert not any(seen)
    assert not context.context().op_callbacks


def grows(x):
    return tf.TensorArray(tf.float32, 2).split(x, [1, 1]).stack()  # here


def refused_by_us(x):
    return tf.linalg.eigvalsh(tf.matmul(x, x, transpose_b=True))  # here


def refused_by_mlir(x):
    return tf.raw_ops.MatrixLogarithm(input=tf.cast(x, tf.complex64))  # here


def random_in_a_loop(x):
    for _ in tf.range(3):
        x += tf.random.normal([8])  # here
    return x


@pytest.mark.parametrize("function", [grows, refused_by_us, refused_by_mlir, random_in_a_loop])
def test_errors_name_the_line(function):
    spec = tf.TensorSpec([2] if function is grows else [None, 8])
    with pytest.raises(UnsupportedError, match=re.escape(line_of(function, "here"))):
        shlo_disc.tensorflow.compile(function, [spec])


def test_errors_name_the_layer():
    model = keras.Sequential([keras.Input((8,)), layers.Lambda(refused_by_us, name="last")])
    place = rf"layer last \(SelfAdjointEigV2\): \S*{line_of(refused_by_us, 'here')}"
    with pytest.raises(UnsupportedError, match=place):
        shlo_disc.tensorflow.compile(model)
