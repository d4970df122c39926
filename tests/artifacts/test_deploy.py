"""The examples of `examples/deploy`, as their README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_cpp_by_cmake(model, tmp_path):
    if (cmake := shutil.which("cmake")) is None or shutil.which("c++") is None:
        pytest.skip("no CMake or no compiler of C++")
    options = (f"-Ddisc_ral_DIR={ral.cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "-S", DEPLOY / "cpp", "-B", tmp_path, *options)
    run(cmake, "--build", tmp_path)
    told = run(tmp_path / "run", model, env={"PATH": os.environ["PATH"]})
    assert told.startswith("1000 requests of 388 sizes")
    assert "dimension 2 is 63, the program takes 64" in told
