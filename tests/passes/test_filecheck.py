"""Every `.mlir` file here is a test: its RUN line says how, its CHECK lines say what."""

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

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.mlir"))
_RUN = re.compile(r"^// RUN: (not )?disc-opt %s (.*?)(?: 2>&1)? \| filecheck %s$", re.MULTILINE)
_WORDS = ("", "-NEXT", "-SAME", "-NOT", "-DAG", "-LABEL", "-EMPTY", "-COUNT-\\d+")
_CHECK = re.compile(r"CHECK(?:[-_ ][\w-]*)?")
_GOOD = re.compile(rf"^\s*//\s*CHECK(?:{'|'.join(_WORDS)}):")


def inert_check_lines(text: str) -> list[str]:
    """Lines with a CHECK word that filecheck would ignore: no colon, or an unknown suffix."""
    return [line for line in text.splitlines() if _CHECK.search(line) and not _GOOD.match(line)]


def run_file(path: Path, tmp_path: Path) -> int:
    """The status of filecheck for one test file: 0 is a pass."""
    text = path.read_text()
    runs = _RUN.findall(text)
    assert runs, f"{path.name} has no RUN line"
    status = 0
    for fails, arguments in runs:
        result = CliRunner().invoke(main, [str(path), *arguments.split()])
        assert (result.exit_code != 0) == bool(fails), result.output
        output = tmp_path / (path.name + ".out")
        output.write_text(result.output)
        status |= Matcher.from_opts(Options(str(path), str(output))).run()
    return status


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path, tmp_path):
    assert inert_check_lines(path.read_text()) == []
    assert run_file(path, tmp_path) == 0


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
    assert run_file(path, tmp_path) != 0
