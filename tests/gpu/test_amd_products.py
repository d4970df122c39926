"""Products by AMD's matrix units: what is chosen, and on the emulator every layout and type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.gpu.codegen import assembly
from shlo_disc.lower.plan import If, Step, kernels_of
from shlo_disc.lower.rocm.machine import ARCHITECTURES, machine_of
from tests.gpu import emulator
from tests.gpu.families import FAMILIES
from tests.gpu.run import gpu_plan, run_gpu
from tests.gpu.test_matrix_products import LAYOUTS, SIZES, expected, variants
from tests.gpu.test_warpgroup_products import HEADS, check, in_bands, planned
from tests.gpu.test_warpgroup_products import operands as floats
from tests.lower import test_dense_epilogue
from tests.lower.helpers import DTYPES, Emitted, sample
from tests.lower.test_dense import Dot

pytest.importorskip("llvmlite")

BF16, F16 = "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x16_f16"
OF_FLOATS = {"f32": "v_mfma_f32_16x16x4_f32", "f64": "v_mfma_f64_16x16x4_f64"}
WMMA = {
    "bf16": "v_wmma_f32_16x16x16_bf16",
    "f16": "v_wmma_f32_16x16x16_f16",
    "i8": "v_wmma_i32_16x16x16_iu8",
    "ui8": "v_wmma_i32_16x16x16_iu8",
}
INSTRUCTIONS: dict[str, dict[str, str]] = {
    "gfx90a": {
        "bf16": "v_mfma_f32_16x16x16bf16_1k",
        "f16": "v_mfma_f32_16x16x16f16",
        "f32": "v_mfma_f32_16x16x4f32",
        "f64": "v_mfma_f64_16x16x4f64",
    },
    "gfx942": {"bf16": BF16, "f16": F16, "i8": "v_mfma_i32_16x16x32_i8", **OF_FLOATS},
    "gfx950": {
        "bf16": BF16.replace("x16_", "x32_"),
        "f16": F16.replace("x16_", "x32_"),
        "i8": "v_mfma_i32_16x16x64_i8",
    }
    | OF_FLOATS,
    "gfx1100": WMMA,
    "gfx1201": WMMA,
}
KINDS = [(name, dtype) for name, table in INSTRUCTIONS.items() for dtype in table]
FLOATS = [(name, dtype) for name, dtype in KINDS if "i" not in dtype]
UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
"""Half a unit of the result in its last digit."""

emulated = pytest.mark.skipif(not emulator.CHECKOUT, reason=emulator.WHY_NOT)


def plan_of(architecture: str, dot: Dot, dtype: str) -> Emitted:
    result = "i32" if "i" in dtype else dtype
    return planned(dot, dtype, result, machine=machine_of(architecture))


def one_by_one(emitted: Emitted) -> list[Emitted]:
    """A plan for each kernel, of which sizes would choose one."""
    return [
        dataclasses.replace(emitted, plan=dataclasses.replace(emitted.plan, steps=steps))
        for steps in variants(emitted.plan.steps)
    ]


def operands(dot: Dot, dtype: str, m: int, n: int, k: int) -> list[np.ndarray]:
    """Of whole chunks."""
    if "i" not in dtype:
        return floats(dot, dtype, m, n, k)
    of = {"b": 2, "c": 3, "m": m, "n": n, "k": k}
    for side in dot.sides:
        of[side[-1]] += -of[side[-1]] % 16
    return [sample([of[c] for c in side], dtype, seed) for seed, side in enumerate(dot.sides)]


def run(emitted: Emitted, inputs: Sequence[np.ndarray], architecture: str) -> list[np.ndarray]:
    return run_gpu(emitted, inputs, machine=machine_of(architecture))


def right(
    emitted: Emitted, dot: Dot, dtype: str, architecture: str, x: np.ndarray, y: np.ndarray
) -> None:
    (got,) = run(emitted, [x, y], architecture)
    if "i" in dtype:
        np.testing.assert_array_equal(got, expected(dot, x, y).astype(np.int64))
        return
    check(dot, x, y, got, UNITS[dtype], 2.0**-52 if dtype == "f64" else 2.0**-23)


# -------------------------------------------------------------------- code


@pytest.mark.parametrize(("architecture", "dtype"), KINDS)
def test_the_instruction_of_each_architecture(architecture: str, dtype: str) -> None:
    machine, name = machine_of(architecture), INSTRUCTIONS[architecture][dtype]
    kernels = list(kernels_of(plan_of(architecture, LAYOUTS[1], dtype).plan.steps))
    assert len(kernels) == 4, "three tiles, and one that is loaded by elements"
    assert all("llvm.amdgcn" in kernel.text for kernel in kernels)
    code = assembly(kernels[2].source, machine)
    assert f"{name} " in code


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loads_and_stores_are_of_16_bytes(architecture: str) -> None:
    """From memory to registers, to shared memory, and to fragments."""
    emitted = plan_of(architecture, LAYOUTS[1], "bf16")
    large = next(iter(kernels_of(emitted.plan.steps)))
    code = assembly(large.source, machine_of(architecture))
    is_new = architecture.startswith("gfx1")
    for what in (
        ("global_load_b128", "ds_store_b128", "ds_load_b128")
        if is_new
        else ("global_load_dwordx4", "ds_write_b128", "ds_read_b128")
    ):
        assert what in code
    assert "ds_load_u16" not in code
    assert "ds_read_u16" not in code


def test_channels_of_convolutions_are_loaded_by_16_bytes() -> None:
    """Neighbours along K are no run of a whole image, but runs of channels."""
    program = shlo_disc.compile(FAMILIES["conv_bf16"].exported, target="rocm:gfx942")
    kernels = [kernel for kernel in program.host.kernels if kernel.name.endswith("_fragments")]
    assert len(kernels) == 2, "by the number of tiles"
    for kernel in kernels:
        code = assembly(kernel.source, machine_of("gfx942"))
        assert "global_load_dwordx4" in code
        assert "global_load_ushort" not in code


def chosen(steps: Sequence[Step], env: Mapping[str, int]) -> str:
    (step,) = steps
    if isinstance(step, If):
        return chosen(step.then if step.condition.holds(env) else step.otherwise, env)
    (kernel,) = kernels_of((step,))
    return kernel.name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_chosen(architecture: str) -> None:
    steps = plan_of(architecture, LAYOUTS[1], "bf16").plan.steps
    units = ARCHITECTURES[architecture].units
    for m, n, k, want in (
        (128 * units, 128, 64, "128x128"),
        (128 * (units - 1), 128, 64, "64x64"),
        (64, 64 * (units // 2), 64, "64x64"),
        (64, 64 * (units // 2 - 1), 64, "16x64"),
        (16, 4096, 4096, "16x64"),
        (128 * units, 128, 63, "64x64"),  # by elements
    ):
        assert chosen(steps, {"m": m, "n": n, "k": k}) == f"dense_{want}_fragments"


@pytest.mark.parametrize(
    ("architecture", "dtypes"),
    [
        ("gfx1100", ("f32", "f32", "f32")),
        ("gfx1201", ("f64", "f64", "f64")),
        ("gfx942", ("bf16", "bf16", "f64")),
        ("gfx950", ("i8", "i8", "i64")),
        ("gfx1100", ("i8", "i8", "i64")),
        ("gfx942", ("ui8", "ui8", "i32")),
        ("gfx90a", ("i8", "i8", "i32")),
        ("gfx942", ("f16", "bf16", "f32")),
    ],
)
def test_other_types_are_multiplied_by_threads(
    architecture: str, dtypes: tuple[str, str, str]
) -> None:
    dot = Dot(*dataclasses.astuple(LAYOUTS[1])[:4], *dtypes)
    (step,) = gpu_plan(dot.text(), machine_of(architecture)).plan.steps
    for kernel in kernels_of((step,)):
        assert kernel.name.endswith(("_threads", "_dots", "_few"))
        assert "llvm.amdgcn" not in kernel.text


# -------------------------------------------------------------------- on the emulator

CASES = [(1, 1, 1), (16, 8, 16), (65, 63, 33), (131, 127, 67), (40, 136, 72), (3, 200, 0)]
"""m, n, k: of the last two the strides of some layouts are multiples of 8."""


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_products(architecture: str, layout: int) -> None:
    dot, dtypes = LAYOUTS[layout], list(INSTRUCTIONS[architecture])
    dtype = dtypes[layout % len(dtypes)]
    for m, n, k in CASES:
        of = {"b": 2, "m": m, "n": n, "k": k}
        x, y = (
            (sample([of[c] for c in side], dtype, seed) / (1 if "i" in dtype else 3)).astype(
                DTYPES[dtype]
            )
            for seed, side in enumerate(dot.sides)
        )
        right(plan_of(architecture, dot, dtype), dot, dtype, architecture, x, y)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize(("architecture", "dtype"), KINDS)
@pytest.mark.parametrize("dot", [LAYOUTS[0], HEADS])
def test_every_tile_is_right(architecture: str, dtype: str, dot: Dot) -> None:
    """Also those that the choice by sizes would not take; operands are whole chunks."""
    for one in one_by_one(plan_of(architecture, dot, dtype)):
        for m, n, k in ((136, 136, 72), (16, 264, 320), (127, 129, 8)):
            x, y = operands(dot, dtype, m, n, k)
            right(one, dot, dtype, architecture, x, y)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_steps_along_k_that_are_not_one_run(architecture: str) -> None:
    """Rows are contiguous, and K has two strides in each operand."""
    dot = Dot("kbcm,kbcn", "b", "kc", {**SIZES, "c": "c"})
    plans = one_by_one(plan_of(architecture, dot, "bf16"))
    for one in (plans[0], plans[-1]):
        x, y = operands(dot, "bf16", 16, 24, 9)
        right(one, dot, "bf16", architecture, x, y)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_tile_is_computed_where_many_are_below_each_other(architecture: str) -> None:
    """More than a group of tiles, the last group partial."""
    dot = LAYOUTS[1]
    for one in one_by_one(plan_of(architecture, dot, "bf16")):
        x, y = operands(dot, "bf16", 128 * 9 + 1, 136, 8)
        right(one, dot, "bf16", architecture, x, y)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_work_behind_the_sums(architecture: str) -> None:
    for one in one_by_one(gpu_plan(test_dense_epilogue.dense("bf16"), machine_of(architecture))):
        for b, t, k, n in ((3, 50, 72, 136), (2, 0, 8, 8), (1, 1, 64, 264)):
            x, w = (sample(s, "bf16", i) for i, s in enumerate([(b, t, k), (k, n)]))
            x, w = (x * 0.1).astype(x.dtype), (w * 0.1).astype(w.dtype)
            bias, r = sample((n,), "bf16", 2), sample((b, t, n), "bf16", 3)
            want = test_dense_epilogue.expected(x.astype(float) @ w.astype(float), bias, r)
            (got,) = run(one, [x, w, bias, r], architecture)
            np.testing.assert_allclose(got.astype(float), want, atol=0.06, rtol=0.06)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("bands", "width", "is_along_k"),
    [(2, 136, False), (2, 200, True), (3, 72, False), (4, 65, True)],
)
def test_bands(architecture: str, bands: int, width: int, is_along_k: bool) -> None:
    rows = 130
    emitted = in_bands(bands, width, rows, is_along_k, machine_of(architecture))
    kernels = list(kernels_of(emitted.plan.steps))
    assert all("llvm.amdgcn" in kernel.text for kernel in kernels)
    for k in (72, 8, 41):
        x, w = sample((rows, k), "bf16") / 3, sample((bands * width, k), "bf16", 1) / 3
        x, w = x.astype(DTYPES["bf16"]), w.astype(DTYPES["bf16"])
        got, whole = run(emitted, [x, w if is_along_k else w.T], architecture)
        check(LAYOUTS[1], x, w, whole, 2.0**-8)
        want = whole.reshape(rows, bands, width).astype(float).prod(axis=1)
        np.testing.assert_allclose(got.astype(float), want, rtol=0.03, atol=1e-6)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize(("architecture", "dtype"), FLOATS)
def test_values_that_are_not_finite_stay_in_their_rows_and_columns(
    architecture: str, dtype: str
) -> None:
    """In the last row and column, of which there are copies, and in the last partial step."""
    dot = LAYOUTS[1 + FLOATS.index((architecture, dtype)) % 2]
    x, y = operands(dot, dtype, 136, 136, 72)
    rows, columns = (a if dot.sides[i][0] != "k" else a.T for i, a in enumerate((x, y)))
    rows[135, 0], rows[3, 71], columns[135, 5] = np.inf, np.nan, -np.inf
    for one in one_by_one(plan_of(architecture, dot, dtype)):
        (got,) = run(one, [x, y], architecture)
        is_finite = np.isfinite(got.astype(float))
        assert np.isnan(got[3].astype(float)).all()
        assert not is_finite[135].any()
        assert not is_finite[:, 135].any()
        assert is_finite[np.ix_(np.delete(np.arange(136), [3, 135]), np.arange(135))].all()
