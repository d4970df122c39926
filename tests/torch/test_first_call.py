"""What a first call does once: AOTAutograd traces a graph, and equal nodes are decomposed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.export import Dim, export

import shlo_disc.torch
from shlo_disc.torch import decompositions


@pytest.fixture(autouse=True)
def nothing_counted():
    counters.clear()


def compiled(model):
    return torch.compile(model, backend="shlo_disc", dynamic=True)


def traces():
    return counters["aot_autograd"]["total"]


class Norms(nn.Module):
    """Floats of a module: as arguments of functions, in arithmetic, and in a condition."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8, eps=1e-3)
        self.batch = nn.BatchNorm1d(8)
        self.slope, self.factor, self.limit = 0.3, 0.7, 0.5

    def forward(self, x):
        if self.limit < 1.0:
            x = x + 1
        return F.leaky_relu(self.batch(self.norm(x)), self.slope) * self.factor


@torch.no_grad()
def test_floats_of_modules_have_a_graph_traced_once():
    model = Norms().eval()
    fast = compiled(model)
    for rows in (5, 3, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), model(x))
        if rows > 1:
            assert traces() == 1


@torch.no_grad()
def test_floats_of_modules_may_change():
    model = Norms().eval()
    fast = compiled(model)
    x = torch.randn(5, 8)
    for name, value in (("factor", 0.2), ("slope", 0.01), ("limit", 2.0), ("factor", -1.0)):
        setattr(model, name, value)
        torch.testing.assert_close(fast(x), model(x))
    model.norm.eps = 0.5
    torch.testing.assert_close(fast(x), model(x))


@torch.no_grad()
def test_a_float_in_arithmetic_is_no_constant():
    model = Norms().eval()
    fast = compiled(model)
    x = torch.randn(5, 8)
    for value in (0.7, 0.1, -2.0):
        model.factor = value
        torch.testing.assert_close(fast(x), model(x))
    assert traces() == 1


@torch.no_grad()
def test_a_float_that_a_caller_passes_is_no_constant():
    def f(x, factor):
        return torch.tanh(x) * factor

    fast = compiled(f)
    x = torch.randn(5, 8)
    for factor in (0.5, 1.5, -3.0):
        torch.testing.assert_close(fast(x, factor), f(x, factor))
    assert traces() == 1


@pytest.fixture
def traced(monkeypatch):
    """The nodes that were traced."""
    found = []
    make_fx = decompositions.make_fx
    monkeypatch.setattr(
        decompositions, "make_fx", lambda f, **given: found.append(f) or make_fx(f, **given)
    )
    return found


def norms(*layers):
    model = nn.Sequential(*layers)
    program = export(model, (torch.randn(5, 8),), dynamic_shapes=({0: Dim("rows")},))
    return model, shlo_disc.torch.compile(program)


@torch.no_grad()
def test_equal_nodes_are_traced_once(traced):
    model, run = norms(*(nn.LayerNorm(8, eps=1e-2) for _ in range(6)))
    for layer in model:
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    assert len(traced) == 1
    for rows in (7, 1, 0):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(run(x), model(x))


@torch.no_grad()
def test_nodes_that_differ_are_traced_apart(traced):
    x = torch.randn(7, 8)
    model, run = norms(
        nn.LayerNorm(8, eps=1e-2), nn.LayerNorm(8, eps=0.5), nn.LayerNorm(8, eps=0.5, bias=False),
        nn.Linear(8, 6), nn.LayerNorm(6, eps=0.5),
    )  # fmt: skip
    assert len(traced) == 4
    torch.testing.assert_close(run(x), model(x))
