"""Models of TensorFlow as artifacts, which need no TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")
tf = pytest.importorskip("tensorflow")

import shlo_disc.tensorflow  # noqa: E402
import shlo_disc_runtime  # noqa: E402

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("weights", ["inside", "arguments"])
def test_a_model_runs_without_tensorflow(weights, tmp_path):
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((24,)),
        keras.layers.Dense(64, "gelu"),
        keras.layers.LayerNormalization(),
        keras.layers.Dense(5, "softmax"),
    ])  # fmt: skip
    compiled = shlo_disc.tensorflow.compile(model)
    compiled.save(tmp_path / "m.disc", weights=weights)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((n, 24)).astype("f4") for n in (1, 2, 17, 64, 301)]
    given = compiled._weight_arrays() if weights == "arguments" else {}
    np.savez(tmp_path / "x.npz", *inputs)
    np.savez(tmp_path / "w.npz", *[given[k] for k in sorted(given)])
    script = f"""
import sys
import numpy as np, shlo_disc_runtime
program = shlo_disc_runtime.load({str(tmp_path / "m.disc")!r})
weights = np.load({str(tmp_path / "w.npz")!r}).values()
out = [program(x, *weights)[0] for x in np.load({str(tmp_path / "x.npz")!r}).values()]
np.savez({str(tmp_path / "y.npz")!r}, *out)
assert not {{"jax", "tensorflow", "shlo_disc"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    tolerance = 1e-5 if weights == "inside" else 0
    for x, got in zip(inputs, np.load(tmp_path / "y.npz").values(), strict=True):
        want = compiled(x).numpy()
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(got, model(x), rtol=1e-4, atol=1e-5)


OF_DATA = {
    "places": lambda x: tf.where(x > 0),
    "rows": lambda x: tf.tanh(tf.boolean_mask(x, x[:, 0] > 0)),
    "counted": lambda x: (tf.boolean_mask(x, x > 0) * 2, tf.unique(tf.cast(x[:, 0] * 2, tf.int32))),
}


@pytest.mark.parametrize("name", OF_DATA)
def test_sizes_that_come_from_data(name, tmp_path):
    function = tf.function(OF_DATA[name])
    spec = tf.TensorSpec([None, 5], tf.float32, name="x")
    compiled = shlo_disc.tensorflow.compile(function, [spec])
    compiled.save(tmp_path / "m.disc", ["x86-64-v3"])
    alone = shlo_disc_runtime.load(tmp_path / "m.disc")
    for n in (0, 1, 7, 61):
        x = np.random.default_rng(n).standard_normal((n, 5)).astype("f4")
        want = tf.nest.flatten(compiled(tf.constant(x)))
        for ours, theirs in zip(alone(x), want, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.numpy().dtype)
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)
