"""`disc-dump --header`: the C++ header of an artifact, compiled and run."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import shlo_disc
from shlo_disc import ral
from shlo_disc.artifacts.header import cpp_header
from shlo_disc.artifacts.manifest import Argument, Manifest, Result
from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES
from shlo_disc.tools import disc_dump
from tests.artifacts.building import HERE
from tests.artifacts.programs import PROGRAMS, export

COMPILER = shlex.split(os.environ.get("CXX", "c++"))
FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1")


def compiled(source: Path, *more):
    include = f"-I{ral.include_dir()}"
    subprocess.run([*COMPILER, *FLAGS, include, f"-I{source.parent}", source, *more], check=True)


STEP = """
module @step {
  func.func public @main(%w: tensor<3x4xf32> {disc.name = "params['w']"},
                         %c: tensor<3xbf16> {disc.name = "params['class']"},
                         %x: tensor<?x3xf32> {disc.name = "x", disc.shape = ["n", "3"]},
                         %f: tensor<?xi1> {disc.shape = ["n"]}, %k: tensor<i32> {disc.name = "k"})
      -> (tensor<?x4xf32>, tensor<i32>, tensor<3xbf16>, tensor<?xi1>) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] :
      (tensor<?x3xf32>, tensor<3x4xf32>) -> tensor<?x4xf32>
    %m = stablehlo.add %k, %k : tensor<i32>
    %d = stablehlo.add %c, %c : tensor<3xbf16>
    %g = stablehlo.not %f : tensor<?xi1>
    return %y, %m, %d, %g : tensor<?x4xf32>, tensor<i32>, tensor<3xbf16>, tensor<?xi1>
  }
}"""


def test_a_program_by_the_names_of_its_arguments(tmp_path):
    pytest.importorskip("llvmlite")
    for name, text in (("step", STEP), ("other", STEP.replace("i32", "i16"))):
        shlo_disc.compile(text).save(tmp_path / f"{name}.disc", ["x86-64-v3"])
    shlo_disc.compile(export(PROGRAMS["integers"])).save(tmp_path / "m.disc", ["x86-64-v3"])
    told = CliRunner().invoke(disc_dump.main, [str(tmp_path / "step.disc"), "--header"])
    assert told.exit_code == 0, told.output
    (tmp_path / "typed.hpp").write_text(told.output)
    (tmp_path / "typed.cpp").write_bytes((HERE / "typed.cpp").read_bytes())
    library, program = Path(ral.library()), tmp_path / "typed"
    compiled(tmp_path / "typed.cpp", library, f"-Wl,-rpath,{library.parent}", "-o", program)
    artifacts = [tmp_path / f"{name}.disc" for name in ("step", "other", "m")]
    ran = subprocess.run([program, *artifacts], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("0 failures\n", "", 0)


NAMES = ["x", "x", "x_1", "class", "9", "", "a\nb", 'q"\\', "größe", "??/", "__a__b", "*/", "std"]


def test_every_name_and_every_element_type(tmp_path):
    dtypes = [row.dtype.name for row in ELEMENT_TYPES.values()]
    dtypes += [dtype.name for dtype in COMPLEX_TYPES.values()]
    texts = ("n\nm", "8", "2*n + 1")
    arguments = [Argument(name, "float32", (-1, 8, -1), texts) for name in NAMES]
    arguments += [Argument(f"of_{dtype}", dtype, (), ()) for dtype in dtypes]
    results = [*(Result("", dtype, ("4",)) for dtype in dtypes)]
    results += [Result(name, "int8", texts) for name in NAMES]
    whole = Manifest("shlo_disc", (), "9 of them", tuple(arguments), tuple(results), ())
    nothing = replace(whole, name="namespace", arguments=(), results=())
    for name, manifest in (("all", whole), ("none", nothing)):
        (tmp_path / f"{name}.hpp").write_text(cpp_header(manifest))
    (tmp_path / "m.cpp").write_text(
        '#include "all.hpp"\n#include "none.hpp"\n#include "all.hpp"\n'
        "namespace a = artifact::program_9_of_them;\n"
        "namespace b = artifact::program_namespace;\n"
        "void f(const a::Program& one, const b::Program& other) {\n"
        "  one(a::Arguments());\n"
        "  other({});\n"
        "}\n"
    )
    compiled(tmp_path / "m.cpp", "-c", "-o", tmp_path / "m.o")
