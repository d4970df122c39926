"""Row work in the launch of a product: counters, calls, and tasks that wait for earlier ones."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.debug import launch
from shlo_disc.debug.launch import KernelFault
from shlo_disc.lower.cpu.target import EMITTERS
from shlo_disc.lower.plan import If, Launch, kernels_of
from tests.children import forked
from tests.lower.helpers import Emitted, fusion_text, launches, plan_of, run, sample

K = 24
N = 80
SOFTMAX = f"""
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<?x{K}xf32>, tensor<{K}x{N}xf32>) -> tensor<?x{N}xf32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %m = stablehlo.reduce(%p init: %low) applies stablehlo.maximum across dimensions = [1]
        : (tensor<?x{N}xf32>, tensor<f32>) -> tensor<?xf32>
    %s = "disc.shape"() {{dims = ["m", "{N}"]}} : () -> tensor<2xi32>
    %mb = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0]
        : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x{N}xf32>
    %d = stablehlo.subtract %p, %mb : tensor<?x{N}xf32>
    %e = stablehlo.exponential %d : tensor<?x{N}xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<?x{N}xf32>, tensor<f32>) -> tensor<?xf32>
    %tb = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0]
        : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x{N}xf32>
    %y = stablehlo.divide %e, %tb : tensor<?x{N}xf32>
"""


@pytest.fixture(scope="module")
def emitted():
    attributes = "given = 0 : i64, reduced = array<i64: 1>"
    operands = [f"x: m,{K} f32", f"w: {K},{N} f32"]
    text = fusion_text("dense", operands, SOFTMAX, [f"y: m,{N} f32"], attributes)
    return plan_of(EMITTERS["dense"], text)


def waits(step: Launch) -> bool:
    return any("atomic acquire" in kernel.text for kernel in kernels_of((step,)))


@pytest.mark.parametrize("m", [0, 1, 2, 13, 64, 257, 1000])
def test_rows_follow_their_product(emitted, m):
    x, w = sample([m, K], "f32", seed=m) / 4, sample([K, N], "f32", seed=1) / 4
    product = x.astype(np.float64) @ w.astype(np.float64)
    want = np.exp(product - product.max(1, keepdims=True, initial=-np.inf))
    want /= want.sum(1, keepdims=True)
    got = [run(emitted, [x, w], seed=seed)[0] for seed in range(3)]
    np.testing.assert_allclose(got[0], want, rtol=2e-5, atol=1e-9)
    assert got[0].tobytes() == got[1].tobytes() == got[2].tobytes()


def test_launches_that_wait_say_so(emitted):
    steps = list(launches(emitted.plan.steps))
    assert any(step.called and step.zeroed for step in steps)
    assert [step.ordered for step in steps] == [waits(step) for step in steps]
    assert {step.ordered for step in steps} == {True, False}


def test_out_of_order_rows_would_wait_forever(emitted, monkeypatch):
    """The mark is needed: the runner may shuffle tasks of launches without it."""
    monkeypatch.setattr(launch, "LIMIT_S", 0.5)

    def free(steps):
        for step in steps:
            if isinstance(step, Launch):
                yield replace(step, ordered=False)
            elif isinstance(step, If):
                yield replace(step, then=(*free(step.then),), otherwise=(*free(step.otherwise),))
            else:
                yield replace(step, then=(*free(step.then),), otherwise=(*free(step.otherwise),))

    plan = replace(emitted.plan, steps=(*free(emitted.plan.steps),))
    shuffled = Emitted(plan, emitted.results, emitted.symbols)
    x, w = sample([1000, K], "f32"), sample([K, N], "f32")

    def run_some():
        for seed in range(8):
            run(shuffled, [x, w], seed=seed)

    with pytest.raises(KernelFault, match=r"_then_rows, tasks .* no end after"):
        run_some()


def digest() -> str:
    """Of the results of a program with row work, at several sizes."""
    (m,) = export.symbolic_shape("m")
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((m, K), (K, N))]
    exported = export.export(jax.jit(lambda x, w: jax.nn.softmax(x @ w, -1)))(*shapes)
    program = shlo_disc.compile(exported)
    assert any(kernel.name.endswith("_then_rows") for kernel in program.host.kernels)
    made = hashlib.sha256()
    for size in (1, 13, 257, 1000):
        arrays = [sample(shape, "f32", seed=size) for shape in ((size, K), (K, N))]
        made.update(program.run_numpy(arrays)[0].tobytes())
    return made.hexdigest()


def test_a_pool_of_one_thread_runs_ordered_launches():
    """And more threads change no bit."""
    code = """
        from shlo_disc import ral
        from tests.lower.test_row_work import digest
        print(ral.num_threads(), digest())
    """
    assert forked(code, SHLO_DISC_NUM_THREADS="1").split() == ["1", digest()]
