"""Reductions of the columns of a large matrix: bits of a sum in order, all tails, several types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.row import emit
from shlo_disc.lower.plan import If, KernelPlan, Launch
from tests.lower.helpers import Emitted, fusion_text, plan_of, run, sample

AVX2 = Machine(32)
ROWS = (0, 1, 7, 8, 9, 65)
COLUMNS = (1, 8, 63, 64, 65, 200, 4096, 4097, 8300)


def reduction(name: str, source: str, op: str, init: str, element: str = "f32") -> str:
    return "\n".join([
        f"%{name}i = stablehlo.constant dense<{init}> : tensor<{element}>",
        f"%{name} = stablehlo.reduce(%{source} init: %{name}i) applies stablehlo.{op} across "
        f"dimensions = [0] : (tensor<?x?x{element}>, tensor<{element}>) -> tensor<?x{element}>",
    ])  # fmt: skip


def emitted(body: str, results: list[str], element: str = "f32", rows: str = "n") -> Emitted:
    body = body.replace("tensor<?x?x", f"tensor<{rows}x?x") if rows.isdigit() else body
    text = fusion_text("column", [f"x: {rows},m {element}"], body, results)
    return plan_of(emit, text, AVX2)


def launches(steps: KernelPlan | If | Launch | tuple[object, ...]) -> Iterator[Launch]:
    if isinstance(steps, Launch):
        yield steps
    elif isinstance(steps, If):
        yield from launches((*steps.then, *steps.otherwise))
    else:
        for step in steps.steps if isinstance(steps, KernelPlan) else steps:
            yield from launches(step)


def reads_as_one(fusion: Emitted) -> bool:
    return any("%panels" in str(launch.kernel.text) for launch in launches(fusion.plan))


def in_order(x: np.ndarray) -> np.ndarray:
    found = np.full(x.shape[1], -0.0, x.dtype)
    for row in x:
        found = found + row
    return found + x.dtype.type(0)


def test_sums_are_in_order() -> None:
    fusion = emitted(reduction("r", "x", "add", "0.0"), ["r: m f32"])
    assert reads_as_one(fusion)
    for n, m in itertools.product(ROWS, COLUMNS):
        x = sample((n, m), "f32")
        (got,) = run(fusion, [x])
        np.testing.assert_array_equal(got.view(np.uint32), in_order(x).view(np.uint32))


def test_several_reductions_of_what_is_computed() -> None:
    body = "\n".join([
        "%y = stablehlo.multiply %x, %x : tensor<?x?xf32>",
        reduction("r", "y", "add", "1.0"),
        reduction("s", "x", "maximum", "0xFF800000"),
        "%t = stablehlo.add %r, %s : tensor<?xf32>",
    ])  # fmt: skip
    fusion = emitted(body, ["s: m f32", "t: m f32"])
    assert reads_as_one(fusion)
    for n, m in ((1, 64), (9, 65), (70, 300), (16, 4100)):
        x = sample((n, m), "f32")
        x[n // 2, m // 3] = np.nan
        most, total = run(fusion, [x])
        np.testing.assert_array_equal(most, x.max(0))
        np.testing.assert_array_equal(total, in_order(x * x) + np.float32(1) + x.max(0))


@pytest.mark.parametrize("element", ["bf16", "f16", "f64"])
def test_other_floats(element: str) -> None:
    fusion = emitted(reduction("r", "x", "add", "0.0", element), [f"r: m {element}"], element)
    assert reads_as_one(fusion)
    for n, m in ((3, 100), (65, 129), (64, 4200)):
        x = sample((n, m), element)
        wide = x.astype(np.float64 if element == "f64" else np.float32)
        (got,) = run(fusion, [x])
        np.testing.assert_array_equal(got, in_order(wide).astype(x.dtype))


def test_few_rows_are_panels() -> None:
    body = reduction("r", "x", "add", "0.0")
    assert not reads_as_one(emitted(body, ["r: m f32"], rows="16"))
    assert reads_as_one(emitted(body, ["r: m f32"], rows="64"))
