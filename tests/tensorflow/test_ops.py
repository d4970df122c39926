"""Every sample beside TensorFlow: one compilation, right at every size."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import shlo_disc.tensorflow
from shlo_disc.tensorflow.ops import JOINED, LEFT, OPS
from tests.tensorflow.samples import SAMPLES
from tests.tensorflow.survey_arrays import ARRAYS
from tests.tensorflow.survey_models import MODELS

SIZES = [(3, 5, 9, 4), (1, 1, 1, 1), (4, 7, 6, 3), (0, 2, 3, 5), (5, 1, 11, 2)]


def assert_same(got, want, tolerance):
    tf.nest.assert_same_structure(got, want)
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.is_floating:
            np.testing.assert_allclose(
                a.numpy().astype(float), b.numpy().astype(float), rtol=tolerance, atol=tolerance
            )
        else:
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", SAMPLES)
def test_as_tensorflow(name):
    sample = SAMPLES[name]
    run = shlo_disc.tensorflow.compile(sample.function, sample.specs())
    for seed, sizes in enumerate(SIZES):
        arguments = [tf.constant(a) for a in sample.values(sizes, seed)]
        assert_same(run(*arguments), sample.function(*arguments), sample.tolerance)


def used_ops():
    """The operations of TensorFlow in the samples."""
    found = set()
    for sample in [*SAMPLES.values(), *ARRAYS.values(), *MODELS.values()]:
        graph = tf.function(sample.function).get_concrete_function(*sample.specs()).graph
        definition = graph.as_graph_def()
        nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
        found |= {node.op for node in nodes}
    return found


def test_every_row_has_a_sample():
    made = {"SumTo"}  # of others, by us
    assert {*OPS, *LEFT, *JOINED} - used_ops() - made == set()


def test_the_documentation_has_every_operation():
    page = Path(__file__).parents[2] / "docs" / "from-tensorflow.md"
    _, told, _ = re.split("<!-- (?:end of )?operations -->", page.read_text())
    assert sorted(re.findall(r"`(\w+)`", told)) == sorted({*OPS, *LEFT} - {"SumTo"})


def test_a_shape_that_a_call_gives():
    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([2], tf.int32)])
    def model(x, shape):
        return tf.reshape(x, shape)

    run = shlo_disc.tensorflow.compile(model)
    x = tf.constant(np.arange(24, dtype=np.float32).reshape(3, 8))
    for shape in ([4, 6], [1, 24], [24, 1], [-1, 2], [6, -1], [-1, 24]):
        assert_same(run(x, tf.constant(shape)), model(x, tf.constant(shape)), 0)
    with pytest.raises(shlo_disc.ShapeMismatchError):
        run(x, tf.constant([5, 5]))
    for shape in ([-1, -1], [-2, -12], [5, -1], [-2, 4]):
        with pytest.raises(shlo_disc.ShapeMismatchError):
            run(x, tf.constant(shape))


EQUATIONS = (
    [f"ij,jk->{result}" for result in ("ki", "", "i", "j", "k", "ij", "jk", "kji")]
    + [f"ij,ji->{result}" for result in ("", "i", "ij", "ji")]
    + ["ij,kj->ik", "ij,kl->ljki", "ij,kl->il", "ij,kl->", "ij,ij->ji", "ij,ik->jk"]
    + ["...i,ij->...", "ij,...j->...", "...,...->...", "ij->j", "ij->", "ij->ji", "i...->..."]
)


def test_every_way_to_sum_products():
    """Labels of one operand alone, of both, and in any order; squares hide what is mixed up."""

    def model(*arrays):
        return {
            text: tf.einsum(text, *given)
            for text, given in zip(
                EQUATIONS, tf.nest.pack_sequence_as(structure, arrays), strict=True
            )
        }

    structure = [[0] * (1 + text.count(",")) for text in EQUATIONS]
    count = len(tf.nest.flatten(structure))
    run = shlo_disc.tensorflow.compile(model, [tf.TensorSpec([None, None])] * count)
    rng = np.random.default_rng(0)
    for i, j, k, n in ((3, 3, 3, 3), (2, 3, 4, 5), (1, 2, 1, 3), (2, 0, 3, 1)):
        sizes = {"i": [i], "j": [j], "k": [k], "l": [n]}
        arrays = []
        for text in EQUATIONS:
            for term in text.partition("->")[0].split(","):
                named = term.replace("...", "")
                dots = [n, k][: 2 - len(named)] if "..." in term else []
                at = term.index("...") if dots else 0
                given = [size for label in named[:at] for size in sizes[label]]
                given += dots + [size for label in named[at:] for size in sizes[label]]
                arrays.append(tf.constant(rng.standard_normal(given), tf.float32))
        assert_same(run(*arrays), model(*arrays), 1e-4)


def test_products_that_are_broadcast():
    """In `...` a size of 1, known or not, is broadcast; named sizes must be equal."""
    specs = [tf.TensorSpec([None, 1, None, None]), tf.TensorSpec([None, None, None])]

    def model(x, y):
        return tf.einsum("...ij,...jk->...ki", x, y), tf.einsum("i...,j...->ij...", y, y[:1])

    run = shlo_disc.tensorflow.compile(model, specs)
    for n, m, k in ((2, 3, 4), (1, 1, 1), (2, 1, 0), (0, 3, 2)):
        x, y = tf.ones((n, 1, 2, k)), tf.ones((m, k, 5))
        assert_same(run(x, y), model(x, y), 1e-5)
    with pytest.raises(shlo_disc.ShapeMismatchError):
        run(tf.ones((2, 1, 2, 1)), tf.ones((2, 3, 5)))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_means_of_integers(dtype):
    """The sums have 64 bits, quotients are those towards 0, and the mean of nothing is 0."""

    def model(x):
        return tf.reduce_mean(x), tf.reduce_mean(x, 0), tf.reduce_mean(x, [-1], keepdims=True)

    run = shlo_disc.tensorflow.compile(model, [tf.TensorSpec([None, None], dtype)])
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    for shape in ((30, 20), (1, 1), (0, 3), (3, 0)):
        for low, high in ((info.max // 2, info.max), (info.min, 3)):
            x = rng.integers(low, high, shape, dtype) // (1 if dtype != "int64" else 1000)
            assert_same(run(tf.constant(x)), model(tf.constant(x)), 0)


def test_sizes_and_indices_that_are_negative_in_a_call():
    """In three sizes, where a condition computes them, in slices and in splits."""

    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([3], tf.int64)])
    def model(x, shape):
        n = tf.cast(shape[0], tf.int32)
        known = tf.where([True, False], -1, tf.shape(x)[1:] * [1, 1])
        return (
            tf.reshape(x, shape),
            tf.reshape(x, [tf.where(n > 1, -1, 6), 4]),
            tf.reshape(x[:, :, None], tf.concat([known[:1], [2], tf.shape(x)[1:] // 2], 0)),
            tf.slice(x, [1, 0], [n, -1]),
            tf.split(x, tf.stack([1, tf.where(n > 0, 2, n)]), num=2)[1],
            x[n:],
        )

    run = shlo_disc.tensorflow.compile(model)
    x = tf.constant(np.arange(24, dtype=np.float32).reshape(3, 8))
    for shape in ([-1, 4, 2], [2, -1, 4], [2, 3, -1], [1, 1, 24], [2, 3, 4]):
        given = tf.constant(shape, tf.int64)
        assert_same(run(x, given), model(x, given), 0)
    for shape in ([-1, -1, 8], [-1, -1, -1], [2, 5, -1], [-2, -3, 4]):
        with pytest.raises(shlo_disc.ShapeMismatchError):
            run(x, tf.constant(shape, tf.int64))


def test_the_size_that_fits_beside_a_size_of_0():
    """TensorFlow chooses it of the other sizes of the array: of numbers, sizes and a call's."""
    three = tf.TensorSpec([None, None, 5])

    @tf.function(input_signature=[three, tf.TensorSpec([3], tf.int32), tf.TensorSpec([0, 6])])
    def model(x, shape, none):
        n, m, _ = tf.unstack(tf.shape(x))
        return (
            tf.reshape(x, shape),
            tf.reshape(x, [-1, n * m]),
            tf.reshape(x, [n, -1]),
            tf.reshape(x, [-1, n // 2, 2]),
            tf.reshape(x[:0], [-1, 0]),
            tf.reshape(x[:0], [2, 0, -1]),
            tf.reshape(none, [0, -1, 4]),
        )

    run = shlo_disc.tensorflow.compile(model)
    none = tf.zeros((0, 6))
    for sizes, shape in (
        ((0, 4), [-1, 0, 3]),
        ((0, 4), [2, -1, 0]),
        ((0, 4), [0, 7, -1]),
        ((0, 4), [-1, 5, 4]),
        ((4, 0), [0, -1, 0]),
        ((2, 3), [2, -1, 5]),
    ):
        x, given = tf.zeros((*sizes, 5)), tf.constant(shape)
        assert_same(run(x, given, none), model(x, given, none), 0)
    for shape in ([-1, 0, 5], [0, 0, -1], [0, -1, -1]):
        with pytest.raises(shlo_disc.ShapeMismatchError):
            run(tf.zeros((2, 3, 5)), tf.constant(shape), none)
    with pytest.raises(shlo_disc.ShapeMismatchError, match="-1 beside a size of 0"):
        run(tf.zeros((0, 0, 5)), tf.constant([0, 0, 0]), none)


@pytest.mark.parametrize(
    "sizes", [lambda s: [s[0]], tf.unstack, lambda s: tf.split(s, 3), lambda s: [s[::-1][2:]]]
)
def test_sizes_stay_sizes(sizes):
    """However a function takes them of a shape; so -1 beside them is a product of others."""

    def model(x):
        rows, *_ = sizes(tf.shape(x))
        return tf.reshape(x, [tf.reshape(rows, []), -1])

    run = shlo_disc.tensorflow.compile(model, [tf.TensorSpec([None, None, 5], name="x")])
    assert str(run.signature).endswith("-> (float32[x_0, 5*x_1])")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: tf.split(x, 2),
        lambda x, n: tf.split(x, [1, 3]),
        lambda x, n: tf.split(x, tf.stack([1, n]), num=2),
        lambda x, n: tf.ensure_shape(x, [4, 8]),
    ],
)
def test_parts_that_do_not_fit(function):
    """Every call checks that the parts make up the dimension, as TensorFlow does."""
    specs = [tf.TensorSpec([None, 8]), tf.TensorSpec([], tf.int32)]
    run = shlo_disc.tensorflow.compile(function, specs)
    x = tf.reshape(tf.range(40.0), [5, 8])
    assert_same(run(x[:4], tf.constant(3)), function(x[:4], tf.constant(3)), 0)
    for rows, n in ((5, 3), (1, 3)):
        with pytest.raises(shlo_disc.ShapeMismatchError):
            run(x[:rows], tf.constant(n))


def test_an_entry_that_is_not_there():
    run = shlo_disc.tensorflow.compile(lambda x: x[2], [tf.TensorSpec([None, 4])])
    assert_same(run(tf.ones((3, 4))), tf.ones(4), 0)
    with pytest.raises(shlo_disc.ShapeMismatchError, match="has no entry 2"):
        run(tf.ones((2, 4)))


def test_a_label_that_is_no_class():
    """The rows of others have their loss; TensorFlow's kernel for CPUs raises an error instead."""
    run = shlo_disc.tensorflow.compile(
        lambda i, x: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=i),
        [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 5])],
    )
    x = np.random.default_rng(0).standard_normal((4, 5), np.float32)
    loss, gradient = run(tf.constant([1, -1, 5, 4]), x)
    want, wanted = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=x[::3], labels=[1, 4])
    np.testing.assert_allclose(loss.numpy()[::3], want, rtol=1e-5)
    np.testing.assert_allclose(gradient.numpy()[::3], wanted, rtol=1e-5, atol=1e-6)
    assert np.isnan(loss.numpy()[1:3]).all()
    assert np.isnan(gradient.numpy()[1:3]).all()


def test_elements_of_another_size():
    """A list is an array, so an error names an element of another size, in a loop and outside."""

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([], tf.int32)])
    def model(x, cut):
        found = tf.TensorArray(tf.float32, 3, element_shape=[None], infer_shape=False)
        for i in tf.range(2):
            found = found.write(i, x[i * cut :])
        return found.write(2, x[: tf.size(x) - cut]).read(1)

    run = shlo_disc.tensorflow.compile(model)
    x = tf.range(4.0)
    assert_same(run(x, tf.constant(0)), model(x, tf.constant(0)), 0)
    with pytest.raises(shlo_disc.ShapeMismatchError, match="elements of the list have"):
        run(x, tf.constant(1))


def test_a_map_of_nothing():
    """The sizes of the elements are known though no element is computed."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def mapped(x):
        return tf.map_fn(lambda row: tf.tanh(row) @ tf.ones((8, 3)), x)

    run = shlo_disc.tensorflow.compile(mapped)
    assert run(tf.zeros((0, 5, 8))).shape == (0, 5, 3)
    x = tf.constant(np.random.default_rng(0).standard_normal((2, 5, 8), np.float32))
    assert_same(run(x), mapped(x), 1e-5)


def test_linear_systems_of_every_size():
    """Matrices of no and one row, gradients, and singular ones, for which TensorFlow raises."""

    @tf.function(input_signature=[tf.TensorSpec([None] * 3, tf.float64)] * 2)
    def model(a, b):
        with tf.GradientTape() as tape:
            tape.watch((a, b))
            y = tf.linalg.solve(a, b), tf.linalg.inv(a), tf.linalg.det(a), tf.linalg.slogdet(a)
            z = tf.add_n([tf.reduce_sum(v) for v in (*y[:3], y[3][1])])
        return y, tape.gradient(z, (a, b))

    run = shlo_disc.tensorflow.compile(model)
    rng = np.random.default_rng(0)
    for batch, n, m in ((2, 3, 4), (3, 1, 1), (0, 3, 2), (2, 7, 1), (1, 4, 0), (2, 0, 3)):
        a, b = (tf.constant(rng.standard_normal((batch, n, k))) for k in (n, m))
        assert_same(run(a, b), model(a, b), 1e-9)
    for a in (tf.zeros([1, 3, 3], tf.float64), tf.ones([1, 3, 3], tf.float64)):
        (solved, inverse, determinant, (sign, logarithm)), _ = run(a, a)
        assert not np.isfinite(solved).any()
        assert not np.isfinite(inverse).any()
        assert (determinant, sign, logarithm) == (0, 0, -np.inf)
    for shapes in (((2, 3, 4), (2, 3, 1)), ((2, 3, 3), (2, 4, 1)), ((2, 3, 3), (3, 3, 1))):
        with pytest.raises(shlo_disc.ShapeMismatchError):
            run(*(tf.ones(shape, tf.float64) for shape in shapes))


def test_matrices_of_complex_numbers_are_refused():
    spec = tf.TensorSpec([None, 3, 3], tf.complex64)
    with pytest.raises(shlo_disc.UnsupportedError, match="float32 and float64 compile"):
        shlo_disc.tensorflow.compile(tf.linalg.inv, [spec])
