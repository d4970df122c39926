"""Recurrent layers: an LSTM is a loop, which torch-mlir has no lowering of."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import shlo_disc.torch
from shlo_disc.torch import recurrent
from tests.torch.models import Of
from tests.torch.test_backend import (
    assert_trains_as_eager,
    compiled,
    kinds,
    tensors,
    weighted_sum,
)
from tests.torch.test_exported import assert_as_accurate

LAYERS = {
    "two layers": lambda: nn.LSTM(8, 16, num_layers=2),
    "both directions": lambda: nn.LSTM(8, 16, bidirectional=True),
    "without bias": lambda: nn.LSTM(8, 16, bias=False),
    "projected": lambda: nn.LSTM(8, 16, proj_size=4),
    "gru": lambda: nn.GRU(8, 16),
    "tanh": lambda: nn.RNN(8, 16),
}


class Recurrent(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x, *state):
        return self.layers(x, state[0] if len(state) == 1 else state or None)


@pytest.fixture(autouse=True)
def traced_by_dynamo():
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.mark.parametrize("name", LAYERS)
def test_one_compilation_for_every_batch(name):
    model = Recurrent(LAYERS[name]()).eval()
    with torch.no_grad():
        run = shlo_disc.torch.compile(
            export(model, (torch.randn(3, 5, 8),), dynamic_shapes=({1: Dim("b")},))
        )
        for batch in (1, 3, 17):
            x = torch.randn(3, batch, 8)
            assert_as_accurate(model, (x,), run(x))


def test_torch_compile_takes_every_length_of_an_lstm_with_a_state():
    model = Recurrent(nn.LSTM(8, 16, bidirectional=True)).eval()
    before = len(kinds())
    with torch.no_grad():
        fast = compiled(model)
        for steps, batch in ((3, 5), (2, 7), (17, 4)):
            args = (torch.randn(steps, batch, 8), *torch.randn(2, 2, batch, 16).unbind())
            assert_as_accurate(model, args, fast(*args))
    assert kinds()[before:] == ["inference"]


def test_half_precision():
    model = nn.LSTM(8, 16).bfloat16().eval()
    with torch.no_grad():
        x = torch.randn(3, 5, 8).bfloat16()
        run = shlo_disc.torch.compile(
            export(Of(lambda x: model(x)[0]), (x,), dynamic_shapes=(({1: Dim("b")},),))
        )
        got = run(x)
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got, model(x)[0], rtol=2e-2, atol=1e-2)


TRAINED = {
    **LAYERS,
    "relu": lambda: nn.RNN(8, 16, nonlinearity="relu"),
    "batch in front": lambda: nn.LSTM(8, 16, batch_first=True),
    "gru, both directions": lambda: nn.GRU(8, 16, bidirectional=True),
    "gru, without bias": lambda: nn.GRU(8, 16, bias=False),
    "f64": lambda: nn.LSTM(8, 16).double(),
}
SLOW = {
    "batch in front",
    "both directions",
    "f64",
    "gru",
    "gru, without bias",
    "tanh",
    "without bias",
}
OF_ANY_LENGTH = {"two layers", "both directions", "without bias"}
"""PyTorch itself fixes the number of steps of the others while Dynamo traces."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in TRAINED]
)
def test_training_compiles_one_loop_forward_and_one_backward(name):
    model = Recurrent(TRAINED[name]())
    dtype = next(model.parameters()).dtype
    shapes = [(3, 5), (3, 7), (3, 2), (3, 11)]
    if name in OF_ANY_LENGTH:
        shapes += [(2, 7), (17, 4)]
    if model.layers.batch_first:
        shapes = [shape[::-1] for shape in shapes]
    assert_trains_as_eager(model, [(torch.randn(*s, 8, dtype=dtype),) for s in shapes])
    assert kinds() == ["forward", "backward"]
    for graph in shlo_disc.torch.compilations():
        directions = (1 + model.layers.bidirectional) * model.layers.num_layers
        assert graph.as_text("stablehlo").count("stablehlo.while") == directions


@pytest.mark.parametrize(
    "name",
    ["gru", *(pytest.param(n, marks=pytest.mark.slow) for n in ("without bias", "tanh"))],
)
def test_gradients_of_the_input_and_of_the_first_state(name):
    layers = TRAINED[name]()
    model, one = Recurrent(layers), layers.num_layers
    fast = compiled(model)
    for batch in (5, 7, 2):
        x, grads = torch.randn(2, batch, 8), []
        state = [torch.randn(one, batch, layers.proj_size or 16)]
        if isinstance(layers, nn.LSTM):
            state.append(torch.randn(one, batch, 16))
        for run in (fast, model):
            leaves = [t.clone().requires_grad_() for t in (x, *state)]
            loss = sum(map(weighted_sum, tensors(run(*leaves))))
            grads.append(torch.autograd.grad(loss, leaves))
        for mine, own in zip(*grads, strict=True):
            torch.testing.assert_close(mine, own, rtol=2e-5, atol=2e-5)
    assert kinds() == ["forward", "backward"]


class Steps(nn.Module):
    """A loop in Python over the steps, with a cell."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.out = cell, nn.Linear(16, 3)

    def forward(self, x):
        state = None
        found = []
        for entry in x.unbind(0):
            state = self.cell(entry, state)
            found.append(self.out(state[0] if isinstance(state, tuple) else state))
        return torch.stack(found)


@pytest.mark.parametrize(
    "kind",
    [nn.LSTMCell, *(pytest.param(k, marks=pytest.mark.slow) for k in (nn.GRUCell, nn.RNNCell))],
)
def test_a_loop_of_cells_trains_at_every_batch(kind):
    model = Steps(kind(8, 16))
    assert_trains_as_eager(model, [(torch.randn(2, b, 8),) for b in (5, 7, 3, 11)])
    assert kinds() == ["forward", "backward"]


def test_dropout_between_layers_is_pytorchs():
    model = Recurrent(nn.LSTM(8, 16, num_layers=2, dropout=0.5))
    batches = [(torch.randn(3, b, 8),) for b in (5, 7)]
    assert_trains_as_eager(model, batches)


def _start(layers, batch):
    rows = layers.num_layers * (1 + layers.bidirectional)
    h = torch.zeros(rows, batch, layers.proj_size or 16)
    return [(h, torch.zeros(rows, batch, 16))] if isinstance(layers, nn.LSTM) else [h]


def test_layers_that_pytorch_runs_are_its_own():
    """What the ops compute where a graph is not compiled."""
    for name in ("both directions", "projected", "gru", "tanh", "relu"):
        model = TRAINED[name]()
        x = torch.randn(3, 5, 8)
        function = recurrent._FUNCTIONS[getattr(torch, model.mode.lower())]
        parts = (x, *_start(model, 5), model._flat_weights)
        got = function(*parts, model.bias, model.num_layers, 0.0, False, model.bidirectional, False)
        want = model(x)
        for mine, own in zip(got, tensors(want), strict=True):
            torch.testing.assert_close(mine, own, rtol=1e-5, atol=1e-5)
