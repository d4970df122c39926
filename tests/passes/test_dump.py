"""Dumps overwrite nothing and follow no link, wherever they are written to."""

from __future__ import annotations

import itertools
import os

import pytest

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.ir import dump
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.lower.cpu import codegen
from shlo_disc.lower.target import parse
from shlo_disc.passes.base import Pipeline, named
from shlo_disc.passes.pipeline import CLEANUP, planning
from tests.children import at_once

TEXT = """
module @a_step {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %0 = stablehlo.tanh %x : tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}
"""


def folder_name(number: int, stem: str = "a_step") -> str:
    return f"{stem}-{os.getpid()}-{number}"


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_each_compilation_has_a_folder_of_its_own(tmp_path):
    with flags.overridden(dump=tmp_path / "new" / "deep"):
        shlo_disc.compile(TEXT)
        shlo_disc.compile(TEXT)
    first, second = sorted((tmp_path / "new" / "deep").iterdir())
    assert first.name.startswith(f"a_step-{os.getpid()}-")
    assert files(first) == files(second)
    assert files(first)[0] == "00-input.mlir"
    assert len(files(first)) > 10
    for path in first.glob("[0-9]*.mlir"):
        assert "stablehlo.tanh" in path.read_text()


def test_folders_and_links_that_are_there_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(dump, "_numbers", itertools.count(1))
    place, victim = tmp_path / "dumps", tmp_path / "victim"
    place.mkdir()
    victim.mkdir()
    (place / folder_name(1)).symlink_to(victim)  # a link to a folder
    (place / folder_name(2)).symlink_to(tmp_path / "nowhere")  # one that dangles
    (place / folder_name(3)).mkdir()  # somebody's folder
    (place / folder_name(3) / "00-input.mlir").write_text("mine")
    (place / folder_name(4)).write_text("mine")  # a file
    with flags.overridden(dump=place):
        shlo_disc.compile(TEXT)
    assert files(place) == [folder_name(n) for n in range(1, 6)]
    assert files(victim) == []
    assert not (tmp_path / "nowhere").exists()
    assert (place / folder_name(3) / "00-input.mlir").read_text() == "mine"
    assert files(place / folder_name(3)) == ["00-input.mlir"]
    assert (place / folder_name(4)).read_text() == "mine"
    assert (place / folder_name(5)).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("planted", ["link", "file", "fifo"])
def test_a_file_planted_in_the_folder_is_an_error(tmp_path, monkeypatch, planted):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    new = dump.DumpFolder.new.__func__

    def planting(cls, name):
        folder = new(cls, name)
        path = folder.path / "00-input.mlir"
        if planted == "link":
            path.symlink_to(victim)
        elif planted == "file":
            path.write_text("theirs")
        else:
            os.mkfifo(path)
        return folder

    monkeypatch.setattr(dump.DumpFolder, "new", classmethod(planting))
    place = tmp_path / "dumps"
    with flags.overridden(dump=place), pytest.raises(FileExistsError) as raised:
        shlo_disc.compile(TEXT)
    assert f"SHLO_DISC_DUMP is '{place}', but writing there failed: File exists" in str(
        raised.value
    )
    assert victim.read_text() == "mine"


def test_a_name_cannot_leave_the_directory(tmp_path):
    with flags.overridden(dump=tmp_path / "dumps"):
        shlo_disc.compile(TEXT, name="../../out /etc/../x" + "y" * 300)
        shlo_disc.compile(TEXT, name="..")
    assert files(tmp_path) == ["dumps"]
    assert len(files(tmp_path / "dumps")) == 2


def test_errors_name_the_variable_and_the_place(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    with flags.overridden(dump=taken), pytest.raises(ValueError, match="no directory"):
        shlo_disc.compile(TEXT)
    place = taken / "below"
    with flags.overridden(dump=place), pytest.raises(NotADirectoryError) as raised:
        shlo_disc.compile(TEXT)
    assert f"SHLO_DISC_DUMP is '{place}', but writing there failed" in str(raised.value)


def test_threads_do_not_share_folders(tmp_path):
    with flags.overridden(dump=tmp_path):
        made = []
        at_once(lambda _: made.extend(_new_folder(tmp_path) for _ in range(20)), range(4))
    assert len(set(made)) == 80


def test_kernels_and_host_program_are_written_once(tmp_path):
    twice = """
    func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<f32>) {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %a = stablehlo.tanh %x : tensor<?xf32>
      %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
          : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
      %b = stablehlo.reverse %a, dims = [0] : tensor<?xf32>
      return %a, %b, %s : tensor<?xf32>, tensor<?xf32>, tensor<f32>
    }"""
    with flags.overridden(dump=tmp_path, fusion=0):
        executable = shlo_disc.compile(twice)
    (folder,) = tmp_path.iterdir()
    kernels = sorted(folder.glob("kernel-*.mlir"))
    texts = [path.read_text() for path in kernels]
    assert len(texts) == len(set(texts)) == len(executable.host.kernels) > 2
    for path, text in zip(kernels, texts, strict=True):
        symbol = path.stem.rpartition("-")[2]
        assert f"func.func @{symbol}(" in text
        assert text in executable.as_text("kernels")
        assert path.stat().st_mode & 0o077 == 0
    assert (folder / "host.mlir").read_text() == executable.as_text("host")


def test_texts_of_one_name_are_written_once_and_never_through_links(tmp_path):
    with flags.overridden(dump=tmp_path):
        folder = dump.DumpFolder.new("x")
    for _ in range(2):
        folder.write_kernel("a/b c", "k1", "text")
    assert files(folder.path) == ["kernel-a_b_c-k1.mlir"]
    for _ in range(3):
        folder.write_host("host")
    assert files(folder.path)[:3] == ["host-2.mlir", "host-3.mlir", "host.mlir"]
    (folder.path / "kernel-y-k2.mlir").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError, match="SHLO_DISC_DUMP is"):
        folder.write_kernel("y", "k2", "text")
    assert not (tmp_path / "victim").exists()


def test_dumps_say_which_passes_are_left(tmp_path):
    with flags.overridden(dump=tmp_path):
        shlo_disc.compile(TEXT)
    names = [p.name for p in (*CLEANUP, *planning(parse("cpu").model))]
    (folder,) = tmp_path.iterdir()
    paths = sorted(folder.glob("[0-9]*.mlir"))
    assert len(paths) == len(names) + 1
    for done, path in enumerate(paths):
        left = ", ".join(f'"{name}"' for name in names[done:])
        assert f"module @a_step attributes {{disc.passes_left = [{left}]}}" in path.read_text()


def test_a_pipeline_that_is_not_all_leaves_no_claim(tmp_path):
    with new_context(), ir.Location.unknown(), flags.overridden(dump=tmp_path):
        module = ir.Module.parse(TEXT)
        module.operation.attributes[dump.PASSES_LEFT] = ir.ArrayAttr.get([])
        Pipeline([named("cse")]).run(module)
    (folder,) = tmp_path.iterdir()
    assert not any(dump.PASSES_LEFT in path.read_text() for path in folder.iterdir())


@pytest.mark.parametrize(("level", "shown"), [(4, False), (5, True)])
def test_level_five_shows_llvm_ir_and_assembly(capsys, level, shown):
    with flags.overridden(debug=level):
        executable = shlo_disc.compile(TEXT)
    written = capsys.readouterr().err
    (kernel,) = executable.host.kernels
    symbol = codegen.function_name(kernel.text)
    assert "// after plan-buffers" in written
    assert (f"define void @{symbol}(" in written) == shown
    assembly = f"<{symbol}>:" in written or "needs objdump" in written
    assert assembly == shown


def _new_folder(place):
    with flags.overridden(dump=place):  # an override is of one thread
        return dump.DumpFolder.new("x").path
