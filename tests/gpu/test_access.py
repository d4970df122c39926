"""Bytes that a thread loads and stores at once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shlo_disc.lower.gpu.codegen import ptx
from shlo_disc.lower.plan import Launch
from tests.gpu.run import MACHINE, gpu_plan, run_gpu
from tests.gpu.values import difference, sample
from tests.lower.helpers import DTYPES, fusion_text


def access_bytes(launch: Launch, kind: str) -> set[int]:
    """Bytes of the vector accesses `ld` or `st` of global memory."""
    found = re.findall(rf"{kind}\.global\.v(\d)\.[bu](\d+)", ptx(launch.kernel.text, MACHINE))
    return {int(count) * int(bits) // 8 for count, bits in found}


@pytest.mark.parametrize(("dtype", "function", "size"), [
    ("bf16", "negate", 16), ("f16", "negate", 16), ("i8", "negate", 16), ("f32", "negate", 16),
    ("f64", "negate", 16), ("bf16", "exponential", 8), ("f32", "exponential", 16),
])  # fmt: skip
def test_loops_take_whole_accesses(dtype: str, function: str, size: int) -> None:
    """Code of functions on eight lanes would be long: two bytes of each of four are an access."""
    t = f"tensor<?x?x{dtype}>"
    body = f"%r = stablehlo.{function} %x : {t}"
    emitted = gpu_plan(fusion_text("loop", [f"x: n,m {dtype}"], body, [f"r: n,m {dtype}"]))
    (launch,) = emitted.plan.steps
    assert access_bytes(launch, "ld") == access_bytes(launch, "st") == {size}
    for n in (1, 7, 8, 9, 16, 8 * 256 + 3):
        x = sample(dtype, n, n).reshape(1, n)
        (r,) = run_gpu(emitted, [x])
        if function == "negate":
            assert not difference(dtype, r, -x, exact=False).any()


def test_a_wide_array_needs_no_wide_vectors() -> None:
    body = "%r = stablehlo.convert %x : (tensor<?xbf16>) -> tensor<?xf32>"
    emitted = gpu_plan(fusion_text("loop", ["x: n bf16"], body, ["r: n f32"]))
    (launch,) = emitted.plan.steps
    assert access_bytes(launch, "st") == {16}
    x = np.arange(13).astype(DTYPES["bf16"])
    np.testing.assert_array_equal(run_gpu(emitted, [x])[0], np.arange(13, dtype=np.float32))
