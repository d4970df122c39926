"""`shlo_disc_runtime`: artifacts on numpy arrays, without JAX and without a compiler."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
import shlo_disc_runtime
from tests.artifacts.programs import PROGRAMS, arguments, export
from tests.artifacts.test_save import LEVELS, RUN_HERE, same_bits
from tests.children import at_once

pytest.importorskip("llvmlite")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_runtime_has_the_bits_of_the_compiled_program(name, saved):
    program, path = PROGRAMS[name], saved(name)
    for target in RUN_HERE:
        compiled = shlo_disc.compile(export(program), target=LEVELS[target])
        loaded = shlo_disc_runtime.load(path, target=target)
        assert loaded.target == target
        takes, gives = (str(compiled.signature)).split(" -> ")
        assert str(loaded.signature) == f"{takes} -> {gives}"
        for sizes in program.sizes:
            given = arguments(program, sizes)
            same_bits(loaded(*given), compiled(*given))


def test_a_process_without_jax_is_quick_and_small(saved):
    script = f"""
import json, sys, time
sys.path[:] = [p for p in sys.path if p] + [{str(ROOT)!r}]
for name in ("jax", "jaxlib", "torch_mlir", "llvmlite", "shlo_disc.base"):
    sys.modules[name] = None
import numpy
times = []
for _ in range(3):
    start = time.process_time()
    import shlo_disc_runtime
    program = shlo_disc_runtime.load({str(saved("product"))!r})
    times.append(time.process_time() - start)
x, w = numpy.ones((3, 48), "f4"), numpy.ones((48, 96), "f4")
(y,) = program(x, w)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) / 1024
print(json.dumps([float(y[0, 0]), times, peak, "shlo_disc" in sys.modules]))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, times, peak, has_compiler = json.loads(done.stdout)
    assert first == 48.0
    assert not has_compiler
    assert min(times) < 0.03  # of a process's own; the first one imports ctypes, too
    assert peak < 40


def test_results_outlive_the_program_and_each_other(saved):
    loaded = shlo_disc_runtime.load(saved("element-wise"))
    x = np.full((5, 33), 2, np.float32)
    first, second = loaded(x, x)
    again, _ = loaded(x + 1, x)
    del loaded, second
    np.testing.assert_array_equal(first, np.tanh(x) * x)
    assert (again != first).all()
    first[0, 0] = 7  # it is the caller's


def test_threads_call_one_program_at_once(saved):
    loaded, found = shlo_disc_runtime.load(saved("product")), {}
    given = {n: arguments(PROGRAMS["product"], {"n": n}) for n in (1, 7, 64, 129)}
    want = {n: loaded(*given[n])[0] for n in given}

    def call(n):
        found[n] = [loaded(*given[n])[0] for _ in range(50)]

    at_once(call, given)
    for n, results in found.items():
        for result in results:
            same_bits([result], [want[n]])


def test_arguments_of_every_kind(saved):
    loaded = shlo_disc_runtime.load(saved("element-wise"))
    x = np.arange(330, dtype=np.float32).reshape(10, 33) / 100
    want = loaded(x, x)
    column = np.asfortranarray(x)
    wide = np.zeros((20, 33), np.float32)
    wide[::2] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view("f4").reshape(10, 33)
    for given in (column, wide[::2], jnp.asarray(x), unaligned):
        same_bits(loaded(given, x), want)


TEXT = """
func.func public @main(%x: tensor<?x4xf32> {disc.shape = ["n", "4"], disc.name = "x"},
                       %y: tensor<?xf32> {disc.shape = ["2*n"]}, %s: tensor<f32>,
                       %k: tensor<i32>) -> (tensor<?x4xf32>, tensor<i32>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %f = stablehlo.constant dense<4> : tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %f1 = stablehlo.reshape %f : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %f1, dim = 0 :
    (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %s, %shape, dims = [] :
    (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
  %z = stablehlo.add %x, %b : tensor<?x4xf32>
  %m = stablehlo.add %k, %k : tensor<i32>
  return %z, %m : tensor<?x4xf32>, tensor<i32>
}"""


def test_wrong_arguments_are_told_by_name_and_size(tmp_path):
    shlo_disc.compile(TEXT, constraints="n >= 3").save(tmp_path / "m.disc")
    loaded = shlo_disc_runtime.load(tmp_path / "m.disc")
    x, y = np.ones((4, 4), "f4"), np.ones(8, "f4")
    z, m = loaded(x, y, 2, 3)
    np.testing.assert_array_equal(z, np.full((4, 4), 3))
    assert m == 6
    mismatch = shlo_disc_runtime.ShapeMismatchError
    for given, error, message in (
        ((x[:2], y[:4], 1, 1), mismatch, "n >= 3"),
        ((x, y[:7], 1, 1), mismatch, "7"),
        ((x[:, :3], y, 1, 1), mismatch, "dimension 1 is 3, the program takes 4"),
        ((x[0], y, 1, 1), mismatch, "rank is 1, the program takes 2"),
        ((x.astype("f8"), y, 1, 1), TypeError, "dtype is float64, the program takes float32"),
        ((x, y, 1), TypeError, "3 arguments were given, the program takes 4"),
        ((x, y, 1, 1.5), TypeError, "1.5 is no int32"),
        ((x, y, 1, 1 << 40), OverflowError, "out of bounds"),
        ((x.astype("O"), y, 1, 1), TypeError, "dtype is object, which no program takes"),
    ):
        with pytest.raises(error, match=message):
            loaded(*given)


def test_wrong_files(saved, tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        shlo_disc_runtime.load(tmp_path / "nowhere.disc")
    data = saved("integers").read_bytes()
    (tmp_path / "m.disc").write_bytes(data[:-100])
    with pytest.raises(shlo_disc_runtime.ArtifactError):
        shlo_disc_runtime.load(tmp_path / "m.disc")
    with pytest.raises(shlo_disc_runtime.UnsupportedError):
        shlo_disc_runtime.load(saved("integers"), target="aarch64")


def test_the_distribution_of_the_runtime_has_the_version_and_needs_numpy_alone():
    own, whole = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in ("packaging/shlo_disc_runtime", ".")
    )
    assert own["version"] == whole["version"]
    assert own["dependencies"] == [d for d in whole["dependencies"] if d.startswith("numpy")]
