# ruff: noqa: E501 - MLIR text
"""Results of interleaved values, and operands of pairs: complex numbers in memory."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from tests.lower.helpers import Emitted, fusion_text, plan_of, run, sample
from tests.lower.test_loop import shape_of

SIZES = [(0, 3), (1, 1), (1, 16), (3, 17), (5, 40), (2, 4099)]


def planes(operand: str, first: str, second: str, element: str = "f32") -> str:
    """`first` and `second` are the planes [n, m, 1] of the pairs `operand` [n, m, 2]."""
    pairs, plane = f"tensor<?x?x2x{element}>", f"tensor<?x?x1x{element}>"
    text = f"""%{operand}s = {shape_of("1", "1", "1")}
    %{operand}a = {shape_of("0", "0", "0")}
    %{operand}b = {shape_of("n", "m", "1")}
    %{operand}c = {shape_of("0", "0", "1")}
    %{operand}d = {shape_of("n", "m", "2")}
    """
    for name, low, high in ((first, "a", "b"), (second, "c", "d")):
        text += f"""%{name} = stablehlo.real_dynamic_slice %{operand}, %{operand}{low}, %{operand}{high}, %{operand}s : ({pairs}, tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) -> {plane}
    """
    return text


def pair_of(result: str, first: str, second: str, element: str = "f32", sizes: str = "?x?") -> str:
    plane = f"tensor<{sizes}x1x{element}>"
    return f"%{result} = stablehlo.concatenate %{first}, %{second}, dim = 2 : ({plane}, {plane}) -> tensor<{sizes}x2x{element}>\n"


def compiled(operands: list[str], body: str, results: list[str], width: int) -> Emitted:
    machine = None if width == 64 else Machine(vector_bytes=width)
    return plan_of(emit, fusion_text("loop", operands, body, results), machine)


@pytest.mark.parametrize("width", [64, 32, 16])
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i8"])
def test_products_of_pairs(element: str, width: int) -> None:
    t = f"tensor<?x?x1x{element}>"
    body = planes("x", "xr", "xi", element) + planes("y", "yr", "yi", element)
    body += f"""%rr = stablehlo.multiply %xr, %yr : {t}
    %ii = stablehlo.multiply %xi, %yi : {t}
    %ri = stablehlo.multiply %xr, %yi : {t}
    %ir = stablehlo.multiply %xi, %yr : {t}
    %re = stablehlo.subtract %rr, %ii : {t}
    %im = stablehlo.add %ri, %ir : {t}
    """
    body += pair_of("z", "re", "im", element)
    operands = [f"x: n,m,2 {element}", f"y: n,m,2 {element}"]
    emitted = compiled(operands, body, [f"z: n,m,2 {element}"], width)
    for n, m in SIZES:
        x, y = sample((n, m, 2), element), sample((n, m, 2), element, 1)
        (got,) = run(emitted, [x, y])
        one, other, many = x[..., 0] * y[..., 0], x[..., 1] * y[..., 1], x[..., 0] * y[..., 1]
        want = np.stack([one - other, many + x[..., 1] * y[..., 0]], -1)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("width", [64, 32, 16])
def test_pairs_read_backwards_and_across(width: int) -> None:
    body = planes("x", "xr", "xi")
    for name in ("r", "i"):
        body += f"""%v{name} = stablehlo.reverse %x{name}, dims = [1] : tensor<?x?x1xf32>
    %t{name} = stablehlo.transpose %x{name}, dims = [1, 0, 2] : (tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    """
    back = compiled(["x: n,m,2 f32"], body + pair_of("z", "vi", "vr"), ["z: n,m,2 f32"], width)
    across = compiled(["x: n,m,2 f32"], body + pair_of("z", "tr", "ti"), ["z: m,n,2 f32"], width)
    for n, m in [*SIZES, (40, 50)]:
        x = sample((n, m, 2), "f32")
        np.testing.assert_array_equal(run(back, [x])[0], x[:, ::-1, ::-1])
        np.testing.assert_array_equal(run(across, [x])[0], x.swapaxes(0, 1))


@pytest.mark.parametrize("element", ["f32", "i32", "f64", "bf16"])
def test_pairs_at_computed_places(element: str) -> None:
    plane = f"tensor<?x?x1x{element}>"
    body = planes("x", "xr", "xi", element)
    body += f"""%flat = {shape_of("n*m")}
    %out = {shape_of("k", "1", "1")}
    %ones = {shape_of("1")}
    """
    for name in ("r", "i"):
        body += f"""%f{name} = stablehlo.dynamic_reshape %x{name}, %flat : ({plane}, tensor<1xi64>) -> tensor<?x{element}>
    %g{name} = "stablehlo.dynamic_gather"(%f{name}, %at, %ones) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}}> : (tensor<?x{element}>, tensor<?x1xi32>, tensor<1xi64>) -> tensor<?x{element}>
    %o{name} = stablehlo.dynamic_reshape %g{name}, %out : (tensor<?x{element}>, tensor<3xi64>) -> tensor<?x1x1x{element}>
    """
    body += pair_of("z", "or", "oi", element, "?x1")
    operands = [f"x: n,m,2 {element}", "at: k,1 i32"]
    emitted = compiled(operands, body, [f"z: k,1,2 {element}"], 64)
    for n, m, k in [(1, 1, 1), (3, 17, 40), (5, 40, 7), (9, 9, 0), (2, 4099, 5000)]:
        x = sample((n, m, 2), element)
        at = np.random.default_rng(0).integers(0, n * m, (k, 1)).astype(np.int32)
        (got,) = run(emitted, [x, at])
        np.testing.assert_array_equal(got[:, 0], x.reshape(-1, 2)[at[:, 0]])


@pytest.mark.parametrize("element", ["f32", "i1", "i64", "bf16"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_several_values_side_by_side(element: str, count: int) -> None:
    t, r = f"tensor<?x1x{element}>", f"tensor<?x{count}x{element}>"
    names = [f"x{k}" for k in range(count)]
    inputs = ", ".join(f"%{name}" for name in names)
    body = f"%z = stablehlo.concatenate {inputs}, dim = 1 : ({', '.join([t] * count)}) -> {r}"
    emitted = compiled(
        [f"{x}: n,1 {element}" for x in names], body, [f"z: n,{count} {element}"], 64
    )
    for n in (0, 1, 15, 16, 17, 100, 9001):
        values = [sample((n, 1), element, k) for k in range(count)]
        (got,) = run(emitted, values)
        np.testing.assert_array_equal(got, np.concatenate(values, -1))
