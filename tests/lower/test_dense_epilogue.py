"""Element-wise ops behind a dot in one kernel: bias, activation, residual, in several layouts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shlo_disc.base.errors import InternalError
from shlo_disc.lower.cpu.dense import emit_dense
from shlo_disc.lower.plan import Kernel
from tests.lower.helpers import fusion_text, plan_of, run, sample
from tests.lower.test_dense import launches, unpacked

DOT = """%d = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<
  lhs_batching_dimensions = [], rhs_batching_dimensions = [],
  lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}
  : (tensor<?x?x?xT>, tensor<?xNxT>) -> tensor<?x?xNxT>
"""
BIAS = """%bs = "disc.shape"() {dims = ["b", "t", "n"]} : () -> tensor<3xi64>
%bb = "stablehlo.dynamic_broadcast_in_dim"(%bias, %bs) {broadcast_dimensions = array<i64: 2>}
  : (tensor<NxT>, tensor<3xi64>) -> tensor<?x?xNxT>
%s = stablehlo.add %d, %bb : tensor<?x?xNxT>
"""
RESIDUAL = "%o = stablehlo.add %g, %r : tensor<?x?xNxT>\n"
ACTIVATION = """%a = stablehlo.abs %s : tensor<?x?xNxT>
%c = stablehlo.abs %r : tensor<?x?xNxT>
%m = stablehlo.add %a, %c : tensor<?x?xNxT>
%g = stablehlo.divide %s, %m : tensor<?x?xNxT>
"""

SHAPES = [
    (1, 1, 1, 1),
    (2, 3, 5, 7),
    (3, 17, 21, 5),
    (1, 16, 20, 48),
    (3, 50, 33, 130),
    (2, 0, 4, 4),
    (2, 3, 0, 9),
]


def dense(element: str, n: str = "n", k: str = "k") -> str:
    body = (
        (DOT + BIAS + ACTIVATION + RESIDUAL)
        .replace("N", "?" if n == "n" else n)
        .replace("xT>", f"x{element}>")
    )
    body = body.replace('"n"', f'"{n}"')
    return fusion_text(
        "dense",
        [
            f"x: b,t,{k} {element}",
            f"w: {k},{n} {element}",
            f"bias: {n} {element}",
            f"r: b,t,{n} {element}",
        ],
        body.replace("tensor<?x?x?x", f"tensor<?x?x{'?' if k == 'k' else k}x", 1)
        if n == "n"
        else body,
        [f"o: b,t,{n} {element}"],
    )


def expected(total: np.ndarray, bias: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The fusion in float64."""
    s, r = total + bias.astype(np.float64), r.astype(np.float64)
    return s / (abs(s) + abs(r)) + r


@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
def test_bias_activation_and_residual(element: str) -> None:
    emitted = plan_of(emit_dense, dense(element))
    for b, t, k, n in SHAPES:
        x, w = sample((b, t, k), element) * 0.1, sample((k, n), element, 1) * 0.1
        bias, r = sample((n,), element, 2), sample((b, t, n), element, 3)
        x, w = x.astype(bias.dtype), w.astype(bias.dtype)
        total = x.astype(np.float64) @ w.astype(np.float64)
        want = expected(total, bias, r)
        tolerance = {"f64": 1e-12, "f32": 3e-6, "bf16": 0.06}[element]
        for plan in (emitted, unpacked(emitted)):
            (got,) = run(plan, [x, w, bias, r])
            np.testing.assert_allclose(got.astype(np.float64), want, atol=tolerance, rtol=tolerance)


def test_sums_are_rounded_to_the_type_of_the_dot() -> None:
    body = """%d = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}
      : (tensor<?x?xbf16>, tensor<?x?xbf16>) -> tensor<?x?xbf16>
    %o = stablehlo.convert %d : (tensor<?x?xbf16>) -> tensor<?x?xf32>"""
    text = fusion_text("dense", ["x: m,k bf16", "w: k,n bf16"], body, ["o: m,n f32"])
    x, w = sample((9, 30), "bf16"), sample((30, 20), "bf16", 1)
    (got,) = run(plan_of(emit_dense, text), [x, w])
    np.testing.assert_array_equal(got, got.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_comparison_behind_a_dot_gives_bytes() -> None:
    body = """%d = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
    %o = stablehlo.compare GT, %d, %r : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xi1>"""
    text = fusion_text("dense", ["x: m,k f32", "w: k,n f32", "r: m,n f32"], body, ["o: m,n i1"])
    x, w, r = sample((9, 30), "f32"), sample((30, 70), "f32", 1), sample((9, 70), "f32", 2)
    (got,) = run(plan_of(emit_dense, text), [x, w, r])
    np.testing.assert_array_equal(got, x.astype(np.float64) @ w.astype(np.float64) > r)


@pytest.mark.parametrize("m", [1, 5, 60])
def test_transposed_batches_meet_their_residual(m: int) -> None:
    body = """%d = "stablehlo.dot_general"(%x, %y) {dot_dimension_numbers = #stablehlo.dot<
      lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2],
      lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [1]>}
      : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
    %e = stablehlo.transpose %d, dims = [0, 2, 1, 3]
      : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
    %o = stablehlo.multiply %e, %r : tensor<?x?x?x?xf32>"""
    operands = ["x: b,h,t,s f32", "y: b,s,h,d f32", "r: b,t,h,d f32"]
    emitted = plan_of(emit_dense, fusion_text("dense", operands, body, ["o: b,t,h,d f32"]))
    b, h, s, d = 2, 3, 7, 20
    x, y = sample((b, h, m, s), "f32"), sample((b, s, h, d), "f32", 1)
    r = sample((b, m, h, d), "f32", 2)
    want = np.einsum("bhts,bshd->bthd", x.astype(np.float64), y.astype(np.float64)) * r
    (got,) = run(emitted, [x, y, r])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("m", [1, 3, 40])
def test_columns_that_run_along_k(m: int) -> None:
    body = """%d = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
    %o = stablehlo.subtract %d, %r : tensor<?x?xf32>"""
    text = fusion_text("dense", ["x: m,k f32", "w: n,k f32", "r: m,n f32"], body, ["o: m,n f32"])
    emitted = plan_of(emit_dense, text)
    for k, n in [(1, 1), (35, 13), (64, 8), (16, 70)]:
        x, w, r = sample((m, k), "f32"), sample((n, k), "f32", 1), sample((m, n), "f32", 2)
        want = x.astype(np.float64) @ w.T.astype(np.float64) - r
        for plan in (emitted, unpacked(emitted)):
            (got,) = run(plan, [x, w, r])
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_several_blocks_of_k_keep_unfinished_sums_apart() -> None:
    emitted = plan_of(emit_dense, dense("f32"))
    b, t, k, n = 1, 140, 2600, 450
    x, w = sample((b, t, k), "f32") * 0.01, sample((k, n), "f32", 1)
    x = x.astype(np.float32)
    bias, r = sample((n,), "f32", 2), sample((b, t, n), "f32", 3)
    want = expected(x.astype(np.float64) @ w.astype(np.float64), bias, r)
    (got,) = run(emitted, [x, w, bias, r])
    np.testing.assert_allclose(got, want, atol=2e-3)  # both halves of the divisor may be small


TILED = ("dense_packed", "dense_scratch", "dense_direct")


def test_the_activation_is_in_a_kernel_of_its_own_once() -> None:
    plan = plan_of(emit_dense, dense("f32")).plan
    found = [x for x in launches(plan.steps) if x.kernel.name in TILED]
    assert {x.kernel.name for x in found} == {*TILED}
    called = {kernel.name: kernel.text for x in found for kernel in x.called}
    assert called.keys() == {"dense_epilogue", "dense_ask"}
    texts = {kernel.text for x in found for kernel in x.kernels}
    assert sum(text.count("arith.divf") for text in texts) == 1


def test_products_are_the_same_kernels_whatever_becomes_of_their_sums() -> None:
    """So a program finds those of others in the store, and its own layers have one."""
    dot = """%d = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>\n"""
    endings = {
        "%o = stablehlo.tanh %d : tensor<?x?xf32>": "o: m,n f32",
        "%o = stablehlo.convert %d : (tensor<?x?xf32>) -> tensor<?x?xbf16>": "o: m,n bf16",
        "%o = stablehlo.is_finite %d : (tensor<?x?xf32>) -> tensor<?x?xi1>": "o: m,n i1",
    }
    own: list[set[str]] = []
    products: list[dict[str, Kernel]] = []
    for body, result in endings.items():
        text = fusion_text("dense", ["x: m,k f32", "w: k,n f32"], dot + body, [result])
        steps = plan_of(emit_dense, text).plan.steps
        found = [x for x in launches(steps) if x.kernel.name in TILED[:2]]
        products.append({x.kernel.name: x.kernel for x in found})
        own.append({kernel.text for x in found for kernel in x.called})
        assert len(own[-1]) == 1
    for name in TILED[:2]:
        assert len({named[name] for named in products}) == 1, name
    assert len(set.union(*own)) == len(endings)


def test_a_dot_read_at_another_place_is_a_mistake_of_the_planner() -> None:
    body = """%d = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
    %e = stablehlo.negate %d : tensor<?x?xf32>
    %f = stablehlo.reverse %d, dims = [0] : tensor<?x?xf32>
    %o = stablehlo.add %e, %f : tensor<?x?xf32>"""
    text = fusion_text("dense", ["x: m,k f32", "w: k,n f32"], body, ["o: m,n f32"])
    with pytest.raises(InternalError, match="at other places"):
        plan_of(emit_dense, text)
