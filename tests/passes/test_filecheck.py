"""Every `.mlir` file here is a test: its RUN line says how, and what is expected is in it, too.

The output goes to `filecheck %s` (CHECK lines say a part of it) or to `expect`, which compares all
of it (`expected.py`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from filecheck.matcher import Matcher
from filecheck.options import Options

from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.passes import table
from shlo_disc.tools.disc_opt import main
from tests.passes import expected

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.mlir"))
_RUN = re.compile(
    r"^// RUN: (not )?disc-opt %s (.*?)(?: 2>&1)? \| (filecheck %s|expect)$", re.MULTILINE
)
_WORDS = ("", "-NEXT", "-SAME", "-NOT", "-DAG", "-LABEL", "-EMPTY", "-COUNT-\\d+")
_CHECK = re.compile(r"CHECK(?:[-_ ][\w-]*)?")
_GOOD = re.compile(rf"^\s*//\s*CHECK(?:{'|'.join(_WORDS)}):")


def inert_check_lines(text: str) -> list[str]:
    """Lines with a CHECK word that filecheck would ignore: no colon, or an unknown suffix."""
    return [line for line in text.splitlines() if _CHECK.search(line) and not _GOOD.match(line)]


def run_file(path: Path, tmp_path: Path) -> str | None:
    """What is wrong with the output of a test file; None is a pass."""
    text = path.read_text()
    runs = _RUN.findall(text)
    assert runs, f"{path.name} has no RUN line"
    wrong = None
    for fails, arguments, judge in runs:
        result = CliRunner().invoke(main, [str(path), *arguments.split()])
        assert (result.exit_code != 0) == bool(fails), result.output
        if judge == "expect":
            if expected.is_blessing():
                path.write_text(expected.blessed(text, result.output))
            else:
                wrong = wrong or expected.problem(text, result.output)
            continue
        output = tmp_path / (path.name + ".out")
        output.write_text(result.output)
        if Matcher.from_opts(Options(str(path), str(output))).run() != 0:
            wrong = wrong or "see filecheck's message"
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path, tmp_path):
    text = path.read_text()
    assert inert_check_lines(text) == []
    judges = {judge for _, _, judge in _RUN.findall(text)}
    assert ("filecheck %s" in judges) == bool(_CHECK.search(text)), "CHECK lines that nothing reads"
    assert run_file(path, tmp_path) is None


def test_every_pass_has_a_file():
    assert {p.stem for p in FILES} >= set(table.passes(MODEL))


@pytest.mark.parametrize(
    "line",
    [
        "// CHECK stablehlo.add",
        "// CHECK-NEXT %0",
        "// CHECK-NXT: %0",
        "//CHECK_NEXT: x",
        "# CHECK: x",
    ],
)
def test_a_check_word_that_filecheck_would_ignore_is_found(line):
    assert inert_check_lines(f"func.func @main()\n{line}\n") == [line]


@pytest.mark.parametrize("word", ["CHECK", "CHECK-NEXT", "CHECK-NOT", "CHECK-COUNT-2"])
def test_a_good_check_line_is_not_reported(word):
    assert inert_check_lines(f"  // {word}: stablehlo.add\n") == []


def test_a_wrong_expectation_fails(tmp_path):
    path = tmp_path / "wrong.mlir"
    path.write_text(
        "// RUN: disc-opt %s --pass-pipeline=cse | filecheck %s\n"
        "// CHECK: stablehlo.subtract\n"
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n"
    )
    assert run_file(path, tmp_path) == "see filecheck's message"


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
    assert run_file(path, tmp_path) == "module 0 has no // EXPECT:; SHLO_DISC_BLESS=1 writes it"
    monkeypatch.setenv("SHLO_DISC_BLESS", "1")
    assert run_file(path, tmp_path) is None
    written = path.read_text()
    assert written.startswith(TWO.partition("\n\n")[0] + "\n// EXPECT:\n//   module {\n")
    assert written.count("// EXPECT:") == 2
    assert run_file(path, tmp_path) is None
    assert path.read_text() == written  # blessing twice changes nothing
    monkeypatch.setenv("SHLO_DISC_BLESS", "0")
    assert run_file(path, tmp_path) is None
    path.write_text(written.replace("//       return %arg0", "//       return %arg1"))
    assert "-    return %arg1" in run_file(path, tmp_path)
    path.write_text(written.replace("//   }\n", "", 1))
    assert "+}" in run_file(path, tmp_path)
