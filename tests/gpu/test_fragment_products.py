"""Products of f64 and 8-bit integers by `mma.sync`: every tile, layout and architecture."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.plan import Launch, Step, kernels_of
from tests.cases import crossed
from tests.gpu.run import gpu_plan, run_gpu
from tests.gpu.test_direct_products import chosen
from tests.gpu.test_matrix_products import LAYOUTS, expected, variants
from tests.lower.helpers import Emitted, sample
from tests.lower.test_dense import Dot

pytest.importorskip("llvmlite")

KINDS = {
    ("sm_75", "i8"): "m8n8k16.row.col.s32.s8.s8.s32",
    ("sm_80", "f64"): "m8n8k4.row.col.f64.f64.f64.f64",
    ("sm_80", "i8"): "m16n8k32.row.col.s32.s8.s8.s32",
    ("sm_80", "ui8"): "m16n8k32.row.col.s32.u8.u8.s32",
    ("sm_90a", "f64"): "m16n8k8.row.col.f64.f64.f64.f64",
}
CASES = [(1, 1, 1), (65, 131, 67), (144, 144, 80), (3, 208, 0)]
"""m, n, k."""


@functools.cache
def planned(layout: int, dtype: str, architecture: str) -> Emitted:
    dot = replace(LAYOUTS[layout], lhs_type=dtype, rhs_type=dtype, type=result_of(dtype))
    return gpu_plan(dot.text(), machine_of(architecture))


def result_of(dtype: str) -> str:
    return "f64" if dtype == "f64" else "i32"


def check(emitted: Emitted, dot: Dot, dtype: str, architecture: str, sizes: Sequence[int]) -> None:
    of = dict(zip("bmnk", (2, *sizes), strict=True))
    x, y = (sample([of[c] for c in side], dtype, seed) for seed, side in enumerate(dot.sides))
    (got,) = run_gpu(emitted, [x, y], seed=of["m"], machine=machine_of(architecture))
    if dtype != "f64":
        np.testing.assert_array_equal(got, expected(dot, x, y).astype(np.int64))
        return
    bound = (of["k"] + 2) * 2.0**-53 * expected(dot, abs(x), abs(y)) + 1e-300
    assert (np.abs(got - expected(dot, x, y)) <= bound).all(), sizes


def fragments(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    found = [one for one in variants(steps) if isinstance(one[0], Launch)]
    return [one for one in found if one[0].kernel.name.endswith("fragments")]


@pytest.mark.parametrize(
    ("layout", "kind"),
    crossed([0, 2, 3, 5], KINDS, also=[(0, ("sm_80", "i8")), (0, ("sm_80", "f64"))]),
)
def test_products(layout: int, kind: tuple[str, str]) -> None:
    """As sizes choose: of odd sizes operands are loaded element by element."""
    architecture, dtype = kind
    emitted, dot = planned(layout, dtype, architecture), LAYOUTS[layout]
    for kernel in kernels_of(emitted.plan.steps):
        assert (f"mma.sync.aligned.{KINDS[architecture, dtype]}" in kernel.text) is not (
            "_few" in kernel.name
        )
    for each in CASES if (layout, architecture) == (0, "sm_80") else CASES[1:2]:
        check(emitted, dot, dtype, architecture, each)


@pytest.mark.parametrize(
    ("layout", "architecture", "dtype"),
    [(0, "sm_75", "i8"), (0, "sm_80", "f64"), (1, "sm_80", "i8"), (0, "sm_80", "ui8"),
     (1, "sm_90a", "f64")],
)  # fmt: skip
def test_every_tile_is_right(layout: int, architecture: str, dtype: str) -> None:
    """Also those that the choice by sizes would not take; operands are whole chunks."""
    emitted = planned(layout, dtype, architecture)
    tiles = fragments(emitted.plan.steps)
    assert len(tiles) == 4, "three tiles, and one that is loaded by elements"
    for steps in tiles:
        one = replace(emitted, plan=replace(emitted.plan, steps=steps))
        for sizes in ((144, 80, 80), (16, 272, 320)):
            check(one, LAYOUTS[layout], dtype, architecture, sizes)


def test_what_is_chosen() -> None:
    for dtype, few in (("f64", "8x16_few_dots"), ("i8", "16x64_fragments")):
        steps = planned(1, dtype, "sm_80").plan.steps
        for m, n, k, want in (
            (128 * 132, 128, 64, "128x128_fragments"),
            (128 * 64, 128, 64, "64x64_fragments"),
            (64, 64 * 66, 64, "64x64_fragments"),
            (32, 64, 64, "16x64_fragments"),
            (16, 4096, 4096, few),
            (128 * 132, 128, 63, "64x64_fragments"),  # by elements
        ):
            assert chosen(steps, {"m": m, "n": n, "k": k}) == want


@pytest.mark.parametrize("dtype", ["f64", "i8"])
def test_extreme_values(dtype: str) -> None:
    """Sums of i32 wrap around; NaN and infinities stay in their rows and columns."""
    dot, m, n, k = LAYOUTS[1], 64, 16, 160
    steps = fragments(planned(1, dtype, "sm_80").plan.steps)[1]
    emitted = planned(1, dtype, "sm_80")
    one = replace(emitted, plan=replace(emitted.plan, steps=steps))
    if dtype == "i8":
        k = 1 << 17
        x, y = np.full((16, k), -128, np.int8), np.full((16, k), -128, np.int8)
        x[3], y[5, :7] = 127, 0
        (got,) = run_gpu(one, [x, y])
        want = x.astype(np.int64) @ y.astype(np.int64).T
        assert abs(want).max() >= 1 << 31
        np.testing.assert_array_equal(got, want.astype(np.int32))
        return
    x, y = sample((m, k), dtype), sample((n, k), dtype, 1)
    x[63, 0], x[3, 159], y[5, 2] = np.inf, np.nan, -np.inf
    (got,) = run_gpu(one, [x, y])
    with np.errstate(invalid="ignore"):
        want = expected(dot, x, y)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
