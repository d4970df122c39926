"""Kernels whose indices have 32 bits: chosen or proved, and refused where they would be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu import index_width
from shlo_disc.lower.gpu.codegen import assembly
from shlo_disc.lower.gpu.index_width import MOST, is_narrow
from shlo_disc.lower.plan import If, Launch, Step
from tests.gpu.run import MACHINE, gpu_plan, run_gpu
from tests.lower.helpers import fusion_text, sample
from tests.lower.test_row import reduce

TRANSPOSED = fusion_text(
    "loop",
    ["x: a,b f32"],
    "%r = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>",
    ["r: b,a f32"],
)
SUMMED = fusion_text(
    "column",
    ["x: a,b f32", "z: f32"],
    reduce("s", "x", "z", "add").replace("[1]", "[0]"),
    ["s: b f32"],
)


def leaves(steps: tuple[Step, ...], chosen: bool = False) -> Iterator[tuple[Launch, bool]]:
    """All launches, with True for those that a choice by the size of an array has beside others."""
    for step in steps:
        if isinstance(step, If):
            is_width = str(MOST) in str(step.condition)
            yield from leaves(step.then, chosen or is_width)
            yield from leaves(step.otherwise, chosen or is_width)
        else:
            assert isinstance(step, Launch)
            yield step, chosen


def widths(text: str) -> list[tuple[bool, bool]]:
    """Of all launches of a plan: whether its kernel is narrow, and whether a call chooses."""
    return [(is_narrow(k.kernel.text), by) for k, by in leaves(gpu_plan(text).plan.steps)]


def test_a_call_chooses_where_indices_are_divided() -> None:
    assert widths(TRANSPOSED) == [(True, True), (False, True)]
    (step,) = gpu_plan(TRANSPOSED).plan.steps
    assert isinstance(step, If)
    assert str(step.condition) == f"a*b <= {MOST}"
    assert step.condition.holds({"a": 46000, "b": 46000})
    assert not step.condition.holds({"a": 46400, "b": 46400})


@pytest.mark.parametrize("text", [TRANSPOSED, SUMMED], ids=["transposed", "summed"])
@pytest.mark.parametrize("most", [MOST, 0])
def test_both_give_the_same(monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    monkeypatch.setattr(index_width, "MOST", most)  # no array has 0 elements: the wide ones run
    emitted = gpu_plan(text)
    for sizes in ((1, 1), (70, 37), (129, 64), (300, 5)):
        x = sample(sizes, "f32")
        if text is TRANSPOSED:
            np.testing.assert_array_equal(run_gpu(emitted, [x])[0], x.T)
        else:
            (found,) = run_gpu(emitted, [x, np.float32(0)])
            np.testing.assert_allclose(found, x.sum(0), rtol=1e-4, atol=1e-5)


def test_bounded_arrays_have_narrow_kernels_alone() -> None:
    program = shlo_disc.compile(
        """
func.func public @main(%x: tensor<?x64xf32> {disc.shape = ["n", "64"]}) -> tensor<64x?xf32>
    attributes {disc.constraints = ["4096 - n >= 0"]} {
  %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x64xf32>) -> tensor<64x?xf32>
  return %y : tensor<64x?xf32>
}
""",
        target=MACHINE.name,
    )
    (kernel,) = program.host.kernels
    assert is_narrow(kernel.text)


def test_no_64_bit_division_is_left() -> None:
    for launch, _ in leaves(gpu_plan(TRANSPOSED, machine_of("sm_90")).plan.steps):
        ptx = assembly(launch.kernel.text, machine_of("sm_90"))
        has = bool(re.search(r"\b(div|rem)\.[us]64", ptx))
        assert has != is_narrow(launch.kernel.text)


SPREAD = (
    '%s = "disc.shape"() {dims = ["a", "b", "c"]} : () -> tensor<3xi64>\n'
    "%m = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [0, 2] : "
    "(tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>\n"
    "%r = stablehlo.add %x, %m : tensor<?x?x?xf32>"
)


def test_sizes_of_which_none_is_the_largest_are_asked_for_one_by_one() -> None:
    """An array of two sizes beside one of three: its elements are no more than the other's."""
    text = fusion_text("loop", ["x: a,b,c f32", "y: a,c f32"], SPREAD, ["r: a,b,c f32"])
    conditions = set()

    def visit(steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, If):
                conditions.add(str(step.condition))
                visit(step.then)
                visit(step.otherwise)

    visit(gpu_plan(text).plan.steps)
    assert f"a*b*c <= {MOST}" in conditions


@pytest.mark.parametrize(
    ("body", "is_wide"),
    [
        # Places that are read from 64-bit data, and unsigned ones, may not fit before the clamp.
        ("%j = stablehlo.convert %i : (tensor<5xi32>) -> tensor<5xi32>", False),
        ("%j = stablehlo.convert %i : (tensor<5xi32>) -> tensor<5xi64>", True),
        ("%j = stablehlo.convert %i : (tensor<5xi32>) -> tensor<5xui32>", True),
    ],
)
def test_places_read_from_data(body: str, is_wide: bool) -> None:
    kind = body.rpartition("tensor<5x")[2].rstrip(">")
    gathered = (
        f"{body}\n"
        '%r = "stablehlo.gather"(%x, %j) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
        "slice_sizes = array<i64: 1, 64>} : "
        f"(tensor<1000x64xf32>, tensor<5x{kind}>) -> tensor<5x64xf32>"
    )
    text = fusion_text("loop", ["x: 1000,64 f32", "i: 5 i32"], gathered, ["r: 5,64 f32"])
    emitted = gpu_plan(text)
    assert [is_narrow(x.kernel.text) for x, _ in leaves(emitted.plan.steps)] == [not is_wide]
    x, i = sample((1000, 64), "f32"), np.array([0, 999, -5, 2**31 - 1, 5], "i4")
    places = np.clip(i.astype({"i32": "i4", "i64": "i8", "ui32": "u4"}[kind]).astype("i8"), 0, 999)
    np.testing.assert_array_equal(run_gpu(emitted, [x, i])[0], x[places])
