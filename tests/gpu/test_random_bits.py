"""Random bits as PTX: those of the CPU's kernels, which are XLA's."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.kernels import rng as cpu
from tests.gpu.run import gpu_plan, run_cpu, run_gpu
from tests.lower.helpers import fusion_text, plan_of

STATE = np.array([0x123456789ABCDEF0, 0xFFFFFFFFFFFFFFFE, 77], np.uint64)
"""The counter is about to carry."""


@pytest.mark.parametrize("dtype", ["ui8", "i16", "ui32", "ui64", "bf16", "f64"])
@pytest.mark.parametrize(("algorithm", "words"), [("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3)])
def test_bits_and_state_are_those_of_the_cpu(algorithm: str, words: int, dtype: str) -> None:
    """XLA's split of a dimension depends on which sizes are even; `y` only tells the sizes."""
    state = f"tensor<{words}xui64>"
    body = f"""%n = "disc.sizes"() {{dims = ["a", "b"]}} : () -> tensor<2xi64>
    %o, %v = "stablehlo.custom_call"(%s, %n) {{
      call_target_name = "stablehlo.dynamic_rng_bit_generator",
      rng_algorithm = #stablehlo<rng_algorithm {algorithm}>
    }} : ({state}, tensor<2xi64>) -> ({state}, tensor<?x?x{dtype}>)"""
    operands = [f"s: {words} ui64", "y: a,b i8"]
    text = fusion_text("rng", operands, body, [f"o: {words} ui64", f"v: a,b {dtype}"])
    ptx, kernels = gpu_plan(text), plan_of(cpu.emit_rng, text)
    for shape in ((0, 3), (1, 1), (2, 3), (3, 4), (7, 31)):
        inputs = [STATE[:words], np.zeros(shape, np.int8)]
        got, want = run_gpu(ptx, inputs), run_cpu(kernels, inputs)
        for a, b in zip(got, want, strict=True):
            assert a.tobytes() == b.tobytes(), (shape, a, b)
        if shape == (7, 31):
            assert len(np.unique(got[1].view(f"u{got[1].itemsize}"))) > 100  # bits, not zeros
