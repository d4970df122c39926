"""Rows whose sweeps keep what they read in shared memory: every operand is read once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shlo_disc.lower.gpu import rows
from shlo_disc.lower.images import signed
from shlo_disc.lower.plan import Launch
from tests.gpu.run import gpu_plan, run_gpu
from tests.lower.helpers import DTYPES, Emitted, fusion_text, launches, sample
from tests.lower.test_row import AFFINE, affine, reduce, spread

SOFTMAX = """
%ninf = stablehlo.constant dense<INF> : tensor<T>
%zero = stablehlo.constant dense<0.0> : tensor<f32>
%s = "disc.shape"() {dims = ["n", "m"]} : () -> tensor<2xi64>
%mx = stablehlo.reduce(%x init: %ninf) applies stablehlo.maximum across dimensions = [1] :
  (tensor<?x?xT>, tensor<T>) -> tensor<?xT>
%mb = stablehlo.dynamic_broadcast_in_dim %mx, %s, dims = [0] : (tensor<?xT>, tensor<2xi64>) ->
  tensor<?x?xT>
%d = stablehlo.subtract %x, %mb : tensor<?x?xT>
%w = stablehlo.convert %d : (tensor<?x?xT>) -> tensor<?x?xf32>
%e = stablehlo.exponential %w : tensor<?x?xf32>
%sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] :
  (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
%sb = stablehlo.dynamic_broadcast_in_dim %sum, %s, dims = [0] : (tensor<?xf32>, tensor<2xi64>) ->
  tensor<?x?xf32>
%q = stablehlo.divide %e, %sb : tensor<?x?xf32>
%y = stablehlo.convert %q : (tensor<?x?xf32>) -> tensor<?x?xT>"""
INFINITY = {"f32": "0xFF800000", "bf16": "0xFF80", "f16": "0xFC00"}


def softmax_text(dtype: str, static: str = "m") -> str:
    body = SOFTMAX.replace("T", dtype).replace("INF", INFINITY[dtype])
    body = body.replace('"m"', f'"{static}"')
    if static.isdigit():
        body = body.replace("?x?x", f"?x{static}x")
    operands, results = [f"x: n,{static} {dtype}"], [f"y: n,{static} {dtype}"]
    return fusion_text("row", operands, body, results, "rows = 1 : i64")


def softmax(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    e = np.exp((wide - wide.max(1, keepdims=True)).astype(x.dtype).astype(np.float64))
    return e / e.sum(1, keepdims=True)


def whole_rows(emitted: Emitted) -> list[Launch]:
    """The launches that are not over pieces."""
    found = launches(emitted.plan.steps)
    return [step for step in found if not step.kernel.name.endswith(("pieces", "combine"))]


def loops_that_read(text: str, argument: str) -> int:
    """The loops of a kernel in which memory of an argument is read."""
    names, found, loop = {argument}, set(), 0
    for line in text.splitlines():
        loop += "scf.for" in line
        name, _, right = line.strip().partition(" = ")
        used = set(re.findall(r"%[\w#]+", right))
        if used & names and re.match(r"llvm.insertvalue|builtin.unrealized", right):
            names.add(name)
        is_load = right.startswith(("vector.load", "vector.maskedload", "memref.load"))
        if is_load and re.findall(r"%[\w#]+", right)[0] in names:
            found.add(loop)
    return len(found)


@pytest.mark.parametrize("dtype", INFINITY)
def test_softmax_reads_every_element_once(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the sizes around those that a warp takes, and that shared memory has room for."""
    monkeypatch.setattr(rows, "SHORT_ROW", 64)
    monkeypatch.setattr(rows, "_NEAR_BYTES", 8192)
    monkeypatch.setitem(rows.PIECES, rows.Layout.WHOLE, 1024)
    emitted = gpu_plan(softmax_text(dtype))
    whole = whole_rows(emitted)
    assert len(whole) == 4  # by a warp and by a block, for whole accesses and for any
    for launch in whole:
        assert loops_that_read(launch.kernel.text, "%a0") == 1
    tolerance = 1e-5 if dtype == "f32" else 2e-2
    each = 4 if dtype == "f32" else 6
    room = 8192 // 4 if each == 4 else 2 * 8192 // 6  # by twice the threads
    threads = max(signed(step.kernel.source).signature.threads for step in whole)
    assert threads == (256 if each == 4 else 512)
    for m in (1, 3, 4, 60, 63, 64, 65, 256, 1000, room - 1, room, room + 1, room + 4, 4096):
        x = np.clip(sample((9 if m < 100 else 2, m), "f32"), -4, 4).astype(DTYPES[dtype])
        (y,) = run_gpu(emitted, [x], {"n": len(x), "m": m})
        np.testing.assert_allclose(y.astype(np.float64), softmax(x), rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("static", ["7", "768", "1024", "8192", "13000"])
def test_rows_of_known_length(static: str) -> None:
    """The last ones have no room: they are in pieces."""
    emitted = gpu_plan(softmax_text("f32", static))
    whole = whole_rows(emitted)
    assert len(whole) == (static != "13000")
    x = sample((3, int(static)), "f32")
    (y,) = run_gpu(emitted, [x], {"n": 3})
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5, atol=1e-7)


def test_kept_values_of_several_widths() -> None:
    """Two operands and a flag are needed in the second sweep; a result is none of their homes."""
    body = """%zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = "disc.shape"() {dims = ["n", "m"]} : () -> tensor<2xi64>
    %p = stablehlo.select %f, %x, %x2 : tensor<?x?xi1>, tensor<?x?xf32>
    %x2 = stablehlo.convert %h : (tensor<?x?xf16>) -> tensor<?x?xf32>
    %t = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1] :
      (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
    %tb = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0] : (tensor<?xf32>, tensor<2xi64>)
      -> tensor<?x?xf32>
    %u = stablehlo.add %x, %tb : tensor<?x?xf32>
    %v = stablehlo.multiply %x2, %tb : tensor<?x?xf32>
    %y = stablehlo.select %f, %u, %v : tensor<?x?xi1>, tensor<?x?xf32>"""
    lines = body.splitlines()
    lines[2:4] = lines[3], lines[2]
    operands, results = ["x: n,m f32", "h: n,m f16", "f: n,m i1"], ["y: n,m f32", "p: n,m f32"]
    emitted = gpu_plan(fusion_text("row", operands, "\n".join(lines), results, "rows = 1 : i64"))
    assert all(loops_that_read(step.kernel.text, "%a0") == 1 for step in whole_rows(emitted))
    for m in (1, 100, 511, 513, 1028):
        x, h = np.round(sample((9, m), "f32")), np.round(sample((9, m), "f16", 1))
        f = sample((9, m), "f32", 2) > 0
        y, p = run_gpu(emitted, [x, h, f])
        want = np.where(f, x, h)
        total = want.sum(1, keepdims=True)
        np.testing.assert_array_equal(p, want)
        np.testing.assert_allclose(y, np.where(f, x + total, h * total), rtol=1e-6)


def test_a_kept_row_is_not_left_to_elements_of_another_width() -> None:
    """Threads of a warp are in different sweeps: one may still read where another one stores."""
    body = "\n".join([
        reduce("r", "x", "z", "add", "f16"), spread("rb", "r", "0", t="f16"),
        "%d = stablehlo.subtract %x, %rb : tensor<?x?xf16>",
        reduce("s", "d", "z", "maximum", "f16"), "%w = stablehlo.convert %s : (tensor<?xf16>) -> "
        "tensor<?xf32>", spread("sb", "w", "0"),
        "%g = stablehlo.subtract %v, %sb : tensor<?x?xf32>",
        reduce("t", "g", "k", "add"), spread("tb", "t", "0"),
        "%y = stablehlo.multiply %v, %tb : tensor<?x?xf32>",
    ])  # fmt: skip
    operands = ["x: n,m f16", "v: n,m f32", "z: f16", "k: f32"]
    emitted = gpu_plan(fusion_text("row", operands, body, ["y: n,m f32"], "rows = 1 : i64"))
    short = whole_rows(emitted)[0]
    (size,) = re.findall(r"@shared.*array<(\d+) x i8>", short.kernel.text)
    assert int(size) == 8 * 512 * (2 + 4)
    for m in (4, 100, 512):
        x, v = np.round(sample((9, m), "f16")), np.round(sample((9, m), "f32", 1))
        (y,) = run_gpu(emitted, [x, v, np.zeros((), np.float16), np.zeros((), np.float32)])
        total = x.sum(1, keepdims=True, dtype=np.float32)
        s = np.maximum((x - total).max(1, keepdims=True), 0)
        np.testing.assert_allclose(y, v * (v - s).sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("static", ["1", "4", "5", "10", "16", "33", "64", "100"])
def test_short_rows_of_known_length_share_a_warp(static: str) -> None:
    """The last warp has rows for some of its groups only."""
    emitted = gpu_plan(softmax_text("f32", static))
    (launch,) = whole_rows(emitted)
    groups = signed(launch.kernel.source).signature.tasks
    of_length = {1: 256, 4: 256, 5: 64, 10: 32, 16: 128, 33: 8, 64: 32, 100: 16}
    assert groups == of_length[int(static)]
    # All threads of a warp shuffle; those that have no row of their own must store nothing.
    is_part = groups > 8
    assert ("%_first_of_warp" in launch.kernel.text) == is_part
    stores = re.findall(r"scf.if %own {\n(?: +%.*\n)* +(vector|memref).store", launch.kernel.text)
    assert bool(stores) == is_part
    for n in (1, 3, groups - 1, groups, groups + 1):
        x = sample((n, int(static)), "f32")
        (y,) = run_gpu(emitted, [x])
        np.testing.assert_allclose(y, softmax(x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("static", ["3", "20", "70"])
def test_short_rows_keep_the_order_of_a_body(static: str) -> None:
    body = AFFINE.replace("?x?x", f"?x{static}x")
    operands, results = [f"x: n,{static} i32", f"w: n,{static} i32"], ["u: n i32", "v: n i32"]
    emitted = gpu_plan(fusion_text("row", operands, body, results))
    for n in (1, 37):
        x, w = sample((n, int(static)), "i32") | 1, sample((n, int(static)), "i32", 1)
        for got, want in zip(run_gpu(emitted, [x, w]), affine(x, w), strict=True):
            np.testing.assert_array_equal(got, want)


def test_rows_that_fill_the_shared_memory_of_a_block() -> None:
    """What is needed besides makes the kernel ask for more than a block has by itself."""
    emitted = gpu_plan(softmax_text("bf16", "8192"))
    (launch,) = whole_rows(emitted)
    assert signed(launch.kernel.source).signature.shared_bytes > 8192 * 6
    x = np.clip(sample((2, 8192), "f32"), -4, 4).astype(DTYPES["bf16"])
    (y,) = run_gpu(emitted, [x])
    np.testing.assert_allclose(y.astype(np.float64), softmax(x), rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_columns_that_are_read_twice_are_in_small_pieces(dtype: str) -> None:
    """A thread finds its piece in the cache again; both variants have the same workspaces."""
    body = """%s = "disc.shape"() {dims = ["n", "m"]} : () -> tensor<2xi64>
    %w = stablehlo.convert %x : (tensor<?x?xT>) -> tensor<?x?xf32>
    %r = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [0] :
      (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
    %b = stablehlo.dynamic_broadcast_in_dim %r, %s, dims = [1] : (tensor<?xf32>, tensor<2xi64>)
      -> tensor<?x?xf32>
    %d = stablehlo.subtract %w, %b : tensor<?x?xf32>
    %q = stablehlo.multiply %d, %d : tensor<?x?xf32>
    %v = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [0] :
      (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>""".replace("T", dtype)
    emitted = gpu_plan(fusion_text("column", [f"x: n,m {dtype}", "z: f32"], body, ["v: m f32"]))
    pieces = 1024 // (16 if dtype == "f32" else 32)  # of 256 bytes
    sizes = [size.evaluate({"n": 1024, "m": 8}) for size in emitted.plan.workspaces]
    assert max(sizes) == pieces * 8 * 4
    for n, m in [(70, 8), (70, 5), (100, 16)]:
        x = np.round(sample((n, m), "f32") * 8).astype(DTYPES[dtype])
        (v,) = run_gpu(emitted, [x, np.zeros((), np.float32)])
        wide = x.astype(np.float64)
        np.testing.assert_allclose(v, ((wide - wide.sum(0)) ** 2).sum(0), rtol=1e-5)
