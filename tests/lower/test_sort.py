"""Kinds sort and top_k against numpy's stable sort."""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.kernels.sort import emit_sort
from shlo_disc.lower.kernels.top_k import emit_top_k
from tests.lower.helpers import Emitted, fusion_text, plan_of, run, sample, tensor

SIZES = (0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 64, 100, 257)


def sorting(
    sizes: str, dtypes: list[str], dimension: int, body: str, yielded: list[int] | None = None
) -> Emitted:
    """The plan of a sort of `x0: sizes dtypes[0]`, ...; `body` computes %r from %l0, %r0, %l1, ..."""
    types = [tensor(sizes, d) for d in dtypes]
    args = ", ".join(f"%l{i}: tensor<{d}>, %r{i}: tensor<{d}>" for i, d in enumerate(dtypes))
    names = ", ".join(f"%x{i}" for i in range(len(dtypes)))
    text = f"""%s:{len(dtypes)} = "stablehlo.sort"({names}) <{{dimension = {dimension} : i64}}> ({{
      ^bb0({args}):
        {body}
        stablehlo.return %r : tensor<i1>
      }}) : ({", ".join(types)}) -> ({", ".join(types)})"""
    chosen = list(range(len(dtypes))) if yielded is None else yielded
    module = fusion_text(
        "sort",
        [f"x{i}: {sizes} {d}" for i, d in enumerate(dtypes)],
        text,
        [f"s#{i}: {sizes} {dtypes[i]}" for i in chosen],
    )
    return plan_of(emit_sort, module)


def less(dtype: str, word: str = "LT", kind: str = "") -> str:
    kind = f", {kind}" if kind else ""
    return f"%r = stablehlo.compare {word}, %l0, %r0{kind} : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>"


@pytest.mark.parametrize("rows", [1, 3])
def test_sort_is_stable_at_every_size(rows):
    plan = sorting("b,n", ["f32", "i32"], 1, less("f32"))
    for n in SIZES:
        keys = np.random.default_rng(n).integers(0, max(2, n // 3), (rows, n)).astype(np.float32)
        values = np.tile(np.arange(n, dtype=np.int32), (rows, 1))
        got = run(plan, [keys, values])
        order = np.argsort(keys, 1, kind="stable")
        np.testing.assert_array_equal(got[1], order)
        np.testing.assert_array_equal(got[0], np.take_along_axis(keys, order, 1))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "i8", "i16", "i64", "ui8", "ui32", "i1"])
def test_sort_of_every_type(dtype):
    plan = sorting("n", [dtype], 0, less(dtype))
    for n in (1, 40, 100):
        x = sample((n,), dtype, n)
        np.testing.assert_array_equal(run(plan, [x])[0], np.sort(x, kind="stable"))


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_sort_along_any_dimension_descending(dimension):
    plan = sorting("a,b,c", ["i32"], dimension, less("i32", "GT"))
    for shape in ((1, 1, 1), (5, 20, 3), (2, 3, 33), (0, 4, 2), (3, 0, 2)):
        x = sample(shape, "i32", 3)
        want = -np.sort(-x, dimension)
        np.testing.assert_array_equal(run(plan, [x])[0], want)


def test_sort_in_total_order_of_specials():
    plan = sorting("n", ["f32"], 0, less("f32", "LT", "TOTALORDER"))
    x = np.array([np.nan, 1, -0.0, np.inf, 0.0, -np.nan, -np.inf, 1e-42, -1e-42], np.float32)
    x = np.resize(np.random.default_rng(0).permutation(x), 70)
    raw = x.view(np.int32)
    keys = np.where(raw < 0, raw ^ 0x7FFFFFFF, raw)
    want = x[np.argsort(keys, kind="stable")]
    np.testing.assert_array_equal(run(plan, [x])[0].view(np.int32), want.view(np.int32))


def test_sort_by_two_keys_with_an_unread_result():
    body = """
    %a = stablehlo.compare LT, %l0, %r0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %b = stablehlo.compare EQ, %l0, %r0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c = stablehlo.compare LT, %l1, %r1 : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %d = stablehlo.and %b, %c : tensor<i1>
    %r = stablehlo.or %a, %d : tensor<i1>"""
    plan = sorting("n", ["i32", "i64", "i1"], 0, body, yielded=[1, 2])
    for n in (7, 64, 99):
        rng = np.random.default_rng(n)
        a, b = rng.integers(0, 4, n).astype(np.int32), rng.integers(0, 9, n)
        c = rng.integers(0, 2, n).astype(bool)
        order = np.lexsort((np.arange(n), b, a))
        second, third = run(plan, [a, b, c])
        np.testing.assert_array_equal(second, b[order])
        np.testing.assert_array_equal(third, c[order])


def test_sort_with_an_inconsistent_comparator_stays_in_bounds():
    plan = sorting("n", ["f32"], 0, less("f32", "NE"))
    x = sample((100,), "f32")
    assert np.isin(run(plan, [x])[0], x).all()


def top_k(k: int, dtype: str) -> Emitted:
    text = f"%v, %i = chlo.top_k(%x, k={k}) : tensor<?x?x{dtype}> -> (tensor<?x{k}x{dtype}>, tensor<?x{k}xi32>)"
    return plan_of(
        emit_top_k,
        fusion_text("top_k", [f"x: b,n {dtype}"], text, [f"v: b,{k} {dtype}", f"i: b,{k} i32"]),
    )


def total_order(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "fV":
        return x.astype(np.int64)
    bits = x.dtype.itemsize * 8
    raw = x.view(f"int{bits}").astype(np.int64)
    return np.where(raw < 0, raw ^ ((1 << (bits - 1)) - 1), raw)


@pytest.mark.parametrize("k", [0, 1, 5, 64, 65, 100])
def test_top_k_ties_go_to_the_first(k):
    plan = top_k(k, "f32")
    for b, n in ((1, 100), (3, 1001), (2, 128), (4, max(k, 1)), (0, 100)):
        if n < k:
            continue
        x = np.random.default_rng(n).integers(0, max(5, n // 2), (b, n)).astype(np.float32) - 2
        values, places = run(plan, [x])
        order = np.argsort(-x, 1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "i8", "i64", "ui8", "ui32"])
def test_top_k_of_every_type(dtype):
    plan = top_k(7, dtype)
    x = sample((3, 90), dtype, special=True)
    values, places = run(plan, [x])
    order = np.argsort(~total_order(x), 1, kind="stable")[:, :7]
    np.testing.assert_array_equal(places, order)
    want = np.take_along_axis(x, order, 1)
    assert values.tobytes() == want.tobytes()


def test_dynamic_top_k_chooses_the_variant_at_run_time():
    text = """%k = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xi8>) -> tensor<i32>
    %v, %i = "stablehlo.custom_call"(%x, %k) {call_target_name = "stablehlo.dynamic_top_k"} : (tensor<?x?xf32>, tensor<i32>) -> (tensor<?x?xf32>, tensor<?x?xi32>)"""
    module = fusion_text("top_k", ["x: b,n f32", "y: k i8"], text, ["v: b,k f32", "i: b,k i32"])
    plan = plan_of(emit_top_k, module)
    for k, n in ((1, 5), (64, 200), (65, 200), (200, 200)):
        x = sample((2, n), "f32", k)
        values, places = run(plan, [x, np.zeros(k, np.int8)])
        order = np.argsort(-x, 1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
