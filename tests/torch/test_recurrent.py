"""Recurrent layers: an LSTM is a loop, which torch-mlir has no lowering of."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402

import shlo_disc.torch  # noqa: E402
from tests.torch.models import Of  # noqa: E402
from tests.torch.test_backend import compiled, kinds  # noqa: E402
from tests.torch.test_exported import assert_as_accurate  # noqa: E402

pytestmark = pytest.mark.torch

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
        return self.layers(x, state or None)


@pytest.fixture(autouse=True)
def traced_by_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    torch._dynamo.reset()


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


def test_a_gradient_is_refused():
    # PyTorch's own `aot_eager` backend raises AssertionError here, in AOTAutograd.
    with pytest.raises(Exception, match=r"mkldnn_rnn_layer\.default: its gradient is not covered"):
        compiled(Recurrent(nn.LSTM(8, 16)))(torch.randn(3, 5, 8))
