"""Products of 16-bit floats by matrix units: every layout, around tiles, both ways of copying."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from shlo_disc.lower.plan import If, kernels_of
from tests.gpu.run import gpu_plan, run_gpu
from tests.lower.helpers import DTYPES, Emitted, sample
from tests.lower.test_dense import Dot

SIZES = {letter: letter for letter in "bmnk"}
LAYOUTS = [
    Dot("mk,kn", "", "k", SIZES),
    Dot("mk,nk", "", "k", SIZES),
    Dot("km,kn", "", "k", SIZES),
    Dot("km,nk", "", "k", SIZES),
    Dot("bmk,bkn", "b", "k", SIZES),
    Dot("mbk,bnk", "b", "k", SIZES, perm=(1, 2, 0)),
]
CASES = [(1, 1, 1), (16, 8, 16), (65, 63, 33), (64, 64, 160), (40, 136, 72), (3, 200, 0)]
"""m, n, k: of the last two the strides of some layouts are multiples of 8."""


@functools.cache
def planned(layout: int, dtype: str) -> Emitted:
    dot = LAYOUTS[layout]
    typed = Dot(dot.spec, dot.batch, dot.contract, dot.sizes, dtype, dtype, dtype, dot.perm)
    return gpu_plan(typed.text())


def expected(dot: Dot, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    left, right = dot.sides
    return np.einsum(f"{left},{right}->{dot.permuted}", x.astype(float), y.astype(float))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_products_of_halves(layout: int, dtype: str) -> None:
    dot, emitted = LAYOUTS[layout], planned(layout, dtype)
    assert all("mma.sync" in kernel.text for kernel in kernels_of(emitted.plan.steps))
    for m, n, k in CASES:
        of = {"b": 2, "m": m, "n": n, "k": k}
        x, y = (
            (sample([of[c] for c in side], dtype, seed) / 3).astype(DTYPES[dtype])
            for seed, side in enumerate(dot.sides)
        )
        (got,) = run_gpu(emitted, [x, y], seed=m)
        want = expected(dot, x, y)
        # f32 sums of k products, and the rounding of the result.
        room = 2.0**-8 if dtype == "bf16" else 2.0**-11
        bound = room * np.abs(want) + (k + 2) * 2.0**-23 * expected(dot, abs(x), abs(y)) + 1e-30
        assert (np.abs(got.astype(float) - want) <= bound).all(), (m, n, k)


def test_large_tiles_are_taken_where_there_are_enough() -> None:
    (choice,) = planned(0, "bf16").plan.steps
    assert isinstance(choice, If)
    for large, m, n in ((True, 128 * 20, 128 * 10), (False, 512, 512)):
        assert choice.condition.holds({"m": m, "n": n, "k": 64}) is large
    few = Dot("mk,kn", "", "k", {"m": "200", "n": "64", "k": "72"}, "bf16", "bf16", "bf16")
    assert not any(isinstance(step, If) for step in gpu_plan(few.text()).plan.steps)


def test_large_tiles_are_right() -> None:
    """Two tiles down, and two across, of the largest: the choice by sizes would not take them."""
    (choice,) = planned(1, "bf16").plan.steps
    assert isinstance(choice, If)
    large = Emitted(
        type(planned(1, "bf16").plan)(choice.then), planned(1, "bf16").results,
        planned(1, "bf16").symbols,
    )  # fmt: skip
    for m, n, k in ((130, 129, 48), (128, 256, 41)):
        x, y = sample((m, k), "bf16"), sample((n, k), "bf16", 1)
        (got,) = run_gpu(large, [x, y], seed=k)
        want = expected(LAYOUTS[1], x, y)
        bound = 2.0**-8 * np.abs(want) + k * 2.0**-23 * expected(LAYOUTS[1], abs(x), abs(y))
        assert (np.abs(got.astype(float) - want) <= bound).all(), (m, n, k)


def test_values_that_are_not_finite_stay_in_their_rows_and_columns() -> None:
    x, y = sample((70, 40), "bf16"), sample((40, 66), "bf16", 1)
    x[3, 5], y[39, 65] = np.nan, np.inf
    (got,) = run_gpu(planned(0, "bf16"), [x, y])
    want = expected(LAYOUTS[0], x, y)
    assert np.isnan(got[3].astype(float)).all()
    assert (np.isfinite(got.astype(float)) == np.isfinite(want)).all()
