"""The examples of `examples/deploy`, as their README says."""

import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import shlo_disc_runtime
from shlo_disc import ral

pytest.importorskip("llvmlite")

DEPLOY = Path(__file__).parents[2] / "examples/deploy"
LIBRARY = Path(ral.library())


def run(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("deploy") / "model.disc"
    told = run(sys.executable, DEPLOY / "make_model.py", path)
    assert re.search(r"\(x: float32\[\w+, \w+, 64\]\) -> \(float32\[\w+, \w+, 64\]\)", told)
    return path


def test_numpy_alone(model):
    told = run(sys.executable, DEPLOY / "run.py", model)
    assert "(8, 128, 64) float32" in told
    assert "dimension 2 is 63, the program takes 64" in told


def test_c(model, tmp_path):
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    program, warnings = tmp_path / "run", ("-Wall", "-Wextra", "-Werror")
    place = (f"-I{ral.include_dir()}", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}")
    run(compiler, "-std=c99", *warnings, DEPLOY / "c/run.c", *place, "-o", program)
    told = run(program, model, 3, 20, env={})
    assert "encoder for x86-64" in told
    assert "result [3, 20, 64], sum " in told
    told = subprocess.run([program, model, "-3", "20"], capture_output=True, text=True, check=False)
    assert told.returncode == 1


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the programs in C++."""
    if (cmake := shutil.which("cmake")) is None or shutil.which("c++") is None:
        pytest.skip("no CMake or no compiler of C++")
    folder = tmp_path_factory.mktemp("cpp")
    options = (f"-Ddisc_ral_DIR={ral.cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "-S", DEPLOY / "cpp", "-B", folder, *options)
    run(cmake, "--build", folder)
    return folder


def test_cpp_by_cmake(model, built):
    told = run(built / "run", model, env={})
    assert told.startswith("1000 requests of 388 sizes")
    assert "dimension 2 is 63, the program takes 64" in told


def test_a_server(model, built):
    loaded = shlo_disc_runtime.load(model)
    with subprocess.Popen(
        [built / "server", model, "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            address = server.stdout.readline().split()[-1]
            for batch, length in ((1, 5), (3, 20), (2, 1), (8, 100)):
                x = np.full((batch, length, 64), 0.25, "f4")
                place = f"{address}/run?batch={batch}&time={length}"
                with urllib.request.urlopen(place, data=x.tobytes()) as answer:
                    got = np.frombuffer(answer.read(), "f4").reshape(x.shape)
                np.testing.assert_allclose(got, loaded(x)[0], rtol=1e-5, atol=1e-5)
            for path, data, status in (
                ("run?batch=2&time=3", b"1234", 400),
                ("run?batch=-2&time=3", b"1234", 400),
                ("run?batch=9999999999999&time=9999999999999", b"", 400),
                ("run?batch=2&time=0", b"", 400),
                ("other", None, 404),
            ):
                with pytest.raises(urllib.error.HTTPError) as error:
                    urllib.request.urlopen(f"{address}/{path}", data=data)
                assert error.value.code == status
            with urllib.request.urlopen(f"{address}/metrics") as answer:
                metrics = answer.read().decode()
            assert 'disc_seconds_bucket{le="+Inf"} ' in metrics
            assert int(metrics.split("disc_seconds_count ")[1].split()[0]) >= 3
        finally:
            server.kill()
