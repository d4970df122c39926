"""Rows shorter than a vector, in lanes: reductions and full results against NumPy in float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.machine import host_machine
from shlo_disc.lower.cpu.row import emit
from shlo_disc.lower.plan import If, Kernel, Launch, Step
from tests.lower.helpers import DTYPES, Emitted, fusion_text, plan_of, run, sample
from tests.lower.test_row import CHAIN, REDUCTIONS, chain, reduce

ROWS = (0, 1, 7, 67)
AVX2 = replace(host_machine(), vector_bytes=32)


def kernels(steps: Sequence[Step]) -> list[Kernel]:
    """All kernels of a plan of launches and choices."""
    found: list[Kernel] = []
    for step in steps:
        if isinstance(step, Launch):
            found.append(step.kernel)
        else:
            assert isinstance(step, If)
            found += kernels((*step.then, *step.otherwise))
    return found


def emitted(operands: list[str], body: str, results: list[str], cols: int) -> Emitted:
    """The plan of rows of `cols` columns; body and sizes as for rows of `m`."""

    def at(text: str) -> str:
        return (
            re.sub(r"\?x\?x(?=[a-z])", f"?x{cols}x", text)
            .replace('"m"', f'"{cols}"')
            .replace(",m ", f",{cols} ")
        )

    text = fusion_text("row", list(map(at, operands)), at(body), list(map(at, results)))
    plan = plan_of(emit, text)
    (launch,) = plan.plan.steps
    assert isinstance(launch, Launch)
    assert launch.extent.evaluate({"n": 67}) < 35, "a task is one row"
    return plan


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("cols", [3, 8])
def test_every_reduction_and_type(dtype: str, cols: int) -> None:
    kind = DTYPES[dtype]
    is_float = kind.kind == "f" or kind == ml_dtypes.bfloat16
    names = [n for n in REDUCTIONS if not (is_float and n in ("and", "or", "xor"))]
    body = "\n".join(reduce(n, "x", "z", n, dtype) for n in names).replace("%and ", "%and_ ")
    results = [f"{'and_' if n == 'and' else n}: n {dtype}" for n in names]
    plan = emitted([f"x: n,m {dtype}", f"z: {dtype}"], body, results, cols)
    for n in ROWS:
        x, z = sample((n, cols), dtype), np.array(1).astype(kind)
        for name, got in zip(names, run(plan, [x, z]), strict=True):
            if is_float:
                want = REDUCTIONS[name].reduce(x.astype(np.float64), 1, initial=1.0)
                eps = float(ml_dtypes.finfo(kind).eps)
                np.testing.assert_allclose(
                    got.astype(np.float64), want.astype(kind).astype(np.float64),
                    rtol=8 * eps, atol=64 * eps, err_msg=name)  # fmt: skip
                continue
            fn = REDUCTIONS[name]
            if dtype == "i1":
                fn = {"add": np.logical_or, "multiply": np.logical_and}.get(name, fn)
            with np.errstate(all="ignore"):
                want = fn.reduce(x, 1, dtype=kind, initial=kind.type(1))
            np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("cols", [2, 3, 4, 5, 8])
def test_sweeps_that_read_what_earlier_ones_found(cols: int) -> None:
    of_m = "tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>\n%b ="
    body = CHAIN.replace(of_m, of_m.replace("?", str(cols), 1))
    plan = emitted(["x: n,m f32", f"mask: {cols} f32"], body, ["y: n,m f32", "mx: n f32"], cols)
    for n in ROWS:
        x, mask = sample((n, cols), "f32"), sample((cols,), "f32", 1)
        y, most = run(plan, [x, mask])
        np.testing.assert_allclose(y, chain(x, mask), rtol=3e-6)
        np.testing.assert_array_equal(most, (x * np.float32(0.125) + mask).max(1))


@pytest.mark.parametrize("cols", [3, 8])
def test_the_first_of_equal_columns(cols: int) -> None:
    body = """
      %i = stablehlo.iota dim = 1 : tensor<4x3xi32>
      %lo = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %most:2 = stablehlo.reduce(%x init: %lo), (%i init: %zero) across dimensions = [1] :
        (tensor<4x3xf32>, tensor<4x3xi32>, tensor<f32>, tensor<i32>)
        -> (tensor<4xf32>, tensor<4xi32>)
        reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {
          %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %v = stablehlo.select %ge, %a, %b : tensor<i1>, tensor<f32>
          %n = stablehlo.select %ge, %j, %k : tensor<i1>, tensor<i32>
          stablehlo.return %v, %n : tensor<f32>, tensor<i32>
        }
      %at = stablehlo.abs %most#1 : tensor<4xi32>
    """
    for n in (35, 64):
        text = body.replace("4x3x", f"{n}x{cols}x").replace("<4x", f"<{n}x")
        plan = emitted([f"x: {n},m f32"], text, [f"at: {n} i32"], cols)
        x = np.random.default_rng(n).integers(-2, 3, (n, cols)).astype(np.float32)
        np.testing.assert_array_equal(run(plan, [x])[0], x.argmax(1))


def test_leading_dimensions_that_an_operand_lacks() -> None:
    body = """
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = "disc.shape"() {dims = ["b", "n", "3"]} : () -> tensor<3xi64>
      %p = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [0, 2] : (tensor<?x3xf32>, tensor<3xi64>) -> tensor<?x?x3xf32>
      %d = stablehlo.subtract %x, %p : tensor<?x?x3xf32>
      %q = stablehlo.multiply %d, %d : tensor<?x?x3xf32>
      %y = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<?x?x3xf32>, tensor<f32>) -> tensor<?x?xf32>
    """  # noqa: E501
    ins, outs = ["x: b,n,3 f32", "c: b,3 f32"], ["d: b,n,3 f32", "y: b,n f32"]
    plan = plan_of(emit, fusion_text("row", ins, body, outs))
    for b, n in [(0, 3), (2, 1), (3, 37)]:
        x, c = sample((b, n, 3), "f32"), sample((b, 3), "f32", 1)
        d, y = run(plan, [x, c])
        np.testing.assert_array_equal(d, x - c[:, None])
        want = ((x - c[:, None]).astype(np.float64) ** 2).sum(-1)
        np.testing.assert_allclose(y, want, rtol=1e-6)


@pytest.mark.parametrize("cols", ["m", "2", "3", "4", "8"])
def test_a_sum_over_rows_that_have_a_value_each(cols: str) -> None:
    body = """
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = "disc.shape"() {dims = ["n", "m"]} : () -> tensor<2xi64>
      %p = stablehlo.dynamic_broadcast_in_dim %w, %s, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
      %y = stablehlo.multiply %x, %p : tensor<?x?xf32>
      %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<f32>
    """  # noqa: E501
    if cols != "m":
        body = body.replace('"m"', f'"{cols}"').replace("?x?x", f"?x{cols}x")
    ins, outs = [f"x: n,{cols} f32", "w: n f32"], [f"y: n,{cols} f32", "sum: f32"]
    plan = plan_of(emit, fusion_text("row", ins, body, outs, "reduced = array<i64: 0, 1>"))
    if cols == "m":
        assert Expr.symbol("m") in plan.plan.short, "no variant for the length of rows seen"
    else:
        texts = "".join(kernel.text for kernel in kernels(plan.plan.steps))
        assert "scf.for" in texts
        assert "%part" not in texts, "vectors hold one row each"
    for n in (0, 1, 7, 67, 3000):
        x, w = sample((n, 3 if cols == "m" else int(cols)), "f32"), sample((n,), "f32", 1)
        y, total = run(plan, [x, w])
        np.testing.assert_array_equal(y, x * w[:, None])
        want = (x.astype(np.float64) * w[:, None]).sum()
        np.testing.assert_allclose(total, want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_few_rows_whose_elements_are_looked_up(rows: int) -> None:
    """They are in lanes: the sine is computed once, and not once a row."""
    body = f"""
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %at = stablehlo.constant dense<0> : tensor<i32>
      %d = stablehlo.dynamic_slice %x, %at, %i, %at, sizes = [{rows}, 4, 3] : (tensor<{rows}x?x?xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<{rows}x4x3xf32>
      %s = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [1, 2] : (tensor<{rows}x4x3xf32>, tensor<f32>) -> tensor<{rows}xf32>
      %y = stablehlo.sine %s : tensor<{rows}xf32>
    """  # noqa: E501
    ins, outs = [f"x: {rows},n,m f32", "i: i32"], [f"y: {rows} f32"]
    plan = plan_of(emit, fusion_text("row", ins, body, outs, "reduced = array<i64: 1, 2>"))
    (launch,) = plan.plan.steps
    assert isinstance(launch, Launch)
    assert launch.extent == 1, "a task is one row"
    for n, m, i in [(4, 3, 0), (9, 5, 5), (9, 3, 7)]:
        x = sample((rows, n, m), "f32")
        first = min(i, n - 4)
        want = np.sin(x[:, first : first + 4, :3].astype(np.float64).sum((1, 2)))
        np.testing.assert_allclose(run(plan, [x, np.array(i, np.int32)])[0], want, atol=3e-6)


@pytest.mark.parametrize(("rows", "full"), [(7, False), (7, True), (3, False)])
def test_few_rows_that_lie_in_memory_as_they_are_read(rows: int, *, full: bool) -> None:
    body = f"""
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<{rows}x4xf32>, tensor<f32>) -> tensor<{rows}xf32>
      %y = stablehlo.sine %s : tensor<{rows}xf32>
      %z = stablehlo.negate %x : tensor<{rows}x4xf32>
    """  # noqa: E501
    outs = [f"y: {rows} f32"] + ([f"z: {rows},4 f32"] if full else [])
    plan = plan_of(emit, fusion_text("row", [f"x: {rows},4 f32"], body, outs), AVX2)
    (launch,) = plan.plan.steps
    assert isinstance(launch, Launch)
    in_lanes = rows == 7 and not full
    assert launch.extent == (1 if in_lanes else rows)
    x = sample((rows, 4), "f32")
    y, *others = run(plan, [x])
    np.testing.assert_allclose(y, np.sin(x.astype(np.float64).sum(1)), atol=1e-6)
    for z in others:
        np.testing.assert_array_equal(z, -x)


@pytest.mark.parametrize("cols", ["m", "4"])
def test_a_window_of_short_rows_is_one_run(cols: str) -> None:
    body = f"""
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %at = stablehlo.constant dense<0> : tensor<i32>
      %d = stablehlo.dynamic_slice %x, %i, %at, sizes = [8, 4] : (tensor<?x{cols}xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
      %y = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
    """  # noqa: E501
    ins = [f"x: n,{cols} f32", "i: i32"]
    text = fusion_text(
        "row", ins, body.replace("xm", "x?"), ["y: f32"], "reduced = array<i64: 0, 1>"
    )
    plan = plan_of(emit, text)
    if cols == "m":
        assert Expr.symbol("m") in plan.plan.short, "no variant for the length of rows seen"
    else:
        (kernel,) = kernels(plan.plan.steps)
        assert "gather" not in kernel.text
    for n, m, i in [(8, 4, 3), (20, 4, 5)] + ([(11, 7, 2)] if cols == "m" else []):
        x = sample((n, m), "f32")
        first = min(i, n - 8)
        want = x[first : first + 8, :4].astype(np.float64).sum()
        np.testing.assert_allclose(run(plan, [x, np.array(i, np.int32)])[0], want, atol=1e-5)


@pytest.mark.parametrize("cols", ["m", "3"])
def test_few_columns_are_stored_without_a_mask(cols: str) -> None:
    body = """
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
      %s = "disc.shape"() {dims = ["n", "m"]} : () -> tensor<2xi64>
      %p = stablehlo.dynamic_broadcast_in_dim %sum, %s, dims = [1] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
      %y = stablehlo.subtract %x, %p : tensor<?x?xf32>
    """  # noqa: E501
    if cols == "3":
        body = body.replace('"m"', '"3"').replace("?x?x", "?x3x").replace("<?xf32>", "<3xf32>")
    ins, outs = [f"x: n,{cols} f32"], [f"y: n,{cols} f32", f"sum: {cols} f32"]
    plan = plan_of(emit, fusion_text("column", ins, body, outs, "reduced = array<i64: 0>"), AVX2)
    if cols == "m":
        assert Expr.symbol("m") in plan.plan.short, "no variant for the number of columns seen"
    else:
        assert all("vector.maskedstore" not in k.text for k in kernels(plan.plan.steps))
    for n, m in [(0, 3), (1, 3), (37, 3)] + ([(5, 1), (3, 70)] if cols == "m" else []):
        x = sample((n, m), "f32")
        y, total = run(plan, [x])
        np.testing.assert_allclose(total, x.astype(np.float64).sum(0), atol=1e-5)
        np.testing.assert_array_equal(y, x - total)


@pytest.mark.parametrize("cols", [2, 3])
def test_rows_with_results_of_bytes_fill_vectors_of_bytes(cols: int) -> None:
    """A step of a suppression loop: distances to point `i` are computed, and kept flags read."""
    body = f"""
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %sh = "disc.shape"() {{dims = ["n"]}} : () -> tensor<1xi64>
      %sf = "disc.shape"() {{dims = ["n", "{cols}"]}} : () -> tensor<2xi64>
      %none = stablehlo.constant dense<0> : tensor<i32>
      %p = stablehlo.dynamic_slice %x, %i, %none, sizes = [1, {cols}] : (tensor<?x{cols}xf32>, tensor<i32>, tensor<i32>) -> tensor<1x{cols}xf32>
      %q = stablehlo.dynamic_broadcast_in_dim %p, %sf, dims = [0, 1] : (tensor<1x{cols}xf32>, tensor<2xi64>) -> tensor<?x{cols}xf32>
      %d = stablehlo.subtract %x, %q : tensor<?x{cols}xf32>
      %d2 = stablehlo.multiply %d, %d : tensor<?x{cols}xf32>
      %s = stablehlo.reduce(%d2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x{cols}xf32>, tensor<f32>) -> tensor<?xf32>
      %o = stablehlo.dynamic_broadcast_in_dim %one, %sh, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
      %far = stablehlo.compare GE, %s, %o : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xi1>
      %y = stablehlo.and %far, %k : tensor<?xi1>
    """  # noqa: E501
    ins = [f"x: n,{cols} f32", "i: i32", "k: n i1"]
    plan = plan_of(emit, fusion_text("row", ins, body, ["y: n i1"]))
    (launch,) = plan.plan.steps
    assert isinstance(launch, Launch)
    lanes = host_machine().lanes(1)
    assert launch.extent.evaluate({"n": 3 * lanes + 1}) == 4
    assert launch.cost.is_const
    assert 1000 // lanes * launch.cost.value < 6000, "1000 points are not worth another thread"
    for n in (1, lanes - 1, lanes, lanes + 1, 131):
        x, k = sample((n, cols), "f32"), sample((n,), "i1", 1)
        for i in {0, n // 2, n - 1}:
            (y,) = run(plan, [x, np.array(i, np.int32), k])
            far = ((x.astype(np.float64) - x[i]) ** 2).sum(-1) >= 1
            np.testing.assert_array_equal(y.astype(bool), far & k.astype(bool))
