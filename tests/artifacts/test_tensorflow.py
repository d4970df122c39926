"""Models of TensorFlow as artifacts, which need no TensorFlow."""

import subprocess
import sys
from pathlib import Path

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


RUN = """
import sys
import numpy as np, shlo_disc_runtime
path, arguments, results = sys.argv[1:]
program, given = shlo_disc_runtime.load(path), np.load(arguments)
calls = sorted({int(key.split(".")[0]) for key in given})
count = len(program.signature.arguments)
out = {}
for call in calls:
    made = program(*(given[f"{call}.{k}"] for k in range(count)))
    out |= {f"{call}.{k}": array for k, array in enumerate(made)}
np.savez(results, **out)
assert not {"jax", "tensorflow", "shlo_disc"} & set(sys.modules)
"""


def without_tensorflow(path: Path, calls):
    """What the artifact gives for each of `calls`, in a process without TensorFlow."""
    given, results = path.with_suffix(".given.npz"), path.with_suffix(".results.npz")
    arrays = {f"{n}.{k}": a for n, call in enumerate(calls) for k, a in enumerate(call)}
    np.savez(given, **arrays)
    subprocess.run([sys.executable, "-c", RUN, path, given, results], check=True)
    found = np.load(results)
    count = sum(key.startswith("0.") for key in found)
    return [[found[f"{n}.{k}"] for k in range(count)] for n in range(len(calls))]


WEIGHTS = tf.constant(np.random.default_rng(3).standard_normal((3, 5)), tf.float32)
FLOATS, FLAGS, NUMBERS = (
    tf.TensorSpec(sizes, dtype)
    for sizes, dtype in (([None, 3], tf.float32), ([None], tf.bool), ([None], tf.int32))
)


def grown(x, n):
    """The rows are doubled `n` times, and those that are positive in front are kept."""
    for _ in tf.range(n):
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(x, tf.TensorShape([None, 3]))]
        )
        x = tf.concat([x, x + 1.0], 0)
    return tf.boolean_mask(x, x[:, 0] > 0)


SEVERAL = {
    "boolean_mask": (lambda x, m: tf.nn.relu(tf.boolean_mask(x, m) @ WEIGHTS), (FLOATS, FLAGS)),
    "where": (lambda x: tf.where(x > 0), (FLOATS,)),
    "gather of where": (lambda x: tf.gather_nd(x, tf.where(x > 0)) * 2.0, (FLOATS,)),
    "unique": (lambda i: (*tf.unique(i), tf.size(i)), (NUMBERS,)),
    "unique_with_counts": (lambda i: (*tf.unique_with_counts(i), i + 1), (NUMBERS,)),
    "dynamic_partition": (
        lambda x, m: tf.dynamic_partition(x, tf.cast(m, tf.int32), 2),
        (FLOATS, FLAGS),
    ),
    "masks in turn": (
        lambda x, m: tf.reduce_sum(tf.boolean_mask(y := tf.boolean_mask(x, m), y[:, 1] > 0), 0),
        (FLOATS, FLAGS),
    ),
    "branches": (
        lambda x, m: tf.cond(tf.reduce_any(m), lambda: tf.boolean_mask(x, m), lambda: x * 2.0),
        (FLOATS, FLAGS),
    ),
    "a loop": (grown, (FLOATS, tf.TensorSpec([], tf.int32))),
}
SIZES = (0, 1, 2, 17, 300)


def drawn(spec, n, rng):
    """An array of `spec` with `n` in place of its free sizes."""
    sizes = [n if size is None else size for size in spec.shape]
    match spec.dtype:
        case tf.bool:
            return rng.random(sizes) < 0.4
        case tf.int32:
            return rng.integers(0, 5, sizes).astype("i4")[()]
    return rng.standard_normal(sizes).astype("f4")


@pytest.mark.parametrize("name", SEVERAL)
def test_programs_of_several_parts(name, tmp_path):
    function, specs = SEVERAL[name]
    function = tf.function(function, input_signature=specs)
    compiled = shlo_disc.tensorflow.compile(function)
    compiled.save(tmp_path / "m.disc")
    rng = np.random.default_rng(len(name))
    calls = [[np.asarray(drawn(spec, n, rng)) for spec in specs] for n in SIZES]
    found = without_tensorflow(tmp_path / "m.disc", calls)
    for call, got in zip(calls, found, strict=True):
        want = tf.nest.flatten(function(*map(tf.constant, call)))
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            other = other.numpy()
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
