"""The command `disc-run`: what it prints, writes and refuses."""

import numpy as np
import pytest
from click.testing import CliRunner

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.executables.signature import dtype_of
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.ir.pipeline import PassLog
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.tools.disc_run import main
from tests.lower.device import FAR_MODEL
from tests.lower.test_host import LOOP

TEXT = """
func.func public @main(%x: tensor<?x2xf32> {disc.shape = ["n", "2"], disc.name = "x"},
                       %h: tensor<?xbf16> {disc.shape = ["n"], disc.name = "h"})
    -> (tensor<?x2xf32>, tensor<?xbf16>) {
  %y = stablehlo.tanh %x : tensor<?x2xf32>
  %g = stablehlo.add %h, %h : tensor<?xbf16>
  return %y, %g : tensor<?x2xf32>, tensor<?xbf16>
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    room = tmp_path_factory.mktemp("dump")
    with flags.overridden(dump=room):
        shlo_disc.compile(TEXT)
    (folder,) = room.iterdir()
    return folder


def planned(folder):
    """The dump of the last pass."""
    (path,) = folder.glob("*-plan-buffers.mlir")
    return path


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_arrays_go_in_and_out_as_files(folder, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    h = np.array([1.5, -2, np.inf], dtype_of("bf16"))
    np.savez(tmp_path / "x.npz", x=x, h=h)
    np.savez(tmp_path / "numbered.npz", x, h)
    outputs = tmp_path / "y.npz"
    for inputs in ("x.npz", "numbered.npz"):
        done = run(
            folder / "04-resolve-shapes.mlir", "--inputs", tmp_path / inputs, "--outputs", outputs
        )
        assert done.exit_code == 0, done.output
        assert done.output.splitlines()[:2] == [
            "result[0]: float32[3, 2]",
            "result[1]: bfloat16[3]",
        ]
        with np.load(outputs) as file:
            np.testing.assert_allclose(file["arr_0"], np.tanh(x), rtol=1e-6)
            assert file["arr_1"].view(h.dtype).tolist() == [3, -4, np.inf]


def test_random_inputs_have_the_sizes_asked_for(folder):
    first = run(folder / "00-input.mlir", "--size", "n=3")
    assert "result[0]: float32[3, 2]\n[[" in first.output
    assert run(planned(folder), "--size", "n=3").output == first.output
    assert run(folder / "00-input.mlir", "--size", "n=3", "--seed", 1).output != first.output
    until = run(folder / "00-input.mlir", "--size", "n=3", "--until", "simplify")
    assert until.output == first.output


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 1, "ValueError: random arguments need a value of n: --size n=N"),
        (["--size", "n=3", "--size", "k=1"], 1, "no symbol is called k; symbols: n"),
        (["--size", "n"], 2, "'n' is not NAME=NUMBER, such as b=3"),
        (["--size", "n=0"], 1, "ShapeMismatchError"),
        (["--until", "fuse", "--size", "n=1"], 1, "the pass 'fuse' is not left"),
        (["--until", "cse", "--check"], 2, "--check and --until exclude each other"),
        (["--check", "--engine", "reference"], 2, "leave --engine away"),
        (["--bisect"], 2, "--bisect takes a folder of SHLO_DISC_DUMP"),
        (["--inputs", "WRONG"], 1, "has the arrays z; the arguments are x, h. Name arrays so"),
    ],
)
def test_what_is_wrong_is_said(folder, tmp_path, arguments, status, said):
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, z=np.zeros(3))
    done = run(folder / "00-input.mlir", *(wrong if a == "WRONG" else a for a in arguments))
    assert done.exit_code == status
    assert said in done.output.replace("\n", " "), done.output


def test_a_call_that_breaks_a_size_is_the_error_of_a_call(folder, tmp_path):
    bf16 = dtype_of("bf16")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2), np.float32), h=np.zeros(4, bf16))
    done = run(planned(folder), "--inputs", tmp_path / "x.npz")
    assert done.exit_code == 1
    assert "ShapeMismatchError: argument 1 ('h'): dimension 0 is 4, but n = 3" in done.output


def test_check_and_bisect_say_what_they_found(folder, tmp_path):
    done = run("--check", planned(folder), "--size", "n=3")
    assert done.exit_code == 0, done.output
    assert "2 of 2 runs of fusions agree with the StableHLO interpreter." in done.output
    kept = ["00-input.mlir", "04-resolve-shapes.mlir", "05-simplify.mlir"]
    for name in kept:
        text = (folder / name).read_text()
        late = name.startswith("05")
        (tmp_path / name).write_text(
            text.replace("stablehlo.tanh", "stablehlo.abs") if late else text
        )
    done = run("--bisect", tmp_path, "--size", "n=3")
    assert done.exit_code == 3, done.output
    assert (
        "simplify is the first pass after which results differ (05-simplify.mlir):" in done.output
    )
    (tmp_path / kept[2]).unlink()
    said = "2 of 2 files ran, and no pass changes the results (--engine reference). Try --engine as"
    done = run("--bisect", tmp_path, "--size", "n=3", "--engine", "reference")
    assert done.exit_code == 0, done.output
    assert said in done.output


def test_a_program_whose_sizes_come_from_data_runs(tmp_path):
    path = tmp_path / "chain.mlir"
    path.write_text("""func.func @main(%a: tensor<1xi32>, %x: tensor<?xf32>) -> tensor<?xi32> {
      %n = stablehlo.multiply %a, %a : tensor<1xi32>
      %d = stablehlo.remainder %n, %a : tensor<1xi32>
      %s = stablehlo.add %n, %d : tensor<1xi32>
      %0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0 : tensor<?xi32> }""")
    np.savez(tmp_path / "x.npz", np.int32([2]), np.ones(3, "f4"))
    done = run(path, "--inputs", tmp_path / "x.npz")
    assert done.output.splitlines() == ["result[0]: int32[4]", "[0 1 2 3]"]
    for option in (["--check"], ["--engine", "reference"], ["--until", "cse"]):
        done = run(path, "--inputs", tmp_path / "x.npz", *option)
        assert done.exit_code == 1
        assert "UnsupportedError: <module>:5:12: stablehlo.dynamic_iota: operand 0" in done.output
        assert "disc-run without other options runs them" in done.output


@pytest.mark.parametrize("given", ["inputs", "sizes"])
def test_a_program_that_begins_with_a_region_of_its_own_runs(tmp_path, given):
    path = tmp_path / "loop.mlir"
    path.write_text("""func.func @main(%x: tensor<?xi32>, %n: tensor<i32>) -> tensor<?xi32> {
      %w:2 = stablehlo.while(%i = %n, %a = %x) : tensor<i32>, tensor<?xi32>
      cond {
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %c = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %k = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
        %b = stablehlo.dynamic_iota %k, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        stablehlo.return %zero, %b : tensor<i32>, tensor<?xi32>
      }
      return %w#1 : tensor<?xi32> }""")
    np.savez(tmp_path / "x.npz", np.zeros(7, "i4"), np.int32(3))
    many = ["--inputs", tmp_path / "x.npz"] if given == "inputs" else ["--size", "d0_0=5"]
    done = run(path, *many)
    assert done.exit_code == 0, done.output
    if given == "inputs":
        assert done.output.splitlines() == ["result[0]: int32[3]", "[0 1 2]"]


def test_sizes_beyond_all_memory_are_an_error(folder):
    done = run(folder / "00-input.mlir", "--size", f"n={10**14}")
    assert (done.exit_code, "MemoryError: Unable to allocate" in done.output) == (1, True)


def test_dumps_of_a_program_for_another_memory_run_here(tmp_path):
    with flags.overridden(dump=tmp_path):
        log = PassLog("loop")
        module = ingest(LOOP, new_context(), log=log)
        with module.context, ir.Location.unknown():
            passes = [*CLEANUP, *planning(FAR_MODEL)]
            Pipeline(passes, to_the_end=True).run(module, log=log)
    (folder,) = tmp_path.iterdir()
    assert '"host:' in planned(folder).read_text()
    sizes = ("--size", "d1_0=3", "--size", "d2_0=3")
    done = run("--bisect", folder, *sizes)
    assert "and no pass changes the results" in done.output, done.output
    done = run("--check", planned(folder), *sizes)
    assert "runs of fusions agree with the StableHLO interpreter." in done.output, done.output
    assert {"read", "write"} <= {line.split(" ")[1] for line in done.output.splitlines()[3:-2]}
