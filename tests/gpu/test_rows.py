"""Rows and columns on a GPU where a piece is short: many pieces, and blocks that combine them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu import rows
from shlo_disc.passes.match_rows import Layout
from tests.gpu.run import gpu_plan, run_gpu
from tests.lower.helpers import DTYPES, fusion_text, sample
from tests.lower.test_row import AFFINE, ARGMAX, DIVIDED, affine, difference, reduce, spread

PIECES = {Layout.WHOLE: 128, Layout.PARTS: 2, Layout.SIDE_BY_SIDE: 2}


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> Mapping[Layout, int]:
    monkeypatch.setattr(rows, "PIECES", PIECES)
    monkeypatch.setattr(rows, "SHORT_ROW", 0)
    return PIECES


LENGTHS = (256, 1000, 128 * 31, 128 * 300 + 5)
"""Of rows: pieces for some threads of a block, for some of its warps, and several for a thread."""


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i1", "i64"])
def test_a_block_combines_the_pieces_of_a_row(dtype: str) -> None:
    name = {"i1": "or"}.get(dtype, "add")
    body = "\n".join([reduce("s", "x", "z", name, dtype), reduce("t", "x", "z", "maximum", dtype)])
    operands, results = [f"x: n,m {dtype}", f"z: {dtype}"], [f"s: n {dtype}", f"t: n {dtype}"]
    emitted = gpu_plan(fusion_text("row", operands, body, results))
    z = np.array(0).astype(DTYPES[dtype])
    for m in LENGTHS:
        x = np.abs(sample((2, m), dtype)) if dtype != "i1" else np.zeros((2, m), bool)
        x[1, -1] = 1
        s, t = run_gpu(emitted, [x, z])
        if dtype in ("i1", "i64"):
            np.testing.assert_array_equal(s, x.any(1) if dtype == "i1" else x.sum(1))
        else:
            close = {"f32": 1e-6, "f64": 1e-14, "bf16": 5e-3}[dtype]
            np.testing.assert_allclose(s.astype(float), x.astype(float).sum(1), rtol=close)
        np.testing.assert_array_equal(t, np.maximum(x.max(1), 0) if dtype != "i1" else x.any(1))


def test_pieces_keep_their_order() -> None:
    text = fusion_text("row", ["x: n,m i32", "w: n,m i32"], AFFINE, ["u: n i32", "v: n i32"])
    emitted = gpu_plan(text)
    for m in LENGTHS:
        x, w = sample((2, m), "i32"), sample((2, m), "i32", 1)
        a, b = affine(x | 1, w)
        u, v = run_gpu(emitted, [x | 1, w])
        np.testing.assert_array_equal(u, a)
        np.testing.assert_array_equal(v, b)


def test_the_first_of_equals_in_many_pieces() -> None:
    emitted = gpu_plan(fusion_text("row", ["x: n,m f32"], ARGMAX, ["v: n f32", "y: n i32"]))
    for m in LENGTHS:
        x = np.round(sample((3, m), "f32"))
        x[2, m // 2 :: 3] = np.nan
        v, y = run_gpu(emitted, [x])
        np.testing.assert_array_equal(y, x.argmax(1))
        np.testing.assert_array_equal(v, np.where(np.isnan(x).any(1), np.nan, x.max(1)))


@pytest.mark.parametrize("square", ["", "square"])
def test_sums_relative_to_a_piece_are_put_right(square: str) -> None:
    of_row = reduce("r", "x", "z", "add" if square else "maximum")
    body = [of_row, difference(square), spread("sb", "s", "0"), DIVIDED]
    emitted = gpu_plan(
        fusion_text("row", ["x: n,m f32", "z: f32"], "\n".join(body), ["y: n,m f32"])
    )
    for m in LENGTHS[1:]:
        x = sample((2, m), "f32") * np.float32(0.01 if square else 30)
        x[1, :600] = -np.inf if not square else 0.5
        (y,) = run_gpu(emitted, [x, np.array(0, np.float32)])
        wide = x.astype(np.float64)
        if square:
            e = (wide - wide.sum(1, keepdims=True)) ** 2
        else:
            e = np.exp(wide - np.maximum(wide.max(1, keepdims=True), 0))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-30)


COLUMNS = """
%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] :
  (tensor<?x?xT>, tensor<T>) -> tensor<?xT>
%t = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0] :
  (tensor<?x?xT>, tensor<T>) -> tensor<?xT>"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i1", "i8"])
def test_a_block_combines_the_pieces_of_columns(dtype: str) -> None:
    results = [f"s: m {dtype}", f"t: m {dtype}"]
    text = fusion_text(
        "column", [f"x: n,m {dtype}", f"z: {dtype}"], COLUMNS.replace("T", dtype), results
    )
    emitted = gpu_plan(text)
    z = np.array(0).astype(DTYPES[dtype])
    for n, m in [(4, 1), (63, 7), (64, 8), (2 * 131, 16), (2 * 300, 3)]:
        x = np.abs(sample((n, m), dtype)) if dtype != "i1" else np.zeros((n, m), bool)
        x[n // 2, m // 2] = 1
        s, t = run_gpu(emitted, [x, z])
        if dtype == "i1":
            np.testing.assert_array_equal(s, x.any(0))
        elif dtype == "i8":
            np.testing.assert_array_equal(s, x.sum(0, dtype=np.int8))
        else:
            close = {"f32": 1e-6, "bf16": 5e-3}[dtype]
            np.testing.assert_allclose(s.astype(float), x.astype(float).sum(0), rtol=close)
        np.testing.assert_array_equal(t, x.max(0))


def test_batch_norm_in_parts_and_pieces() -> None:
    body = """%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 2] :
      (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?xf32>"""
    emitted = gpu_plan(fusion_text("row", ["x: n,c,m f32", "z: f32"], body, ["s: c f32"]))
    for n, c, m in [(4, 1, 5), (7, 3, 257), (80, 2, 4)]:
        x = sample((n, c, m), "f32")
        (s,) = run_gpu(emitted, [x, np.array(0, np.float32)])
        np.testing.assert_allclose(s, x.astype(np.float64).sum((0, 2)), rtol=1e-4, atol=1e-4)


def test_parts_keep_their_order() -> None:
    body = AFFINE.replace("dimensions = [1]", "dimensions = [0, 2]").replace("?x?x", "?x?x?x")
    operands = ["x: n,c,m i32", "w: n,c,m i32"]
    emitted = gpu_plan(fusion_text("row", operands, body, ["u: c i32", "v: c i32"]))
    for n, c, m in [(1, 2, 5), (7, 3, 300)]:
        x, w = sample((n, c, m), "i32") | 1, sample((n, c, m), "i32", 1)
        a, b = affine(*(array.transpose(1, 0, 2).reshape(c, n * m) for array in (x, w)))
        u, v = run_gpu(emitted, [x, w])
        np.testing.assert_array_equal(u, a)
        np.testing.assert_array_equal(v, b)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["i8", "ui8", "i16", "ui16"])
def test_short_integers_are_compared_in_pairs(dtype: str, architecture: str) -> None:
    """From sm_90 on LLVM makes `max.s16x2` and its kin of them."""
    machine = machine_of(architecture)
    body = "\n".join(reduce(name, "x", "z", f"{name}imum", dtype) for name in ("max", "min"))
    operands, results = [f"x: n,m {dtype}", f"z: {dtype}"], [f"max: n {dtype}", f"min: n {dtype}"]
    emitted = gpu_plan(fusion_text("row", operands, body, results), machine)
    x, z = sample((3, 200), dtype), np.array(3).astype(DTYPES[dtype])
    most, least = run_gpu(emitted, [x, z], machine=machine)
    np.testing.assert_array_equal(most, np.maximum(x.max(1), z))
    np.testing.assert_array_equal(least, np.minimum(x.min(1), z))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_columns_with_results_of_every_element(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several steps load before one stores; those that are left over go one by one."""
    monkeypatch.setitem(rows.PIECES, Layout.SIDE_BY_SIDE, 6)
    t, line = f"tensor<?x?x{dtype}>", f"tensor<?x{dtype}>"
    body = f"""%s = "disc.shape"() {{dims = ["n", "m"]}} : () -> tensor<2xi64>
    %r = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0] :
      ({t}, tensor<{dtype}>) -> {line}
    %b = stablehlo.dynamic_broadcast_in_dim %r, %s, dims = [1] : ({line}, tensor<2xi64>) -> {t}
    %y = stablehlo.subtract %x, %b : {t}
    %w = stablehlo.multiply %y, %x : {t}"""
    operands, results = [f"x: n,m {dtype}", f"z: {dtype}"], [f"y: n,m {dtype}", f"w: n,m {dtype}"]
    emitted = gpu_plan(fusion_text("column", operands, body, results))
    z = np.array(0).astype(DTYPES[dtype])
    for n, m in [(1, 8), (3, 5), (4, 16), (5, 7), (11, 24), (12, 8), (130, 3), (196, 8)]:
        x = np.round(sample((n, m), "f32") * 8).astype(DTYPES[dtype])
        y, w = run_gpu(emitted, [x, z])
        want = x - np.maximum(x.max(0), z)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(w, want * x)
