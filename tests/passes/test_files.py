"""Every `.mlir` file here is a test: its RUN line says how, and the whole output is in it, too.

`expected.py` compares the output of `disc-opt` with what the file expects of each module.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.passes import table
from shlo_disc.tools.disc_opt import main
from tests.passes import expected

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.mlir"))
_RUN = re.compile(r"^// RUN: disc-opt %s (.*?) \| expect$", re.MULTILINE)


def run_file(path: Path) -> str | None:
    """What is wrong with the output of a test file; None is a pass."""
    text = path.read_text()
    runs = _RUN.findall(text)
    assert len(runs) == 1, f"{path.name} needs one RUN line"
    (arguments,) = runs
    result = CliRunner().invoke(main, [str(path), *arguments.split()])
    assert result.exit_code == 0, result.output
    if not expected.is_blessing():
        return expected.problem(text, result.output)
    path.write_text(expected.blessed(text, result.output))
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path):
    assert run_file(path) is None


def test_every_pass_has_a_file():
    assert {p.stem for p in FILES} >= set(table.passes(MODEL))


TWO = """\
// RUN: disc-opt %s --pass-pipeline=dce --split-input-file | expect
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.tanh %x : tensor<4xf32>
  return %x : tensor<4xf32>
}

// -----

func.func @main() {
  return
}
"""


def test_expected_outputs_are_written_and_then_compared_whole(tmp_path, monkeypatch):
    monkeypatch.delenv("SHLO_DISC_BLESS", raising=False)
    path = tmp_path / "two.mlir"
    path.write_text(TWO)
    assert run_file(path) == "module 0 has no // EXPECT:; SHLO_DISC_BLESS=1 writes it"
    monkeypatch.setenv("SHLO_DISC_BLESS", "1")
    assert run_file(path) is None
    written = path.read_text()
    assert written.startswith(TWO.partition("\n\n")[0] + "\n// EXPECT:\n//   module {\n")
    assert written.count("// EXPECT:") == 2
    assert run_file(path) is None
    assert path.read_text() == written  # blessing twice changes nothing
    monkeypatch.setenv("SHLO_DISC_BLESS", "0")
    assert run_file(path) is None
    path.write_text(written.replace("//       return %arg0", "//       return %arg1"))
    assert "-    return %arg1" in run_file(path)
    path.write_text(written.replace("//   }\n", "", 1))
    assert "+}" in run_file(path)
