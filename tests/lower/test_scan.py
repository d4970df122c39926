"""Kind scan against numpy in float64: every size, dimension, direction and element type."""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.cpu.short_scan import CHUNK, emit
from shlo_disc.lower.kernels.scan import BLOCK
from tests.lower.helpers import Emitted, fusion_text, plan_of, run, sample, tensor

SIZES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 255, 8 * BLOCK, 16 * BLOCK + 5)

BODIES = {
    "add": (np.cumsum, "0"),
    "multiply": (np.cumprod, "1"),
    "maximum": (np.maximum.accumulate, "-100"),
    "minimum": (np.minimum.accumulate, "100"),
}


def scan(sizes: str, dtype: str, axis: int, body: str = "add", reverse: bool = False) -> Emitted:
    kind, scalar = tensor(sizes, dtype), f"tensor<{dtype}>"
    init = BODIES[body][1] if body in BODIES else "0"
    init = init + ("" if dtype[0] in "iu" else ".0")
    flag = "true" if reverse else "false"
    text = f"""%i = stablehlo.constant dense<{init}> : {scalar}
      %s = "disc.scan"(%x, %i) ({{
      ^bb0(%p: {scalar}, %q: {scalar}):
        %r = stablehlo.{body} %p, %q : {scalar}
        stablehlo.return %r : {scalar}
      }}) {{dimension = {axis} : i64, reverse = {flag}}} : ({kind}, {scalar}) -> {kind}"""
    return plan_of(
        emit, fusion_text("scan", [f"x: {sizes} {dtype}"], text, [f"s: {sizes} {dtype}"])
    )


def expected(x, axis, body="add", reverse=False):
    x = np.asarray(x, np.float64 if np.asarray(x).dtype.kind not in "iu" else None)
    turned = np.flip(x, axis) if reverse else x
    total = BODIES[body][0](turned, axis=axis)
    return np.flip(total, axis) if reverse else total


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_size(axis, reverse):
    plan = scan("b,n", "f32", axis, reverse=reverse)
    for n in SIZES:
        for b in (0, 1, 3, 37):
            x = sample((b, n), "f32", n)
            (got,) = run(plan, [x])
            np.testing.assert_allclose(
                got, expected(x, axis, reverse=reverse), rtol=1e-5, atol=1e-4
            )


@pytest.mark.parametrize("body", list(BODIES))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_reducer_along_every_dimension(axis, body):
    plan = scan("b,n,k", "f32", axis, body)
    for sizes in [(2, 33, 5), (1, 1, 1), (70, 3, 40), (3, 130, 9)]:
        x = sample(sizes, "f32", 1) * 0.5 + 1.0
        np.testing.assert_allclose(run(plan, [x])[0], expected(x, axis, body), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("count", "dtype", "body"),
    [(2, "f32", "add"), (3, "i8", "maximum"), (5, "f64", "multiply"), (16, "bf16", "add")],
)
def test_short_rows_are_in_lanes(count, dtype, body, reverse):
    plan = scan(f"a,b,{count}", dtype, 2, body, reverse)
    assert [step.kernel.name for step in plan.plan.steps] == ["scan_short_rows"]
    for sizes in [(0, 3), (1, 1), (3, 17), (2, CHUNK)]:
        x = sample((*sizes, count), dtype, 1)
        want = expected(x, 2, body, reverse)
        np.testing.assert_allclose(
            np.asarray(run(plan, [x])[0], want.dtype), want, rtol=2e-2, atol=0.1
        )


@pytest.mark.parametrize("dtype", ["f64", "i8", "i32", "i64", "ui8", "ui32"])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_type(axis, dtype):
    plan = scan("b,n", dtype, axis)
    x = sample((3, 100), dtype, 2)
    want = np.cumsum(x, axis, dtype=x.dtype) if x.dtype.kind in "iu" else np.cumsum(x, axis)
    np.testing.assert_allclose(run(plan, [x])[0], want, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_totals_of_half_types_are_float32(dtype):
    # One by one in bf16 the total would stop at 256.
    plan = scan("b,n", dtype, 1)
    x = np.ones((2, 1500), sample((1,), dtype, 0).dtype)
    got = np.asarray(run(plan, [x])[0], np.float64)
    np.testing.assert_allclose(got, expected(x, 1), rtol=2.0**-8)


def test_the_error_of_a_long_sum():
    plan = scan("n", "f32", 0)
    x = np.random.default_rng(0).random(1_000_000, np.float32)
    (got,) = run(plan, [x])
    want = np.cumsum(x, dtype=np.float64)
    # numpy's own cumsum in float32 is off by 1e-4 here.
    assert np.max(np.abs(got - want) / want) < 3e-6


def test_what_is_not_a_number_stays_with_those_behind_it():
    for reverse in (False, True):
        plan = scan("n", "f32", 0, reverse=reverse)
        x = np.arange(50, dtype=np.float32)
        x[20], x[30] = np.inf, np.nan
        np.testing.assert_array_equal(
            run(plan, [x])[0], expected(x, 0, reverse=reverse).astype(np.float32)
        )


def test_the_order_of_operands_is_kept():
    """`q` alone: the last one seen; `p` alone: the first one."""
    for reverse in (False, True):
        for name in "pq":
            text = f"""%i = stablehlo.constant dense<0.0> : tensor<f32>
              %s = "disc.scan"(%x, %i) ({{
              ^bb0(%p: tensor<f32>, %q: tensor<f32>):
                stablehlo.return %{name} : tensor<f32>
              }}) {{dimension = 1 : i64, reverse = {"true" if reverse else "false"}}} : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>"""
            plan = plan_of(emit, fusion_text("scan", ["x: b,n f32"], text, ["s: b,n f32"]))
            x = np.arange(1, 41, dtype=np.float32).reshape(2, 20)
            (got,) = run(plan, [x])
            keeps_own = (name == "q") != reverse
            np.testing.assert_array_equal(got, x if keeps_own else np.zeros_like(x))
