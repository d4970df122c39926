"""Top-k by blocks of threads, interpreted: lists, pieces of long rows, and sorts."""

from __future__ import annotations

import numpy as np
import pytest

from shlo_disc.lower.gpu.top_k import MOST
from tests.gpu.run import gpu_plan, launches_of, run_gpu
from tests.gpu.values import sample
from tests.lower import test_sort

PIECE = 8192


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_sort, "plan_of", lambda emit, text: gpu_plan(text))


def check(plan, x, k, kernels, seed=0):
    values, places = run_gpu(plan, [x], seed=seed)
    order = np.argsort(~test_sort.total_order(x), 1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, order)
    assert values.tobytes() == np.take_along_axis(x, order, 1).tobytes()
    assert [launch.kernel.name for launch in launches_of(plan, [x])] == kernels


@pytest.mark.parametrize("k", [1, 8, MOST])
def test_ties_around_batches_and_pieces(k):
    plan = test_sort.top_k(k, "f32")
    r = np.random.default_rng(k)
    for b, n in ((3, k), (1, 255), (2, 2049), (3, 2 * PIECE - 1)):
        x = r.integers(-9, 9, (b, n)).astype(np.float32)
        check(plan, x, k, ["top_k"], seed=n)
    for n in (2 * PIECE, 2 * PIECE + 3):  # the last piece may have fewer than k elements
        x = r.integers(-9999, 9999, (2, n)).astype(np.float32)
        x[0, -1] = 1e5
        check(plan, x, k, ["top_k_pieces", "top_k_rest"], seed=n)


@pytest.mark.parametrize("order", ["up", "down", "equal"])
def test_rows_in_order(order):
    """In rising rows every element is better than all before it."""
    x = np.arange(3000, dtype=np.float32).reshape(2, 1500)
    x = {"up": x, "down": x[:, ::-1].copy(), "equal": np.zeros_like(x)}[order]
    check(test_sort.top_k(8, "f32"), x, 8, ["top_k"])


@pytest.mark.parametrize("name", ["f64", "bf16", "f16", "i8", "i64", "ui8", "ui32", "f32"])
def test_special_values(name):
    """The least values, NaNs and signed zeros: a list begins behind all of them."""
    x = sample(name, 3 * 700, 5).reshape(3, 700)
    check(test_sort.top_k(9, name), x, 9, ["top_k"])
    least = np.take_along_axis(x, np.argsort(test_sort.total_order(x), 1), 1)[:, :1]
    x[:] = least
    check(test_sort.top_k(9, name), x, 9, ["top_k"])


def test_above_the_length_of_lists_rows_are_sorted():
    x = np.random.default_rng(0).integers(-500, 500, (2, 4000)).astype(np.float32)
    names = ["sort_tiles", "sort_merge", "sort_merge"]
    check(test_sort.top_k(MOST + 1, "f32"), x, MOST + 1, names)
    check(test_sort.top_k(1000, "f32"), x, 1000, names)


def test_many_rows_are_not_cut():
    plan = test_sort.top_k(8, "f32")
    for rows, kernels in ((263, ["top_k_pieces", "top_k_rest"]), (264, ["top_k"])):
        arrays = [np.zeros((rows, 2 * PIECE), np.float32)]
        assert [launch.kernel.name for launch in launches_of(plan, arrays)] == kernels
