"""Operands read across the innermost factor go through tiles in shared memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.lower.plan import kernels_of
from tests.gpu.run import gpu_plan, run_gpu
from tests.gpu.values import difference, sample
from tests.lower.helpers import Emitted, fusion_text, tensor

SIZES = (1, 63, 64, 65, 130)
"""Around the sides of tiles."""
WHOLE = ((16, 16), (16, 208), (272, 32), (64, 128))
"""Whole vectors of every type, and tiles that are full or not."""


def has_tile(emitted: Emitted) -> bool:
    return any("gpu.barrier" in kernel.text for kernel in kernels_of(emitted.plan.steps))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_every_element_type_is_transposed(dtype: str) -> None:
    t = f"tensor<?x?x{dtype}>"
    body = f"%r = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {t}"
    emitted = gpu_plan(fusion_text("loop", [f"x: n,m {dtype}"], body, [f"r: m,n {dtype}"]))
    assert has_tile(emitted) == (ELEMENT_TYPES[dtype].bytes <= 8)
    kernels = list(kernels_of(emitted.plan.steps))
    assert any("vector.store" in kernel.text for kernel in kernels) == has_tile(emitted)
    for n, m in [(0, 3), (0, 16), *WHOLE, *itertools.product(SIZES[:1] + SIZES[3:], SIZES)]:
        x = sample(dtype, n * m, n + m).reshape(n, m)
        (r,) = run_gpu(emitted, [x])
        assert not difference(dtype, r, np.ascontiguousarray(x.T), exact=True).any()


def test_transposes_inside_element_wise_work() -> None:
    """Two operands with tiles, one with none, and the same operand at both places."""
    t = "tensor<?x?xf32>"
    body = f"""%a = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {t}
    %b = stablehlo.transpose %y, dims = [1, 0] : ({t}) -> {t}
    %c = stablehlo.subtract %a, %b : {t}
    %r = stablehlo.multiply %c, %x : {t}
    %s = stablehlo.add %a, %x : {t}"""
    operands = ["x: n,n f32", "y: n,n f32"]
    emitted = gpu_plan(fusion_text("loop", operands, body, ["r: n,n f32", "s: n,n f32"]))
    assert has_tile(emitted)
    for n in (1, 33, 64, 65, 96):
        x, y = sample("f32", n * n, 0).reshape(n, n), sample("f32", n * n, 1).reshape(n, n)
        r, s = run_gpu(emitted, [x, y])
        with np.errstate(all="ignore"):
            assert not difference("f32", r, (x.T - y.T) * x, exact=False).any()
            assert not difference("f32", s, x.T + x, exact=False).any()


BATCHES = (((0, 2, 1, 3), False), ((0, 1, 3, 2), True), ((0, 3, 1, 2), True), ((3, 2, 1, 0), True))


@pytest.mark.parametrize(("dims", "tile"), BATCHES)
def test_batches_of_transposes(dims: tuple[int, ...], tile: bool) -> None:
    """A dimension that stays innermost needs no tile."""
    t = "tensor<?x?x?x?xbf16>"
    body = f"""%t = stablehlo.transpose %x, dims = {list(dims)} : ({t}) -> {t}
    %r = stablehlo.negate %t : {t}"""
    names = "abcd"
    result = ",".join(names[d] for d in dims)
    emitted = gpu_plan(fusion_text("loop", ["x: a,b,c,d bf16"], body, [f"r: {result} bf16"]))
    assert has_tile(emitted) == tile
    shapes = [
        (2, 3, 5, 70),
        (1, 2, 66, 3),
        (2, 1, 1, 9),
        (2, 0, 3, 4),
        (8, 3, 16, 24),
        (16, 2, 3, 8),
    ]
    for shape in shapes:
        x = sample("bf16", int(np.prod(shape)), 3).reshape(shape)
        (r,) = run_gpu(emitted, [x])
        assert not difference("bf16", r, -x.transpose(dims), exact=False).any()


@pytest.mark.parametrize(
    ("rows", "columns"),
    [("9", "m"), ("n", "12"), ("20", "300"), ("n", "3"), ("n", "16"), ("8", "m")],
)
def test_short_sides(rows: str, columns: str) -> None:
    """A known short side makes the other side of the tile longer; three columns need no tile."""
    t, u = tensor(f"{rows},{columns}", "i16"), tensor(f"{columns},{rows}", "i16")
    body = f"%r = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {u}"
    operands, results = [f"x: {rows},{columns} i16"], [f"r: {columns},{rows} i16"]
    emitted = gpu_plan(fusion_text("loop", operands, body, results))
    assert has_tile(emitted) == (columns != "3")
    for size in (1, 7, 455, 600, 640):
        n, m = (int(s) if s.isdigit() else size for s in (rows, columns))
        x = sample("i16", n * m, 5).reshape(n, m)
        np.testing.assert_array_equal(run_gpu(emitted, [x])[0], x.T)


def test_tiles_of_operands_of_several_widths() -> None:
    """Vectors have as many elements as the widest type takes; sizes known and unknown."""
    t, h = "tensor<?x40xf32>", "tensor<?x40xbf16>"
    u, v = "tensor<40x?xf32>", "tensor<40x?xbf16>"
    body = f"""%a = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {u}
    %b = stablehlo.transpose %y, dims = [1, 0] : ({h}) -> {v}
    %c = stablehlo.convert %b : ({v}) -> {u}
    %r = stablehlo.add %a, %c : {u}
    %s = stablehlo.convert %r : ({u}) -> {v}"""
    operands = ["x: n,40 f32", "y: n,40 bf16"]
    emitted = gpu_plan(fusion_text("loop", operands, body, ["r: 40,n f32", "s: 40,n bf16"]))
    assert has_tile(emitted)
    for n in (1, 4, 7, 64, 132):
        x, y = sample("f32", 40 * n, 1).reshape(n, 40), sample("bf16", 40 * n, 2).reshape(n, 40)
        with np.errstate(all="ignore"):
            want = x.T + y.astype(np.float32).T
            r, s = run_gpu(emitted, [x, y])
            assert not difference("f32", r, want, exact=False).any()
            assert not difference("bf16", s, want.astype(y.dtype), exact=False).any()
