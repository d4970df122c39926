"""Products by matrix units: every layout and type, around tiles, both ways of copying."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from shlo_disc.ir.contractions import may_round
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.lower.plan import If, Step, kernels_of
from tests.cases import crossed
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
ALGORITHM = (
    ", algorithm = <lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = f32, "
    "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = {1}, "
    "allow_imprecise_accumulation = false>"
)
CASES = [(1, 1, 1), (16, 8, 16), (65, 63, 33), (64, 64, 160), (40, 136, 72), (3, 200, 0)]
"""m, n, k: of the last two the strides of some layouts are multiples of 8."""


@functools.cache
def planned(layout: int, dtype: str) -> Emitted:
    dot = LAYOUTS[layout]
    typed = Dot(dot.spec, dot.batch, dot.contract, dot.sizes, dtype, dtype, dtype, dot.perm)
    return gpu_plan(typed.text(), exact=False)


def expected(dot: Dot, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    left, right = dot.sides
    return np.einsum(f"{left},{right}->{dot.permuted}", x.astype(float), y.astype(float))


ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24}
"""Half a unit of the result in its last digit."""


def check(emitted: Emitted, dot: Dot, dtype: str, m: int, n: int, k: int) -> None:
    """Sums of k products in f32, of operands that are exact in bf16, f16 or tf32."""
    of = {"b": 2, "m": m, "n": n, "k": k}
    x, y = (
        tf32(sample([of[c] for c in side], dtype, seed) / 3).astype(DTYPES[dtype])
        for seed, side in enumerate(dot.sides)
    )
    (got,) = run_gpu(emitted, [x, y], seed=m)
    want = expected(dot, x, y)
    bound = ROUNDING[dtype] * np.abs(want) + 1e-30
    bound += (k + 2) * 2.0**-23 * expected(dot, abs(x), abs(y))
    assert (np.abs(got.astype(float) - want) <= bound).all(), (m, n, k)


def tf32(x: np.ndarray) -> np.ndarray:
    """Numbers of f32 cut to ten digits behind the first."""
    if x.dtype != np.float32:
        return x
    return (x.view(np.uint32) & 0xFFFFE000).view(np.float32)


@pytest.mark.parametrize(("layout", "dtype"), crossed(range(len(LAYOUTS)), ["bf16", "f16", "f32"]))
def test_products(layout: int, dtype: str) -> None:
    emitted = planned(layout, dtype)
    kernels = [x for x in kernels_of(emitted.plan.steps) if "_few" not in x.name]
    assert all("mma.sync" in kernel.text for kernel in kernels)
    for m, n, k in CASES:
        check(emitted, LAYOUTS[layout], dtype, m, n, k)


def variants(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Every plan that some sizes would take, each without choices."""
    (step,) = steps
    if isinstance(step, If):
        yield from variants(step.then)
        yield from variants(step.otherwise)
    else:
        yield (step,)


@pytest.mark.parametrize(("layout", "dtype"), crossed([0, 1, 2], ["bf16", "f32"]))
def test_every_tile_is_right(layout: int, dtype: str) -> None:
    """Also those that the choice by sizes would not take; strides are multiples of a copy."""
    emitted, names = planned(layout, dtype), set()
    for steps in variants(emitted.plan.steps):
        (step,) = steps
        if step.kernel.name.endswith("direct") or "_few" in step.kernel.name:
            continue
        names.add(step.kernel.text)
        one = replace(emitted, plan=replace(emitted.plan, steps=steps))
        for m, n, k in ((136, 136, 72), (16, 264, 320)):
            check(one, LAYOUTS[layout], dtype, m, n, k)
    assert len(names) == 4, "three tiles, and one that is copied by elements"


def test_large_tiles_are_taken_where_there_are_enough() -> None:
    (by_strides,) = planned(0, "bf16").plan.steps
    assert isinstance(by_strides, If)
    (by_chunks,) = by_strides.otherwise
    assert isinstance(by_chunks, If)
    (choice,) = by_chunks.then
    assert isinstance(choice, If)
    for large, m, n in ((True, 128 * 20, 128 * 10), (False, 512, 512)):
        assert choice.condition.holds({"m": m, "n": n, "k": 64}) is large
    few = Dot("mk,kn", "", "k", {"m": "200", "n": "64", "k": "72"}, "bf16", "bf16", "bf16")
    assert not any(isinstance(step, If) for step in gpu_plan(few.text()).plan.steps)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_steps_along_k_that_are_not_one_run(dtype: str) -> None:
    """Rows are contiguous, and K has two strides in each operand."""
    sizes = {**SIZES, "c": "c"}
    dot = Dot("kbcm,kbcn", "b", "kc", sizes, dtype, dtype, dtype)
    emitted = gpu_plan(dot.text(), exact=False)
    x, y = (
        tf32(sample((5, 2, 9, size), dtype, seed)).astype(DTYPES[dtype])
        for seed, size in enumerate((16, 24))
    )
    for steps in variants(emitted.plan.steps):
        one = replace(emitted, plan=replace(emitted.plan, steps=steps))
        (got,) = run_gpu(one, [x, y])
        np.testing.assert_allclose(got.astype(float), expected(dot, x, y), rtol=2.0**-8, atol=1)


def test_f32_is_rounded_to_tf32_where_the_program_lets_it() -> None:
    dot = LAYOUTS[0]
    x, y = sample((33, 40), "f32"), sample((40, 17), "f32", 1)
    (got,) = run_gpu(planned(0, "f32"), [x, y])
    (exact,) = run_gpu(gpu_plan(dot.text()), [x, y])
    want, size = expected(dot, x, y), expected(dot, abs(x), abs(y))
    assert (np.abs(got - want) <= 2.0**-10 * size).all()
    assert (np.abs(got - want) > 2.0**-20 * size).any()
    assert (np.abs(exact - want) <= 42 * 2.0**-24 * size).all()


@pytest.mark.parametrize(
    ("numbers", "is_rounded"),
    [
        ("", True),
        (", precision = [DEFAULT, DEFAULT]", True),
        (", precision = [HIGH, DEFAULT]", False),
        (", precision = [DEFAULT, HIGHEST]", False),
        (ALGORITHM.format("tf32", 1), True),
        (ALGORITHM.format("tf32", 3), False),
        (ALGORITHM.format("bf16", 1), False),
        (ALGORITHM.format("f32", 1), False),
    ],
)
def test_precision_and_algorithm_say_whether_f32_is_rounded(numbers: str, is_rounded: bool) -> None:
    """Three products of tf32 have more digits than one."""
    types = "(tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>"
    text = f"""func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<4x4xf32> {{
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]{numbers} : {types}
  return %z : tensor<4x4xf32>
}}"""
    with new_context(), ir.Location.unknown():
        (dot,) = ops_of(ir.Module.parse(text), "stablehlo.dot_general")
        assert may_round(dot) is is_rounded


def test_values_that_are_not_finite_stay_in_their_rows_and_columns() -> None:
    x, y = sample((70, 40), "bf16"), sample((40, 66), "bf16", 1)
    x[3, 5], y[39, 65] = np.nan, np.inf
    (got,) = run_gpu(planned(0, "bf16"), [x, y])
    want = expected(LAYOUTS[0], x, y)
    assert np.isnan(got[3].astype(float)).all()
    assert (np.isfinite(got.astype(float)) == np.isfinite(want)).all()
