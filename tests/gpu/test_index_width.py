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
from shlo_disc.lower.gpu.index_width import MOST
from shlo_disc.lower.images import signed
from shlo_disc.lower.plan import All, Condition, If, Kernel, Launch, Step
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
    ["x: 300,70 f32", "z: f32"],
    reduce("s", "x", "z", "add")
    .replace("[1]", "[0]")
    .replace("?x?x", "300x70x")
    .replace("?x", "70x"),
    ["s: 70 f32"],
)


COLUMNS = reduce("r", "x", "z", "add").replace("[1]", "[0]")


def is_narrow(kernel: Kernel) -> bool:
    """Whether its indices have 32 bits."""
    return signed(kernel.source).signature.index_bits == 32


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
    return [(is_narrow(k.kernel), by) for k, by in leaves(gpu_plan(text).plan.steps)]


def conditions(steps: tuple[Step, ...]) -> Iterator[Condition | All]:
    """The conditions of all choices."""
    for step in steps:
        if isinstance(step, If):
            yield step.condition
            yield from conditions(step.then + step.otherwise)


def test_a_call_chooses_for_tiles() -> None:
    found = widths(TRANSPOSED)
    assert set(found) == {(True, True), (False, True)}
    (asked,) = {c for c in conditions(gpu_plan(TRANSPOSED).plan.steps) if str(MOST) in str(c)}
    assert str(asked) == f"a*b <= {MOST}"
    assert asked.holds({"a": 46000, "b": 46000})
    assert not asked.holds({"a": 46400, "b": 46400})


@pytest.mark.parametrize("most", [MOST, 0])
def test_both_give_the_same(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(index_width, "MOST", most)  # no array has 0 elements: the wide one runs
    emitted = gpu_plan(TRANSPOSED)
    for sizes in ((1, 1), (70, 37), (129, 64), (300, 5)):
        x = sample(sizes, "f32")
        np.testing.assert_array_equal(run_gpu(emitted, [x])[0], x.T)


@pytest.mark.parametrize("most", [MOST, 0])
def test_columns_of_known_sizes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(index_width, "MOST", most)
    emitted = gpu_plan(SUMMED)
    assert {is_narrow(x.kernel) for x, _ in leaves(emitted.plan.steps)} == {most > 0}
    x = sample((300, 70), "f32")
    (found,) = run_gpu(emitted, [x, np.array(0, "f4")])
    np.testing.assert_allclose(found, x.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "body", "size"),
    [("row", reduce("r", "x", "z", "add"), "a"), ("column", COLUMNS, "b")],
)
def test_what_gains_nothing_is_not_there_twice(kind: str, body: str, size: str) -> None:
    text = fusion_text(kind, ["x: a,b f32", "z: f32"], body, [f"r: {size} f32"])
    assert not any(narrow or by for narrow, by in widths(text))


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
    assert isinstance(program, shlo_disc.Executable)
    assert all(is_narrow(kernel) for kernel in program.host.kernels)


def test_no_64_bit_division_is_left() -> None:
    for launch, _ in leaves(gpu_plan(TRANSPOSED, machine_of("sm_90")).plan.steps):
        ptx = assembly(launch.kernel.source, machine_of("sm_90"))
        has = bool(re.search(r"\b(div|rem)\.[us]64", ptx))
        assert has != is_narrow(launch.kernel)


def test_the_largest_of_several_arrays_is_asked_for() -> None:
    """An array of one size beside one of two: its elements are no more than the other's."""
    body = (
        '%s = "disc.shape"() {dims = ["b", "a"]} : () -> tensor<2xi64>\n'
        "%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>\n"
        "%m = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [0] : "
        "(tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>\n"
        "%r = stablehlo.add %t, %m : tensor<?x?xf32>"
    )
    text = fusion_text("loop", ["x: a,b f32", "y: b f32"], body, ["r: b,a f32"])
    asked = {str(c) for c in conditions(gpu_plan(text).plan.steps) if str(MOST) in str(c)}
    assert asked == {f"a*b <= {MOST}"}


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
    assert [is_narrow(x.kernel) for x, _ in leaves(emitted.plan.steps)] == [not is_wide]
    x, i = sample((1000, 64), "f32"), np.array([0, 999, -5, 2**31 - 1, 5], "i4")
    places = np.clip(i.astype({"i32": "i4", "i64": "i8", "ui32": "u4"}[kind]).astype("i8"), 0, 999)
    np.testing.assert_array_equal(run_gpu(emitted, [x, i])[0], x[places])
