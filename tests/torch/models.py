"""Small models, each with the arguments it is exported for and sizes to run it at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

B, S, T = Dim("b"), Dim("s"), Dim("t")


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return torch.log_softmax(self.second(torch.tanh(self.first(x))), -1)


class Block(nn.Module):
    """A layer of a transformer; `causal` leaves the attention to PyTorch's function."""

    def __init__(self, causal=False, width=32, heads=4):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        b, s, d = x.shape
        qkv = self.qkv(self.norms[0](x)).reshape(b, s, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.causal:
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            a = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5, -1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)

    def forward(self, ids):
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))


@dataclass(frozen=True)
class Case:
    make: Any
    dims: tuple[dict[int, Any], ...]
    """The dynamic dimensions of every argument."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the arguments of the export."""
    sets: tuple[tuple[int, ...], ...]
    """Values of the dimensions, in the order in which `dims` has them first."""
    kinds: tuple[str, ...] = ()
    """Of the arguments: `normal`, `index` below 50, or `mask`."""

    def dimensions(self) -> list[Any]:
        return list(dict.fromkeys(dim for own in self.dims for dim in own.values()))

    def arguments(self, values=None, seed=0):
        """The arguments of the export, or those at these sizes."""
        generator = torch.Generator().manual_seed(seed)
        sizes = dict(zip(self.dimensions(), values or (), strict=values is not None))
        found = []
        for number, shape in enumerate(self.shapes):
            own = list(shape)
            if values is not None:
                for axis, dim in self.dims[number].items():
                    own[axis] = sizes[dim]
            kind = self.kinds[number] if self.kinds else "normal"
            if kind == "normal":
                found.append(torch.randn(own, generator=generator))
            elif kind == "index":
                found.append(torch.randint(0, 50, own, generator=generator))
            else:
                found.append(torch.rand(own, generator=generator) < 0.6)
        return tuple(found)


def of(function, *shapes, dims, sets, kinds=()):
    return Case(lambda: Of(function), dims, shapes, sets, kinds)


BS = ({0: B, 1: S},)
SETS = ((2, 5), (1, 7), (3, 1), (4, 17), (13, 31))
QKV = ({0: B, 2: S}, {0: B, 2: T}, {0: B, 2: T})
SQ = ({0: B, 2: S},) * 3

CASES = {
    "perceptron": Case(Perceptron, ({0: B},), ((3, 8),), ((1,), (2,), (5,), (16,), (31,))),
    "block": Case(Block, BS, ((2, 5, 32),), SETS),
    "causal": Case(lambda: Block(causal=True), BS, ((2, 5, 32),), SETS),
    "pictures": Case(
        Pictures, ({0: B, 2: Dim("h", min=8), 3: Dim("w", min=8)},), ((2, 3, 16, 16),),
        ((1, 24, 17), (5, 16, 30), (2, 8, 8), (3, 31, 37), (1, 64, 48)),
    ),
    "words": Case(Words, BS, ((2, 5),), SETS, ("index",)),
    "masked": of(
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8), (2, 1, 5, 6),
        dims=(*QKV, {0: B, 2: S, 3: T}), kinds=("normal", "normal", "normal", "mask"),
        sets=((2, 5, 6), (1, 1, 3), (3, 7, 2), (2, 17, 31), (5, 2, 1)),
    ),
    "biased": of(
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.2),
        (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8), (4, 5, 6),
        dims=(*QKV, {1: S, 2: T}), sets=((2, 5, 6), (1, 1, 3), (3, 7, 2), (2, 17, 31), (5, 2, 1)),
    ),
    "grouped": of(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        (2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8), dims=SQ, sets=SETS,
    ),
    "cumsum": of(lambda x: torch.cumsum(x, 1), (2, 5), dims=BS, sets=SETS),
    "cumprod": of(lambda x: torch.cumprod(x, 0), (2, 5), dims=BS, sets=SETS),
    "cumsum of integers": of(
        lambda x: torch.cumsum(x > 25, -1), (2, 5), dims=BS, sets=SETS, kinds=("index",)
    ),
    "sort": of(lambda x: torch.sort(x, 1), (2, 5), dims=BS, sets=SETS),
    "sort descending": of(
        lambda x: torch.sort(x, dim=0, descending=True, stable=True), (2, 5), dims=BS, sets=SETS
    ),
    "topk": of(lambda x: torch.topk(x, 2, 1), (2, 5, 3), dims=({0: B, 1: Dim("s", min=3)},),
               sets=((2, 5), (1, 7), (3, 3))),
    "smallest": of(lambda x: torch.topk(x, 2, -1, largest=False), (2, 5), dims=({0: B},),
                   sets=((1,), (3,), (8,))),
    "ranges": of(
        lambda x: torch.arange(x.shape[1]) + torch.arange(3, 3 * x.shape[1] + 1, 3)
        - torch.arange(x.shape[1] - 1, -1, -1, dtype=torch.float32),
        (2, 5), dims=BS, sets=SETS,
    ),
    "variances": of(
        lambda x: (x.var(1), x.std((0, 1), keepdim=True), *torch.var_mean(x, -1, correction=0)),
        (2, 5), dims=BS, sets=((2, 5), (3, 7), (17, 2)),
    ),
    "sizes": of(lambda x: (x.reshape(-1), x.shape[0] * x.shape[1], None, 3), (2, 5), dims=BS,
                sets=SETS),
    "norms": of(
        lambda x: (F.layer_norm(x, (6,)), F.rms_norm(x, (6,)), F.group_norm(x, 3)),
        (2, 6, 6), dims=({0: B},), sets=((1,), (2,), (7,)),
    ),
    "activations": of(
        lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), F.softplus(x),
                   F.hardswish(x), F.leaky_relu(x), F.mish(x), F.logsigmoid(x), torch.erf(x)),
        (2, 5), dims=BS, sets=SETS,
    ),
}  # fmt: skip
