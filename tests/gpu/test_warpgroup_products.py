"""Products by warpgroups (sm_90a): every layout and tile, around tiles, what is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from shlo_disc.lower.cuda import persistent_products, products
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.cuda.warpgroup_products import WarpgroupTile
from shlo_disc.lower.cuda.ways import Turn, Way
from shlo_disc.lower.gpu.codegen import assembly
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.plan import If, KernelPlan, Step, Workspace, kernels_of
from tests.cases import crossed, slow
from tests.gpu import device
from tests.gpu.run import gpu_plan, run_gpu
from tests.gpu.test_matrix_products import LAYOUTS, SIZES, expected, tf32
from tests.lower import test_dense_epilogue
from tests.lower.helpers import DTYPES, Emitted, fusion_text, launches, sample
from tests.lower.test_conv import Conv
from tests.lower.test_dense import Dot

pytestmark = pytest.mark.skipif(
    device.ON_DEVICE and device.architecture() != "sm_90", reason="needs a GPU of Hopper"
)

MACHINE = machine_of("sm_90a")
CASES = [(1, 1, 1), (127, 129, 63), (128, 256, 320), (130, 264, 72), (136, 250, 200), (40, 72, 0)]
"""m, n, k, before contiguous ones are rounded up to multiples of 8."""


def planned(dot: Dot, dtype: str = "bf16", result: str = "", machine: Machine = MACHINE) -> Emitted:
    types = {"lhs_type": dtype, "rhs_type": dtype, "type": result or dtype}
    return gpu_plan(dataclasses.replace(dot, **types).text(), machine, exact=dtype != "f32")


def by_warpgroups(emitted: Emitted) -> list[Emitted]:
    """A plan for each kernel of warpgroups: the choice by sizes would take them for large ones."""
    found = [
        x
        for x in launches(emitted.plan.steps)
        if "wgmma" in x.kernel.text
        and Workspace(0) not in x.args
        and not x.kernel.name.endswith("persistent")  # these have steps along K
    ]
    return [Emitted(KernelPlan((x,)), emitted.results, emitted.symbols) for x in found]


def in_parts(emitted: Emitted) -> Emitted:
    """Likewise the plan of the two launches by which blocks share a tile."""
    names = "parts", "total"
    steps = tuple(x for x in launches(emitted.plan.steps) if x.kernel.name.endswith(names))
    plan = KernelPlan(steps, emitted.plan.workspaces)
    return Emitted(plan, emitted.results, emitted.symbols)


def chosen(steps: Sequence[Step], env: Mapping[str, int]) -> str:
    """The name of the first kernel that sizes would take."""
    (step, *_) = steps
    if isinstance(step, If):
        return chosen(step.then if step.condition.holds(env) else step.otherwise, env)
    return next(kernels_of((step,))).name.removeprefix("dense_")


def operands(dot: Dot, dtype: str, m: int, n: int, k: int) -> list[np.ndarray]:
    of = {"b": 2, "c": 3, "m": m, "n": n, "k": k}
    for side in dot.sides:
        of[side[-1]] += -of[side[-1]] % 8
    return [
        tf32(sample([of[c] for c in side], dtype, seed) / 3).astype(DTYPES[dtype])
        for seed, side in enumerate(dot.sides)
    ]


def check(
    dot: Dot, x: np.ndarray, y: np.ndarray, got: np.ndarray, room: float, unit: float = 2.0**-23
) -> None:
    """Sums, of f32 where `unit` does not say otherwise, and the rounding of the result."""
    want, k = expected(dot, x, y), x.shape[dot.sides[0].index("k")]
    bound = room * np.abs(want) + (k + 2) * unit * expected(dot, abs(x), abs(y)) + 1e-30
    assert (np.abs(got.astype(float) - want) <= bound).all(), (x.shape, y.shape)


ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24}
"""Half a unit of the result in its last digit."""


@pytest.mark.parametrize(
    ("layout", "dtype"), crossed(range(len(LAYOUTS)), ROUNDING, also=[(0, "f32")])
)
def test_products(layout: int, dtype: str) -> None:
    dot = LAYOUTS[layout]
    plans = by_warpgroups(planned(dot, dtype))
    left, right = dot.sides
    if dtype == "f32" and left[-1] != "k" and right[-1] != "k":
        assert not plans, "neither operand of tf32 has K contiguous"
        return
    few_rows = int(left[-1] == "k")  # these have K contiguous
    assert len(plans) == (3 if dtype == "f32" else 2) + few_rows
    for m, n, k in CASES:
        x, y = operands(dot, dtype, m, n, k)
        for plan in plans:
            (got,) = run_gpu(plan, [x, y], seed=m, machine=MACHINE)
            check(dot, x, y, got, ROUNDING[dtype])


@pytest.mark.parametrize("layout", [0, *slow([1]), 3])
def test_f32_is_rounded_to_tf32(layout: int) -> None:
    """To nearest, ties to even, whether it goes through registers or not."""
    dot = LAYOUTS[layout]
    x, y = (a + np.float32(2.0**-12) * a for a in operands(dot, "f32", 72, 80, 40))
    x.flat[::3] = np.float32(1 + 2.0**-11)
    assert (tf32(x) != x).mean() > 0.9
    for plan in by_warpgroups(planned(dot, "f32")):
        (got,) = run_gpu(plan, [x, y], machine=MACHINE)
        check(dot, rounded(x), rounded(y), got, ROUNDING["f32"])


def rounded(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    return tf32((bits + 0xFFF + (bits >> 13 & 1)).view(np.float32))


TILES = [
    WarpgroupTile(2, 128, 3, has_producer=False),
    WarpgroupTile(1, 64, 2, has_producer=False),
    WarpgroupTile(1, 64, 2),
    WarpgroupTile(2, 192, 3, is_turned=True),
    WarpgroupTile(1, 8, 5, is_turned=True, has_producer=False),
]


@pytest.mark.parametrize("layout", [*slow([0]), 4])
def test_blocks_that_stay(layout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each computes several tiles; some take one less."""
    monkeypatch.setattr(persistent_products, "MULTIPROCESSORS", 3)
    dot = LAYOUTS[layout]
    (launch,) = (
        x for x in launches(planned(dot).plan.steps) if x.kernel.name.endswith("persistent")
    )
    emitted = planned(dot)
    plan = Emitted(KernelPlan((launch,)), emitted.results, emitted.symbols)
    for m, n, k in ((300, 520, 200), (1, 8, 8), (40, 136, 464)):
        x, y = operands(dot, "bf16", m, n, k)
        got, again = (run_gpu(plan, [x, y], seed=s, machine=MACHINE)[0] for s in (1, 2))
        check(dot, x, y, got, ROUNDING["bf16"])
        np.testing.assert_array_equal(got, again)
    assert "persistent" not in chosen(emitted.plan.steps, {"b": 2, "m": 12288, "n": 768, "k": 0})


@pytest.mark.parametrize(("tile", "parts"), crossed(TILES, [1, 3]), ids=str)
def test_tiles(tile: WarpgroupTile, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are used again; parts of K may be empty."""
    monkeypatch.setattr(products, "ways", lambda _: [Way(tile, Turn(1, 1), parts=parts)])
    monkeypatch.setattr(products, "MOST_SPLIT", 1 << 10)
    dot = LAYOUTS[0]
    for dtype in ("bf16", "f32"):
        if dtype == "f32" and not tile.is_turned:
            continue
        emitted = planned(dot, dtype)
        for m, n, k in ((72, 80, 472), (1, 8, 64), (200, 136, 0)):
            x, y = operands(dot, dtype, m, n, k)
            got, again = (run_gpu(emitted, [x, y], seed=s, machine=MACHINE)[0] for s in (1, 2))
            check(dot, x, y, got, ROUNDING[dtype])
            np.testing.assert_array_equal(got, again)


def test_every_tile_is_computed_where_many_are_below_each_other() -> None:
    """More than a group of tiles, the last group partial; results in f32."""
    dot = LAYOUTS[1]
    for plan in by_warpgroups(planned(dot, result="f32")):
        x, y = operands(dot, "bf16", 128 * 18 + 1, 264, 8)
        (got,) = run_gpu(plan, [x, y], seed=3, machine=MACHINE)
        check(dot, x, y, got, 2.0**-23)


def test_whole_vectors_are_stored_at_once() -> None:
    """Also where nothing is known of the step between rows; odd ones are in other tests."""
    for plan in by_warpgroups(planned(LAYOUTS[1])):
        (launch,) = launches(plan.plan.steps)
        assert "st.global.v4" in assembly(launch.kernel.source, MACHINE)


HEADS = Dot("bmck,bckn", "bc", "k", {**SIZES, "c": "c"})
"""Of two batch axes, which are not one in x."""


@pytest.mark.parametrize("dot", [*slow([LAYOUTS[0]]), LAYOUTS[2], HEADS])
def test_parts_of_k(dot: Dot) -> None:
    """Also more parts than steps. The order of blocks does not matter."""
    plan = in_parts(planned(dot))
    for m, n, k in ((130, 131, 340), (8, 8, 72), (136, 264, 0)):
        x, y = operands(dot, "bf16", m, n, k)
        got, again = (run_gpu(plan, [x, y], seed=seed, machine=MACHINE)[0] for seed in (1, 2))
        check(dot, x, y, got, 2.0**-8)
        np.testing.assert_array_equal(got, again)


def test_work_behind_the_sums() -> None:
    emitted = gpu_plan(test_dense_epilogue.dense("bf16"), MACHINE)
    for plan in (*by_warpgroups(emitted), in_parts(emitted)):
        for b, t, k, n in ((3, 50, 72, 136), (2, 0, 8, 8), (1, 1, 64, 264)):
            x, w = (sample(s, "bf16", i) for i, s in enumerate([(b, t, k), (k, n)]))
            x, w = (x * 0.1).astype(x.dtype), (w * 0.1).astype(w.dtype)
            bias, r = sample((n,), "bf16", 2), sample((b, t, n), "bf16", 3)
            want = test_dense_epilogue.expected(x.astype(float) @ w.astype(float), bias, r)
            (got,) = run_gpu(plan, [x, w, bias, r], machine=MACHINE)
            np.testing.assert_allclose(got.astype(float), want, atol=0.06, rtol=0.06)


def in_bands(
    bands: int,
    width: int,
    rows: int,
    is_along_k: bool,
    dtype: str = "bf16",
    machine: Machine = MACHINE,
) -> Emitted:
    """The product of the parts of x @ w, and x @ w itself; operands of f32 may be rounded."""
    w = f"?x{bands * width}" if not is_along_k else f"{bands * width}x?"
    whole, part = (f"tensor<{rows}x{n}x{dtype}>" for n in (bands * width, width))
    body = f"""%d = "stablehlo.dot_general"(%x, %w) {{dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [{int(is_along_k)}]>}}
      : (tensor<{rows}x?x{dtype}>, tensor<{w}x{dtype}>) -> {whole}\n"""
    for k in range(bands):
        columns = f"[0:{rows}, {k * width}:{(k + 1) * width}]"
        body += f"%p{k} = stablehlo.slice %d {columns} : ({whole}) -> {part}\n"
    total = "p0"
    for k in range(1, bands):
        body += f"%o{k} = stablehlo.multiply %{total}, %p{k} : {part}\n"
        total = f"o{k}"
    operands = [f"x: {rows},k {dtype}", f"w: {w.replace('?', 'k').replace('x', ',')} {dtype}"]
    results = [f"{total}: {rows},{width} {dtype}", f"d: {rows},{bands * width} {dtype}"]
    return gpu_plan(fusion_text("dense", operands, body, results), machine, exact=False)


@pytest.mark.parametrize(
    ("bands", "width", "is_along_k"),
    [(2, 136, False), (2, 200, True), (3, 72, False), (4, 64, True)],
)
def test_bands(bands: int, width: int, is_along_k: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "ENOUGH_NARROW", 0)
    rows = 130
    emitted = in_bands(bands, width, rows, is_along_k)
    (plan,) = by_warpgroups(emitted)
    for k in (72, 8):
        x, w = sample((rows, k), "bf16") / 3, sample((bands * width, k), "bf16", 1) / 3
        x, w = x.astype(DTYPES["bf16"]), w.astype(DTYPES["bf16"])
        got, whole = run_gpu(plan, [x, w if is_along_k else w.T], machine=MACHINE)
        check(LAYOUTS[1], x, w, whole, 2.0**-8)
        want = whole.reshape(rows, bands, width).astype(float).prod(axis=1)
        np.testing.assert_allclose(got.astype(float), want, rtol=0.03, atol=1e-6)
    x, w = sample((rows, 41), "bf16"), sample((bands * width, 41), "bf16", 1)
    if is_along_k:  # rows of 41 elements are no multiples of 16 bytes
        _, whole = run_gpu(emitted, [x, w], machine=MACHINE)
        check(LAYOUTS[1], x, w, whole, 2.0**-8)
    assert not by_warpgroups(in_bands(5, width, rows, is_along_k))


@pytest.mark.parametrize("layout", [1, 2])
def test_values_that_are_not_finite_stay_in_their_rows_and_columns(layout: int) -> None:
    """In the last row and column, of which there are copies, and in the first partial step."""
    dot = LAYOUTS[layout]
    x, y = operands(dot, "bf16", 136, 136, 72)
    rows, columns = (a if dot.sides[i][0] != "k" else a.T for i, a in enumerate((x, y)))
    rows[135, 0], rows[3, 71], columns[135, 5] = np.inf, np.nan, -np.inf
    for plan in by_warpgroups(planned(dot)):
        (got,) = run_gpu(plan, [x, y], machine=MACHINE)
        is_finite = np.isfinite(got.astype(float))
        assert not is_finite[[3, 135]].any()
        assert not is_finite[:, 135].any()
        assert is_finite[np.ix_(np.delete(np.arange(136), [3, 135]), np.arange(135))].all()


def test_what_is_chosen() -> None:
    steps = planned(LAYOUTS[0]).plan.steps
    for m, n, k, want in (
        (8192, 8192, 8192, "128x256_warpgroups_boxes"),
        (16, 12800, 512, "16x64_warpgroups_boxes"),
        (1, 8, 8, "16x64_warpgroups_boxes"),
        (16, 768, 3072, "16x16_direct"),
        (128, 3072, 768, "64x64_warpgroups_boxes"),
        (128, 768, 3072, "64x64_warpgroups_boxes_4_parts"),
        (12288, 768, 3072, "128x128_warpgroups_persistent"),
        (1 << 31, 8, 8, "64x64_warps"),  # an index of a box has 32 bits
        (4096, 4096, 4095, "aligned_a"),
        (4096, 4095, 4096, "aligned_a"),
        (127, 4095, 4096, "64x64_warps"),
    ):
        assert chosen(steps, {"m": m, "n": n, "k": k}) == want
    steps = planned(LAYOUTS[0], "f32").plan.steps
    assert chosen(steps, {"m": 8192, "n": 8192, "k": 8192}) == "256x128_warpgroups_registers"
    slim = planned(Dot("mk,kn", "", "k", {"m": "m", "n": "64", "k": "512"})).plan.steps
    assert chosen(slim, {"m": 100 * 128}) == "64x64_warpgroups_boxes"
    odd = Dot("mk,kn", "", "k", {"m": "m", "n": "512", "k": "511"})
    assert not by_warpgroups(planned(odd))
    two_steps = Dot("kcm,kcn", "", "kc", {**SIZES, "c": "c"})  # K is one run of either operand
    assert by_warpgroups(planned(two_steps))
    apart = Dot("kbcm,kbcn", "b", "kc", {**SIZES, "c": "c"})
    assert not by_warpgroups(planned(apart))


def test_sums_of_parts_have_room() -> None:
    """Blocks share tiles only of products whose sums fit in the workspace."""
    emitted = planned(LAYOUTS[0])
    (size,) = emitted.plan.workspaces
    for env in ({"m": m, "n": n, "k": 1 << 20} for m in (1, 640, 9000) for n in (8, 1600, 9000)):
        if "parts" in chosen(emitted.plan.steps, env):
            assert size.evaluate(env) == 16 * env["m"] * env["n"]


@pytest.mark.parametrize(
    ("layout", "dtype"), crossed(range(len(LAYOUTS)), ["bf16", "f32"], also=[(0, "f32")])
)
def test_rows_that_are_not_aligned_are_copied(layout: int, dtype: str) -> None:
    dot = LAYOUTS[layout]
    emitted = planned(dot, dtype)
    has_copies = dtype == "bf16" or any(side[-1] == "k" for side in dot.sides)
    for m, n, k in ((131, 130, 133), (130, 136, 200)):
        name = chosen(emitted.plan.steps, {"b": 2, "m": m, "n": n, "k": k})
        x, y = (
            tf32(sample([{"b": 2, "m": m, "n": n, "k": k}[c] for c in side], dtype, seed) / 3)
            for seed, side in enumerate(dot.sides)
        )
        is_aligned = all(a.shape[-1] % (8 if dtype == "bf16" else 4) == 0 for a in (x, y))
        if has_copies and not is_aligned:
            assert name == "aligned_a", (name, x.shape, y.shape)
        x, y = x.astype(DTYPES[dtype]), y.astype(DTYPES[dtype])
        (got,) = run_gpu(emitted, [x, y], seed=m, machine=MACHINE)
        check(dot, x, y, got, ROUNDING[dtype])


def test_only_what_may_not_be_aligned_is_copied() -> None:
    """Memory for copies is taken where there are any."""
    dot = Dot("mk,kn", "", "k", {"m": "m", "n": "n", "k": "768"})
    emitted = planned(dot)
    assert chosen(emitted.plan.steps, {"m": 128, "n": 1001}) == "aligned_b"
    assert chosen(emitted.plan.steps, {"m": 127, "n": 1001}) == "64x64_warps"
    parts = 4 * 4 * 128 * 1000
    for m, n, want in ((128, 1001, 2 * 768 * 1008), (128, 1000, parts), (1, 1001, 4 * 4 * 1008)):
        (size,) = emitted.plan.workspaces
        assert size.evaluate({"m": m, "n": n}) == max(want, 4 * 4 * m * (-(-n // 8) * 8))


@pytest.mark.parametrize(("taps", "has_boxes"), [(1, True), (3, False)])
def test_windows_that_overlap_take_no_tensor_maps(taps: int, has_boxes: bool) -> None:
    types = ("bf16", "bf16", "bf16")
    conv = Conv(
        ("b0f", "0io", "b0f"), (2, 40), (16, 24), (taps,), (1,), ((0, 0),), (1,), (1,), (False,),
        types=types, dynamic=True,
    )  # fmt: skip
    emitted = gpu_plan(conv.text(), MACHINE)
    names = {x.kernel.name for x in launches(emitted.plan.steps)}
    assert any("boxes" in name for name in names) is has_boxes
    assert any(name.endswith("warpgroups") for name in names) is not has_boxes
    x, w = (sample(conv.shape(k), "bf16", k) for k in range(2))
    for plan in by_warpgroups(emitted):
        (got,) = run_gpu(plan, [x, w], {"b": 2, "x0": 40}, machine=MACHINE)
        want = conv.expected(x.astype(float), w.astype(float))
        np.testing.assert_allclose(got.astype(float), want, rtol=2.0**-7, atol=1e-4)


def test_other_sizes_are_right_by_warps() -> None:
    x, y = sample((70, 41), "bf16"), sample((41, 130), "bf16", 1)
    (got,) = run_gpu(planned(LAYOUTS[0]), [x, y], machine=MACHINE)
    check(LAYOUTS[0], x, y, got, 2.0**-8)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_other_architectures_have_no_warpgroups(architecture: str) -> None:
    assert not by_warpgroups(planned(LAYOUTS[0], machine=machine_of(architecture)))
