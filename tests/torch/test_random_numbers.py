"""Random numbers: those that eager mode draws from the same state of the generator."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export

import shlo_disc
import shlo_disc.torch
from tests.torch.models import Of

B = Dim("b", min=0)
SIZES = (5, 7), (3, 11), (13, 4)


def attended(x, heads=2, mask=None, **options):
    q = x.unsqueeze(-1).expand(*x.shape, 8).reshape(*x.shape, 2, 4).transpose(1, 2)
    k = q[:, :heads]
    return F.scaled_dot_product_attention(q, k.sin(), k.cos(), mask, **options)


def images(x):
    return x.reshape(x.shape[0], 1, x.shape[1], 1) * torch.ones(1, 6, 1, 3)


FUNCTIONS = {
    "dropout": lambda x: F.dropout(x * 2, 0.5) + 1,
    "dropout of columns": lambda x: F.dropout(x.t(), 0.25) + 1,
    "dropout of a slice": lambda x: F.dropout(x[:, 1:], 0.25) + 1,
    "dropout of all": lambda x: F.dropout(x, 1.0) + 1,
    "dropout in bf16": lambda x: F.dropout(x.bfloat16(), 0.5),
    "dropouts in a row": lambda x: F.dropout(F.dropout(x, 0.2).tanh(), 0.6) * torch.rand(()),
    "native_dropout": lambda x: torch.native_dropout(x + 1, 0.3, True),
    "dropout of channels": lambda x: F.dropout2d(images(x), 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(images(x), 0.4, training=True),
    "dropout in attention": lambda x: attended(x, dropout_p=0.25),
    "dropout in causal attention": lambda x: attended(x, dropout_p=0.5, is_causal=True, scale=0.3),
    "dropout in attention of groups": lambda x: attended(x, 1, dropout_p=0.5, enable_gqa=True),
    "dropout in attention with a mask": lambda x: attended(
        x, mask=(x > -0.5)[:, None, None], dropout_p=0.5
    ),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn_like in f64": lambda x: x * torch.randn_like(x, dtype=torch.float64),
    "rand": lambda x: torch.rand(x.shape[1], 2 * x.shape[0]) @ torch.ones(2 * x.shape[0], 3),
    "randn": lambda x: x + torch.randn(x.shape[0], x.shape[1]),
    "randint": lambda x: torch.randint(-3, 9, (x.shape[0], 4)) * 2,
    "randint_like": lambda x: torch.randint_like(x, 9) + x,
    "randperm": lambda x: x[torch.randperm(x.shape[0])],
    "bernoulli": lambda x: torch.bernoulli(x, 0.3) + x,
    "uniform_": lambda x: torch.zeros_like(x).uniform_(-1, 2) + x,
    "normal_": lambda x: torch.zeros_like(x).normal_(1, 2) + x,
    "exponential_": lambda x: torch.zeros_like(x).exponential_(0.5) + x,
}


def seeded(function, x, seed):
    """The results, and the numbers that the generator gives next."""
    torch.manual_seed(seed)
    return function(x), torch.rand(3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_those_of_eager(name):
    function = FUNCTIONS[name]
    torch._dynamo.reset()
    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    with torch.no_grad():
        for rows, columns in SIZES:
            x = torch.randn(rows, columns)
            got = seeded(fast, x, rows)
            torch.testing.assert_close(got, seeded(function, x, rows))
    (graph,) = shlo_disc.torch.compilations()
    assert not graph.eager
    assert ("PyTorch draws aten" in graph.explain()) == (name != "dropout of all")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_of_exports_are_those_of_eager(name):
    function = FUNCTIONS[name]
    x = torch.randn(4, 6)
    program = export(Of(function), (x,), dynamic_shapes=(({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},),))
    exe = shlo_disc.torch.compile(program)
    for rows, columns in (*SIZES, (1, 3)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(seeded(exe, x, rows), seeded(function, x, rows))


def test_a_transformer_is_trained_with_dropout():
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True)
    model = nn.Sequential(nn.Linear(6, 32), layer, nn.Dropout(0.1), nn.Linear(32, 3)).train()
    fast = torch.compile(model, backend="shlo_disc", dynamic=True)

    def step(function, x):
        model.zero_grad()
        loss = function(x).square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    for b, s in ((5, 7), (2, 13), (8, 3)):
        x = torch.randn(b, s, 6)
        torch.testing.assert_close(
            seeded(lambda x: step(fast, x), x, b), seeded(lambda x: step(model, x), x, b),
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip
    assert [graph.kind for graph in shlo_disc.torch.compilations()] == ["forward", "backward"]


def as_many_as_positive(x):
    count = (x > 0).sum().item()
    torch._check(count >= 0)
    return torch.randn(count) + 1


ON_DATA = {
    "multinomial": lambda x: torch.multinomial(x.abs() + 0.1, 2) * 2,
    "bernoulli of probabilities": lambda x: torch.bernoulli(x.sigmoid()) * 2,
    "between others": lambda x: F.dropout(torch.bernoulli(F.dropout(x, 0.5).sigmoid()), 0.25) * 2,
    "as many as data says": as_many_as_positive,
}


@pytest.mark.parametrize("name", list(ON_DATA)[:3])
def test_numbers_that_depend_on_data_are_drawn_between_regions(name):
    function = ON_DATA[name]
    torch._dynamo.reset()
    options = {"on_unsupported": "eager"}
    fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=options)
    for rows in (5, 7, 11):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(seeded(fast, x, rows), seeded(function, x, rows))
    assert "PyTorch runs aten" in shlo_disc.torch.compilations()[-1].explain()


@pytest.mark.parametrize("name", ON_DATA)
def test_numbers_that_depend_on_data_are_refused_by_exports(name):
    program = export(Of(ON_DATA[name]), (torch.randn(4, 6),), dynamic_shapes=(({0: B},),))
    with pytest.raises(shlo_disc.UnsupportedError, match=r"models\.py:\d+: aten.*is random"):
        shlo_disc.torch.compile(program)
