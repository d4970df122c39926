"""Weights of artifacts: in the file or beside it, mapped, and checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import shlo_disc
import shlo_disc_runtime
from shlo_disc.artifacts import safetensors
from shlo_disc.artifacts.read import read
from shlo_disc.base.errors import ArtifactError, UnsupportedError
from shlo_disc.tools import disc_dump
from tests.artifacts.programs import PROGRAMS, arguments, export
from tests.artifacts.test_save import RUN_HERE, rewritten, same_bits

pytest.importorskip("llvmlite")

RNG = np.random.default_rng(3)
TABLES = {
    "wide": RNG.standard_normal((160, 128)).astype("f4"),
    "odd": RNG.standard_normal((129, 131)).astype("f4"),
    "halves": RNG.standard_normal((300, 128)).astype(jnp.bfloat16),
    "flags": RNG.random(99991) < 0.5,
    "bytes": RNG.integers(-100, 100, 70001).astype("i1"),
    "rare": RNG.standard_normal(80001).astype(jnp.float8_e5m2fnuz),
    "numbers": RNG.integers(-100, 100, (7, 3001)).astype("i4"),
}


def rows(i):
    """A row of each table."""
    return [jnp.asarray(table)[i] for table in TABLES.values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`inside.disc`, and `separate.disc` with the file of its weights."""
    folder = tmp_path_factory.mktemp("weights")
    compiled = shlo_disc.jit(rows).lower(jax.ShapeDtypeStruct((), "i4")).compile()
    for weights in ("inside", "separate"):
        compiled.save(folder / f"{weights}.disc", ["x86-64-v3"], weights=weights)
    return folder


def beside(path):
    return path.parent / f"{path.name}.safetensors"


@pytest.fixture
def artifact(folder, tmp_path):
    """The path of a copy of `separate.disc`, which a test may damage."""
    path = tmp_path / "separate.disc"
    path.write_bytes((folder / path.name).read_bytes())
    beside(path).write_bytes(beside(folder / path.name).read_bytes())
    return path


LOADERS = [shlo_disc.load, shlo_disc_runtime.load]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("weights", ["inside", "separate"])
def test_every_element_type_and_every_size(load, weights, folder):
    loaded = load(folder / f"{weights}.disc")
    for i in (0, 3, 6):
        same_bits(loaded(np.int32(i)), [table[i] for table in TABLES.values()])


def test_large_tensors_are_beside_the_artifact(folder):
    separate = folder / "separate.disc"
    size = sum(table.nbytes for table in TABLES.values())
    assert separate.stat().st_size < (folder / "inside.disc").stat().st_size - size
    told = read(separate).manifest
    assert told.weights_file == "separate.disc.safetensors"
    types = {(row.dtype, row.sizes) for row in told.tensors}
    assert types >= {
        ("F32", (160, 128)), ("F32", (129, 131)), ("BF16", (300, 128)), ("BOOL", (99991,)),
        ("I8", (70001,)), ("U8", (80001,)), ("I32", (7, 3001)),
    }  # fmt: skip


def test_a_weights_file_goes_with_the_artifact_that_had_it(tmp_path):
    path = tmp_path / "m.disc"
    compiled = shlo_disc.jit(rows).lower(jax.ShapeDtypeStruct((), "i4")).compile()
    beside(path).write_bytes(b"of somebody else")
    compiled.save(path, ["x86-64-v3"])
    compiled.save(path, ["x86-64-v3"])
    assert beside(path).read_bytes() == b"of somebody else"
    compiled.save(path, ["x86-64-v3"], weights="separate")
    compiled.save(path, ["x86-64-v3"], weights="separate")
    shlo_disc.load(path)
    compiled.save(path, ["x86-64-v3"])
    assert [found.name for found in tmp_path.iterdir()] == ["m.disc"]
    shlo_disc.load(path)


def test_the_file_is_as_safetensors_demands(folder):
    """No holes, no overlaps, sizes of the types; and all that can be is aligned."""
    file = beside(folder / "separate.disc").read_bytes()
    length = int.from_bytes(file[:8], "little")
    assert (8 + length) % safetensors.PAGE == 0
    assert file[8:9] == b"{"
    header, end = json.loads(file[8 : 8 + length]), 0
    item = {"F32": 4, "BF16": 2, "BOOL": 1, "I8": 1, "U8": 1, "I32": 4}
    for name, row in header.items():
        begin, end_before = row["data_offsets"][0], end
        end = row["data_offsets"][1]
        assert begin == end_before
        assert end - begin == item[row["dtype"]] * int(np.prod(row["shape"]))
        assert begin % 64 == 0 or (end - begin) % 64 != 0 or name == "padding"
    assert 8 + length + end == len(file)


@pytest.mark.parametrize("name", ["weights", "large weights", "product"])
def test_a_program_has_the_bits_of_the_one_with_its_weights_inside(name, tmp_path):
    program = PROGRAMS[name]
    executable = shlo_disc.compile(export(program))
    executable.save(tmp_path / "a.disc")
    executable.save(tmp_path / "b.disc", weights="separate")
    assert beside(tmp_path / "b.disc").exists() == (name != "product")
    first, second = (shlo_disc_runtime.load(tmp_path / f"{name}.disc") for name in "ab")
    for sizes in program.sizes:
        given = arguments(program, sizes)
        same_bits(first(*given), second(*given))


def changed_header(file, change):
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + file[8 + length :]


def of_header(change):
    return lambda file: changed_header(file, change)


def row_of(header, dtype):
    return next(row for name, row in header.items() if row["dtype"] == dtype and "/" in name)


WRONG = {
    "the length of the header": (lambda f: f[:7], "no safetensors file, or a truncated one"),
    "no header": (lambda f: b"\xff" * 8 + f[8:], "no safetensors file, or a truncated one"),
    "half of it": (lambda f: f[: len(f) // 2], "is outside the file, which may be truncated"),
    "no JSON": (lambda f: f[:8] + b"?" + f[9:], "the header"),
    "other elements": (
        lambda f: f[:5000] + bytes([f[5000] ^ 1]) + f[5001:],
        "has other elements than those that were saved",
    ),
    "no tensor": (of_header(lambda h: h.pop("constants/0")), "it has no tensor"),
    "another type": (
        of_header(lambda h: row_of(h, "BF16").update(dtype="F16")),
        re.escape("is F16[300, 128], the artifact takes BF16[300, 128]"),
    ),
    "other sizes": (
        of_header(lambda h: row_of(h, "I32").update(shape=[3001, 7])),
        re.escape("is I32[3001, 7], the artifact takes I32[7, 3001]"),
    ),
    "fewer bytes": (
        of_header(lambda h: row_of(h, "I32").update(data_offsets=[0, 64])), "the artifact takes"
    ),
    "bytes backwards": (
        of_header(lambda h: row_of(h, "I32").update(data_offsets=[64, 0])), "outside|is damaged"
    ),
    "one offset": (of_header(lambda h: row_of(h, "I32").update(data_offsets=[0])), "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_weights_are_refused_by_name(case, load, artifact):
    change, message = WRONG[case]
    beside(artifact).write_bytes(change(beside(artifact).read_bytes()))
    kind = (ArtifactError, shlo_disc_runtime.ArtifactError)
    with pytest.raises(kind, match=message) as told:
        load(artifact)
    assert str(beside(artifact)) in str(told.value)


@pytest.mark.parametrize("load", LOADERS)
def test_missing_weights_are_told_by_name(load, artifact):
    beside(artifact).unlink()
    with pytest.raises(OSError, match=re.escape(str(beside(artifact)))):
        load(artifact)


@pytest.mark.parametrize("load", LOADERS)
def test_another_header_of_the_same_tensors_will_do(load, artifact):
    """As another tool writes the file: with metadata, in another order, nothing aligned."""
    file = beside(artifact).read_bytes()
    length = int.from_bytes(file[:8], "little")
    header, data = json.loads(file[8 : 8 + length]), file[8 + length :]
    header.pop("padding")
    made, parts, end = {"__metadata__": {"format": 'p"t\\'}}, [], 0
    for name, row in reversed(header.items()):
        begin, last = row["data_offsets"]
        parts.append(data[begin:last])
        made[name] = {**row, "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(made, indent=1).encode()
    beside(artifact).write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *parts]))
    same_bits(load(artifact)(np.int32(5)), [table[5] for table in TABLES.values()])


def test_weights_that_everyone_may_write_are_refused(artifact):
    beside(artifact).chmod(0o646)
    with pytest.raises(OSError, match="everyone may write to it"):
        shlo_disc_runtime.load(artifact)


def test_trusted_constants_are_not_read_and_their_types_are_checked(artifact):
    file = beside(artifact).read_bytes()
    beside(artifact).write_bytes(WRONG["other elements"][0](file))
    shlo_disc_runtime.load(artifact, trust_constants=True)
    beside(artifact).write_bytes(WRONG["other sizes"][0](file))
    with pytest.raises(shlo_disc_runtime.ArtifactError, match="the artifact takes I32"):
        shlo_disc_runtime.load(artifact, trust_constants=True)


def test_wrong_options(tmp_path):
    executable = shlo_disc.compile(export(PROGRAMS["integers"]))
    with pytest.raises(ValueError, match="must be 'inside' or 'separate', got 'beside'"):
        executable.save(tmp_path / "m.disc", weights="beside")


SHARED = """
import sys
from dataclasses import replace
import numpy
{imports}
def anonymous():
    text = open("/proc/self/smaps_rollup").read()
    return int(text.split("Anonymous:")[1].split()[0]) * 1024
before = anonymous()
program = load({path!r})
for i in numpy.arange(64, dtype="i4"):  # which reads all pages
    {call}
print(anonymous() - before, flush=True)
input()
sizes = {{}}
mine = False
for line in open("/proc/self/smaps"):
    key, *rest = line.split()
    if not key.endswith(":"):
        mine = line.rstrip().endswith({mapped!r})
    elif mine and rest[-1] == "kB":
        sizes[key[:-1]] = sizes.get(key[:-1], 0) + int(rest[0]) * 1024
print(sizes["Shared_Clean"] + sizes["Shared_Dirty"], sizes["Anonymous"], flush=True)
input()
"""
BYTES = 16 << 20


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A program with a table of 16 MiB, which no kernel packs."""
    folder = tmp_path_factory.mktemp("big")
    table = RNG.standard_normal((64, BYTES // 256)).astype("f4")
    compiled = shlo_disc.jit(lambda i: jnp.asarray(table)[i]).lower(jax.ShapeDtypeStruct((), "i4"))
    for weights in ("inside", "separate"):
        compiled.compile().save(folder / f"{weights}.disc", ["x86-64-v3"], weights=weights)
    return folder


@pytest.mark.unsanitized
@pytest.mark.parametrize("package", ["shlo_disc", "shlo_disc_runtime"])
@pytest.mark.parametrize("weights", ["inside", "separate"])
def test_two_processes_share_the_memory_of_weights(package, weights, big):
    path = big / f"{weights}.disc"
    script = SHARED.format(
        imports=f"from {package} import load",
        path=str(path),
        mapped=str(path if weights == "inside" else beside(path)),
        call="program.run_numpy([i])" if package == "shlo_disc" else "program(i)",
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([sys.executable, "-c", script], **pipes) for _ in range(2)]
    try:
        for process in both:
            assert int(process.stdout.readline()) < BYTES / 4  # there is no copy
        for process in both:
            process.stdin.write("\n")
            process.stdin.flush()
            shared, anonymous = map(int, process.stdout.readline().split())
            assert shared >= BYTES
            assert anonymous == 0
    finally:
        for process in both:
            process.communicate("\n")


PACKED = """
import sys, numpy, shlo_disc_runtime
program = shlo_disc_runtime.load(sys.argv[1])
x = numpy.load(sys.argv[2])
def anonymous():
    text = open("/proc/self/smaps_rollup").read()
    return int(text.split("Anonymous:")[1].split()[0]) * 1024
def mapped():
    sizes, mine = [], False
    for line in open("/proc/self/smaps"):
        if not line.split()[0].endswith(":"):
            mine = ".disc" in line
        elif mine and line.startswith("Rss:"):
            sizes.append(int(line.split()[1]) * 1024)
    return sum(sizes)
loaded, before = mapped(), anonymous()
(y,) = program(x)
print(loaded, anonymous() - before, mapped())
numpy.save(sys.argv[3], y)
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("weights", ["inside", "separate"])
def test_weights_are_packed_before(weights, tmp_path):
    """Calls have the bits of those that pack by themselves, and make no copy of the weights.

    Pages that are only checked, or only packed, do not stay in the process.
    """
    w = RNG.standard_normal((1500, 1600)).astype("f4")
    x = RNG.standard_normal((1024, 1500)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    compiled = shlo_disc.jit(lambda x: x @ w).lower(x).compile()
    grown, given = {}, {"plain": None, "packed": (x,)}
    for name, packed_for in given.items():
        path = tmp_path / f"{name}.disc"
        compiled.save(path, RUN_HERE, weights=weights, packed_for=packed_for)
        told = read(path).manifest
        assert {pack.target for pack in told.packs} == set(
            range(len(RUN_HERE)) if packed_for else ()
        )
        for pack in told.packs:
            assert pack.data.size >= w.nbytes
        dumped = CliRunner().invoke(disc_dump.main, [str(path)]).output
        assert dumped.count("1 packed copy of constants") == len(told.packs)
        command = [sys.executable, "-c", PACKED, path, tmp_path / "x.npy", tmp_path / f"{name}.npy"]
        loaded, grown[name], mapped = map(int, subprocess.check_output(command, text=True).split())
        assert loaded < w.nbytes / 4
        assert mapped < w.nbytes / 4 + (w.nbytes if packed_for else 0)
        same_bits(shlo_disc.load(path).run_numpy([x]), [np.load(tmp_path / f"{name}.npy")])
    same_bits([np.load(tmp_path / "plain.npy")], [np.load(tmp_path / "packed.npy")])
    assert grown["plain"] - grown["packed"] > w.nbytes / 2


def test_packing_needs_a_machine_that_runs_it(tmp_path):
    executable = shlo_disc.compile(export(PROGRAMS["large weights"]))
    with pytest.raises(UnsupportedError, match="aarch64: this machine is x86_64"):
        executable.save(tmp_path / "m.disc", ["aarch64"], packed_for=[np.ones((9, 300), "f4")])
    with pytest.raises(TypeError, match="dimension 1 is 200, the program takes 300"):
        executable.save(tmp_path / "m.disc", RUN_HERE, packed_for=[np.ones((9, 200), "f4")])
    assert not list(tmp_path.iterdir())


LIES = [{"target": 1}, {"target": -1}, {"constant": 1}, {"slot": 1}, {"slot": -1}]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("lie", LIES)
def test_packs_that_lie_are_refused(lie, load, tmp_path):
    x = np.ones((600, 300), "f4")
    executable = shlo_disc.compile(export(PROGRAMS["large weights"]))
    executable.save(tmp_path / "m.disc", RUN_HERE[-1:], packed_for=[x])
    (pack,) = read(tmp_path / "m.disc").manifest.packs
    load(tmp_path / "m.disc")
    rewritten(
        tmp_path / "m.disc",
        tmp_path / "n.disc",
        lambda whole: replace(whole, packs=(replace(pack, **lie),)),
    )
    with pytest.raises((ArtifactError, shlo_disc_runtime.ArtifactError)):
        load(tmp_path / "n.disc")
