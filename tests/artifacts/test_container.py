"""The file of an artifact, as Python writes it: a ZIP file, and its manifest."""

import os
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from shlo_disc.artifacts import container, manifest
from shlo_disc.base.errors import UnsupportedError


def contents_and_manifest():
    contents = container.Contents()
    span = contents.add_object("x86-64-v3", b"first" * 3)
    other = contents.add_object("x86-64-v3", b"second")
    large = contents.add_constant(np.arange(3000, dtype="f4"))
    small = contents.add_constant(np.array([7777777, -5], "i8"))
    assert contents.add_constant(np.array([7777777, -5], "i8")) == small
    contents.add("explain.json", b"{}")
    target = manifest.Target(
        name="x86-64-v3",
        machine="x86-64",
        features=("avx2", "fma"),
        cores=8,
        objects=(span, other),
        prepare=manifest.Function(0, "prepare"),
        run=manifest.Function(0, "run"),
        kernels=(manifest.Function(1, "kernel"),),
        symbols=2,
        guards=("n is m",),
        pack_layouts=("dense",),
        constants=(large, small),
        size_arguments=(),
        packable=(1,),
        donated=(0,),
        unread=(),
        reuses=((0, 0),),
    )
    made = manifest.Manifest(
        compiler="shlo_disc 0.1.0",
        members=contents.members(),
        name="größe",
        arguments=(manifest.Argument("x", "float32", (-1, 8), ("n", "8")),),
        results=(manifest.Result("", "float32", ("2*n",)),),
        targets=(target,),
    )
    return contents, made


def test_any_tool_lists_it(tmp_path):
    contents, made = contents_and_manifest()
    contents.write(tmp_path / "m.disc", made)
    file = (tmp_path / "m.disc").read_bytes()
    with zipfile.ZipFile(tmp_path / "m.disc") as zipped:
        assert zipped.testzip() is None
        assert manifest.unpacked(zipped.read(container.MANIFEST)) == made
        names = [container.MANIFEST, *(member.name for member in made.members)]
        assert zipped.namelist() == names
        comment = container.COMMENT + container.digest_of(manifest.packed(made)).hex().encode()
        assert zipped.comment == comment
        for member in made.members:
            data = zipped.read(member.name)
            assert (len(data), container.digest_of(data)) == (member.size, member.digest)
            assert file.find(data) % container.ALIGNMENT == 0
            if member.size >= container.PAGE:
                assert file.find(data) % container.PAGE == 0
        code = zipped.read("code/x86-64-v3.bin")
    first, second = made.targets[0].objects
    assert code[: first.size] == b"first" * 3
    assert code[second.offset :] == b"second"


def test_equal_programs_have_equal_files_and_no_others_are_left(tmp_path):
    for name in ("a", "b", "b"):
        contents, made = contents_and_manifest()
        contents.write(tmp_path / name, made)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_file_has_32_bits_of_offsets(tmp_path):
    contents, made = contents_and_manifest()
    contents.add_constant(np.broadcast_to(np.uint8(0), 1 << 20))
    contents._sizes["code/x86-64-v3.bin"] = 2**32
    with pytest.raises(UnsupportedError, match="pass the weights as arguments"):
        contents.write(tmp_path / "m.disc", made)
    assert not os.listdir(tmp_path)


def test_damaged_and_newer_manifests_are_refused():
    data = manifest.packed(contents_and_manifest()[1])
    for end in range(len(data)):
        with pytest.raises(manifest.ManifestError):
            manifest.unpacked(data[:end])
    with pytest.raises(manifest.ManifestError, match="behind"):
        manifest.unpacked(data + b"\0")
    newer = data[:8] + (9).to_bytes(8, "little") + data[16:]
    with pytest.raises(manifest.ManifestError, match=r"format 9, made by shlo_disc 0.1.0"):
        manifest.unpacked(newer)
    with pytest.raises(manifest.ManifestError, match="UTF-8"):
        manifest.unpacked(data.replace("ö".encode(), b"\xff\xff"))


def test_every_field_is_kept():
    made = contents_and_manifest()[1]
    changed = replace(made.targets[0], machine="aarch64", reuses=(), kernels=())
    assert manifest.unpacked(manifest.packed(replace(made, targets=(changed,)))) != made
