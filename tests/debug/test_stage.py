"""A dump of any stage is resumed with the passes that are left, and gives the program's results."""

import re

import numpy as np
import pytest
from click.testing import CliRunner

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.debug.stage import load, stage_files
from shlo_disc.lower.target import parse
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.passes.table import NEEDED, passes
from shlo_disc.tools.disc_opt import main as disc_opt
from tests.debug.programs import bits, dumped, small

MODEL = parse("cpu").model
ALL = [p.name for p in (*CLEANUP, *planning(MODEL))]


def names(stage):
    return [p.name for p in stage.left]


def test_each_file_has_the_passes_behind_it_left():
    assert dumped(small).names == ["input", *ALL]
    for done, path in enumerate(dumped(small).files):
        assert names(load(path)) == ALL[done:]


@pytest.mark.parametrize("name", ["input", "simplify", ALL[-1]])
def test_a_resumed_program_gives_the_same_bits(name):
    resumed = load(dumped(small).path(name)).compiled()
    assert bits(resumed.run_numpy(dumped(small).arguments)) == bits(dumped(small).results)
    assert [spec.name for spec in resumed.signature.arguments] == ["x", "w"]


@pytest.mark.parametrize(
    ("name", "left"),
    [("resolve-shapes", ALL), ("plan-fusion", ALL[-1:]), (ALL[-1], [])],
)
def test_without_the_attribute_the_ir_decides(tmp_path, name, left):
    """As after `disc-opt --pass-pipeline=...` by hand."""
    text = dumped(small).path(name).read_text()
    path = tmp_path / "99-any.mlir"
    path.write_text(re.sub(r"disc\.passes_left = \[.*?\](, )?", "", text, count=1))
    assert "disc.passes_left" not in path.read_text()
    stage = load(path)
    assert names(stage) == left
    got = stage.compiled().run_numpy(dumped(small).arguments)
    for a, b in zip(got, dumped(small).results, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5)


def test_disc_opt_forgets_what_was_left(tmp_path):
    path = dumped(small).path("input")
    plain = CliRunner().invoke(disc_opt, [str(path)]).output
    assert "disc.passes_left" in plain
    changed = CliRunner().invoke(disc_opt, [str(path), "--pass-pipeline=cse"]).output
    assert "func.func public @main" in changed
    assert "disc.passes_left" not in changed


def test_a_program_from_elsewhere_is_ingested(tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text("""
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %y = func.call @twice(%x) : (tensor<?xf32>) -> tensor<?xf32>
      return %y : tensor<?xf32>
    }
    func.func private @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
      %y = stablehlo.add %x, %x : tensor<?xf32>
      return %y : tensor<?xf32>
    }""")
    stage = load(path)
    assert names(stage) == ALL
    (y,) = stage.compiled().run_numpy([np.arange(3, dtype=np.float32)])
    assert y.tolist() == [0, 2, 4]


@pytest.mark.parametrize("name", ["input", "sink-views"])
def test_a_module_runs_as_it_is(name):
    executable = load(dumped(small).path(name)).as_it_is()
    done = [record.name for record in executable.passes]
    assert done == [p for p in ALL[dumped(small).names.index(name) :] if p in NEEDED]
    got = executable.run_numpy(dumped(small).arguments)
    for a, b in zip(got, dumped(small).results, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-2)


def test_needed_passes_exist_and_are_a_part():
    assert set(passes(MODEL)) > NEEDED < set(ALL)
    assert ALL[-1] == "plan-buffers"  # what `load` gives a module with fusions


def test_until_a_pass():
    stage = load(dumped(small).path("cse")).advance("resolve-shapes")
    assert names(stage) == ALL[4:]
    assert "disc.shape" in str(stage.module)
    with pytest.raises(
        ValueError, match=r"the pass .resolve-shapes. is not left .* left: simplify"
    ):
        stage.advance("resolve-shapes")


def test_bad_files_are_errors(tmp_path):
    path = tmp_path / "x.mlir"
    path.write_text('module attributes {disc.passes_left = ["fuse-all"]} {}')
    with pytest.raises(ValueError, match="no pass is named 'fuse-all'"):
        load(path)
    path.write_text("module {")
    with pytest.raises(InvalidModuleError, match="line 1"):
        load(path)
    with pytest.raises(ValueError, match=r"has no files NN-PASS\.mlir; SHLO_DISC_DUMP=DIR"):
        stage_files(tmp_path)
