"""The reference of a fusion or module, held against NumPy: what `disc` adds becomes StableHLO."""

import ml_dtypes
import numpy as np
import pytest

from shlo_disc.debug import reference
from shlo_disc.debug.interpreter import Interpreter, NoReferenceError
from shlo_disc.ir.mlir import ir, new_context
from tests.debug.programs import dumped

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(scope="module")
def interpreter():
    with Interpreter() as made:
        yield made


def run(interpreter, text, sizes, arguments, dtypes):
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        reference.of_module(module, sizes)
        assert "disc." not in str(module)
        assert "?" not in str(module)
        return interpreter.run(module, arguments, [np.dtype(d) for d in dtypes])


def main(body, *, arguments='%x: tensor<?xf32> {disc.shape = ["n"]}', result="tensor<?xf32>"):
    return f"func.func public @main({arguments}) -> {result} {{\n{body}\n}}"


@pytest.mark.parametrize("n", [1, 2, 7])
def test_sizes_are_numbers(interpreter, n):
    body = """
      "disc.guard"() {lhs = "n", op = ">=", rhs = "1", message = ""} : () -> ()
      %d = "disc.dim"() {dim = "2*n"} : () -> tensor<i32>
      %v = "disc.sizes"() {dims = ["n", "3"]} : () -> tensor<2xi64>
      %s = "disc.shape"() {dims = ["n", "2"]} : () -> tensor<2xi32>
      %b = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0]
          : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
      %e = "disc.empty"() {dims = ["n"]} : () -> tensor<?xf32>
      return %d, %v, %b : tensor<i32>, tensor<2xi64>, tensor<?x2xf32>"""
    text = main(body, result="(tensor<i32>, tensor<2xi64>, tensor<?x2xf32>)")
    x = np.arange(n, dtype=np.float32)
    d, v, b = run(interpreter, text, {"n": n}, [x], ["int32", "int64", "float32"])
    assert d == 2 * n
    assert v.tolist() == [n, 3]
    assert (b == x[:, None]).all()
    assert b.shape == (n, 2)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("reverse", ["true", "false"])
def test_scans_are_running_totals(interpreter, n, reverse):
    body = f"""
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %y = "disc.scan"(%x, %z) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
      }}) {{dimension = 0 : i64, reverse = {reverse}}}
          : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
      return %y : tensor<?xf32>"""
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    (y,) = run(interpreter, main(body), {"n": n}, [x], ["float32"])
    wide = x.astype(np.float64)
    want = np.cumsum(wide[::-1])[::-1] if reverse == "true" else np.cumsum(wide)
    assert (y == want.astype(np.float32)).all()  # sums in f64, rounded once


def test_windows_of_known_size(interpreter):
    body = """
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %w = "disc.dim"() {dim = "n - 2"} : () -> tensor<i32>
      %low = stablehlo.constant dense<1> : tensor<i32>
      %high = stablehlo.constant dense<2> : tensor<i32>
      %y = "disc.reduce_window"(%x, %z, %w, %low, %high) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
      }) {dimension = 0 : i64}
          : (tensor<?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<?xf32>
      return %y : tensor<?xf32>"""
    x = np.arange(6, dtype=np.float32)
    (y,) = run(interpreter, main(body), {"n": 6}, [x], ["float32"])
    padded = np.pad(x, (1, 2))
    assert y.tolist() == [padded[k : k + 4].sum() for k in range(6)]


def test_sums_of_sixteen_bits_are_not_rounded_on_the_way(interpreter):
    body = """
      %z = stablehlo.constant dense<0.0> : tensor<bf16>
      %y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
          : (tensor<?xbf16>, tensor<bf16>) -> tensor<bf16>
      return %y, %x : tensor<bf16>, tensor<?xbf16>"""
    text = main(
        body,
        arguments='%x: tensor<?xbf16> {disc.shape = ["n"]}',
        result="(tensor<bf16>, tensor<?xbf16>)",
    )
    x = np.ones(1000, BFLOAT16)
    x[3] = 1.5
    y, same = run(interpreter, text, {"n": 1000}, [x], [BFLOAT16, BFLOAT16])
    assert y == BFLOAT16.type(1000.5)
    assert same.tobytes() == x.tobytes()


def test_products_are_sums_in_f64(interpreter):
    body = """
      %y = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
          : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
      return %y : tensor<f32>"""
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    (y,) = run(interpreter, main(body, result="tensor<f32>"), {"n": 5000}, [x], ["float32"])
    assert y == np.float32(x.astype(np.float64) @ x.astype(np.float64))


def test_what_the_interpreter_lacks_is_said_and_it_goes_on(interpreter):
    body = """
      %s = stablehlo.constant dense<1> : tensor<2xui64>
      %o, %y = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY
          : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xui32>)
      return %y : tensor<5xui32>"""
    text = main(body, arguments="", result="tensor<5xui32>")
    for _ in range(2):
        said = "Operation stablehlo.rng_bit_generator is unsupported at the moment"
        with pytest.raises(NoReferenceError, match=said):
            run(interpreter, text, {}, [], ["uint32"])
    body = "return %x : tensor<?xf32>"
    (x,) = run(interpreter, main(body), {"n": 2}, [np.ones(2, np.float32)], ["float32"])
    assert x.tolist() == [1, 1]


def test_an_answer_that_takes_too_long_is_not_waited_for():
    body = """
      %y = stablehlo.dot_general %x, %x, contracting_dims = [] x []
          : (tensor<?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
      return %y : tensor<?x?xf32>"""
    x, text = np.ones(3000, np.float32), main(body, result="tensor<?x?xf32>")
    said = "no answer in 0 s"
    with Interpreter(limit_s=0.1) as quick, pytest.raises(NoReferenceError, match=said):
        run(quick, text, {"n": 3000}, [x], ["float32"])


@pytest.mark.parametrize("name", ["input", "resolve-shapes", "plan-buffers"])
def test_whole_modules_of_any_stage(interpreter, name):
    from shlo_disc.debug.bisect import results_of
    from shlo_disc.debug.stage import load

    got = results_of(load(dumped().path(name)), dumped().arguments, "reference", interpreter)
    for a, b in zip(got, dumped().results, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-2, atol=1e-4)
