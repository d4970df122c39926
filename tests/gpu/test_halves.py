"""Arithmetic of 16-bit floats by instructions of their own, and quotients without branches."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu.codegen import assembly
from shlo_disc.lower.plan import kernels_of
from tests.gpu.run import MACHINE, gpu_plan, run_cpu, run_gpu
from tests.gpu.values import difference, sample
from tests.lower.helpers import DTYPES, fusion_text, plan_of

pytestmark = pytest.mark.skipif(MACHINE.platform != "cuda", reason="AMD's kernels compute in f32")

OPS = ("add", "subtract", "multiply", "maximum", "minimum", "divide")


def text_of(dtype: str) -> str:
    t = f"tensor<?x{dtype}>"
    body = "\n".join(f"%{op} = stablehlo.{op} %x, %y : {t}" for op in OPS)
    results = [f"{op}: n {dtype}" for op in OPS]
    return fusion_text("loop", [f"x: n {dtype}", f"y: n {dtype}"], body, results)


def near_denormals(count: int, seed: int) -> np.ndarray:
    """bf16 whose products and quotients are denormal, of which many are halfway between two."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 256, count) * 2.0 ** rng.integers(-75, -60, count)
    return (size * rng.choice([-1.0, 1.0], count)).astype(DTYPES["bf16"])


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_results_are_those_of_the_cpu(dtype: str, architecture: str) -> None:
    """Pairs of all special values, and of numbers whose results are rounded as denormals."""
    machine, text = machine_of(architecture), text_of(dtype)
    plan, cpu = gpu_plan(text, machine), plan_of(emit, text)
    kernel = next(iter(kernels_of(plan.plan.steps)))
    is_native = bool(re.search(rf"\.{dtype}x2", assembly(kernel.source, machine)))
    assert is_native or architecture == "sm_75"
    special = sample(dtype, 128, 0)
    x, y = (a.ravel().astype(special.dtype) for a in np.meshgrid(special, special))
    cases = [(x, y), (sample(dtype, 5000, 1), sample(dtype, 5000, 2))]
    if dtype == "bf16":
        tiny, other = near_denormals(6000, 3), near_denormals(6000, 4)
        with np.errstate(over="ignore"):
            cases += [(tiny, other), (tiny, (1 / other.astype(np.float32)).astype(other.dtype))]
    for pair in cases:
        results = run_gpu(plan, [*pair], machine=machine), run_cpu(cpu, [*pair])
        for op, got, want in zip(OPS, *results, strict=True):
            (wrong,) = difference(dtype, got, want, exact=False).nonzero()
            assert not wrong.size, (op, [(*(v[k] for v in (*pair, got, want)),) for k in wrong[:3]])


def test_a_quotient_by_a_value_of_the_row_has_one_reciprocal() -> None:
    t = "tensor<?x?xbf16>"
    body = f"""%s = "disc.shape"() {{dims = ["n", "m"]}} : () -> tensor<2xi64>
    %m = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] :
      ({t}, tensor<bf16>) -> tensor<?xbf16>
    %b = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0] :
      (tensor<?xbf16>, tensor<2xi64>) -> {t}
    %y = stablehlo.divide %x, %b : {t}"""
    text = fusion_text("row", ["x: n,m bf16", "z: bf16"], body, ["y: n,m bf16"], "rows = 1 : i64")
    emitted = gpu_plan(text)
    for kernel in kernels_of(emitted.plan.steps):
        if "arith.divf" in kernel.text:
            assert kernel.text.count("llvm.nvvm.rcp") == 1
    x = np.abs(sample("bf16", 7 * 90, 5).reshape(7, 90))
    with np.errstate(invalid="ignore"):
        x[np.isnan(x)] = 1
    x[:3] = np.minimum(x[:3], 2)  # finite maxima; the others are infinite
    x[3, :] = 1e-39
    (got,) = run_gpu(emitted, [x, np.zeros((), x.dtype)])
    with np.errstate(all="ignore"):
        most = np.maximum(x.max(1, keepdims=True), 0).astype(np.float32)
        want = (x.astype(np.float32) / most).astype(x.dtype)
    assert not difference("bf16", got, want, exact=False).any()
