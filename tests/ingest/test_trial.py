"""The child process that tries bytes: alone with them, and bounded."""

import os
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import pytest
from jax import export

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest import ingest, trial
from shlo_disc.ir.mlir import new_context, stablehlo


@pytest.fixture(scope="module")
def artifact():
    (b,) = export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((b, 4), jnp.float32)
    return export.export(jax.jit(jnp.tanh))(x).mlir_module_serialized


HOSTILE = """
import os, pathlib
pathlib.Path({mark!r}).write_text(__file__)
raise SystemExit(0)
"""

HOSTILE_MODULES = (
    "torch_mlir", "numpy", "sys", "resource", "encodings", "site", "sitecustomize",
    "usercustomize", "os", "io", "codecs", "typing", "importlib", "re",
)  # fmt: skip


@pytest.fixture
def hostile(tmp_path):
    """A folder of modules that leave a mark when they are run; the mark."""
    folder, mark = tmp_path / "hostile", tmp_path / "mark"
    folder.mkdir()
    for name in HOSTILE_MODULES:
        (folder / f"{name}.py").write_text(HOSTILE.format(mark=str(mark)))
    return folder, mark


def test_modules_in_the_working_directory_are_not_run(artifact, hostile, monkeypatch):
    folder, mark = hostile
    monkeypatch.chdir(folder)
    ingest(artifact, new_context())
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "LD_LIBRARY_PATH"]
)
def test_variables_of_the_environment_do_not_reach_the_child(artifact, hostile, name, monkeypatch):
    folder, mark = hostile
    monkeypatch.chdir(folder)
    for value in (str(folder), "", ".", f":{folder}"):
        monkeypatch.setenv(name, value)
        ingest(artifact, new_context())
    assert not mark.exists()


def test_the_child_is_isolated(artifact, monkeypatch, tmp_path):
    monkeypatch.setattr(
        trial,
        "_CHILD",
        "import os, sys\n"
        "said = [os.getcwd(), sorted(os.environ), sys.flags.isolated, sys.flags.no_site,\n"
        "        '' in sys.path, os.listdir('/proc/self/fd')]\n"
        "sys.stderr.write('error: ' + repr(said)); sys.exit(3)\n",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", ":relative::/absolute:.")
    with pytest.raises(InvalidModuleError) as raised:
        ingest(artifact, new_context())
    text = str(raised.value)
    assert "['/', ['LD_LIBRARY_PATH'" in text or "['/', ['LC_CTYPE', 'LD_LIBRARY_PATH'" in text
    assert "1, 1, False" in text
    assert trial._environment() == {"LD_LIBRARY_PATH": "/absolute"}


def test_a_whole_process_in_a_hostile_folder_reads_bytes(artifact, hostile, tmp_path):
    """The way of the attack: a program is started where files of others lie."""
    folder, mark = hostile
    (tmp_path / "program.mlirbc").write_bytes(artifact)
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import shlo_disc
            print(shlo_disc.compile({str(tmp_path / "program.mlirbc")!r}))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "shlo_disc.Executable" in done.stdout
    assert not mark.exists()


CHILDREN = {
    "memory of Python": ("x = bytearray(1 << 34)", "took more than 1024 MiB of memory"),
    "memory of C++": (
        "import os; os.write(2, b'terminate called: std::bad_alloc'); os.abort()",
        "took more than 1024 MiB of memory",
    ),
    "crash": ("import ctypes; ctypes.string_at(0)", r"crashed on it \(signal 11\)"),
    "no end": ("while True: pass", "did not end in 1 s"),
    "endless messages": ("while True: sys.stderr.write('x' * 4096)", "artifact"),
    "files": ("open('/tmp/shlo_disc_test_of_a_child', 'wb').write(bytes(1 << 22))", "artifact"),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_what_the_reader_may_do_is_bounded(name, artifact, monkeypatch, tmp_path):
    deed, message = CHILDREN[name]
    monkeypatch.setattr(trial, "SECONDS", 1.4 if name == "no end" else 20.0)
    head, tail = trial._CHILD.split("try:\n", 1)
    body = head + "try:\n    " + deed + "\n" + tail
    monkeypatch.setattr(trial, "_CHILD", body)
    start = time.monotonic()
    with pytest.raises((InvalidModuleError, UnsupportedError), match=message):
        ingest(artifact, new_context())
    assert time.monotonic() - start < 30
    written = "/tmp/shlo_disc_test_of_a_child"
    if os.path.exists(written):
        assert os.path.getsize(written) <= 1 << 20
        os.unlink(written)


def test_memory_that_bytes_ask_for_is_bounded():
    """A length in the bytes that is far beyond the bytes."""
    data = b"ML\xefR\x0dStableHLO_v1.15.0\x00" + b"\xff" * 200
    with pytest.raises(InvalidModuleError, match="damaged"):
        ingest(data, new_context())


def test_without_a_python_of_its_own_a_process_says_so(artifact, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(UnsupportedError, match="SHLO_DISC_TRUST_BYTECODE=1"):
        ingest(artifact, new_context())


def test_a_child_without_its_modules_says_so(artifact, monkeypatch):
    monkeypatch.setattr(trial, "_module_folders", list)
    with pytest.raises(UnsupportedError, match="No module named 'torch_mlir'"):
        ingest(artifact, new_context())


def test_a_negative_size_in_bytecode_is_refused():
    """MLIR verifies no size that it reads; 63 and -63 are one byte each, in zigzag encoding."""
    text = "func.func @main(%x: tensor<63xi8>) -> tensor<63xi8> { return %x : tensor<63xi8> }"
    with new_context():
        version = stablehlo.get_current_version()
        data = stablehlo.serialize_portable_artifact_str(text, version)
    said = []
    for k in (k for k, byte in enumerate(data) if byte == 2 * 126 + 1):
        try:
            ingest(data[:k] + bytes([2 * 125 + 1]) + data[k + 1 :], new_context())
        except InvalidModuleError as error:
            said.append(str(error))
    assert any("tensor<-63xi8> has a size below 0" in text for text in said)
