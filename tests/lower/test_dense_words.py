"""Products of words (VPMADDWD, VNNI, AVX512-BF16, AMX): exact integers, denormals, ULP."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from shlo_disc.lower.cpu.dense import emit_dense
from shlo_disc.lower.cpu.dense import words as words_module
from shlo_disc.lower.cpu.machine import Machine, host_machine, with_tiles
from shlo_disc.lower.plan import If, KernelPlan, Pack, Step
from tests.cases import crossed
from tests.lower.helpers import DTYPES, Emitted, plan_of, run
from tests.lower.test_dense import Dot, symbolic

HOST = with_tiles(host_machine(), "0")
AVX_VNNI = dataclasses.replace(HOST, vector_bytes=32)
SOFT = with_tiles(HOST, "soft")

PAIRS = dataclasses.replace(HOST, features=HOST.features - {"avx512_vnni", "avx_vnni"})
"""Without the instruction for four integers."""


def machines(*features: str) -> list[Any]:
    """This machine with vectors of words where it has `features`, with AMX, and with soft tiles."""
    no_vectors = pytest.mark.skipif(not {*features} <= HOST.features, reason="no such vectors")
    no_tiles = pytest.mark.skipif("amx_tile" not in host_machine().features, reason="no AMX")
    return [
        pytest.param(HOST, marks=no_vectors, id="vectors"),
        pytest.param(host_machine(), marks=no_tiles, id="tiles"),
        pytest.param(SOFT, id="soft"),
    ]


each_of_integers = pytest.mark.parametrize("machine", machines("avx512_vnni"))
each_of_bf16 = pytest.mark.parametrize("machine", machines("avx512_bf16"))

SIGNS = list(itertools.product(("i8", "ui8"), ("i8", "ui8")))
SPECS = ["mk,kn", "mk,nk", "km,kn", "km,nk"]
SIZES = [(1, 1, 1), (3, 2, 5), (9, 3, 49), (16, 4, 16), (17, 67, 70), (33, 130, 97), (5, 0, 3)]


def uses_words(emitted: Emitted) -> bool:
    """True if a kernel of the plan has an instruction of `words.py`."""

    def texts(steps: tuple[Step, ...]) -> list[str]:
        found = []
        for step in steps:
            if isinstance(step, If | Pack):
                found += texts(step.then) + texts(step.otherwise)
            else:
                found.append(step.kernel.text)
        return found

    names = ("pmadd", "vpdpbusd", "dpbf16ps", "x86.tdpb")
    return any(name in text for text in texts(emitted.plan.steps) for name in names)


def without_panels(emitted: Emitted) -> Emitted:
    """The same with the variants for calls that keep no panels."""

    def steps_of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        found: list[Step] = []
        for step in steps:
            if isinstance(step, If):
                then, otherwise = steps_of(step.then), steps_of(step.otherwise)
                found.append(dataclasses.replace(step, then=then, otherwise=otherwise))
            elif isinstance(step, Pack):
                found += steps_of(step.otherwise)
            else:
                found.append(step)
        return tuple(found)

    plan = KernelPlan(steps_of(emitted.plan.steps), emitted.plan.workspaces)
    return dataclasses.replace(emitted, plan=plan)


def emit(dot: Dot, machine: Machine | None = None) -> Emitted:
    emitted = plan_of(emit_dense, dot.text(), machine)
    assert uses_words(emitted) or machine is SOFT
    return emitted


def integers(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Any values, every fourth an extreme one."""
    info = np.iinfo(DTYPES[dtype])
    values = rng.integers(info.min, info.max + 1, shape)
    extreme = np.array([info.min, info.max, info.min + 1, 0, -1 if info.min else 128])
    chosen = extreme[rng.integers(0, len(extreme), shape)]
    return np.where(rng.random(shape) < 0.25, chosen, values).astype(DTYPES[dtype])


def shapes(dot: Dot, env: dict[str, int]) -> list[tuple[int, ...]]:
    return [tuple(env[dot.sizes[c]] for c in side) for side in dot.sides]


def check_exact(dot: Dot, emitted: Emitted, env: dict[str, int], fill: int | None = None) -> None:
    rng = np.random.default_rng(sum(env.values()))
    x, y = (
        integers(shape, dtype, rng)
        for shape, dtype in zip(shapes(dot, env), (dot.lhs_type, dot.rhs_type), strict=True)
    )
    if fill is not None:
        x[...], y[...] = (
            np.iinfo(v.dtype).min if fill < 0 else np.iinfo(v.dtype).max for v in (x, y)
        )
    want = np.einsum(f"{dot.spec}->{dot.permuted}", x.astype(np.int64), y.astype(np.int64))
    for which in (emitted, without_panels(emitted)):
        (got,) = run(which, [x, y], env)
        np.testing.assert_array_equal(got, want.astype(got.dtype))


@each_of_integers
@pytest.mark.parametrize(("spec", "signs"), crossed(SPECS, SIGNS))
def test_integers_are_exact(spec: str, signs: tuple[str, str], machine: Machine) -> None:
    lhs, rhs = signs
    dot = symbolic(spec, "", "k", lhs_type=lhs, rhs_type=rhs, type="i32")
    emitted = emit(dot, machine)
    for m, k, n in SIZES:
        check_exact(dot, emitted, {"m": m, "k": k, "n": n})


@pytest.mark.skipif(HOST.instruction_set != "x86-64", reason="no VPMADDWD")
@pytest.mark.parametrize(("spec", "signs"), crossed(SPECS, SIGNS))
def test_pairs_of_integers_are_exact(spec: str, signs: tuple[str, str]) -> None:
    lhs, rhs = signs
    dot = symbolic(spec, "", "k", lhs_type=lhs, rhs_type=rhs, type="i32")
    emitted = emit(dot, PAIRS)
    for m, k, n in SIZES:
        check_exact(dot, emitted, {"m": m, "k": k, "n": n})
    for fill in (-1, 1) if spec == "mk,kn" else ():
        check_exact(dot, emitted, {"m": 9, "k": 5003, "n": 33}, fill)


@each_of_integers
@pytest.mark.parametrize(("lhs", "rhs"), SIGNS)
def test_long_sums_of_extreme_integers_are_exact(lhs: str, rhs: str, machine: Machine) -> None:
    # Several blocks of K, each with a note of its own.
    dot = symbolic("mk,kn", "", "k", lhs_type=lhs, rhs_type=rhs, type="i32")
    emitted = emit(dot, machine)
    for fill in (-1, 1, None):
        check_exact(dot, emitted, {"m": 9, "k": 5003, "n": 33}, fill)


@each_of_integers
@pytest.mark.parametrize(("spec", "signs"), crossed(["bmk,bkn", "bmk,bnk", "bmk,kn"], SIGNS))
def test_batches_and_results_of_eight_bits(
    spec: str, signs: tuple[str, str], machine: Machine
) -> None:
    batch = "b" if spec.count("b") == 2 else ""
    dot = symbolic(spec, batch, "k", lhs_type=signs[0], rhs_type=signs[1], type="i8")
    emitted = emit(dot, machine)
    for m, k, n in [(1, 5, 3), (40, 70, 33)]:
        check_exact(dot, emitted, {"b": 3, "m": m, "k": k, "n": n})


@pytest.mark.skipif("avx_vnni" not in HOST.features, reason="no AVX-VNNI")
@pytest.mark.parametrize(("lhs", "rhs"), SIGNS)
def test_integers_in_short_vectors(lhs: str, rhs: str) -> None:
    dot = symbolic("mk,kn", "", "k", lhs_type=lhs, rhs_type=rhs, type="i32")
    emitted = emit(dot, AVX_VNNI)
    for m, k, n in SIZES:
        check_exact(dot, emitted, {"m": m, "k": k, "n": n})


def test_machines_without_the_instructions_have_none() -> None:
    plain = Machine(vector_bytes=64, cores=2, features=frozenset({"avx2", "fma", "avx512f"}))
    for types in (("i8", "i8", "i32"), ("bf16", "bf16", "f32")):
        dot = symbolic("mk,kn", "", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
        assert not uses_words(plan_of(emit_dense, dot.text(), plain))


@pytest.mark.parametrize(("vendor", "uses"), [("GenuineIntel", False), ("AuthenticAMD", True)])
def test_intels_widen_bf16(vendor: str, uses: bool) -> None:
    features = frozenset({"avx2", "fma", "avx512f", "avx512_bf16"})
    machine = Machine(vector_bytes=64, cores=2, features=features, vendor=vendor)
    dot = symbolic("mk,kn", "", "k", lhs_type="bf16", rhs_type="bf16", type="f32")
    assert uses_words(plan_of(emit_dense, dot.text(), machine)) == uses


# ---------------------------------------------------------------- bf16


def check_floats(dot: Dot, emitted: Emitted, x: np.ndarray, y: np.ndarray) -> None:
    """Within the bound that a sum of f32 in any order has, and never more than a denormal off."""
    env = {
        c: s
        for side, v in zip(dot.sides, (x, y), strict=True)
        for c, s in zip(side, v.shape, strict=True)
    }
    spec = f"{dot.spec}->{dot.permuted}"
    wide = [v.astype(np.float64) for v in (x, y)]
    want = np.einsum(spec, *wide)
    scale = np.einsum(spec, *(np.abs(v) for v in wide))
    own = 2.0**-8 if dot.type == "bf16" else 0.0
    # A rounding of a denormal is an error of at most half of the least denormal.
    bound = scale * env["k"] * 2.0**-24 * 1.01 + np.abs(want) * own * 1.01 + env["k"] * 2.0**-150
    results = []
    for which in (emitted, without_panels(emitted)):
        (got,) = run(which, [x, y], env)
        error = np.abs(got.astype(np.float64) - want)
        finite = np.isfinite(want)
        assert (error <= bound)[finite].all(), error[finite].max()
        results.append(got)
    np.testing.assert_array_equal(*(v.view(np.uint8) for v in results))


def bf16(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).astype(DTYPES["bf16"])


@each_of_bf16
@pytest.mark.parametrize(("spec", "result"), crossed(SPECS, ["f32", "bf16"]))
def test_bf16_in_every_layout(spec: str, result: str, machine: Machine) -> None:
    dot = symbolic(spec, "", "k", lhs_type="bf16", rhs_type="bf16", type=result)
    emitted = emit(dot, machine)
    rng = np.random.default_rng(0)
    for m, k, n in SIZES:
        x, y = (bf16(rng.standard_normal(s)) for s in shapes(dot, {"m": m, "k": k, "n": n}))
        check_floats(dot, emitted, x, y)


@each_of_bf16
@pytest.mark.parametrize(
    "scales", [(1e-39, 1e30), (1e30, 1e-39), (1e-20, 1e-20), (1e-20, 1e20), (2.0**-60, 2.0**-70)]
)
def test_denormal_factors_products_and_sums_are_kept(
    scales: tuple[float, float], machine: Machine
) -> None:
    dot = symbolic("mk,kn", "", "k", lhs_type="bf16", rhs_type="bf16", type="f32")
    emitted = emit(dot, machine)
    rng = np.random.default_rng(0)
    # One block of K has small numbers, the others have none.
    x, y = rng.standard_normal((19, 1700)), rng.standard_normal((1700, 50))
    x[7, 800:805] *= scales[0]
    y[800:805, 30] *= scales[1]
    x[7, :800], x[7, 805:] = 0, 0
    check_floats(dot, emitted, bf16(x), bf16(y))
    check_floats(dot, emitted, bf16(x[:, 800:805]), bf16(y[800:805]))
    # Nothing but small numbers on one side, and large ones on the other.
    shape = (19, 20), (20, 50)
    x, y = (bf16(np.full(s, scale)) for s, scale in zip(shape, scales, strict=True))
    check_floats(dot, emitted, x, y)


@each_of_bf16
def test_bf16_that_are_not_finite_stay_in_their_rows_and_columns(machine: Machine) -> None:
    dot = symbolic("mk,kn", "", "k", lhs_type="bf16", rhs_type="bf16", type="f32")
    emitted = emit(dot, machine)
    rng = np.random.default_rng(0)
    x, y = bf16(rng.standard_normal((9, 35))), bf16(rng.standard_normal((35, 70)))
    x[3, 4], y[5, 6] = np.nan, np.inf
    (got,) = run(emitted, [x, y])
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


@each_of_bf16
def test_both_ways_of_bf16_round_alike(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    # A result must not depend on other values of its block.
    dot = symbolic("mk,kn", "", "k", lhs_type="bf16", rhs_type="bf16", type="f32")
    rng = np.random.default_rng(0)
    x, y = bf16(rng.standard_normal((20, 777))), bf16(rng.standard_normal((777, 50)))
    (fast,) = run(emit(dot, machine), [x, y])
    monkeypatch.setattr(words_module, "_LEAST_EXPONENTS", 1 << 20)
    (slow,) = run(emit(dot, machine), [x, y])
    np.testing.assert_array_equal(fast.view(np.int32), slow.view(np.int32))
