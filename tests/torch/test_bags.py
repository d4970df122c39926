"""Bags of embeddings, distances, extremes so far, sorted rows, adaptive pools; gradients too."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of
from tests.torch.test_backend import (
    assert_trains_as_eager,
    compiled,
    kinds,
    tensors,
    weighted_sum,
)

SIZES = ((4, 6), (1, 5), (3, 7), (2, 17), (13, 11))


def bags(count, bag_count):
    """Indices of `bag_count` bags; some are empty."""
    offsets = torch.sort(torch.randint(0, count + 1, (bag_count,))).values
    offsets[0] = 0
    return torch.randint(0, 9, (count,)), offsets


BAGS = {
    "sum": {"mode": "sum"},
    "mean": {"mode": "mean"},
    "max": {"mode": "max"},
    "padded sum": {"mode": "sum", "padding_idx": 2},
    "padded mean": {"mode": "mean", "padding_idx": 2},
    "padded max": {"mode": "max", "padding_idx": 2},
    "with an end": {"mode": "mean", "include_last_offset": True},
}
SLOW = {"padded sum", "padded max"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in BAGS]
)
def test_bags_train_as_eager(name):
    model = nn.EmbeddingBag(9, 4, **BAGS[name])
    batches = []
    for count, number in ((7, 5), (6, 3), (17, 13), (30, 11)):
        indices, offsets = bags(count, number)
        if model.include_last_offset:
            offsets[-1] = count
        batches.append((indices, offsets))
    assert_trains_as_eager(model, batches)
    assert kinds() == ["forward", "backward"]


def test_gradients_are_divided_by_how_often_a_row_is_asked_for():
    """PyTorch's own kernel for bags takes the counts of other rows; rows alone are right."""

    def pooled(weight, indices, offsets):
        return F.embedding_bag(indices, weight, offsets, mode="sum", scale_grad_by_freq=True)

    def rows_added(weight, indices, offsets):
        rows = F.embedding(indices, weight, scale_grad_by_freq=True)
        bag = torch.bucketize(torch.arange(len(indices)), offsets, right=True) - 1
        return torch.zeros(len(offsets), 4).index_add(0, bag, rows)

    same_gradients(
        pooled,
        [(torch.randn(9, 4), *bags(n, k)) for n, k in ((7, 5), (6, 3), (17, 13))],
        reference=rows_added,
    )


def test_factors_of_bags_have_gradients():
    def pooled(weight, factors, indices, offsets):
        return F.embedding_bag(
            indices, weight, offsets, mode="sum", per_sample_weights=factors, padding_idx=3
        )

    same_gradients(
        pooled,
        [(torch.randn(9, 4), torch.randn(n), *bags(n, k)) for n, k in ((7, 5), (6, 3), (17, 13))],
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_of_any_number_without_gradients(mode, padding):
    function = Of(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=padding))
    weight = torch.randn(9, 4)
    dims = ({}, {0: Dim("n", min=0)}, {0: Dim("b")})
    program = export(function, (weight, *bags(6, 4)), dynamic_shapes=(dims,))
    exe = shlo_disc.torch.compile(program)
    for count, number in ((6, 4), (1, 1), (0, 3), (17, 5), (2, 13)):
        args = weight, *bags(count, number)
        torch.testing.assert_close(exe(*args), function(*args))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_give_all_results_of_pytorch(mode):
    aten = torch.ops.aten

    def of_bags(w, i, o):
        plain = aten._embedding_bag(w, i, o, False, mode)
        padded = aten._embedding_bag_forward_only(w, i, o, False, mode, False, None, False, 2)
        return *plain, *padded

    weight, function = torch.randn(9, 4), Of(of_bags)
    dims = ({}, {0: Dim("n", min=0)}, {0: Dim("b")})
    exe = shlo_disc.torch.compile(export(function, (weight, *bags(6, 4)), dynamic_shapes=(dims,)))
    for count, number in ((6, 4), (1, 1), (17, 5)):
        args = weight, *bags(count, number)
        torch.testing.assert_close(exe(*args), function(*args))


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_flags_of_the_gradient_leave_rows_as_they_are(flags):
    by_frequency, sparse = flags
    rows = Of(lambda w, i: F.embedding(i, w, -1, None, 2.0, by_frequency, sparse))
    args = torch.randn(9, 4), torch.randint(0, 9, (5, 3))
    exe = shlo_disc.torch.compile(export(rows, args, dynamic_shapes=(({}, {0: Dim("n")}),)))
    for count in (5, 1, 13):
        args = args[0], torch.randint(0, 9, (count, 3))
        torch.testing.assert_close(exe(*args), rows(*args), rtol=0, atol=0)


def same_gradients(function, batches, reference=None):
    """Results and gradients of the floats among the arguments are those of the reference.

    The reference is the function itself, if none is given.
    """
    fast = compiled(function)
    for batch in batches:
        grads = []
        for run in (fast, reference or function):
            given = [t.clone().requires_grad_(t.is_floating_point()) for t in batch]
            results = tensors(run(*given))
            floats = [t for t in results if t.is_floating_point()]
            leaves = [t for t in given if t.requires_grad]
            grads.append((results, torch.autograd.grad(sum(map(weighted_sum, floats)), leaves)))
        torch.testing.assert_close(*grads, rtol=2e-5, atol=2e-5)
    assert kinds() == ["forward", "backward"]


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf"), 3.0, 1.5])
def test_distances_have_gradients(p):
    def distances(x, y):
        return torch.cdist(x, y, p=p, compute_mode="donot_use_mm_for_euclid_dist")

    batches = [(torch.randn(b, 5), torch.randn(s, 5)) for b, s in ((4, 6), (3, 7), (2, 17))]
    batches[1][1][0] = batches[1][0][0]  # no distance: no gradient
    same_gradients(distances, batches)


@pytest.mark.parametrize("op", [torch.cummax, torch.cummin])
@pytest.mark.parametrize("dim", [0, 1])
def test_extremes_so_far(op, dim):
    def make(b, s):
        x = torch.randint(-3, 3, (b, s)).float()  # equal ones: the last place counts
        x[-1, -2] = float("nan")
        return x

    function = Of(lambda x: tuple(op(x, dim)))
    dims = (({0: Dim("b"), 1: Dim("s", min=3)},),)
    exe = shlo_disc.torch.compile(export(function, (make(4, 6),), dynamic_shapes=dims))
    for sizes in SIZES:
        x = make(*sizes)
        torch.testing.assert_close(exe(x), function(x), equal_nan=True)
        assert all(torch.equal(a, b) for a, b in zip(exe(x.abs()), function(x.abs()), strict=True)
                   if a.dtype == torch.int64)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_extremes_so_far_of_other_numbers(dtype):
    function = Of(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 0)))
    dims = (({0: Dim("b"), 1: Dim("s", min=3)},),)

    def make(b, s):
        return torch.randint(0, 200, (b, s)).to(dtype)

    exe = shlo_disc.torch.compile(export(function, (make(4, 6),), dynamic_shapes=dims))
    for sizes in SIZES:
        x = make(*sizes)
        torch.testing.assert_close(exe(x), function(x))


def test_extremes_so_far_have_gradients():
    same_gradients(
        lambda x: torch.cummax(x, 1).values + torch.cummin(x, 0).values,
        [(torch.randn(b, s),) for b, s in ((4, 6), (3, 7), (2, 17))],
    )


@pytest.mark.parametrize(("right", "int32"), itertools.product([False, True], [False, True]))
def test_places_in_sorted_rows(right, int32):
    def function(x, edges, rows):
        return (
            torch.bucketize(x, edges, right=right, out_int32=int32),
            torch.searchsorted(edges, x, right=right),
            torch.searchsorted(rows, x, side="right" if right else "left"),
            torch.bucketize(x.abs() < 1, edges, right=right),
        )

    def make(b, s):
        rows = torch.randint(-3, 4, (b, s + 1)).float().sort(-1).values
        x = torch.randint(-4, 5, (b, 3)).float()
        x[0, 0], x[0, 1], x[0, 2] = float("nan"), float("inf"), float("-inf")
        return x, torch.randint(-3, 4, (s,)).float().sort().values, rows

    dims = ({0: Dim("b")}, {0: Dim("s")}, {0: Dim("b"), 1: Dim.AUTO})
    program = export(Of(function), make(4, 6), dynamic_shapes=(dims,))
    exe = shlo_disc.torch.compile(program)
    for sizes in (*SIZES, (3, 0)):
        args = make(*sizes)
        torch.testing.assert_close(exe(*args), function(*args))


POOLS = {
    "mean of rows": (lambda x: F.adaptive_avg_pool1d(x.flatten(2), 5), 2),
    "mean": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), 2),
    "mean of columns": (lambda x: F.adaptive_avg_pool2d(x, (None, 4)), 2),
    "max of rows": (lambda x: F.adaptive_max_pool1d(x.flatten(2), 5, return_indices=True), 2),
    "max": (lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True), 2),
}
PICTURES = ((7, 9), (5, 11), (13, 6), (3, 17), (30, 31))


@pytest.mark.parametrize("name", POOLS)
def test_adaptive_pools_of_every_size_have_gradients(name):
    function, _ = POOLS[name]
    same_gradients(function, [(torch.randn(2 + h % 3, 6, h, w),) for h, w in PICTURES])


def test_adaptive_pools_take_what_is_special():
    def function(x):
        return F.adaptive_max_pool2d(x, (3, 5), return_indices=True), F.adaptive_avg_pool2d(x, 2)

    dims = (({2: Dim("h", min=3), 3: Dim("w", min=3)},),)
    exe = shlo_disc.torch.compile(
        export(Of(function), (torch.randn(1, 2, 7, 9),), dynamic_shapes=dims)
    )
    for h, w in PICTURES:
        x = torch.randn(1, 2, h, w).round()
        x[0, 0, 0, 0], x[0, 1, -1, -1], x[0, 0, -1, :] = float("inf"), float("nan"), float("-inf")
        torch.testing.assert_close(exe(x), function(x), equal_nan=True)


def test_bags_of_rows_whose_length_is_a_size():
    """Their offsets are a range whose step is that size."""
    embedding = torch.randn(5, 4)

    def make(b, s):
        return (torch.randint(0, 5, (b, s)),)

    program = export(
        Of(lambda x: F.embedding_bag(x, embedding, mode="sum")), make(4, 6),
        dynamic_shapes=(({0: Dim("b"), 1: Dim("s")},),),
    )  # fmt: skip
    exe = shlo_disc.torch.compile(program)
    for sizes in ((4, 6), (2, 5), (7, 3)):
        (x,) = make(*sizes)
        torch.testing.assert_close(exe(x), F.embedding_bag(x, embedding, mode="sum"))
