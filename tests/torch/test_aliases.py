"""Results that share memory with arguments and with each other, as in eager mode."""

import pytest
import torch
from torch import nn

import shlo_disc.torch


def of_one_result(a):
    y = a * 2
    return y, y[:, 1 : a.shape[1] - 1], y[a.shape[0] - 2], y.t()


def of_what_is_not_returned(a):
    y = a.exp()
    return y[:, 1 : a.shape[1] - 1], y[1 : a.shape[0] - 1], a + 1


def of_a_transposed_result(a):
    y = a.t() * 2
    return y, y[1 : a.shape[1] - 1], y[:, 1 : a.shape[0] - 1]


def of_a_written_argument(a):
    v = a[:, 1 : a.shape[1] - 1]
    v.add_(1)
    return v, a, v.t()


def of_a_written_row(a):
    row = a[a.shape[0] - 1]
    row.mul_(2)
    a[0].copy_(row + 1)
    return row, a[0], a.sum()


FUNCTIONS = {
    "expanded": lambda a: a.expand(4, *a.shape),
    "a slice": lambda a: a[:, 1 : a.shape[1] - 1],
    "slices": lambda a: (a + 1, a[:, 1 : a.shape[1] - 1], a[a.shape[0] - 2], a[::2]),
    "other shapes": lambda a: (a.view(-1), a.reshape(a.shape[1], -1), a.unsqueeze(0), a.t()),
    "a diagonal": lambda a: (a.diagonal(), a.diagonal(1) + 1),
    "strided": lambda a: a.as_strided((2, a.shape[1] - 1), (a.shape[1], 1), 1),
    "the argument": lambda a: (a, a + 1),
    "one result": of_one_result,
    "what is not returned": of_what_is_not_returned,
    "a transposed result": of_a_transposed_result,
    "a written argument": of_a_written_argument,
    "a written row": of_a_written_row,
}


def memory(tensors, results):
    """Which tensors and results each result shares memory with."""
    every = [t.untyped_storage().data_ptr() for t in (*tensors, *results)]
    return [[place for place, other in enumerate(every) if other == own]
            for own in every[len(tensors) :]]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_share_memory_as_in_eager_mode(name):
    torch._dynamo.reset()
    function = FUNCTIONS[name]
    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    for rows, columns in ((4, 6), (5, 9), (7, 11)):
        own = torch.randn(rows, columns)
        mine = own.clone()
        got, want = fast(mine), function(own)
        got, want = ((r,) if isinstance(r, torch.Tensor) else r for r in (got, want))
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w)
        assert torch.equal(mine, own)
        assert memory([mine], got) == memory([own], want)
        if name == "expanded":
            continue
        for g, w in zip(got, want, strict=True):  # is seen by all that share
            torch.testing.assert_close(g.add_(1), w.add_(1))
    assert len(shlo_disc.torch.compilations()) == 1


AT_COMPUTED_PLACES = {
    "slice": lambda x, i: x[:, i.item() : i.item() + 2],
    "row": lambda x, i: x.select(1, i.item()),
    "of a result": lambda x, i: (y := x * 2, y.narrow(1, i.item(), 2)),
}


@pytest.mark.parametrize("name", AT_COMPUTED_PLACES)
def test_views_at_places_that_are_computed(name):
    torch._dynamo.reset()
    function = AT_COMPUTED_PLACES[name]
    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for rows, columns, place in ((4, 6, 3), (5, 7, 1)):
            x, i = torch.randn(rows, columns), torch.tensor(place)
            got, want = fast(x, i), function(x, i)
            got, want = ((r,) if isinstance(r, torch.Tensor) else r for r in (got, want))
            assert all(map(torch.equal, got, want))
            assert memory([x], got) == memory([x], want)


def test_saved_weights_are_not_copied():
    torch._dynamo.reset()
    model = nn.Linear(300, 200)
    fast = torch.compile(model, backend="shlo_disc", dynamic=True)
    fast(torch.randn(4, 300, requires_grad=True)).sum().backward()
    (forward,) = (g for g in shlo_disc.torch.compilations() if g.kind == "forward")
    assert len(forward.parts[0].executable.signature.results) == 1
