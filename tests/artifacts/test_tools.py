"""`disc-compile`, `disc-dump` and `disc-run` on artifacts."""

import numpy as np
import pytest
from click.testing import CliRunner

from shlo_disc.tools import disc_compile, disc_dump, disc_run
from tests.test_data_sized import POSITIVE

pytest.importorskip("llvmlite")

TEXT = """
module @double {
  func.func public @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %w: tensor<8x4xf32>)
      -> tensor<?x4xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] :
      (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}"""


def invoke(tool, *words):
    return CliRunner().invoke(tool.main, [*map(str, words)])


@pytest.fixture
def artifact(tmp_path):
    (tmp_path / "m.mlir").write_text(TEXT)
    path = tmp_path / "m.disc"
    options = ("--cores", 4, "--constraint", "n >= 2")
    result = invoke(
        disc_compile, tmp_path / "m.mlir", "-o", path, "--target", "x86-64-v3", *options
    )
    assert result.exit_code == 0, result.output
    return path


def test_a_module_is_compiled_dumped_and_run(artifact, tmp_path):
    told = invoke(disc_dump, artifact, "--kernels").output
    assert told.startswith("double(args[0]: float32[n, 8], args[1]: float32[8, 4]) -> ")
    assert "x86-64-v3, made for 4 cores: needs popcnt" in told
    assert "guard: the program is compiled for n >= 2" in told
    assert "  dense  " in told
    assert "code/x86-64-v3.bin" in told
    x, w = np.ones((3, 8), "f4"), np.ones((8, 4), "f4")
    np.savez(tmp_path / "x.npz", arr_0=x, arr_1=w)
    given = ("--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz")
    result = invoke(disc_run, artifact, *given)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["arr_0"], x @ w)
    assert "float32[5, 4]" in invoke(disc_run, artifact, "--size", "n=5").output


WEIGHTS = """
func.func public @main(%x: tensor<?x64xf32> {{disc.shape = ["n", "64"], disc.name = "x"}})
    -> tensor<?x64xf32> {{
  %w = stablehlo.constant dense<{elements}> : tensor<64x64xf32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] :
    (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}}"""


def test_packed_copies_are_those_of_a_call_in_a_file(tmp_path):
    (tmp_path / "m.mlir").write_text(WEIGHTS.format(elements=np.eye(64, dtype="f4").tolist()))
    given, path = tmp_path / "x.npz", tmp_path / "m.disc"
    compiled = (disc_compile, tmp_path / "m.mlir", "-o", path, "--target", "x86-64-v3")
    for name in ("x", "arr_0"):
        np.savez(given, **{name: np.ones((65, 64), "f4")})
        path.unlink(missing_ok=True)
        result = invoke(*compiled, "--packed-for", given)
        assert result.exit_code == 0, result.output
        assert " packed cop" in invoke(disc_dump, path).output
    np.savez(given, np.ones((3, 63), "f4"))
    result = invoke(*compiled, "--packed-for", given)
    assert result.exit_code == 1
    assert "63" in result.output


def test_programs_of_several_parts_are_dumped_and_run(tmp_path):
    (tmp_path / "m.mlir").write_text(POSITIVE)
    path = tmp_path / "m.disc"
    result = invoke(disc_compile, tmp_path / "m.mlir", "-o", path, "--target", "x86-64-v3")
    assert result.exit_code == 0, result.output
    told = invoke(disc_dump, path, "--kernels").output
    assert "  program 1 of 2, main_1:" in told
    assert "  program 2 of 2, main_2:" in told
    assert "  sort  " in told
    np.savez(tmp_path / "x.npz", np.float32([1, -2, 3]))
    result = invoke(disc_run, path, "--inputs", tmp_path / "x.npz")
    assert result.exit_code == 0, result.output
    assert "[3. 1.]" in result.output
    assert invoke(disc_run, path, "--size", "d0_0=4").output.count("result[") == 3
    assert invoke(disc_dump, path, "--header").exit_code == 0


def test_weights_beside_an_artifact_are_listed(tmp_path):
    rows = ", ".join(f"[{k}.5, {k}.25]" for k in range(40))
    text = f"""
    func.func public @main(%i: tensor<i32>) -> tensor<1x2xf32> {{
      %c = stablehlo.constant dense<[{rows}]> : tensor<40x2xf32>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r = stablehlo.dynamic_slice %c, %i, %z, sizes = [1, 2] :
        (tensor<40x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      return %r : tensor<1x2xf32>
    }}"""
    (tmp_path / "m.mlir").write_text(text)
    path, options = tmp_path / "m.disc", ("--target", "x86-64-v3", "--weights", "separate")
    result = invoke(disc_compile, tmp_path / "m.mlir", "-o", path, *options)
    assert result.exit_code == 0, result.output
    told = invoke(disc_dump, path).output
    assert "tensors of m.disc.safetensors:\n" in told
    assert told.endswith(" 320 bytes  constants/0  F32[40, 2]\n")


def test_the_tools_tell_what_is_wrong(artifact, tmp_path):
    module, other = tmp_path / "m.mlir", tmp_path / "n.disc"
    for tool, words, status, message in (
        (disc_run, (artifact, "--size", "n=1"), 1, "n >= 2"),
        (disc_run, (artifact, "--until", "simplify"), 2, "is compiled"),
        (disc_run, (artifact, "--engine", "reference"), 2, "is compiled"),
        (disc_dump, (module,), 1, "ArtifactError"),
        (
            disc_compile,
            (module, "-o", other, "--target", "z80"),
            1,
            "z80",
        ),
        (disc_compile, (artifact, "-o", other), 1, "InvalidModuleError"),
    ):
        result = invoke(tool, *words)
        assert (result.exit_code, message in result.output) == (status, True), result.output
