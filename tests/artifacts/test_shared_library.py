"""Artifacts as shared libraries: linked, opened as plug-ins, and read without being run."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shlo_disc
import shlo_disc_runtime
from shlo_disc import ral
from shlo_disc.artifacts import shared_library
from shlo_disc.base.errors import ArtifactError, UnsupportedError
from shlo_disc.tools import disc_compile, disc_dump, disc_run
from tests.artifacts.building import HERE, built, calls_in
from tests.artifacts.mutate import mutated
from tests.artifacts.programs import PROGRAMS, arguments, export
from tests.artifacts.test_header import compiled as compiled_cpp
from tests.artifacts.test_save import same_bits
from tests.emulator import needs_emulator
from tools import emulated

pytest.importorskip("llvmlite")

NAME = "large weights"
GIVEN = [arguments(PROGRAMS[NAME], {"n": n}) for n in (1, 7, 64)]
FUNCTION = "disc_artifact_large_weights"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`libmodel.so`, and `m.disc` of the same program."""
    folder = tmp_path_factory.mktemp("library")
    compiled = shlo_disc.compile(export(PROGRAMS[NAME]), name=NAME)
    compiled.save(folder / "m.disc")
    compiled.save(folder / "libmodel.so", format="so")
    return folder


@pytest.fixture(scope="module")
def wanted(folder):
    loaded = shlo_disc.load(folder / "m.disc")
    return [(given, loaded.run_numpy(given)) for given in GIVEN]


def test_it_is_the_artifact_behind_one_page(folder):
    whole, artifact = (folder / "libmodel.so").read_bytes(), (folder / "m.disc").read_bytes()
    assert whole[4096:] == artifact
    with zipfile.ZipFile(folder / "libmodel.so") as zipped:
        assert zipped.testzip() is None


LOADERS = [shlo_disc.load, shlo_disc_runtime.load]


@pytest.mark.parametrize("load", LOADERS)
def test_it_is_read_without_being_run(load, folder, wanted):
    loaded = load(folder / "libmodel.so")
    for given, want in wanted:
        same_bits(loaded(*given), want)
    rows = Path("/proc/self/maps").read_text().splitlines()
    assert {row.split()[1][:3] for row in rows if str(folder) in row} == {"r--"}


PLUGIN = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
function = getattr(library, sys.argv[2])
function.restype = ctypes.c_void_p
size = ctypes.c_size_t()
address = function(ctypes.byref(size))
for line in open("/proc/self/maps"):
    begin, end = (int(text, 16) for text in line.split()[0].split("-"))
    if begin <= address < end:
        print(address - begin, end >= address + size.value, line.split()[1], line.split()[-1])
with open(sys.argv[3], "rb") as file:
    print(ctypes.string_at(address, size.value) == file.read())
"""


def test_loaders_of_plugins_find_it_mapped_and_read_only(folder):
    path = folder / "libmodel.so"
    command = [sys.executable, "-c", PLUGIN, path, FUNCTION, folder / "m.disc"]
    where, same = subprocess.check_output(command, text=True).splitlines()
    assert where == f"0 True r--p {path}"
    assert same == "True"


@pytest.mark.parametrize("kind", ["-pie", "-no-pie"])
def test_a_program_of_c_is_linked_with_it(kind, folder, wanted, tmp_path):
    (tmp_path / "given").write_bytes(calls_in(wanted))
    places = f"-L{folder}", "-l:libmodel.so", f"-Wl,-rpath,{folder}"
    program = built(HERE / "calls.c", tmp_path, f"-DLINKED={FUNCTION}", kind, *places)
    command = [program, "", tmp_path / "given"]
    assert subprocess.check_output(command, text=True) == "right\n"
    needed = subprocess.check_output(["ldd", program], text=True)
    assert f"libmodel.so => {folder}/libmodel.so" in needed


def test_a_program_of_c_opens_it_by_its_path(folder, wanted, tmp_path):
    (tmp_path / "given").write_bytes(calls_in(wanted))
    program = built(HERE / "calls.c", tmp_path)
    command = [program, folder / "libmodel.so", tmp_path / "given"]
    assert subprocess.check_output(command, text=True) == "right\n"


TYPED = """
#include <cstdio>
#include "model.hpp"
int main() {
  const auto program = artifact::large_weights::Program::linked();
  const std::vector<float> x(2 * 300, 1.0f);
  const artifact::large_weights::Results results = program({{x, {2, 300}}});
  std::printf("%d %d %.6g\\n", int(results.result_0.sizes()[0]), int(results.result_0.sizes()[1]),
              double(results.result_0[0]));
}
"""


def test_the_header_of_cpp_finds_it(folder, tmp_path):
    told = CliRunner().invoke(disc_dump.main, [str(folder / "libmodel.so"), "--header"])
    (tmp_path / "model.hpp").write_text(told.output)
    (tmp_path / "typed.cpp").write_text(TYPED)
    libraries, program = [folder / "libmodel.so", Path(ral.library())], tmp_path / "typed"
    paths = [f"-Wl,-rpath,{library.parent}" for library in libraries]
    compiled_cpp(tmp_path / "typed.cpp", *libraries, *paths, "-o", program)
    (want,) = shlo_disc.load(folder / "m.disc").run_numpy([np.ones((2, 300), "f4")])
    assert subprocess.check_output(program, text=True) == f"2 300 {want[0, 0]:.6g}\n"


@pytest.mark.skipif(shutil.which("strip") is None, reason="there is no strip")
def test_stripped_libraries_are_the_same(folder, wanted, tmp_path):
    path = tmp_path / "libmodel.so"
    subprocess.run(["strip", folder / "libmodel.so", "-o", path], check=True)
    assert path.read_bytes() != (folder / "libmodel.so").read_bytes()
    for load in LOADERS:
        loaded = load(path)
        for given, want in wanted:
            same_bits(loaded(*given), want)
    command = [sys.executable, "-c", PLUGIN, path, FUNCTION, folder / "m.disc"]
    where, same = subprocess.check_output(command, text=True).splitlines()
    assert where == f"0 True r--p {path}"
    assert same == "True"


def test_the_tools(tmp_path):
    (tmp_path / "m.mlir").write_text("""
        func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
          %y = stablehlo.add %x, %x : tensor<?xf32>
          return %y : tensor<?xf32>
        }""")
    path = tmp_path / "libtwice.so"
    words = [f"{tmp_path}/m.mlir", "-o", str(path), "--format", "so", "--name", "twice"]
    made = CliRunner().invoke(disc_compile.main, words)
    assert made.exit_code == 0, made.output
    assert ctypes.CDLL(str(path)).disc_artifact_twice
    np.savez(tmp_path / "x.npz", np.float32([1, 2]))
    ran = CliRunner().invoke(disc_run.main, [str(path), "--inputs", str(tmp_path / "x.npz")])
    assert "[2. 4.]" in ran.output
    told = CliRunner().invoke(disc_dump.main, [str(path)]).output
    assert told.startswith("twice(")


def test_what_is_refused(tmp_path):
    made = shlo_disc.compile(export(PROGRAMS["integers"]))
    told = "a shared library is for one family of processors, not for aarch64 and x86-64"
    with pytest.raises(UnsupportedError, match=told):
        made.save(tmp_path / "m.so", ["x86-64-v3", "aarch64"], format="so")
    with pytest.raises(ValueError, match="format must be 'disc' or 'so', got 'dll'"):
        made.save(tmp_path / "m.so", format="dll")
    long = shlo_disc.compile(export(PROGRAMS["integers"]), name="x" * 70_000)
    with pytest.raises(UnsupportedError, match="is too long for a shared library"):
        long.save(tmp_path / "m.so", weights="separate", format="so")
    assert not [*tmp_path.iterdir()]


def test_weights_beside_it_are_found_by_the_path_alone(tmp_path):
    path = tmp_path / "libm.so"
    made = shlo_disc.compile(export(PROGRAMS[NAME]))
    made.save(path, ["x86-64-v3"], weights="separate", format="so")
    assert sorted(os.listdir(tmp_path)) == ["libm.so", "libm.so.safetensors"]
    want = made.run_numpy(GIVEN[1])
    np.testing.assert_allclose(shlo_disc_runtime.load(path)(*GIVEN[1])[0], want[0], 1e-4, 1e-4)
    made.save(path, ["x86-64-v3"], format="so")
    assert os.listdir(tmp_path) == ["libm.so"]


@pytest.mark.parametrize("load", LOADERS)
def test_hostile_libraries_are_refused(load, folder, tmp_path):
    """What is in front of the artifact lies."""
    whole, refused = (folder / "libmodel.so").read_bytes(), 0
    path = tmp_path / "m.so"
    errors = ArtifactError, shlo_disc_runtime.ArtifactError
    head, rest = whole[:4096], whole[4096:]
    table = 64 + 2 * 56  # the row of the artifact's segment
    lies = [head[:at] + bytes([255]) * 8 + head[at + 8 :] for at in (32, 54, table + 8, table + 32)]
    lies += [head[:at] + bytes(8) + head[at + 8 :] for at in (32, 54, table, table + 8, table + 32)]
    for lie in lies:
        path.write_bytes(lie + rest)
        with pytest.raises(errors):
            load(path)
    for cut in (4, 40, 63, 64, 100, 344, 4096, 5000, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(errors):
            load(path)
    for seed in range(200):
        path.write_bytes(mutated(head[:400], random.Random(seed)) + head[400:] + rest)
        try:
            same_bits(load(path)(*GIVEN[0]), shlo_disc.load(folder / "m.disc")(*GIVEN[0]))
        except errors:
            refused += 1
    assert refused > 20


def test_other_libraries_are_told(tmp_path):
    for load in LOADERS:
        with pytest.raises(
            (ArtifactError, shlo_disc_runtime.ArtifactError),
            match="a shared library without an artifact",
        ):
            load(ral.library())


def test_heads_are_of_the_machine_and_the_name():
    for family, number in (("x86-64", 62), ("aarch64", 183)):
        made = shared_library.head("größe 9", family, "libmodel.so", 1 << 31)
        assert made[18] == number
        assert b"\0disc_artifact_gr_e_9\0libmodel.so\0" in made


@needs_emulator
@pytest.mark.unsanitized
def test_aarch64(tmp_path):
    compiled = shlo_disc.compile(export(PROGRAMS[NAME]), name=NAME)
    path = tmp_path / "libmodel.so"
    compiled.save(path, [emulated.TARGET], format="so")
    program = tmp_path / "where"
    (tmp_path / "where.c").write_text(
        f"#include <stdio.h>\nconst void* {FUNCTION}(size_t* bytes);\n"
        "int main(void) {\n  size_t bytes;\n"
        f"  const unsigned char* const at = {FUNCTION}(&bytes);\n"
        '  printf("%zu %.2s", bytes, (const char*)at);\n  return at[bytes - 1];\n}\n'
    )
    compiler = emulated.COMPILER.replace("g++", "gcc")
    command = [compiler, tmp_path / "where.c", path, "-o", program]
    subprocess.run(command, check=True)
    run = [emulated.EMULATOR, "-L", emulated.LIBRARIES, "-E", f"LD_LIBRARY_PATH={tmp_path}"]
    ran = subprocess.run([*run, program], capture_output=True, text=True, check=False)
    size = path.stat().st_size - 4096
    assert (ran.stdout, ran.returncode) == (f"{size} PK", path.read_bytes()[-1])
