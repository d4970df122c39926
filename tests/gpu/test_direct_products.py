"""Products of few rows by matrix units: layouts, types, tiles, what is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.plan import KernelPlan, Launch
from shlo_disc.lower.target import parse
from tests.cases import crossed
from tests.gpu.resources import WHY_NOT, of_nvidia
from tests.gpu.run import MACHINE, gpu_plan, run_gpu
from tests.gpu.test_matrix_products import LAYOUTS, SIZES, check, expected, planned, tf32
from tests.gpu.test_warpgroup_products import chosen, in_bands
from tests.lower import test_dense_epilogue
from tests.lower.helpers import DTYPES, Emitted, launches, sample
from tests.lower.test_dense import Dot

ALONG_K = [0, 1, 4, 5]
"""Layouts whose A lies along K."""
CASES = [(1, 8, 8), (2, 40, 72), (15, 72, 520), (16, 64, 128), (17, 136, 1000), (33, 64, 0)]
"""m, n, k."""


def direct(emitted: Emitted) -> dict[str, Emitted]:
    """A plan for each kernel, by name."""
    return {
        x.kernel.name: replace(emitted, plan=KernelPlan((x,)))
        for x in launches(emitted.plan.steps)
        if x.kernel.name.endswith("direct")
    }


@pytest.mark.parametrize(("layout", "dtype"), crossed(ALONG_K, ["bf16", "f16", "f32"]))
def test_every_tile_is_right(layout: int, dtype: str) -> None:
    plans = direct(planned(layout, dtype))
    assert len(plans) == 3
    for plan in plans.values():
        for m, n, k in CASES:
            check(plan, LAYOUTS[layout], dtype, m, n, k)


@pytest.mark.parametrize("layout", [2, 3])
def test_rows_that_do_not_lie_along_k_take_other_kernels(layout: int) -> None:
    assert not direct(planned(layout, "bf16"))
    m, n, k = 8, 16, 24
    check(planned(layout, "bf16"), LAYOUTS[layout], "bf16", m, n, k)


@pytest.mark.parametrize(("m", "n", "k"), [(3, 16, 7), (0, 16, 16), (16, 17, 16), (3, 0, 16)])
def test_odd_and_empty_sizes(m: int, n: int, k: int) -> None:
    """The plan as it is: what does not lie at multiples of 16 bytes takes other kernels."""
    for layout in (0, 1):
        check(planned(layout, "bf16"), LAYOUTS[layout], "bf16", m, n, k)


def test_the_order_of_blocks_does_not_matter() -> None:
    x, y = sample((40, 264), "bf16"), sample((264, 72), "bf16", 1)
    for plan in direct(planned(0, "bf16")).values():
        one, other = (run_gpu(plan, [x, y], seed=seed)[0] for seed in (1, 2))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("layout", "dtype"), crossed([0, 1], ["bf16", "f32"]))
def test_values_that_are_not_finite_stay_in_their_rows_and_columns(layout: int, dtype: str) -> None:
    """Also in the last row and column, of which there are copies, and in the first step."""
    k = 40
    x, y = sample((19, k), dtype), sample((k, 24), dtype, 1)
    x[18, 0], x[3, k - 1], y[0, 5], y[k - 1, 23] = np.inf, np.nan, -np.inf, np.nan
    for plan in direct(planned(layout, dtype)).values():
        (got,) = run_gpu(plan, [x, y if layout == 0 else y.T])
        is_finite = np.isfinite(got.astype(float))
        assert not is_finite[[3, 18]].any()
        assert not is_finite[:, [5, 23]].any()
        assert is_finite[np.ix_(np.delete(np.arange(19), [3, 18]), [0, 4, 6, 22])].all()


def test_steps_along_k_that_are_not_one_run() -> None:
    """Of A they are steps of its own, so lanes load no vectors; of B they are one run."""
    apart = Dot("mbkc,kbcn", "b", "kc", {**SIZES, "c": "c"}, "bf16", "bf16", "bf16")
    emitted = gpu_plan(apart.text(), exact=False)
    assert not direct(emitted)
    x, y = sample((4, 2, 3, 8), "bf16"), sample((3, 2, 8, 16), "bf16", 1)
    (got,) = run_gpu(emitted, [x, y])
    np.testing.assert_allclose(got.astype(float), expected(apart, x, y), rtol=2.0**-7, atol=0.5)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_work_behind_the_sums(dtype: str) -> None:
    emitted = gpu_plan(test_dense_epilogue.dense(dtype), exact=False)
    plans = direct(emitted)
    assert len(plans) == 3
    for plan in plans.values():
        for b, t, k, n in ((3, 7, 72, 40), (1, 1, 64, 64), (2, 0, 8, 8)):
            x, w = (sample(s, dtype, i) for i, s in enumerate([(b, t, k), (k, n)]))
            x, w = (tf32((a * 0.1).astype(a.dtype)) for a in (x, w))
            bias, r = sample((n,), dtype, 2), sample((b, t, n), dtype, 3)
            want = test_dense_epilogue.expected(x.astype(float) @ w.astype(float), bias, r)
            (got,) = run_gpu(plan, [x, w, bias, r])
            atol = 0.06 if dtype == "bf16" else 1e-5
            np.testing.assert_allclose(got.astype(float), want, atol=atol, rtol=atol)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("bands", "width", "is_along_k"),
    [(2, 40, False), (3, 24, False), (3, 8, True), (4, 24, False), (4, 8, True)],
)
def test_bands(bands: int, width: int, is_along_k: bool, dtype: str) -> None:
    rows, k = 17, 72
    emitted = in_bands(bands, width, rows, is_along_k, dtype, MACHINE)
    (plan,) = direct(emitted).values()
    x, w = sample((rows, k), dtype) / 3, sample((bands * width, k), dtype, 1) / 3
    x, w = (tf32(a.astype(DTYPES[dtype])) for a in (x, w))
    got, whole = run_gpu(plan, [x, w if is_along_k else w.T])
    want = expected(LAYOUTS[1], x, w)
    np.testing.assert_allclose(whole.astype(float), want, rtol=2.0**-8, atol=1e-4)
    want = whole.reshape(rows, bands, width).astype(float).prod(axis=1)
    np.testing.assert_allclose(got.astype(float), want, rtol=0.03, atol=1e-6)


def test_what_is_chosen() -> None:
    steps = gpu_plan(replace(LAYOUTS[0], lhs_type="f32").text(), exact=False).plan.steps
    for m, n, k, want in (
        (1, 1024, 256, "16x16_direct"),
        (16, 2112, 512, "16x16_direct"),
        (16, 4096, 512, "16x32_direct"),
        (16, 8192, 8192, "16x64_direct"),
        (17, 64, 64, "16x32_warps"),
        (128, 3072, 768, "64x64_warps"),
        (1, 1024, 255, "8x32_few"),
        (17, 1024, 255, "64x64_warps"),
        (1, 1023, 255, "64x64_warps"),
    ):
        assert chosen(steps, {"m": m, "n": n, "k": k}) == want
    few = Dot("mk,kn", "", "k", {"m": "3", "n": "64", "k": "72"}, "bf16", "bf16", "bf16")
    (step,) = gpu_plan(few.text()).plan.steps
    assert isinstance(step, Launch)
    assert step.kernel.name == "dense_16x16_direct"


def test_what_is_chosen_beside_warpgroups() -> None:
    steps = gpu_plan(replace(LAYOUTS[0], lhs_type="bf16", rhs_type="bf16", type="bf16").text(),
                     machine_of("sm_90a")).plan.steps  # fmt: skip
    for m, n, k, want in (
        (1, 1024, 1024, "16x16_direct"),
        (17, 1024, 1024, "16x64_warpgroups_boxes"),
        (1, 1024, 256, "16x64_warpgroups_boxes"),
        (16, 8192, 8192, "16x64_warpgroups_boxes"),
    ):
        assert chosen(steps, {"m": m, "n": n, "k": k}) == want


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_90a"])
def test_no_tile_spills(target: str, layout: int, dtype: str) -> None:
    dot = replace(LAYOUTS[layout], lhs_type=dtype, rhs_type=dtype, type=dtype)
    emitted = gpu_plan(dot.text(), machine_of(target[5:]), exact=False)
    texts = {x.kernel.text: name for name, e in direct(emitted).items() for x in e.plan.steps}
    with parse(target).generator() as generator:
        images = generator.functions(list(texts))
    for name, image in zip(texts.values(), images, strict=True):
        try:
            used = of_nvidia(name, image, target)
        except FileNotFoundError:
            pytest.skip(WHY_NOT)
        assert used.spilled == used.private_bytes == 0, used
        assert used.registers <= 128, "a multiprocessor has room for one block of 16 warps"
