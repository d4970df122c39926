# ruff: noqa: E501 - MLIR text
"""Kind `loop` as a whole: several results, mixed types, tasks, transposes by tiles, long chains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.ir.ops import Role, names
from shlo_disc.lower.cpu.loop import ELEMENTAL_OPS, emit
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import Input, Output, kernels_of
from shlo_disc.passes.op_classes import DATA_MOVEMENT, ELEMENTWISE, FREE
from tests.lower.helpers import DTYPES, fusion_text, plan_of, run, sample


def shape_of(*dims: str) -> str:
    names = ", ".join(f'"{d}"' for d in dims)
    return f'"disc.shape"() {{dims = [{names}]}} : () -> tensor<{len(dims)}xi64>'


def test_the_planner_and_the_emitter_agree_on_what_a_loop_may_hold() -> None:
    assert (
        ELEMENTWISE | DATA_MOVEMENT | FREE | names(lambda row: row.role is Role.LOOP)
        <= ELEMENTAL_OPS
    )


def test_results_of_several_types_and_shapes_with_one_element_count() -> None:
    body = f"""%s = {shape_of("n*m")}
    %c = stablehlo.compare GT, %x, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xi1>
    %h = stablehlo.convert %x : (tensor<?x?xf32>) -> tensor<?x?xbf16>
    %k = stablehlo.convert %y : (tensor<?x?xf32>) -> tensor<?x?xi64>
    %a = stablehlo.add %x, %y : tensor<?x?xf32>
    %f = stablehlo.dynamic_reshape %a, %s : (tensor<?x?xf32>, tensor<1xi64>) -> tensor<?xf32>"""
    text = fusion_text("loop", ["x: n,m f32", "y: n,m f32"], body,
                       ["c: n,m i1", "h: n,m bf16", "k: n,m i64", "f: n*m f32", "x: n,m f32"])  # fmt: skip
    emitted = plan_of(emit, text)
    for n, m in ((0, 3), (1, 1), (3, 17), (5, 1000), (2, 9000)):
        x, y = sample((n, m), "f32"), sample((n, m), "f32", 1)
        c, h, k, f, copy = run(emitted, [x, y])
        np.testing.assert_array_equal(c, x > y)
        np.testing.assert_array_equal(h, x.astype(DTYPES["bf16"]))
        np.testing.assert_array_equal(k, y.astype(np.int64))
        np.testing.assert_array_equal(f, (x + y).reshape(-1))
        np.testing.assert_array_equal(copy, x)


def test_a_scalar_program() -> None:
    body = """%a = stablehlo.multiply %x, %y : tensor<f32>
    %r = stablehlo.convert %a : (tensor<f32>) -> tensor<i32>"""
    emitted = plan_of(emit, fusion_text("loop", ["x: f32", "y: f32"], body, ["a: f32", "r: i32"]))
    a, r = run(emitted, [np.array(2.5, np.float32), np.array(-3, np.float32)])
    assert (float(a), int(r)) == (-7.5, -7)


def test_operands_are_passed_once_in_order_of_use() -> None:
    body = "%r = stablehlo.subtract %y, %x : tensor<?xf32>"
    emitted = plan_of(
        emit, fusion_text("loop", ["x: n f32", "u: n f32", "y: n f32"], body, ["r: n f32"])
    )
    (launch,) = emitted.plan.steps
    assert set(launch.args) == {Input(0), Input(2), Output(0)}


TYPES = ["f32", "f64", "bf16", "i8", "i1"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [64, 32, 16])
def test_a_transpose_goes_through_tiles(dtype: str, width: int) -> None:
    t = f"tensor<?x?x{dtype}>"
    body = f"""%t = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {t}
    %r = stablehlo.maximum %t, %y : {t}"""
    text = fusion_text("loop", [f"x: n,m {dtype}", f"y: m,n {dtype}"], body, [f"r: m,n {dtype}"])
    emitted = plan_of(emit, text, Machine(vector_bytes=width))
    (launch,) = emitted.plan.steps
    assert "vector.shuffle" in launch.kernel.text
    assert "gather" not in launch.kernel.text
    for n, m in (
        (0, 4),
        (1, 1),
        (1, 40),
        (40, 1),
        (16, 16),
        (17, 33),
        (3, 600),
        (600, 3),
        (257, 31),
    ):
        x, y = sample((n, m), dtype), sample((m, n), dtype, 1)
        (r,) = run(emitted, [x, y])
        np.testing.assert_array_equal(r, np.maximum(x.T, y))


def test_two_operands_turned_in_one_kernel_inside_a_batch() -> None:
    t = "tensor<?x?x24xf32>"
    u = "tensor<?x24x?xf32>"
    body = f"""%a = stablehlo.transpose %x, dims = [0, 2, 1] : ({t}) -> {u}
    %b = stablehlo.transpose %y, dims = [0, 2, 1] : ({t}) -> {u}
    %c = stablehlo.subtract %a, %b : {u}
    %r = stablehlo.multiply %c, %z : {u}"""
    text = fusion_text(
        "loop", ["x: b,n,24 f32", "y: b,n,24 f32", "z: b,24,n f32"], body, ["r: b,24,n f32"]
    )
    emitted = plan_of(emit, text)
    for b, n in ((0, 2), (2, 1), (3, 37), (1, 300)):
        x, y = sample((b, n, 24), "f32"), sample((b, n, 24), "f32", 1)
        z = sample((b, 24, n), "f32", 2)
        (r,) = run(emitted, [x, y, z])
        np.testing.assert_array_equal(r, (x - y).swapaxes(1, 2) * z)


def test_column_sums_keep_many_columns_in_lanes() -> None:
    body = """%p = stablehlo.multiply %x, %y : tensor<?x?xf32>
    %r = stablehlo.reduce(%p init: %z) applies stablehlo.add across dimensions = [0] :
      (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>"""
    text = fusion_text("loop", ["x: n,m f32", "y: n,m f32", "z: f32"], body, ["r: m f32"])
    emitted = plan_of(emit, text)
    z = np.zeros((), np.float32)
    for n, m in ((0, 3), (1, 1), (9, 64), (100, 65), (3, 1000), (1000, 7)):
        x, y = sample((n, m), "f32"), sample((n, m), "f32", 1)
        (r,) = run(emitted, [x, y, z])
        np.testing.assert_allclose(
            r, (x.astype(np.float64) * y).sum(0), atol=2e-4 * max(n, 1) ** 0.5
        )


def test_half_sums_accumulate_in_f32() -> None:
    body = """%z = stablehlo.constant dense<0.0> : tensor<bf16>
    %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] :
      (tensor<?x?xbf16>, tensor<bf16>) -> tensor<?xbf16>"""
    emitted = plan_of(emit, fusion_text("loop", ["x: n,m bf16"], body, ["r: m bf16"]))
    x = np.ones((1000, 3), DTYPES["bf16"])
    assert (run(emitted, [x])[0].astype(np.float32) == 1000).all()


def test_a_chain_of_a_thousand_ops_needs_no_deep_recursion() -> None:
    lines = [f"%v{i + 1} = stablehlo.negate %v{i} : tensor<?xi32>" for i in range(1000)]
    text = fusion_text("loop", ["v0: n i32"], "\n".join(lines), ["v1000: n i32"])
    x = sample((37,), "i32")
    np.testing.assert_array_equal(run(plan_of(emit, text), [x])[0], x)


def test_an_op_without_a_rule_is_refused_with_its_line() -> None:
    body = '%r = "stablehlo.cholesky"(%x) {lower = true} : (tensor<4x4xf32>) -> tensor<4x4xf32>'
    text = fusion_text("loop", ["x: 4,4 f32"], body, ["r: 4,4 f32"])
    with pytest.raises(UnsupportedError, match=r"stablehlo.cholesky at .*: not computed element"):
        plan_of(emit, text)


def test_the_texts_of_a_model_at_two_sets_of_names_are_shared() -> None:
    def texts(dims: str) -> list[str]:
        body = f"""%s = {shape_of(*dims.split(","))}
        %c = stablehlo.dynamic_broadcast_in_dim %w, %s, dims = [1] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
        %r = stablehlo.add %x, %c : tensor<?x?xf32>"""
        last = dims.split(",")[1]
        emitted = plan_of(
            emit,
            fusion_text("loop", [f"x: {dims} f32", f"w: {last} f32"], body, [f"r: {dims} f32"]),
        )
        return [kernel.text for kernel in kernels_of(emitted.plan.steps)]

    assert texts("b,t") == texts("rows,cols")


ROWS, COLUMNS = (1, 2, 3, 7, 15, 16, 17, 40), (1, 5, 16, 33, 1100)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i1", "bf16"])
def test_transposes_with_few_columns(dtype: str) -> None:
    """Rows of the result are short, whatever reads it; the shortest have kernels of their own."""
    text = """func.func @main(%x: tensor<?x?xE> {disc.shape = ["c", "n"]},
                            %y: tensor<?x?x?xE> {disc.shape = ["b", "c", "n"]},
                            %z: tensor<?x?xE> {disc.shape = ["n", "c"]})
        -> (tensor<?x?xE>, tensor<?x?x?xE>, tensor<?x?xi1>) {
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xE>) -> tensor<?x?xE>
      %u = stablehlo.transpose %y, dims = [0, 2, 1] : (tensor<?x?x?xE>) -> tensor<?x?x?xE>
      %v = stablehlo.compare EQ, %t, %z : (tensor<?x?xE>, tensor<?x?xE>) -> tensor<?x?xi1>
      return %t, %u, %v : tensor<?x?xE>, tensor<?x?x?xE>, tensor<?x?xi1> }"""
    compiled = shlo_disc.compile(text.replace("xE>", f"x{dtype}>"))
    numpy_type = ELEMENT_TYPES[dtype].dtype
    for c, n in itertools.product(ROWS, COLUMNS):
        r = np.random.default_rng(c * 10_000 + n)
        x = r.integers(0, 2, (c, n)).astype(numpy_type)
        y = r.integers(0, 2 if dtype == "i1" else 99, (2, c, n)).astype(numpy_type)
        z = r.integers(0, 2, (n, c)).astype(numpy_type)
        t, u, v = compiled.run_numpy([x, y, z])
        np.testing.assert_array_equal(t, x.T)
        np.testing.assert_array_equal(u, y.transpose(0, 2, 1))
        np.testing.assert_array_equal(v, z == x.T)


def test_pairs_with_few_columns() -> None:
    """Complex numbers are stored pair by pair, in any order of the dimensions."""
    compiled = shlo_disc.compile("""
      func.func @main(%x: tensor<?x?xf32> {disc.shape = ["c", "n"]},
                      %y: tensor<?x?xf32> {disc.shape = ["c", "n"]}) -> tensor<?x?xcomplex<f32>> {
        %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>
        %u = stablehlo.transpose %y, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>
        %z = stablehlo.complex %t, %u : tensor<?x?xcomplex<f32>>
        return %z : tensor<?x?xcomplex<f32>> }""")
    for c, n in itertools.product(ROWS, COLUMNS):
        x, y = np.random.default_rng(c * 10_000 + n).normal(size=(2, c, n)).astype(np.float32)
        np.testing.assert_array_equal(compiled.run_numpy([x, y])[0], (x + 1j * y).T)
