"""The C API of artifacts, from a program of C99 (checks.c), and the library that has it."""

import ast
import os
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
from shlo_disc.tools import disc_compile
from tests.artifacts.building import (
    HERE,
    built,
    bundled,
    manifest_of,
    parts_of,
    place_of,
    put_together,
)
from tests.artifacts.mutate import KINDS, Opener
from tests.artifacts.programs import EXTERN, Program, export

pytest.importorskip("llvmlite")

PROGRAM = Program(
    lambda x, y, w: (jnp.exp(x * 0.31729) + y, (y @ w) @ SQUARE), ["n, m", "n, m", "m, 48"], ()
)
SQUARE = np.random.default_rng(1).normal(size=(48, 48)).astype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The artifact of checks.c, its arrays, and files that are refused."""
    folder = tmp_path_factory.mktemp("artifact")
    rng = np.random.default_rng(0)
    x, y, w = (rng.normal(size=size).astype("f4") for size in ((5, 33), (5, 33), (33, 48)))
    program = shlo_disc.compile(
        export(PROGRAM), name="program", names=["x", "y", "w"], donated=0, target="cpu:avx2"
    )
    program.save(folder / "m.disc", ["x86-64-v3"])
    program.save(folder / "apart.disc", ["x86-64-v3"], weights="separate")
    program.save(folder / "packed.disc", ["x86-64-v3"], packed_for=[x, y, w])
    program.save(folder / "gpu.disc", ["cuda:sm_90", "x86-64-v3"])
    (folder / "calls.mlir").write_text(EXTERN)
    given = ["-o", str(folder / "calls.disc"), "--target", "x86-64-v3", "--ffi", "extern"]
    disc_compile.main([str(folder / "calls.mlir"), *given], standalone_mode=False)
    for i, array in enumerate(program.run_numpy([x, y, w])):
        (folder / f"want{i}").write_bytes(np.asarray(array).tobytes())
    for name, array in (("x", x), ("y", y), ("w", w)):
        (folder / name).write_bytes(array.tobytes())

    parts = parts_of((folder / "m.disc").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    (host,) = known.targets
    assert host.constants
    arm = replace(host, name="arm", machine="aarch64", features=("neon",))
    later = replace(host, name="later", features=(*host.features, "avx512-of-2030"))
    host = replace(host, name="host")
    results = tuple(replace(one, name=f"result[{i}]") for i, one in enumerate(known.results))
    for name, targets in (("m", (arm, later, host)), ("foreign", (arm, later))):
        packed = manifest.packed(replace(known, targets=targets, results=results))
        made = put_together(parts | {container.MANIFEST: packed})
        (folder / f"{name}.disc").write_bytes(made)

    file = (folder / "m.disc").read_bytes()
    (folder / "writable.disc").write_bytes(file)
    (folder / "writable.disc").chmod(0o646)
    (folder / "empty.disc").write_bytes(b"")
    (folder / "truncated.disc").write_bytes(file[:-100])
    with zipfile.ZipFile(folder / "other.zip", "w") as other:
        other.writestr("manifest.bin", b"x" * 200)
    for name, member in (("changed", "code/x86-64-v3.bin"), ("weights", "constants/0.bin")):
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
    assert names == set(re.findall(r"\b(disc_[a-z0-9_]+)\(", header))
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


@pytest.fixture(scope="module")
def refusal(folder):
    """Why the library does not open a file; "": it does, and the file has the right results."""
    opener = Opener(ral.library(), folder)
    return lambda file: opener.outcome(file, runs=True)[1]


def test_the_whole_file_is_opened(refusal, folder):
    file = (folder / "m.disc").read_bytes()
    assert refusal(file) == ""
    assert put_together(parts_of(file)) == file


TARGET_CHANGES = [
    (lambda t, s: {"objects": (replace(s, member=99), *t.objects[1:])}, "an index out of bounds"),
    (lambda t, s: {"constants": (replace(s, offset=-1),)}, "an index out of bounds"),
    (lambda t, s: {"constants": (replace(s, offset=s.size + 1),)}, "an index out of bounds"),
    (lambda t, s: {"constants": (replace(s, offset=64),)}, "an index out of bounds"),
    (lambda t, s: {"constants": (replace(s, size=s.size + 1),)}, "an index out of bounds"),
    (lambda t, s: {"run": manifest.Function(0, "walk")}, "the code of host has no walk"),
    (lambda t, s: {"run": manifest.Function(len(t.objects), "run")}, "an index out of bounds"),
    (lambda t, s: {"symbols": -1}, "a number out of bounds"),
    (lambda t, s: {"symbols": 2**40}, "a number out of bounds"),
    (lambda t, s: {"packable": (3,)}, "an index out of bounds"),
    (lambda t, s: {"donated": (-1,)}, "an index out of bounds"),
    (lambda t, s: {"reuses": ((0, 2),)}, "an index out of bounds"),
    (lambda t, s: {"reuses": ((0, 1, 2),)}, "no pair"),
    (lambda t, s: {"size_arguments": (0,)}, "too many elements that are sizes"),
    (lambda t, s: {"guards": ("a\0b",)}, "a null in a text"),
    (lambda t, s: {"machine": "riscv"}, "is for riscv"),
]


@pytest.mark.parametrize(("change", "why"), TARGET_CHANGES)
def test_targets_that_lie_are_refused(refusal, folder, change, why):
    parts = parts_of((folder / "m.disc").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    target = known.targets[2]
    changed = replace(known, targets=(replace(target, **change(target, target.constants[0])),))
    packed = manifest.packed(changed)
    assert why in refusal(put_together(parts | {container.MANIFEST: packed}))


MANIFEST_CHANGES = [
    ({"members": ()}, "an index out of bounds"),
    ({"targets": ()}, "it has no targets"),
    ({"arguments": (manifest.Argument("x", "float31", (), ()),)}, "an unknown dtype"),
    ({"arguments": (manifest.Argument("x", "float32", (-2,), ("n",)),)}, "out of bounds"),
    ({"arguments": (manifest.Argument("x", "float32", (-1,), ()),)}, "a size without a text"),
    ({"weights_file": "w"}, "its weights are in no file beside it"),
]


@pytest.mark.parametrize(("change", "why"), MANIFEST_CHANGES)
def test_manifests_that_lie_are_refused(refusal, folder, change, why):
    parts = parts_of((folder / "m.disc").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    packed = manifest.packed(replace(known, **change))
    assert why in refusal(put_together(parts | {container.MANIFEST: packed}))


def apart_of(folder, change):
    """`apart.disc` with the rows that `change` makes of those of its manifest."""
    parts = parts_of((folder / "apart.disc").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    packed = manifest.packed(replace(known, **change(known)))
    return put_together(parts | {container.MANIFEST: packed})


def with_constant(known, **changes):
    (target,) = known.targets
    constants = tuple(replace(span, **changes) for span in target.constants)
    return {"targets": (replace(target, constants=constants),)}


def with_object(known, member):
    (target,) = known.targets
    objects = (replace(target.objects[0], member=member), *target.objects[1:])
    return {"targets": (replace(target, objects=objects),)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: {"weights_file": ""}, "its weights are in no file beside it"),
        (lambda m: {"weights_file": "."}, "its weights are in no file beside it"),
        (lambda m: {"weights_file": "../apart.disc.safetensors"}, "in no file beside it"),
        (lambda m: {"weights_file": "/etc/passwd"}, "in no file beside it"),
        (lambda m: {"tensors": ()}, "its weights are in no file beside it"),
        (lambda m: with_constant(m, member=-9), "an index out of bounds"),
        (lambda m: with_constant(m, member=-(2**63)), "an index out of bounds"),
        (lambda m: with_constant(m, offset=64), "a number out of bounds"),
        (lambda m: with_constant(m, size=64), "a constant is no whole tensor"),
        (lambda m: with_object(m, -1), "an index out of bounds"),  # code is never beside it
        (lambda m: {}, "in a folder that an artifact in memory has not"),
    ],
)
def test_manifests_that_lie_of_weights_are_refused(refusal, folder, change, why):
    assert why in refusal(apart_of(folder, change))


@pytest.mark.parametrize(
    "lie", [{"target": 3}, {"constant": 1}, {"slot": 9}, {"data": manifest.Span(99, 0, 1)}]
)
def test_packs_that_lie_are_refused(refusal, folder, lie):
    parts = parts_of((folder / "packed.disc").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    packs = tuple(replace(pack, **lie) for pack in known.packs)
    packed = manifest.packed(replace(known, packs=packs))
    why = refusal(put_together(parts | {container.MANIFEST: packed}))
    assert "an index out of bounds" in why


def test_the_digests_of_packs_are_checked(refusal, folder):
    file = bytearray((folder / "packed.disc").read_bytes())
    file[place_of(bytes(file), "packs/1.bin") + 70] ^= 1
    assert "packs/1.bin has a wrong digest" in refusal(bytes(file))


def test_weights_beside_an_artifact_are_read(refusal, folder):
    assert refusal(folder / "apart.disc") == ""


@pytest.mark.parametrize(("version", "fields"), [(1, 7), (2, 4), (3, 1)])
def test_files_of_earlier_formats_are_read(refusal, folder, version, fields):
    parts = parts_of((folder / "m.disc").read_bytes())
    packed = bytearray(parts[container.MANIFEST][: -8 * fields])  # without empty ones of today
    packed[len(manifest.MAGIC)] = version
    assert refusal(put_together(parts | {container.MANIFEST: bytes(packed)})) == ""
    known = manifest_of((folder / "m.disc").read_bytes())
    assert manifest.unpacked(bytes(packed)) == known


def test_texts_are_utf8(refusal, folder):
    """Those that Python decodes are opened, and no others."""
    parts = parts_of((folder / "m.disc").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    packed = manifest.packed(replace(known, name="$" * 8))
    texts = [b"\x00", b"\x80", b"\xc1\x81", b"\xc3\xa4", b"\xc3", b"\xe0\x9f\xbf", b"\xe0\xa0\x80"]
    texts += [b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf\xbf", b"\xe2\x82", b"\xf0\x8f\xbf\xbf"]
    texts += [
        b"\xf0\x9f\x98\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
    ]
    for text in texts:
        changed = packed.replace(b"$" * 8, text.rjust(8, b"a"))
        try:
            text.decode()
            wanted = "a null in a text" if b"\0" in text else ""
        except UnicodeDecodeError:
            wanted = "a text that is not UTF-8"
        why = refusal(put_together(parts | {container.MANIFEST: changed}))
        assert why.endswith(wanted), text
        assert bool(why) == bool(wanted)


def test_members_are_those_of_the_manifest(refusal, folder):
    parts = parts_of((folder / "m.disc").read_bytes())
    names, differ = [*parts], "the members are not those that the manifest names"
    assert differ in refusal(put_together(parts | {"more": b""}))
    assert differ in refusal(put_together({name: parts[name] for name in names[:-1]}))
    assert differ in refusal(put_together(parts | {names[1]: parts[names[1]] + b"\0"}))
    assert "no manifest" in refusal(put_together({name: parts[name] for name in reversed(names)}))
    assert "an unlikely name of a member" in refusal(put_together(parts | {"a b": b""}))
    rows = [(name, [data]) for name, data in parts.items()]
    digest = container.digest_of(parts[container.MANIFEST])
    assert "two members of a name" in refusal(b"".join(container._zip([*rows, rows[-1]], digest)))


HEADER_CHANGES = [
    ("local", 0, b"PK\3\5", "no header of a member"),
    ("local", 6, b"\1", "encrypted or streamed"),
    ("local", 8, b"\x08", "a member is compressed"),
    ("local", 14, b"\0\1\2\3", "two headers of a member differ"),
    ("local", 18, b"\0\0\0\0", "a member is compressed"),
    ("local", 18, b"\1\0\0\0\1\0\0\0", "two headers of a member differ"),
    ("local", 28, b"\xff\xff", "an unlikely header of a member"),
    ("local", 30, b"C", "two headers of a member differ"),
    ("row", 0, b"PK\1\1", "no row of the directory"),
    ("row", 20, b"\xff\xff\xff\xff", "a member is compressed"),
    ("row", 20, b"\xff\xff\xff\xff\xff\xff\xff\xff", "two headers of a member differ"),
    ("row", 28, b"\0\0", "an unlikely name of a member"),
    ("row", 30, b"\4", "an unknown row of the directory"),
    ("row", 32, b"\1", "a comment of a member"),
    ("row", 42, b"\0", "members overlap, or have gaps between them"),
    ("end", 0, b"PK\5\7", "no artifact of shlo_disc, or a truncated one"),
    ("end", 4, b"\1", "one of several files"),
    ("end", 8, b"\0\0\0\0", "an unlikely number of members"),
    ("end", 8, b"\2\0\2\0", "bytes that no member has"),
    ("end", 12, b"\0", "the directory is elsewhere"),
    ("end", 20, b"\0", "another comment"),
    ("end", 22, b"S", "no artifact of shlo_disc"),
    ("end", 32, b"g", "the digest of the manifest is no number"),
    ("end", 32, b"0123", "the manifest has a wrong digest"),
]


@pytest.mark.parametrize(("where", "offset", "data", "why"), HEADER_CHANGES)
def test_headers_that_lie_are_refused(refusal, folder, where, offset, data, why):
    """`where`: the first header of the second member, its row in the directory, the end record."""
    file = bytearray((folder / "m.disc").read_bytes())
    rows = file.index(b"PK\1\2")
    places = {
        "local": file.index(b"PK\3\4", 4),
        "row": file.index(b"PK\1\2", rows + 4),
        "end": file.index(b"PK\5\6"),
    }
    at = places[where] + offset
    file[at : at + len(data)] = data
    assert why in refusal(bytes(file))


def mutate(folder, count, seed):
    """Damaged artifacts, in a process of their own."""
    program = [sys.executable, "-m", "tests.artifacts.mutate"]
    given = [ral.library(), folder, str(count), str(seed)]
    env = {**os.environ, "DISC_LAPACK": str(bundled("scipy"))}
    ran = subprocess.run([*program, *given], capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = dict(ast.literal_eval(ran.stdout))
    assert sum(counts.values()) == count
    for kind in KINDS:
        assert counts[kind, 3] > count / (4 * len(KINDS))


def test_damaged_artifacts_are_refused_or_right(folder):
    mutate(folder, 1800, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_damaged_artifacts(folder, seed):
    mutate(folder, 10_000, seed)
