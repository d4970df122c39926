"""Equal operations of a joint graph are merged: which ones, and which ones never."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from shlo_disc.torch.equal_operations import merge_equal_operations

aten = torch.ops.aten


def in_operands(x):
    return (torch.sin(x) + 1) * (torch.sin(x) + 1)


def in_results(x):
    return torch.sin(x) + 1, torch.sin(x) + 1


def in_views_of_results(x):
    return aten.sin(x).t(), aten.sin(x)[0]


def of_other_numbers(x):
    return (aten.mul(x, 1) + aten.mul(x, 1.0)) + (aten.sum(x, [0]) + aten.sum(x, [1]))


def random(x):
    return torch.bernoulli(x.sigmoid()) + torch.bernoulli(x.sigmoid())


def around_a_write(x):
    before = torch.sin(x).sum()
    x.add_(1)
    return torch.sin(x).sum() + before


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (in_operands, {aten.sin.default: 1, aten.add.Tensor: 1}),
        (in_results, {aten.sin.default: 1, aten.add.Tensor: 2}),
        (in_views_of_results, {aten.sin.default: 2}),
        (of_other_numbers, {aten.mul.Tensor: 2, aten.sum.dim_IntList: 2}),
        (random, {aten.sigmoid.default: 1, aten.bernoulli.default: 2}),
        (around_a_write, {aten.sin.default: 2, aten.sum.default: 2}),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_is_merged(function, left):
    module = make_fx(function, tracing_mode="symbolic")(torch.randn(3, 3))
    merge_equal_operations(module.graph)
    module.recompile()
    targets = [node.target for node in module.graph.nodes]
    assert {op: targets.count(op) for op in left} == left
    results = []
    for run in (module, function):
        torch.manual_seed(0)
        results.append(run(torch.linspace(-1, 1, 9).reshape(3, 3)))
    torch.testing.assert_close(*results)
    if isinstance(results[0], tuple):
        first, second = results[0]
        assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
