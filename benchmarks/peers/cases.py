"""The workloads in PyTorch: modules that do what the JAX functions of the same name do.

Runs in the peers' environment. Weights come by name, as in the parameters of the JAX functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Weights = dict[str, np.ndarray]


class Function(nn.Module):
    """A function without weights."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The function's result."""
        return self.function(*inputs)


class Product(nn.Module):
    """x [M, K] by a weight [K, N]."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        # As a linear layer has it: what freezing and exporters expect.
        self.weight = nn.Parameter(torch.from_numpy(weights["w"].T.copy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return F.linear(x, self.weight)


class QuantisedProduct(nn.Module):
    """`product` of benchmarks/quantised.py. ONNX has it as pairs of (de)quantisations."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.scale = torch.from_numpy(weights["scale"])
        self.zeros = torch.zeros(len(self.scale), dtype=torch.int32)
        wide = torch.from_numpy(weights["w"]).float() * self.scale[:, None]
        self.weight = nn.Parameter(wide, requires_grad=False)
        self.bias = nn.Parameter(torch.from_numpy(weights["bias"]).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [M, K] -> [M, N]."""
        x = torch.fake_quantize_per_tensor_affine(x, 0.03, 0, -128, 127)
        w = torch.fake_quantize_per_channel_affine(
            self.weight, self.scale, self.zeros, 0, -128, 127
        )
        return F.linear(x, w, self.bias)


class WeightOnly(nn.Module):
    """`by_rows` of benchmarks/quantised.py."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(weights["w"]))
        self.register_buffer("scale", torch.from_numpy(weights["scale"][:, :1].copy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [M, K] -> [M, N]."""
        return F.linear(x, self.weight.to(x.dtype) * self.scale)


class Lstm(nn.Module):
    """xs [T, B, C] -> [T, B, H]; gates i, f, o, u of ours are i, f, g, o here."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        hidden = weights["h"].shape[0]
        self.lstm = nn.LSTM(weights["x"].shape[0], hidden)
        order = [0, 1, 3, 2]

        def gates(w: np.ndarray) -> torch.Tensor:
            parts = np.split(w, 4, axis=-1)
            return torch.from_numpy(np.concatenate([parts[k] for k in order], -1).T.copy())

        with torch.no_grad():
            self.lstm.weight_ih_l0.copy_(gates(weights["x"]))
            self.lstm.weight_hh_l0.copy_(gates(weights["h"]))
            self.lstm.bias_ih_l0.copy_(gates(weights["bias"]))
            self.lstm.bias_hh_l0.zero_()

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        """The hidden states."""
        return self.lstm(xs)[0]


class BertLayer(nn.Module):
    """One layer of examples/bert.py."""

    def __init__(self, weights: Weights, prefix: str, heads: int) -> None:
        super().__init__()
        self.heads = heads

        def linear(name: str) -> nn.Linear:
            return _linear(weights, f"{prefix}{name}", f"{prefix}{name}_bias")

        self.query, self.key, self.value = linear("query"), linear("key"), linear("value")
        self.out, self.up, self.down = linear("out"), linear("up"), linear("down")
        self.norm1 = _norm(weights, f"{prefix}norm1")
        self.norm2 = _norm(weights, f"{prefix}norm2")

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """x [B, T, H] -> [B, T, H]."""
        b, t, h = x.shape

        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.view(b, t, self.heads, h // self.heads).transpose(1, 2)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = self.norm1(x + self.out(mixed.transpose(1, 2).reshape(b, t, h)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


def _norm(weights: Weights, name: str) -> nn.LayerNorm:
    scale = weights[f"{name}_scale"]
    norm = nn.LayerNorm(len(scale), eps=1e-12)
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(scale))
        norm.bias.copy_(torch.from_numpy(weights[f"{name}_bias"]))
    return norm


class Bert(nn.Module):
    """examples/bert.py: ids, mask [B, T] -> [B, T, H]."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.from_numpy(weights["tokens"]))
        self.positions = nn.Parameter(torch.from_numpy(weights["positions"]))
        self.norm = _norm(weights, "norm")
        count = len({name.split("/")[1] for name in weights if name.startswith("layers/")})
        self.layers = nn.ModuleList(
            BertLayer(weights, f"layers/{k}/", heads=12) for k in range(count)
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last hidden state."""
        x = F.embedding(ids, self.tokens) + self.positions[: ids.shape[1]]
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e9
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, bias)
        return x


class Mlp(nn.Module):
    """Layers of `benchmarks/deploy/models.py`: x [B, N] -> [B, M]."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        count = len(weights) // 2
        self.layers = nn.ModuleList(_linear(weights, f"{k}/w", f"{k}/b") for k in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last layer."""
        *hidden, last = self.layers
        for layer in hidden:
            x = F.gelu(layer(x))
        return last(x)


def _linear(weights: Weights, name: str, bias: str) -> nn.Linear:
    w = weights[name]
    layer = nn.Linear(*w.shape)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w.T.copy()))
        layer.bias.copy_(torch.from_numpy(weights[bias]))
    return layer


def _conv(weights: Weights, name: str, stride: int) -> nn.Conv2d:
    w = weights[f"{name}/w"]
    outputs, inputs, size, _ = w.shape
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w))
        layer.bias.copy_(torch.from_numpy(weights[f"{name}/b"]))
    return layer


class Block(nn.Module):
    """A block of `Resnet`; the first of a stage but the first one halves the image."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        super().__init__()
        has_skip = f"{prefix}/skip/w" in weights
        stride = 2 if has_skip else 1
        self.first = _conv(weights, f"{prefix}/first", stride)
        self.second = _conv(weights, f"{prefix}/second", 1)
        self.skip = _conv(weights, f"{prefix}/skip", stride) if has_skip else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [B, C, H, W] -> [B, D, H / stride, W / stride]."""
        return F.relu(self.skip(x) + self.second(F.relu(self.first(x))))


class Resnet(nn.Module):
    """ResNet-18 of `benchmarks/deploy/models.py`: images [B, 3, H, W] -> [B, 1000]."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.stem = _conv(weights, "stem", 2)
        names = {name.split("/")[1] for name in weights if name.startswith("blocks/")}
        self.blocks = nn.Sequential(*(Block(weights, f"blocks/{k}") for k in range(len(names))))
        self.head = _linear(weights, "head/w", "head/b")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of the classes."""
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def _layer_norm(x: torch.Tensor) -> torch.Tensor:
    # The ONNX exporter wants a number here, and layers have one.
    return F.layer_norm(x, (int(x.shape[-1]),), eps=1e-6)


def _rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "element-wise": lambda x, y: x * y + x,
    "gelu": F.gelu,
    "softmax": lambda x: F.softmax(x, -1),
    "layer-norm": _layer_norm,
    "rms-norm": _rms_norm,
    "column sum": lambda x: x.sum(0),
    "transpose + bias": lambda x, b: x.T + b,
    "attention": _attention,
}

_MODULES: dict[str, Callable[[Weights], nn.Module]] = {
    "QDQ": QuantisedProduct,
    "bert": Bert,
    "gemm": Product,
    "lstm": Lstm,
    "mlp": Mlp,
    "resnet": Resnet,
    "weights by rows": WeightOnly,
}


def module(name: str, weights: Weights) -> nn.Module:
    """The workload called `name`, ready for inference; KeyError for another name."""
    found = Function(_FUNCTIONS[name]) if name in _FUNCTIONS else _MODULES[name](weights)
    return found.eval()
