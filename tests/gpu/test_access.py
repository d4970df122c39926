"""Bytes that a thread loads and stores at once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shlo_disc.lower.gpu.builder import GroupBuilder
from shlo_disc.lower.gpu.codegen import assembly
from shlo_disc.lower.plan import Launch, text_of
from shlo_disc.lower.values.typed import vector_type
from tests.gpu.run import MACHINE, gpu_plan, run_gpu
from tests.gpu.values import difference, sample
from tests.lower.helpers import DTYPES, fusion_text


def access_bytes(launch: Launch, kind: str) -> set[int]:
    """Bytes of the vector accesses `ld` or `st` of global memory."""
    code = assembly(launch.kernel.source, MACHINE)
    found = re.findall(rf"{kind}\.global\.v(\d)\.[bu](\d+)", code)
    return {int(count) * int(bits) // 8 for count, bits in found}


@pytest.mark.parametrize(("dtype", "function", "size"), [
    ("bf16", "negate", 16), ("f16", "negate", 16), ("i8", "negate", 16), ("f32", "negate", 16),
    ("f64", "negate", 16), ("bf16", "exponential", 16), ("f32", "exponential", 16),
])  # fmt: skip
def test_loops_take_whole_accesses(dtype: str, function: str, size: int) -> None:
    """Of 16 bytes."""
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


@pytest.mark.parametrize("dtype", ["bf16", "f32", "i8"])
def test_rows_of_any_length_have_whole_accesses_where_it_allows_them(dtype: str) -> None:
    body = f"""%s = "disc.shape"() {{dims = ["b", "n", "m"]}} : () -> tensor<3xi64>
    %yb = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [0, 2] :
      (tensor<?x?x{dtype}>, tensor<3xi64>) -> tensor<?x?x?x{dtype}>
    %r = stablehlo.maximum %x, %yb : tensor<?x?x?x{dtype}>"""
    operands = [f"x: b,n,m {dtype}", f"y: b,m {dtype}"]
    emitted = gpu_plan(fusion_text("loop", operands, body, [f"r: b,n,m {dtype}"]))
    (choice,) = emitted.plan.steps
    lanes = 16 // DTYPES[dtype].itemsize
    assert str(choice.condition) == f"mod(m, {lanes}) == 0"
    (by_access,), (by_element,) = choice.then, choice.otherwise
    assert access_bytes(by_access, "ld") == access_bytes(by_access, "st") == {16}
    assert not access_bytes(by_element, "ld") | access_bytes(by_element, "st")
    for b, n, m in [(2, 3, lanes), (3, 2, 5 * lanes), (2, 3, 1), (3, 5, 13), (1, 0, 4)]:
        x = sample(dtype, b * n * m, 0).reshape(b, n, m)
        y = sample(dtype, b * m, 1).reshape(b, m)
        (r,) = run_gpu(emitted, [x, y])
        with np.errstate(invalid="ignore"):  # signalling NaNs
            want = np.maximum(x, y[:, None])
        assert not difference(dtype, r, want.astype(x.dtype), exact=False).any()


def test_rows_of_known_odd_length_are_computed_by_element() -> None:
    body = """%s = "disc.shape"() {dims = ["n", "7"]} : () -> tensor<2xi64>
    %yb = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [1] : (tensor<7xf32>, tensor<2xi64>)
      -> tensor<?x7xf32>
    %r = stablehlo.subtract %x, %yb : tensor<?x7xf32>"""
    emitted = gpu_plan(fusion_text("loop", ["x: n,7 f32", "y: 7 f32"], body, ["r: n,7 f32"]))
    (launch,) = emitted.plan.steps
    assert not access_bytes(launch, "ld")
    x, y = np.arange(700, dtype=np.float32).reshape(100, 7), np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(run_gpu(emitted, [x, y])[0], x - y)


def test_lanes_of_a_constant_mask_are_accessed_one_by_one() -> None:
    """LLVM 22 ended its process on some loads of a constant mask: `GpuBuilder.masked_load`."""
    b = GroupBuilder(MACHINE, 1, 32)
    x, y, zero = b.memref(0, "f32"), b.memref(1, "f32"), b.constant(0.0, vector_type(4, "f32"))
    y.masked_store(x.masked_load(b.thread * 4, b.mask(3, 4), zero), b.thread * 4, b.mask(3, 4))
    source, _ = b.finish()
    text = text_of(source)
    assert "vector.masked" not in text
    assert text.count("memref.load") == text.count("memref.store") == 3
