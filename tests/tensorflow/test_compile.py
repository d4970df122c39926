"""`shlo_disc.tensorflow.compile`: what it takes, and how its result is called."""

import gc
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import shlo_disc.tensorflow
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError, UnsupportedError
from shlo_disc.tensorflow import convert


def weight(*shape, seed=0):
    return tf.Variable(np.random.default_rng(seed).standard_normal(shape, np.float32))


def array(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def same(got, want, rtol=1e-5, atol=1e-6):
    """Both structures have the same tensors."""
    tf.nest.assert_same_structure(got, want)
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
        if b is None:
            assert a is None
            continue
        assert isinstance(a, tf.Tensor)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=atol)


def test_structures_and_keywords():
    w = weight(8, 64)

    @tf.function
    def model(x, *, scale, nothing=None):
        return {"a": tf.nn.relu(x["k"] @ w) * scale, "none": nothing, "pair": (x["k"], x["b"][0])}

    spec = {"k": tf.TensorSpec([None, 8]), "b": [tf.TensorSpec([], tf.int32)]}
    concrete = model.get_concrete_function(spec, scale=tf.TensorSpec([]))
    run = shlo_disc.tensorflow.compile(concrete)
    for rows in (3, 1, 0, 7):
        x = {"k": tf.constant(array(rows, 8)), "b": [tf.constant(rows)]}
        scale = tf.constant(2.5)
        same(run(x, scale=scale), model(x, scale=scale))
        same(run(x=x, scale=2.5), model(x, scale=scale))


class Saved(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = weight(8, 64)

    # By name the arguments come in another order than the function has them.
    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="z"), tf.TensorSpec([None, 64])])
    def call(self, z, a):
        return {"sum": z @ self.w + a, "first": a[:, 0], "double": 2 * z}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def count(self, x):
        return tf.reduce_sum(x)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    module = Saved()
    tf.saved_model.save(
        module, folder, signatures={"serving_default": module.call, "count": module.count}
    )
    return folder, module


def test_a_saved_model(saved):
    folder, module = saved
    run = shlo_disc.tensorflow.compile(str(folder))
    for rows in (3, 1, 0):
        z, a = tf.constant(array(rows, 8)), tf.constant(array(rows, 64, seed=2))
        same(run(z=z, a=a), module.call(z, a))
        same(run(a=a, z=z), module.call(z, a))
    count = shlo_disc.tensorflow.compile(folder, "count")
    assert count(x=tf.constant([3, 4])) == {"output_0": 7}


def test_what_is_no_saved_model(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no saved_model\.pb"):
        shlo_disc.tensorflow.compile(tmp_path)
    with pytest.raises(KeyError, match="no signature 'other'; signatures: count, serving_default"):
        shlo_disc.tensorflow.compile(saved[0], "other")
    with pytest.raises(TypeError, match="is a name"):
        shlo_disc.tensorflow.compile(saved[0], [tf.TensorSpec([None])])


@pytest.mark.parametrize(
    ("file", "size"),
    [
        ("saved_model.pb", 700),
        ("saved_model.pb", 0),
        ("variables/variables.index", 10),
        ("variables/variables.data-00000-of-00001", 100),
        ("variables/variables.index", None),
    ],
)
def test_a_damaged_saved_model(saved, tmp_path, file, size):
    """A file of it is cut or missing: one error, which names the folder."""
    folder = tmp_path / "damaged"
    shutil.copytree(saved[0], folder)
    if size is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes((folder / file).read_bytes()[:size])
    with pytest.raises(InvalidModuleError, match=f"cannot load {folder}: ."):
        shlo_disc.tensorflow.compile(folder)


def test_files_that_are_no_folder(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"PK")
    with pytest.raises(TypeError, match=r"is a file of Keras; pass keras\.models\.load_model"):
        shlo_disc.tensorflow.compile(tmp_path / "model.keras")
    (tmp_path / "saved_model.pb").mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no saved_model\.pb"):
        shlo_disc.tensorflow.compile(tmp_path)


def test_variables_are_frozen():
    w = weight(8, 64)
    run = shlo_disc.tensorflow.compile(lambda x: x @ w, [tf.TensorSpec([None, 8])])
    x = tf.constant(array(3, 8))
    want = x @ w
    w.assign(tf.zeros((8, 64)))
    same(run(x), want)


def test_numpy_arrays_numbers_and_variables():
    run = shlo_disc.tensorflow.compile(
        lambda x, k: x * k, [tf.TensorSpec([None, 8]), tf.TensorSpec([])]
    )
    x = array(8, 3)
    want = tf.constant(2 * x.T)
    same(run(x.T, 2.0), want)  # not dense
    same(run(tf.Variable(x.T), np.float32(2)), want)
    same(run(x=tf.constant(x.T), k=2.0), want)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_narrow_floats_in_and_out(dtype):
    """As tensors without a copy, and as NumPy arrays; variables too."""
    w = tf.Variable(tf.cast(weight(8, 100), dtype))
    run = shlo_disc.tensorflow.compile(lambda x: x @ w, [tf.TensorSpec([None, 8], dtype)])
    for rows in (0, 1, 5):
        x = tf.cast(array(rows, 8), dtype)
        got, want = run(x), x @ w
        assert got.dtype == dtype
        exact = x.numpy().astype(float) @ w.numpy().astype(float)
        for found in (got, run(x.numpy())):
            np.testing.assert_allclose(found.numpy().astype(float), exact, rtol=1e-2, atol=2e-2)
        assert want.shape == got.shape
    assert not run.executable.copies.calls
    with pytest.raises(TypeError, match="elements of type float32, not"):
        run(tf.ones((2, 8)))


def test_bfloat16_beside_float64_is_refused():
    with pytest.raises(UnsupportedError, match="both bfloat16 and float64"):
        shlo_disc.tensorflow.compile(
            lambda x: tf.cast(x, tf.float64) + 1, [tf.TensorSpec([None], tf.bfloat16)]
        )


def test_no_element_is_copied():
    run = shlo_disc.tensorflow.compile(lambda x: x + 1, [tf.TensorSpec([None, 1000])])
    x = tf.constant(array(1000, 1000))
    before = shlo_disc.stats()["pool"]["in_use_bytes"]
    y = run(x)
    assert not run.executable.copies.calls
    assert shlo_disc.stats()["pool"]["in_use_bytes"] - before >= 4_000_000  # y is a block of ours
    view = np.from_dlpack(y)
    assert view.ctypes.data % 64 == 0
    same(y, x + 1)
    del y, view
    gc.collect()
    assert shlo_disc.stats()["pool"]["in_use_bytes"] == before


def test_weights_are_packed_once():
    w = weight(256, 512)
    run = shlo_disc.tensorflow.compile(lambda x: x @ w, [tf.TensorSpec([None, 256])])
    x = tf.constant(array(64, 256))
    run(x)
    run(x)
    filled = shlo_disc.stats()["packs"]["filled"]
    run(x)
    assert shlo_disc.stats()["packs"]["filled"] == filled
    assert run.explain().count("copies kept packed beside") == 1


def test_in_a_function():
    run = shlo_disc.tensorflow.compile(
        lambda x, y: (x + y, tf.reduce_sum(x)), [tf.TensorSpec([None, 8])] * 2
    )

    @tf.function
    def outer(x):
        total, single = run(x, 2 * x)
        assert total.shape[1] == 8
        return total * single

    for rows in (2, 5):
        x = tf.constant(array(rows, 8))
        same(outer(x), 3 * x * tf.reduce_sum(x), rtol=1e-4, atol=1e-5)


def test_threads():
    w = weight(64, 64)
    run = shlo_disc.tensorflow.compile(lambda x: tf.tanh(x @ w), [tf.TensorSpec([None, 64])])
    given = [tf.constant(array(rows, 64, seed=rows)) for rows in range(1, 17)]
    with ThreadPoolExecutor(8) as pool:
        for x, got in zip(given, pool.map(run, given), strict=True):
            same(got, tf.tanh(x @ w), rtol=1e-4, atol=1e-5)


def test_constraints_and_likely_sizes():
    run = shlo_disc.tensorflow.compile(
        lambda x: x @ tf.transpose(x),
        [tf.TensorSpec([None, 64])],
        constraints="x_0 >= 2",
        likely={"x_0": 16},
    )
    x = tf.constant(array(16, 64))
    same(run(x), x @ tf.transpose(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeMismatchError, match="x_0 >= 2"):
        run(tf.constant(array(1, 64)))
    with pytest.raises(ValueError, match="likely names batch"):
        shlo_disc.tensorflow.compile(lambda x: x + 1, [tf.TensorSpec([None])], likely={"batch": 4})


def test_lines_of_the_model():
    def model(x):
        return tf.nn.softmax(x @ tf.ones((8, 8)))

    run = shlo_disc.tensorflow.compile(model, [tf.TensorSpec([None, 8])])
    line = model.__code__.co_firstlineno + 1
    assert f"test_compile.py:{line}" in run.explain()


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda: [tf.ones((2, 8), tf.float64)], "float64"),
        (lambda: [tf.ones((2, 9))], "9"),
        (lambda: [tf.ones((2, 8, 1))], "rank|dimensions"),
        (lambda: ["text"], "must be a tensor, got str"),
        (lambda: [tf.constant(["text"])], "text|string"),
        (list, "missing a required argument: 'x'"),
        (lambda: [tf.ones((2, 8)), tf.ones(3)], "too many positional arguments"),
    ],
)
def test_a_wrong_argument(arguments, message):
    run = shlo_disc.tensorflow.compile(lambda x: x + 1, [tf.TensorSpec([None, 8])])
    given = arguments()
    with pytest.raises((TypeError, ShapeMismatchError), match=message):
        run(*given)
    same(run(tf.ones((2, 8))), tf.fill((2, 8), 2.0))


def test_another_structure():
    run = shlo_disc.tensorflow.compile(
        tf.function(lambda x: x["a"] + 1).get_concrete_function({"a": tf.TensorSpec([None])})
    )
    same(run({"a": tf.ones(3)}), tf.fill((3,), 2.0))
    with pytest.raises(TypeError, match="x has another structure than the signature"):
        run({"b": tf.ones(3)})


@pytest.mark.parametrize(
    ("source", "signature", "message"),
    [
        (3, None, "expected a folder, a Keras model or a function, got int"),
        (lambda x: x, None, "states no signature"),
        (lambda x: x, tf.TensorSpec([None]), "is a list of its arguments, .* not TensorSpec"),
        (lambda x: x, {"x": tf.TensorSpec([None])}, "is a list of its arguments, .* not dict"),
        (lambda x: x, "serving_default", "the name of a signature is for a SavedModel"),
    ],
)
def test_a_wrong_source(source, signature, message):
    with pytest.raises(TypeError, match=message):
        shlo_disc.tensorflow.compile(source, signature)


@pytest.mark.parametrize(
    ("function", "spec", "message"),
    [
        (tf.strings.length, tf.TensorSpec([None], tf.string), "type string"),
        (lambda x: x + 1, tf.TensorSpec(None), "has no rank"),
        (lambda x: x + 1, tf.RaggedTensorSpec([None, None]), "RaggedTensorSpec is no array"),
        (
            lambda x: tf.random.normal(tf.shape(x)),
            tf.TensorSpec([None]),
            "RandomStandardNormal is random",
        ),
        (
            lambda x: tf.random.stateless_uniform(tf.shape(x), [1, 2]),
            tf.TensorSpec([None]),
            "is random",
        ),
        (
            lambda x: tf.TensorArray(tf.float32, 0, dynamic_size=True).write(1, x).stack(),
            tf.TensorSpec([None]),
            "the list grows; give the TensorArray its size",
        ),
        (
            lambda x: tf.TensorArray(tf.float32, 2).split(x, [1, 1]).stack(),
            tf.TensorSpec([2]),
            "TensorListSplit of a list of tensors.*use TensorArray.unstack",
        ),
        (
            lambda x: tf.cond(tf.size(x) > 3, lambda: x, lambda: tf.reduce_sum(x)),
            tf.TensorSpec([None]),
            r"test_compile.py:\d+: .*If gives a result whose rank is not known",
        ),
        (
            lambda x: tf.gradients(tf.cond(x[0] > 0, lambda: tf.sin(x) * x, lambda: x), x),
            tf.TensorSpec([None]),
            "Optional.*gradient of tf.cond.*by tf.where",
        ),
        (
            lambda x: tf.image.non_max_suppression(x, x[:, 0], 5),
            tf.TensorSpec([None, 4]),
            r"test_compile.py:\d+: NonMaxSuppressionV3.*use tf.image.non_max_suppression_padded",
        ),
        (
            lambda x: tf.image.combined_non_max_suppression(x[:, :, None], x[:, :, :1], 5, 5),
            tf.TensorSpec([None, None, 4]),
            "CombinedNonMaxSuppression.*use tf.image.non_max_suppression_padded",
        ),
        (
            lambda x: tf.data.Dataset.from_tensor_slices(x).reduce(0.0, lambda a, b: a + b),
            tf.TensorSpec([None]),
            "TensorSliceDataset of a variant",
        ),
        (tf.linalg.eigvalsh, tf.TensorSpec([None, None]), "SelfAdjointEigV2"),
        (lambda x: tf.py_function(abs, [x], tf.float32), tf.TensorSpec([None]), "EagerPyFunc|rank"),
    ],
)
def test_what_is_not_covered(function, spec, message):
    with pytest.raises(UnsupportedError, match=message):
        shlo_disc.tensorflow.compile(function, [spec])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: tf.random.normal(tf.shape(x)), "each call takes its numbers"),
        (lambda x: tf.random.uniform([4], 0, 9, tf.int32), "each call takes its numbers"),
        (tf.random.shuffle, "each call takes its numbers"),
        (lambda x: tf.nn.dropout(x, 0.5), "each call takes its numbers"),
        (lambda x: tf.random.stateless_uniform([4], [1, 2]), "gives it other numbers"),
        (
            lambda x: tf.random.stateless_uniform(tf.shape(x), [1, 2], 0, 9, tf.int64),
            "gives it other numbers",
        ),
        (lambda x: tf.random.stateless_truncated_normal([4], [1, 2]), "gives it other numbers"),
        (
            lambda x: tf.cond(tf.size(x) > 3, lambda: x, lambda: x + tf.random.normal([])),
            "each call takes its numbers",
        ),
    ],
)
def test_random_numbers_are_refused(function, message):
    with pytest.raises(UnsupportedError, match=f"is random: .*{message}"):
        shlo_disc.tensorflow.compile(function, [tf.TensorSpec([None])])


def test_dropout_of_nothing_is_compiled():
    run = shlo_disc.tensorflow.compile(lambda x: tf.nn.dropout(x, 0.0), [tf.TensorSpec([None])])
    same(run(tf.ones(3)), tf.ones(3))


def test_an_abort_of_the_converter_is_an_error(monkeypatch, tmp_path):
    """The process goes on. The child is TensorFlow's, made to abort by what it is given."""
    real = convert._CHILD.read_text()
    child = tmp_path / "child.py"
    child.write_text(real.replace("converted = converter.", "import os; os.abort(); converter."))
    assert child.read_text() != real
    monkeypatch.setattr(convert, "_CHILD", child)
    with pytest.raises(UnsupportedError, match="converter to StableHLO ended with SIGABRT"):
        shlo_disc.tensorflow.compile(lambda x: x + 1, [tf.TensorSpec([None])])
    monkeypatch.undo()
    run = shlo_disc.tensorflow.compile(lambda x: x + 1, [tf.TensorSpec([None])])
    same(run(tf.ones(3)), tf.fill((3,), 2.0))


def test_a_converter_that_does_not_end(monkeypatch):
    monkeypatch.setattr(convert, "SECONDS", 0.01)
    with pytest.raises(UnsupportedError, match="did not end"):
        shlo_disc.tensorflow.compile(lambda x: x + 1, [tf.TensorSpec([None])])
