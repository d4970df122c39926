"""Programs that change between calls, and what PyTorch lets a user ask of a compiled one."""

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.utils.checkpoint import checkpoint

import shlo_disc.torch
from tests.torch.models import Of, Perceptron
from tests.torch.test_backend import (
    assert_trains_as_eager,
    compiled,
    kinds,
)

# -- gradients ------------------------------------------------------------------------------------


def test_a_backward_runs_again_and_a_second_derivative_is_refused_by_name():
    model = Perceptron()
    slow = copy.deepcopy(model)
    losses = [run(torch.ones(3, 8)).square().sum() for run in (compiled(model), slow)]
    for loss in losses:
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
    for mine, own in zip(model.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, own.grad)
    (first,) = torch.autograd.grad(losses[0], [next(model.parameters())], create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()


class Again(nn.Module):
    """Layers that are computed again in the backward, one in the other."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
        self.second = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 4), nn.GELU())

    def forward(self, x):
        noisy = checkpoint(lambda x: x * torch.rand_like(x), x, use_reentrant=False)
        hidden = checkpoint(self.first, noisy, use_reentrant=False)
        return checkpoint(self.second, hidden, use_reentrant=False)


def test_random_numbers_of_what_is_computed_again_are_those_of_the_forward():
    assert_trains_as_eager(Again(), [(torch.randn(n, 8),) for n in (5, 7, 3)])
    assert kinds() == ["forward", "backward"]
    forward, backward = shlo_disc.torch.compilations()
    assert forward.explain().count("PyTorch draws") == 3
    assert "PyTorch draws" not in backward.explain()


def test_a_dropout_of_an_expanded_tensor_draws_every_element():
    def function(x):
        return nn.functional.dropout(x[:, None].expand(-1, 4, -1), 0.5), torch.rand_like(x.T)

    fast = compiled(function)
    for n in (5, 7):
        x = torch.ones(n, 3)
        results = []
        for run in (fast, function):
            torch.manual_seed(n)
            results.append(run(x))
        torch.testing.assert_close(*results)
    assert kinds() == ["inference"]


OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "RMSprop": torch.optim.RMSprop,
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_an_optimizer_is_compiled(name):
    model = Perceptron()
    slow = copy.deepcopy(model)
    mine, own = (OPTIMIZERS[name](each.parameters()) for each in (model, slow))
    step = compiled(mine.step)
    for n in (5, 7, 6, 9):
        x = torch.randn(n, 8)
        for each in (model, slow):
            each.zero_grad()
            each(x).square().mean().backward()
        step()
        own.step()
    for a, b in zip(model.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert set(kinds()) == {"inference"}
    assert len(kinds()) == (2 if name == "SGD" else 1)  # Dynamo: no momentum in the first step


# -- what a program asserts -----------------------------------------------------------------------


def of_elements(x, k):
    torch._assert_async((x > -5).all(), "too low")
    return x * 2


def of_a_number(x, k):
    end = k.item()
    torch._check(end >= 0)
    torch._check(end <= x.shape[0])
    return x[:end] * 2


def of_a_count(x, k):
    places = (x < -5).nonzero()
    torch._check(places.shape[0] < 4)
    return x * places.shape[0]


@pytest.mark.parametrize(
    ("function", "says"),
    [(of_elements, "too low"), (of_a_number, "u0 <= "), (of_a_count, "u0 <= 3")],
)
def test_assertions_on_data_are_checked_at_every_call(function, says):
    low, k = torch.full((7, 3), -9.0), torch.tensor(3)
    program = export(Of(function), (torch.rand(5, 3), k), dynamic_shapes=(({0: Dim("b")}, None),))
    exe = shlo_disc.torch.compile(program)
    for n in (5, 4, 9):
        x = torch.rand(n, 3)
        torch.testing.assert_close(exe(x, k), function(x, k))
    for run in (exe, program.module()):  # as PyTorch does
        with pytest.raises(RuntimeError, match=says):
            run(low, torch.tensor(9))
    torch.testing.assert_close(exe(torch.ones(3, 3), k), function(torch.ones(3, 3), k))


def test_assertions_on_data_are_checked_under_torch_compile():
    model = nn.Sequential(nn.Linear(3, 3), Of(lambda x: of_elements(x, None)))
    fast = compiled(model)
    for n in (5, 7):
        fast(torch.rand(n, 3)).sum().backward()
        with pytest.raises(RuntimeError, match="too low"):
            fast(torch.full((n, 3), 1e6) * -model[0].weight[0].detach().sign())
    assert kinds() == ["forward", "backward"]


def test_a_tensor_of_another_device_is_refused_before_anything_is_compiled():
    with pytest.raises(Exception, match="DeviceError: x is on meta; the program runs on the CPU"):
        compiled(lambda x: x * 2)(torch.ones(3, device="meta"))
    with pytest.raises(Exception, match=r"test_states_and_modes\.py:\d+ is on meta"):
        compiled(lambda x: torch.ones(x.shape, device="meta"))(torch.ones(3))
