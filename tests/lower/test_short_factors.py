# ruff: noqa: E501 - MLIR text
"""Transposes between a long factor and a short constant one, and variants for likely channels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shlo_disc
from shlo_disc.dynamic.seen import SHORT
from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.short_factors import CHUNK
from tests.cases import crossed
from tests.lower.helpers import fusion_text, plan_of, run, sample

TYPES = ["f32", "f64", "bf16", "i8", "i1"]
SIZES = (0, 1, 7, 16, 17, 64, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 40)


@pytest.mark.parametrize(
    ("dtype", "short"),
    crossed(TYPES, [2, 3, 4, 6, 7, SHORT], also=[("f32", 7), ("f64", SHORT), ("i8", 2), ("i1", 3)]),
)
def test_elements_along_a_short_factor_are_exchanged_in_registers(dtype: str, short: int) -> None:
    """[n, short] to [short, n] and back, in a batch, on two widths of vectors."""
    rows, columns = f"tensor<?x{short}x?x{dtype}>", f"tensor<?x?x{short}x{dtype}>"
    to_rows = f"""%t = stablehlo.transpose %x, dims = [0, 2, 1] : ({columns}) -> {rows}
    %r = stablehlo.maximum %t, %y : {rows}"""
    to_columns = f"""%t = stablehlo.transpose %y, dims = [0, 2, 1] : ({rows}) -> {columns}
    %r = stablehlo.maximum %t, %x : {columns}
    %s = stablehlo.minimum %t, %x : {columns}"""
    operands = [f"x: b,n,{short} {dtype}", f"y: b,{short},n {dtype}"]
    for width in (64, 16):
        machine = Machine(vector_bytes=width)
        results = [f"r: b,{short},n {dtype}"]
        into_rows = plan_of(emit, fusion_text("loop", operands, to_rows, results), machine)
        results = [f"{name}: b,n,{short} {dtype}" for name in "rs"]
        into_columns = plan_of(emit, fusion_text("loop", operands, to_columns, results), machine)
        for emitted in (into_rows, into_columns):
            (launch,) = emitted.plan.steps
            lines = launch.kernel.text.splitlines()
            assert any("vector.shuffle" in line for line in lines)
            # Only the last vector of a run, which is masked, may be read element by element.
            assert all("%mask" in line for line in lines if "gather" in line)
            assert not any("scatter" in line for line in lines)
        for n in SIZES:
            b = 1 if n > CHUNK else 2
            x, y = sample((b, n, short), dtype), sample((b, short, n), dtype, 1)
            (r,) = run(into_rows, [x, y])
            np.testing.assert_array_equal(r, np.maximum(x.swapaxes(1, 2), y))
            r, s = run(into_columns, [x, y])
            np.testing.assert_array_equal(r, np.maximum(y.swapaxes(1, 2), x))
            np.testing.assert_array_equal(s, np.minimum(y.swapaxes(1, 2), x))


def test_rows_that_do_not_follow_each_other() -> None:
    """The short factor is contiguous, but another one lies between it and the lanes."""
    t, u = "tensor<?x?x3xf32>", "tensor<3x?x?xf32>"
    body = f"""%t = stablehlo.transpose %x, dims = [2, 1, 0] : ({t}) -> {u}
    %s = stablehlo.transpose %y, dims = [2, 0, 1] : (tensor<?x?x3xf32>) -> {u}
    %r = stablehlo.subtract %t, %s : {u}"""
    operands, results = ["x: n,m,3 f32", "y: m,n,3 f32"], ["r: 3,m,n f32"]
    emitted = plan_of(emit, fusion_text("loop", operands, body, results))
    for n, m in ((0, 3), (1, 1), (16, 5), (17, 40), (1030, 2)):
        x, y = sample((n, m, 3), "f32"), sample((m, n, 3), "f32", 1)
        (r,) = run(emitted, [x, y])
        np.testing.assert_array_equal(r, x.transpose(2, 1, 0) - y.transpose(2, 0, 1))


@pytest.mark.parametrize("perm", [p for p in itertools.permutations(range(3)) if p != (0, 1, 2)])
@pytest.mark.parametrize("long", [0, 1, 2])
def test_short_factors_before_and_behind_the_lanes(long: int, perm: tuple[int, ...]) -> None:
    """Every transpose of two short factors and a long one."""
    sizes = ["3", "2"]
    sizes.insert(long, "n")
    moved = [sizes[k] for k in perm]
    kinds = [f"tensor<{'x'.join(s).replace('n', '?')}xf32>" for s in (sizes, moved)]
    body = f"""%t = stablehlo.transpose %x, dims = {list(perm)} : ({kinds[0]}) -> {kinds[1]}
    %r = stablehlo.negate %t : {kinds[1]}"""
    operands, results = [f"x: {','.join(sizes)} f32"], [f"r: {','.join(moved)} f32"]
    emitted = plan_of(emit, fusion_text("loop", operands, body, results))
    for n in (1, 7, 18, 35):
        x = sample([n if s == "n" else int(s) for s in sizes], "f32")
        (r,) = run(emitted, [x])
        np.testing.assert_array_equal(r, -x.transpose(perm))


def test_a_value_of_another_row_is_not_taken_for_this_one() -> None:
    """The rows of a strip differ in what they read besides the transpose."""
    t, u = "tensor<?x3xf32>", "tensor<3x?xf32>"
    body = f"""%t = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {u}
    %b = stablehlo.dynamic_broadcast_in_dim %w, %d, dims = [0] : (tensor<3xf32>, tensor<2xi64>) -> {u}
    %i = stablehlo.dynamic_iota %d, dim = 0 : (tensor<2xi64>) -> {u}
    %p = stablehlo.multiply %t, %b : {u}
    %r = stablehlo.add %p, %i : {u}"""
    head = '%d = "disc.shape"() {dims = ["3", "n"]} : () -> tensor<2xi64>\n'
    text = fusion_text("loop", ["x: n,3 f32", "w: 3 f32"], head + body, ["r: 3,n f32"])
    emitted = plan_of(emit, text)
    for n in (1, 16, 100):
        x, w = sample((n, 3), "f32"), sample((3,), "f32", 1)
        (r,) = run(emitted, [x, w])
        expected = x.T * w[:, None] + np.arange(3, dtype=np.float32)[:, None]
        np.testing.assert_allclose(r, expected, rtol=1e-6)


def test_channels_that_are_symbols_have_kernels_for_likely_numbers() -> None:
    exe = shlo_disc.compile("""
      func.func @main(%x: tensor<?x?x?x?xf32> {disc.shape = ["b", "h", "w", "c"]})
          -> tensor<?x?x?x?xf32> {
        %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
        return %t : tensor<?x?x?x?xf32> }""")
    (use,) = exe.host.uses
    assert [f"variant for c == {c}: much faster" in use.why for c in range(1, 6)] == [
        True,
        True,
        True,
        True,
        False,
    ]
    for c in (1, 2, 3, 4, 5, 9, 16):
        x = sample((2, 9, 31, c), "f32")
        np.testing.assert_array_equal(exe.run_numpy([x])[0], x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", ["f32", "i8", "i1"])
def test_a_place_of_a_short_row_is_known_while_the_kernel_is_written(dtype: str) -> None:
    """Pieces, padding and reversed columns take no mask, no branch and no gather."""
    t, one, three = (f"tensor<?x{n}x{dtype}>" for n in (2, 1, 3))
    body = f"""%p = stablehlo.concatenate %x, %y, dim = 1 : ({t}, {one}) -> {three}
    %q = stablehlo.reverse %p, dims = [1] : {three}
    %w = stablehlo.pad %y, %z, low = [0, 1], high = [0, 1], interior = [0, 0]
        : ({one}, tensor<{dtype}>) -> {three}
    %d = "disc.shape"() {{dims = ["n", "3"]}} : () -> tensor<2xi64>
    %e = stablehlo.dynamic_broadcast_in_dim %c, %d, dims = [1] : (tensor<3x{dtype}>, tensor<2xi64>) -> {three}
    %s = stablehlo.maximum %q, %w : {three}
    %r = stablehlo.minimum %s, %e : {three}"""
    operands = [f"x: n,2 {dtype}", f"y: n,1 {dtype}", f"z: {dtype}", f"c: 3 {dtype}"]
    for width in (64, 32, 16):
        text = fusion_text("loop", operands, body, [f"r: n,3 {dtype}"])
        emitted = plan_of(emit, text, Machine(vector_bytes=width))
        (launch,) = emitted.plan.steps
        whole = launch.kernel.text.split("scf.if")[0]  # then comes the last vector
        assert not any(slow in whole for slow in ("gather", "select", "mask"))
        assert "vector.store" in whole
        for n in (0, 1, 17, 1030):
            x, y, c = sample((n, 2), dtype), sample((n, 1), dtype, 1), sample((3,), dtype, 2)
            z = np.zeros((), x.dtype)
            (r,) = run(emitted, [x, y, z, c])
            turned = np.concatenate([x, y], 1)[:, ::-1]
            padded = np.pad(y, ((0, 0), (1, 1)))
            np.testing.assert_array_equal(r, np.minimum(np.maximum(turned, padded), c))
