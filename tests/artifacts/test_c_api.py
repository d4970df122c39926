"""The C API of artifacts, from a program of C99 (checks.c), and the library that has it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.artifacts import container, manifest
from tests.artifacts.building import (
    HERE,
    HOST,
    Recorded,
    built,
    manifest_of,
    parts_of,
    place_of,
    put_together,
)

TEXTS = ((("n", "m"), ("n", "m"), ("m", "48")), (("n", "m"), ("n", "48")))
TARGETS = (
    ("arm", "aarch64", ("neon",)),
    ("later", "x86-64", (*HOST, "avx512-of-2030")),
    ("host", "x86-64", HOST),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The artifact of checks.c, its arrays, and files that are refused."""
    folder = tmp_path_factory.mktemp("artifact")
    rng = np.random.default_rng(0)
    x, y, w, c = (
        rng.normal(size=size).astype("f4") for size in ((5, 33), (5, 33), (33, 48), (48, 48))
    )

    with pytest.MonkeyPatch.context() as monkeypatch:
        recorded = Recorded(monkeypatch)

        @shlo_disc.jit(donate_argnums=0)
        def f(x, y, w):
            return jnp.exp(x * 0.31729) + y, (y @ w) @ c

        for i, array in enumerate(f(jnp.array(x), y, w)):
            (folder / f"want{i}").write_bytes(np.asarray(array).tobytes())
        assert recorded.options["constants"]
        recorded.write(folder / "m.disc", TEXTS, targets=TARGETS)
        recorded.write(folder / "foreign.disc", TEXTS, targets=TARGETS[:2])
    for name, array in (("x", x), ("y", y), ("w", w)):
        (folder / name).write_bytes(array.tobytes())

    file = (folder / "m.disc").read_bytes()
    (folder / "writable.disc").write_bytes(file)
    (folder / "writable.disc").chmod(0o646)
    (folder / "empty.disc").write_bytes(b"")
    (folder / "truncated.disc").write_bytes(file[:-100])
    with zipfile.ZipFile(folder / "other.zip", "w") as other:
        other.writestr("manifest.bin", b"x" * 200)
    for name, member in (("changed", "code/host.bin"), ("weights", "constants/0.bin")):
        changed = bytearray(file)
        changed[place_of(file, member) + 70] ^= 1
        (folder / f"{name}.disc").write_bytes(changed)
    packed = bytearray(manifest.packed(replace(manifest_of(file), compiler="shlo_disc 9.0.0")))
    packed[len(manifest.MAGIC)] = 7
    newer = parts_of(file) | {container.MANIFEST: bytes(packed)}
    (folder / "newer.disc").write_bytes(put_together(newer))
    return folder


def test_every_function_and_every_error(folder, tmp_path):
    program = built(HERE / "checks.c", tmp_path)
    ran = subprocess.run([program, folder], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("0 failures\n", "", 0)


@pytest.mark.unsanitized
def test_a_call_allocates_nothing(folder, tmp_path):
    program = built(HERE / "hot.c", tmp_path)
    ran = subprocess.run([program, folder, "1000"], capture_output=True, text=True, check=True)
    _, _, for_library, _, for_caller = ran.stdout.split()
    assert (for_library, for_caller) == ("0", "0")


def test_python_reads_what_it_wrote(folder):
    known = manifest_of((folder / "m.disc").read_bytes())
    assert [target.name for target in known.targets] == ["arm", "later", "host"]
    assert known.targets[0].constants == known.targets[2].constants


@pytest.mark.unsanitized
def test_the_library_is_small_and_needs_those_of_c_alone(tmp_path):
    library = ral.library()
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split("/")[-1] for line in needed.splitlines()}
    assert {re.sub(r"[.-].*", "", name) for name in names} <= {
        "linux", "libc", "libm", "libstdc++", "libgcc_s", "ld", "libpthread", "libdl",
    }  # fmt: skip
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in symbols.stdout.splitlines()}
    header = (HERE.parents[1] / "shlo_disc/ral/include/disc.h").read_text()
    assert names == set(re.findall(r"\b(disc_\w+)\(", header))
    subprocess.run(["strip", "-o", tmp_path / "stripped", library], check=True)
    assert (tmp_path / "stripped").stat().st_size <= 1e6


@pytest.mark.unsanitized
def test_cmake_finds_it(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "project(server C)\n"
        "find_package(disc_ral 0.1 REQUIRED)\n"
        "add_executable(server server.c)\n"
        "target_link_libraries(server PRIVATE disc_ral::disc_ral)\n"
    )
    (tmp_path / "server.c").write_text(
        '#include <disc.h>\n#include <stdio.h>\nint main(void) { printf("%d", disc_version()); }\n'
    )
    cmake = [sys.executable, "-m", "cmake"]
    where = f"-Ddisc_ral_DIR={ral.cmake_dir()}"
    build = tmp_path / "build"
    subprocess.run([*cmake, "-S", tmp_path, "-B", build, where], capture_output=True, check=True)
    subprocess.run([*cmake, "--build", build], capture_output=True, check=True)
    ran = subprocess.run([build / "server"], capture_output=True, text=True, check=True)
    assert ran.stdout == "1"


def mutate(folder, count, seed):
    """Damaged artifacts, in a process of their own."""
    program = [sys.executable, "-m", "tests.artifacts.mutate"]
    given = [ral.library(), folder, str(count), str(seed)]
    ran = subprocess.run([*program, *given], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = dict(ast.literal_eval(ran.stdout))
    assert sum(counts.values()) == count
    for kind in ("file", "manifest", "code"):
        assert counts[kind, 3] > count / 10


def test_damaged_artifacts_are_refused_or_right(folder):
    mutate(folder, 900, 0)


@pytest.mark.slow
def test_many_damaged_artifacts(folder):
    for seed in range(1, 11):
        mutate(folder, 10_000, seed)
