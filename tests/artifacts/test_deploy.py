"""The examples of `examples/deploy`, as their README says."""

import os
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


@pytest.fixture(scope="module")
def built_c(tmp_path_factory):
    """The program in C."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    program, warnings = tmp_path_factory.mktemp("c") / "run", ("-Wall", "-Wextra", "-Werror")
    place = (f"-I{ral.include_dir()}", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}")
    run(compiler, "-std=c99", *warnings, DEPLOY / "c/run.c", *place, "-o", program)
    return program


def test_c(model, built_c):
    told = run(built_c, model, 3, 20, env={})
    assert "encoder for x86-64" in told
    assert "result [3, 20, 64], sum " in told
    told = subprocess.run([built_c, model, "-3", "20"], capture_output=True, text=True, check=False)
    assert told.returncode == 1


@pytest.fixture(scope="module")
def built(tmp_path_factory, model):
    """The folder with the programs in C++."""
    if (cmake := shutil.which("cmake")) is None or shutil.which("c++") is None:
        pytest.skip("no CMake or no compiler of C++")
    folder = tmp_path_factory.mktemp("cpp")
    options = (f"-Ddisc_ral_DIR={ral.cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "-S", DEPLOY / "cpp", "-B", folder, *options)
    header = run(sys.executable, "-m", "shlo_disc.tools.disc_dump", model, "--header")
    (folder / "encoder.hpp").write_text(header)
    run(cmake, "--build", folder)
    return folder


def test_cpp_by_cmake(model, built):
    told = run(built / "run", model, env={})
    assert told.startswith("1000 requests of 388 sizes")
    assert "dimension 2 is 63, the program takes 64" in told


def test_a_server(model, built):
    serves_as_numpy_does([built / "server", model], model)


def serves_as_numpy_does(command, model):
    """The server that `command` starts gives what `model` gives here."""
    loaded = shlo_disc_runtime.load(model)
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, text=True, env={}) as server:
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


class EmptyRoot:
    """A folder as the root of processes, where nothing is but programs and what they load."""

    def __init__(self, folder):
        self.folder = folder
        # Who is root needs no namespace of users, which containers often forbid.
        if os.geteuid() == 0:
            self._enter = [shutil.which("chroot")]
        else:
            self._enter = [shutil.which("unshare"), "--map-root-user", "--root"]
        tried = [*self._enter, "/", shutil.which("true")]
        why = "there is no chroot or unshare"
        if None not in tried:
            done = subprocess.run(tried, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            why = done.stderr
        pytest.skip(f"no process gets another root here: {why}")

    def has(self, file, name):
        """Copy `file` there."""
        there = self.folder / name.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, there)

    def command(self, program, *arguments):
        """Starts `program` there with what `ldd` says that it loads, and nothing else."""
        self.has(program, program.name)
        for library in re.findall(r"(/\S+) \(0x", run("ldd", program)):
            self.has(library, library)
        return [*self._enter, self.folder, f"/{program.name}", *arguments]


@pytest.fixture
def root(tmp_path, model):
    """A root with the artifact."""
    root = EmptyRoot(tmp_path)
    root.has(model, "model.disc")
    return root


@pytest.mark.unsanitized
def test_c_in_an_empty_root(root, model, built_c):
    command = root.command(built_c, "/model.disc", 3, 20)
    files = {path.name for path in root.folder.rglob("*") if path.is_file()}
    libraries = {re.sub(r"[.-].*", "", name) for name in files - {"run", "model.disc"}}
    assert libraries == {"ld", "libc", "libm", "libgcc_s", "libstdc++", "libdisc_ral"}
    assert run(*command, env={}) == run(built_c, model, 3, 20)


@pytest.mark.unsanitized
def test_cpp_in_an_empty_root(root, built):
    told = run(*root.command(built / "run", "/model.disc"), env={})
    assert told.startswith("1000 requests of 388 sizes")


@pytest.mark.unsanitized
def test_a_server_in_an_empty_root(root, model, built):
    serves_as_numpy_does(root.command(built / "server", "/model.disc"), model)


@pytest.mark.unsanitized
def test_weights_beside_the_artifact_in_an_empty_root(root, tmp_path_factory, built_c, model):
    code = (
        "import sys, jax; from make_model import WIDTH, encoder; "
        "spec = jax.ShapeDtypeStruct((2, 16, WIDTH), 'f4'); "
        "encoder.lower(spec).compile().save(sys.argv[1], weights='separate')"
    )
    path = tmp_path_factory.mktemp("separate") / "apart.disc"
    run(sys.executable, "-c", code, path, env=os.environ | {"PYTHONPATH": str(DEPLOY)})
    command = root.command(built_c, "/apart.disc", 3, 20)
    root.has(path, path.name)
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert (done.returncode, "/apart.disc.safetensors: No such file" in done.stderr) == (1, True)
    root.has(f"{path}.safetensors", f"{path.name}.safetensors")
    assert run(*command, env={}) == run(built_c, model, 3, 20)
