"""Models of TensorFlow as artifacts, which need no TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")
tf = pytest.importorskip("tensorflow")

import shlo_disc.tensorflow  # noqa: E402

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
