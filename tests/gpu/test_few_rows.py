"""Products of few rows by multiply-adds: both orders of B, every type, what is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shlo_disc.lower.plan import KernelPlan
from tests.cases import crossed
from tests.gpu.run import gpu_plan, run_gpu
from tests.gpu.test_direct_products import chosen, launches
from tests.gpu.test_matrix_products import LAYOUTS, expected
from tests.lower import test_dense_epilogue
from tests.lower.helpers import Emitted, sample
from tests.lower.test_dense import Dot

CASES = [(1, 16, 16), (3, 48, 208), (8, 16, 1040), (9, 80, 32), (16, 32, 0)]
"""m, n, k."""


def few_rows(emitted: Emitted) -> Emitted:
    """A plan of the kernel alone."""
    (launch,) = (x for x in launches(emitted.plan.steps) if "x16_few" in x.kernel.name
                 or "x32_few" in x.kernel.name)  # fmt: skip
    return replace(emitted, plan=KernelPlan((launch,)))


def typed(layout: int, left: str, right: str, result: str) -> Dot:
    return replace(LAYOUTS[layout], lhs_type=left, rhs_type=right, type=result)


TYPES = [("f32", "f32", "f32"), ("f64", "f64", "f64"), ("i8", "i8", "i64"),
         ("i64", "i64", "i64"), ("bf16", "f32", "f32"), ("f32", "f16", "f32")]  # fmt: skip


@pytest.mark.parametrize(("layout", "types"), crossed([0, 1, 4, 5], TYPES))
def test_both_orders_of_every_type(layout: int, types: tuple[str, str, str]) -> None:
    left, right, result = types
    dot = typed(layout, left, right, result)
    plan = few_rows(gpu_plan(dot.text()))
    for m, n, k in CASES:
        of = {"b": 2, "m": m, "n": n, "k": k}
        x, y = (
            sample([of[c] for c in side], dtype, seed)
            for seed, (side, dtype) in enumerate(zip(dot.sides, (left, right), strict=True))
        )
        (got,) = run_gpu(plan, [x, y], seed=m)
        want = expected(dot, x, y)
        if result[0] == "i":
            np.testing.assert_array_equal(got, want.astype(got.dtype))
            continue
        unit = 2.0**-53 if result == "f64" else 2.0**-24
        assert (np.abs(got - want) <= (k + 2) * unit * expected(dot, abs(x), abs(y))).all()


@pytest.mark.parametrize("layout", [2, 3])
def test_rows_of_a_that_are_contiguous(layout: int) -> None:
    """With columns of B that are contiguous A may have any layout."""
    dot = LAYOUTS[layout]
    emitted = gpu_plan(dot.text())
    if layout == 3:
        assert not any("few" in x.kernel.name for x in launches(emitted.plan.steps))
        return
    x, y = sample((37, 5), "f32"), sample((37, 36), "f32", 1)
    (got,) = run_gpu(few_rows(emitted), [x, y])
    want, size = expected(dot, x, y), expected(dot, abs(x), abs(y))
    assert (np.abs(got - want) <= 40 * 2.0**-24 * size).all()


def test_values_that_are_not_finite_stay_in_their_rows_and_columns() -> None:
    for layout in (0, 1):
        x, y = sample((9, 132), "f32"), sample((132, 20), "f32", 1)
        x[8, 0], x[3, 131], y[0, 5], y[131, 19] = np.inf, np.nan, -np.inf, np.nan
        plan = few_rows(gpu_plan(LAYOUTS[layout].text()))
        (got,) = run_gpu(plan, [x, y if layout == 0 else y.T])
        assert not np.isfinite(got[[3, 8]]).any()
        assert not np.isfinite(got[:, [5, 19]]).any()
        assert np.isfinite(got[np.ix_(np.delete(np.arange(9), [3, 8]), [0, 4, 6, 18])]).all()


def test_work_behind_the_sums() -> None:
    plan = few_rows(gpu_plan(test_dense_epilogue.dense("f32")))
    for b, t, k, n in ((3, 5, 72, 40), (1, 1, 36, 36), (2, 0, 8, 8)):
        x, w = (sample(s, "f32", i) * np.float32(0.1) for i, s in enumerate([(b, t, k), (k, n)]))
        bias, r = sample((n,), "f32", 2), sample((b, t, n), "f32", 3)
        want = test_dense_epilogue.expected(x.astype(float) @ w.astype(float), bias, r)
        (got,) = run_gpu(plan, [x, w, bias, r])
        np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)


def test_what_is_chosen() -> None:
    for layout, sizes, want in (
        (0, (16, 1024, 255), "8x32_few"),
        (0, (17, 1024, 256), "64x64_threads"),
        (0, (1, 1022, 256), "64x64_threads"),
        (1, (1, 1023, 256), "8x16_few_dots"),
        (1, (1, 1024, 255), "64x64_threads"),
    ):
        steps = gpu_plan(LAYOUTS[layout].text()).plan.steps
        assert chosen(steps, dict(zip("mnk", sizes, strict=True))) == want
    short = replace(LAYOUTS[0], sizes={**LAYOUTS[0].sizes, "k": "8"})
    assert chosen(gpu_plan(short.text()).plan.steps, {"m": 1, "n": 64}) == "64x64_threads"
