"""Sorts by blocks of threads, interpreted: rows of one tile and of several, in any order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.run import gpu_plan, launches_of, run_gpu
from tests.gpu.values import sample
from tests.lower import test_sort

TILE = 1792
"""Records of a block whose keys have 4 bytes."""


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_sort, "plan_of", lambda emit, text: gpu_plan(text))


def sorting(*args, **kwargs):
    return test_sort.sorting(*args, **kwargs)


@pytest.mark.parametrize("word", ["LT", "GT"])
def test_around_tiles_with_duplicates(word):
    plan = sorting("b,n", ["f32", "i32"], 1, test_sort.less("f32", word))
    for rows, n in ((1, TILE), (2, TILE + 1), (1, 2 * TILE - 1), (3, 2 * TILE + 1), (1, 9001)):
        x = np.random.default_rng(n).integers(-40, 40, (rows, n)).astype(np.float32)
        places = np.tile(np.arange(n, dtype=np.int32), (rows, 1))
        found = run_gpu(plan, [x, places], seed=n)
        order = np.argsort(x if word == "LT" else -x, 1, kind="stable")
        np.testing.assert_array_equal(found[1], order)
        np.testing.assert_array_equal(found[0], np.take_along_axis(x, order, 1))


def test_a_launch_for_each_doubling():
    plan = sorting("b,n", ["f32"], 1, test_sort.less("f32"))
    for n, merges in ((1, 0), (TILE, 0), (TILE + 1, 1), (2 * TILE, 1), (2 * TILE + 1, 2)):
        found = launches_of(plan, [np.zeros((2, n), np.float32)])
        names = [launch.kernel.name for launch in found]
        assert names == ["sort_tiles"] + ["sort_merge"] * merges
    sizes = [size.evaluate({"b": 2, "n": TILE}) for size in plan.plan.workspaces]
    assert sizes == [0, 0]


@pytest.mark.parametrize("n", [3, 28, 29, 113, 449])
def test_short_rows_share_blocks(n):
    plan = sorting("b,n", ["f32", "i8"], 1, test_sort.less("f32"))
    x = np.random.default_rng(n).standard_normal((131, n)).astype(np.float32)
    x[5, :2] = x[6, n // 2 :] = 1
    places = (np.arange(131 * n) % 100).astype(np.int8).reshape(131, n)
    found = run_gpu(plan, [x, places])
    order = np.argsort(x, 1, kind="stable")
    np.testing.assert_array_equal(found[0], np.take_along_axis(x, order, 1))
    np.testing.assert_array_equal(found[1], np.take_along_axis(places, order, 1))


@pytest.mark.parametrize("name", ["f64", "i64", "ui16", "i8", "ui32", "bf16", "f16", "i1"])
def test_every_width_in_several_tiles(name):
    plan = sorting("n", [name], 0, test_sort.less(name))
    x = test_sort.sample((4000,), name, 5)
    np.testing.assert_array_equal(run_gpu(plan, [x])[0], np.sort(x, kind="stable"))


@pytest.mark.parametrize(("name", "bits"), [("f32", 32), ("bf16", 16), ("f64", 64)])
def test_total_order_of_nan_and_zeros(name, bits):
    plan = sorting("n", [name], 0, test_sort.less(name, "LT", "TOTALORDER"))
    x = sample(name, 4000, 3)
    raw = x.view(f"i{bits // 8}")
    keys = np.where(raw < 0, raw ^ np.array((1 << bits - 1) - 1, raw.dtype), raw)
    (found,) = run_gpu(plan, [x])
    np.testing.assert_array_equal(found.view(raw.dtype), raw[np.argsort(keys, kind="stable")])


@pytest.mark.parametrize("dimension", [0, 1])
def test_along_an_outer_dimension(dimension):
    plan = sorting("a,b,c", ["i32", "f32"], dimension, test_sort.less("i32"))
    for shape in ((2, 3, 40), (2, 1800, 3), (1801, 2, 1)):
        x = np.random.default_rng(0).integers(0, 50, shape).astype(np.int32)
        y = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        order = np.argsort(x, dimension, kind="stable")
        found = run_gpu(plan, [x, y])
        for got, want in zip(found, (x, y), strict=True):
            np.testing.assert_array_equal(got, np.take_along_axis(want, order, dimension))


@pytest.mark.parametrize(
    "kinds",
    [["f64", "i64", "i1"], ["f64", "f64", "f64", "i64", "i64"], ["f64"] * 13 + ["i64"]],
)
def test_wide_keys_have_smaller_tiles(kinds):
    """All operands but the last are keys; nobody reads the first result."""
    count = len(kinds) - 1
    lines, result = [], None
    for k in reversed(range(count)):
        types = f"(tensor<{kinds[k]}>, tensor<{kinds[k]}>) -> tensor<i1>"
        lines.append(f"%lt{k} = stablehlo.compare LT, %l{k}, %r{k} : {types}")
        if result is not None:
            lines.append(f"%e{k} = stablehlo.compare EQ, %l{k}, %r{k} : {types}")
            lines.append(f"%b{k} = stablehlo.and %e{k}, {result} : tensor<i1>")
            lines.append(f"%o{k} = stablehlo.or %lt{k}, %b{k} : tensor<i1>")
            result = f"%o{k}"
        else:
            result = f"%lt{k}"
    last = lines.pop().split(" = ")
    lines.append(f"%r = {last[1]}")
    plan = sorting("n", kinds, 0, "\n".join(lines), yielded=list(range(1, count + 1)))
    r = np.random.default_rng(2)
    for n in (33, 3001):
        keys = [r.integers(0, 6, n).astype(np.dtype(k.replace("f", "float").replace("i", "int")))
                for k in kinds[:-1]]  # fmt: skip
        keys[0] = keys[0] * 0 + 1 if n == 33 else keys[0]
        last = r.integers(0, 2, n).astype(bool if kinds[-1] == "i1" else np.int64)
        order = np.lexsort((np.arange(n), *reversed(keys)))
        found = run_gpu(plan, [*keys, last])
        for got, want in zip(found, [*keys[1:], last], strict=True):
            np.testing.assert_array_equal(got, want[order])


@pytest.mark.parametrize("word", ["NE", "LE", "GE"])
def test_a_comparator_that_is_no_order_stays_in_bounds(word):
    plan = sorting("n", ["f32", "i32"], 0, test_sort.less("f32", word))
    x = np.random.default_rng(0).integers(0, 9, 6000).astype(np.float32)
    x[::7] = np.nan
    found = run_gpu(plan, [x, np.arange(6000, dtype=np.int32)])
    np.testing.assert_array_equal(found[0], x[found[1]])
