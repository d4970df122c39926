"""Models as PyTorch's pt2e leaves them: ops of `quantized_decomposed` around products."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
from torch import nn
from torch.export import Dim, export

import shlo_disc.torch

OPS = torch.ops.quantized_decomposed


class Layer(nn.Module):
    """A linear layer of integers: inputs as unsigned ones, a scale of each row of the weight."""

    def __init__(self, inputs, outputs, scale, zero):
        super().__init__()
        generator = torch.Generator().manual_seed(inputs)
        self.scale, self.zero = scale, zero
        self.register_buffer(
            "weight",
            torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8, generator=generator),
        )
        self.register_buffer("scales", torch.rand(outputs, generator=generator) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.zeros(outputs, dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(outputs, generator=generator))

    def forward(self, x):
        own = (self.scale, self.zero, 0, 255, torch.uint8)
        x = OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, *own), *own)
        w = OPS.dequantize_per_channel(
            self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8
        )
        return nn.functional.linear(x, w, self.bias)


@pytest.mark.parametrize("shape", [(5, 48), (2, 7, 48)])
def test_layers_of_pt2e_sum_integers(shape):
    model = nn.Sequential(Layer(48, 70, 0.03, 117), nn.ReLU(), Layer(70, 20, 0.02, 0)).eval()
    x = torch.randn(shape)
    with torch.no_grad():
        made = shlo_disc.torch.compile(export(model, (x,), dynamic_shapes=({0: Dim("n")},)))
        for n in (2, 9):
            x = torch.randn(n, *shape[1:])
            got, want = made(x), model(x)
            # A number between two integers of the second layer may become the other one.
            assert (got - want).abs().max() < 0.02 * 0.011 * 127 + 1e-4
            assert ((got - want).abs() < 1e-4).float().mean() > 0.95
    assert made.explain().count("sums of integers: both") == 2
