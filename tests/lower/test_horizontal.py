"""Products with one left operand in one launch: each gets its own tasks, arguments and sizes."""

import numpy as np
import pytest

from shlo_disc.lower.cpu.target import EMITTERS
from shlo_disc.lower.plan import kernels_of
from tests.lower.helpers import fusion_text, plan_of, run, sample

K, N = 24, 40
NAMES = "qkv"
BODY = "\n".join(
    f"""%y{c} = stablehlo.dot_general %x, %w{c}, contracting_dims = [1] x [0]
        : (tensor<?x{K}xf32>, tensor<{K}x{N}xf32>) -> tensor<?x{N}xf32>"""
    for c in NAMES
)


@pytest.fixture(scope="module")
def emitted():
    operands = [f"x: m,{K} f32", *(f"w{c}: {K},{N} f32" for c in NAMES)]
    text = fusion_text("dense", operands, BODY, [f"y{c}: m,{N} f32" for c in NAMES])
    return plan_of(EMITTERS["dense"], text)


def test_one_launch_runs_all(emitted):
    names = {kernel.name for kernel in kernels_of(emitted.plan.steps)}
    assert any(name.endswith("_x3") for name in names), names


ENDINGS = {"tanh": np.tanh, "abs": np.abs, "negate": np.negative}


@pytest.mark.parametrize("m", [0, 1, 13, 257])
def test_each_product_has_its_own_epilogue(m):
    ends = zip(NAMES, ENDINGS, strict=True)
    body = "\n".join(f"%o{c} = stablehlo.{end} %y{c} : tensor<?x{N}xf32>" for c, end in ends)
    operands = [f"x: m,{K} f32", *(f"w{c}: {K},{N} f32" for c in NAMES)]
    text = fusion_text("dense", operands, f"{BODY}\n{body}", [f"o{c}: m,{N} f32" for c in NAMES])
    emitted = plan_of(EMITTERS["dense"], text)
    names = [kernel.name for kernel in kernels_of(emitted.plan.steps)]
    assert any(name.endswith("_x3") for name in names), names
    x = sample([m, K], "f32", seed=m)
    weights = [sample([K, N], "f32", seed=seed) for seed in range(3)]
    results = run(emitted, [x, *weights])
    for got, w, end in zip(results, weights, ENDINGS.values(), strict=True):
        want = end(x.astype(np.float64) @ w.astype(np.float64))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("m", [0, 1, 2, 13, 257, 1000])
def test_each_product_has_its_own_operands(emitted, m):
    x = sample([m, K], "f32", seed=m)
    weights = [sample([K, N], "f32", seed=seed) for seed in range(3)]
    for seed in range(3):
        results = run(emitted, [x, *weights], seed=seed)
        for got, w in zip(results, weights, strict=True):
            want = x.astype(np.float64) @ w.astype(np.float64)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
