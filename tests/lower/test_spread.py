"""Interior padding along the lanes, and strided slices: places known in every lane."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from tests.lower.helpers import fusion_text, plan_of, run, sample


@pytest.mark.parametrize(
    ("element", "width"), [("f32", 64), ("i8", 64), ("bf16", 32), ("f64", 16), ("i1", 64)]
)
@pytest.mark.parametrize(
    ("low", "high", "interior"), [(0, 0, 1), (3, -2, 3), (-1, 5, 1), (1, 0, 2)]
)
def test_interior_padding(low: int, high: int, interior: int, element: str, width: int) -> None:
    t = f"tensor<?x?x{element}>"
    step = interior + 1
    body = f"""%r = stablehlo.pad %x, %p, low = [0, {low}], high = [1, {high}],
        interior = [1, {interior}] : ({t}, tensor<{element}>) -> {t}"""
    out = f"{step}*m+{low + high - interior}"
    text = fusion_text(
        "loop", [f"x: n,m {element}", f"p: {element}"], body, [f"r: 2*n,{out} {element}"]
    )
    emitted = plan_of(emit, text, None if width == 64 else Machine(vector_bytes=width))
    for n, m in [(1, 2), (2, 8), (3, 16), (1, 17), (2, 33), (1, 2049), (1, 5000)]:
        x, p = sample((n, m), element), sample((), element, 1)
        (got,) = run(emitted, [x, p])
        whole = np.full((2 * n, step * m + 20), p)
        whole[: 2 * n - 1 : 2, 10 : 10 + step * (m - 1) + 1 : step] = x
        want = whole[:, 10 - low : 10 - low + got.shape[1]]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("element", "width"), [("f32", 64), ("i8", 32), ("f64", 16)])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strided_slices(stride: int, element: str, width: int) -> None:
    t = f"tensor<?x?x{element}>"
    body = f"""%s = "disc.shape"() {{dims = ["0", "0"]}} : () -> tensor<2xi64>
    %e = "disc.shape"() {{dims = ["n", "{stride}*k"]}} : () -> tensor<2xi64>
    %d = "disc.shape"() {{dims = ["1", "{stride}"]}} : () -> tensor<2xi64>
    %v = stablehlo.real_dynamic_slice %x, %s, %e, %d
    : ({t}, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> {t}
    %r = stablehlo.maximum %v, %y : {t}"""
    operands = [f"x: n,m {element}", f"y: n,k {element}"]
    text = fusion_text("loop", operands, body, [f"r: n,k {element}"])
    emitted = plan_of(emit, text, None if width == 64 else Machine(vector_bytes=width))
    for n, k, over in [(1, 1, 0), (2, 8, 1), (3, 15, 0), (1, 17, 2), (2, 33, 0), (1, 4099, 0)]:
        m = (k - 1) * stride + 1 + over * stride
        x, y = sample((n, m), element), sample((n, k), element, 1)
        want = np.maximum(x[:, : stride * k : stride], y)
        np.testing.assert_array_equal(run(emitted, [x, y])[0], want)
