"""`cond`, `while_loop` and `scan` are compiled; PyTorch runs what is not covered."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.export import Dim, export
from torch.nn.attention.flex_attention import flex_attention

import shlo_disc.torch
from tests.torch.models import Of
from tests.torch.test_backend import compiled

B, N = Dim("b"), Dim("n")


def by_sign(x):
    y = torch.cond(x.sum() > 0, lambda x: x.sin() * x.shape[0], lambda x: x.cumsum(0), (x * 2,))
    return y * 3


def nested(x):
    def positive(x):
        return torch.cond(x.amax() > 1, lambda x: (x + 1).softmax(1), lambda x: x * 2, (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: F.layer_norm(x, (4,)), (x,))


def until_large(x):
    def step(i, x, total):
        return i + 1, x * 1.5, total + x.sum(1)

    start = torch.tensor(0), x * 1, torch.zeros(x.shape[0])
    return while_loop(lambda i, x, total: (i < 30) & (total.abs().max() < 99), step, start)


class Cell(nn.Module):
    """A recurrence of a layer; the second result has the size of the batch within."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        def step(h, v):
            h = self.cell(v, h)
            return h, (h * 2).softmax(0)

        return scan(step, torch.zeros(x.shape[1], 4), x)


CASES = {
    "branch": (lambda: Of(by_sign), ({0: B},), [(3, 4), (1, 4), (7, 4)]),
    "nested": (lambda: Of(nested), ({0: B},), [(3, 4), (1, 4)]),
    "while": (lambda: Of(until_large), ({0: B},), [(3, 4), (1, 4), (7, 4)]),
    "scan": (Cell, ({0: N, 1: B},), [(5, 3, 4), (1, 2, 4), (12, 7, 4)]),
}


def shapes_of(model, dims):
    """Those of the arguments: `Of` takes any number."""
    return (dims,) if isinstance(model, Of) else dims


@pytest.mark.parametrize("name", CASES)
def test_exported_programs_run_branches_and_loops(name):
    make, dims, shapes = CASES[name]
    model = make()
    with torch.no_grad():
        program = export(model, (torch.randn(shapes[0]),), dynamic_shapes=shapes_of(model, dims))
        exe = shlo_disc.torch.compile(program)
        for shape in shapes:
            for sign in (1, -1, 9):
                x = sign * torch.rand(shape)
                torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["branch", pytest.param("scan", marks=pytest.mark.slow)])
def test_gradients_go_through_branches_and_loops(name):
    make, _, shapes = CASES[name]
    model = make()
    fast = compiled(model)
    for shape in shapes[::2]:
        for sign in (1, -1):
            x = sign * torch.rand(shape)
            grads = []
            for run in (fast, model):
                own = x.clone().requires_grad_()
                results = run(own)
                last = results if isinstance(results, torch.Tensor) else results[1]
                last.sin().sum().backward()
                grads.append(own.grad)
            torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def with_random_numbers(x):
    y = torch.cond(x.sum() > 0, lambda x: x + torch.bernoulli(0 * x), lambda x: x.cos(), (x * 2,))
    return y * 3


def attended(x):
    return flex_attention(x * 2, x, x, score_mod=lambda s, b, h, i, j: s + (i - j)) + 1


@pytest.mark.parametrize("function", [with_random_numbers, attended])
def test_pytorch_runs_graphs_that_are_not_covered(function):
    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    with torch.no_grad():
        for n in (5, 7):
            x = torch.randn(2, 2, n, 8)
            torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-5)
    graph = shlo_disc.torch.compilations()[-1]
    assert list(graph.eager.values()) == ["runs graphs of its own, not all of it is covered"]
    assert (len(graph.parts), graph.eager_count) == (2, 1)


def test_exports_refuse_graphs_that_are_not_covered():
    program = export(Of(with_random_numbers), (torch.rand(4, 3),))
    with pytest.raises(shlo_disc.UnsupportedError, match=r"\.py:\d+: aten\.\w+.*is random"):
        shlo_disc.torch.compile(program)
