"""Sizes that come from data, truth values as indices, and the weights of such programs."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.fx.experimental.proxy_tensor import make_fx

import shlo_disc.torch
from shlo_disc import ral
from shlo_disc.torch.equal_operations import merge_equal_sizes_of_data
from tests.torch.models import Of


def written(x, place, value):
    x = x.clone()
    x[place] = value
    return x


OF_DATA = {
    "places": lambda x, m: m.nonzero(),
    "places of a number": lambda x, m: x.sum().nonzero(),
    "places by dimension": lambda x, m: torch.where(m),
    "masked": lambda x, m: x[m] * 2,
    "masked rows": lambda x, m: x[m[:, 0]] + 1,
    "masked columns": lambda x, m: x[:, m[0]],
    "masked_select": lambda x, m: torch.masked_select(x, m[:1]),
    "written from masked": lambda x, m: written(x, m, x[m] * 2),
    "a size of it": lambda x, m: x * x[m].shape[0],
    "a sum of it": lambda x, m: x[m].sum(),
}
OF_ARGUMENTS = {
    "written": lambda x, m: written(x, m, 1.5),
    "written rows": lambda x, m: written(x, m[:, 0], 1.5),
    "written columns": lambda x, m: written(x, (slice(None), m[0]), 1.5),
    "a number": lambda x, m: x * m.sum().item(),
}


@pytest.mark.parametrize("name", [*OF_DATA, *OF_ARGUMENTS])
def test_results_whose_sizes_come_from_data(name):
    function = {**OF_DATA, **OF_ARGUMENTS}[name]
    torch.manual_seed(0)

    def make(count, share=0.5):
        return torch.randn(count, 6), torch.rand(count, 6) < share

    program = export(Of(function), make(4), dynamic_shapes=(({0: Dim.AUTO}, {0: Dim.AUTO}),))
    exe = shlo_disc.torch.compile(program)
    assert isinstance(exe.executable, shlo_disc.DataSizedExecutable) == (name in OF_DATA)
    for args in (make(4), make(3), make(7), make(5, 0.0), make(5, 1.1)):
        torch.testing.assert_close(exe(*args), function(*args))


@pytest.mark.parametrize("dim", [0, 1])
def test_distinct_slices_of_any_size(dim):
    """Rows are sorted by their columns, in a loop over these."""

    def make(b, s):
        return (torch.randint(-1, 1, (b, s, 2)).to(torch.float32),)

    def function(x):
        return torch.unique(x, dim=dim, return_inverse=True, return_counts=True)

    dims = (({0: Dim("b"), 1: Dim("s")},),)
    exe = shlo_disc.torch.compile(export(Of(function), make(4, 3), dynamic_shapes=dims))
    for sizes in ((4, 3), (1, 5), (7, 1), (61, 2)):
        args = make(*sizes)
        torch.testing.assert_close(exe(*args), function(*args))


def test_a_mask_of_another_size_is_refused():
    program = export(
        Of(lambda x, m: written(x, m, 1.5)),
        (torch.randn(4, 6), torch.rand(4, 6) < 0.5),
        dynamic_shapes=(({0: Dim.AUTO}, {0: Dim.AUTO}),),
    )
    exe = shlo_disc.torch.compile(program)
    with pytest.raises(shlo_disc.ShapeMismatchError):
        exe(torch.randn(4, 6), torch.rand(3, 6) < 0.5)


def test_the_end_of_a_slice_is_a_number_in_a_tensor():
    def function(x, n):
        end = n.item()
        torch._check(end >= 0)
        torch._check(end <= x.shape[0])
        return x[:end] * 2

    x = torch.randn(5, 4)
    program = export(Of(function), (x, torch.tensor(3)), dynamic_shapes=(({0: Dim("b")}, {}),))
    exe = shlo_disc.torch.compile(program)
    for end in (3, 0, 5):
        assert torch.equal(exe(x, torch.tensor(end)), x[:end] * 2)


class Chosen(nn.Module):
    """Weights in front of the rows that are chosen by data, and behind."""

    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x):
        x = self.before(x)
        return self.behind(x[x[:, 0] > 0])


@pytest.mark.parametrize("freeze", [False, True])
def test_weights_are_packed_once_until_they_change(no_packs, freeze):
    torch.manual_seed(0)
    model = Chosen()
    program = export(model, (torch.randn(40, 128),), dynamic_shapes=({0: Dim("b")},))
    exe = shlo_disc.torch.compile(program, freeze=freeze)
    x = torch.randn(50, 128)
    before = ral.pack_stats()["filled"]
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
        assert ral.pack_stats()["filled"] - before == 2
        if freeze:
            return
        for weight in (model.before.weight, model.behind.weight):
            weight.mul_(-1)
        for _ in range(4):
            torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
        assert ral.pack_stats()["filled"] - before == 4


def test_rows_repeated_as_often_as_data_say():
    """In inference, in training, with a length that is given; and where a mask takes a source."""

    def function(x, counts, mask):
        rows = torch.repeat_interleave(x, counts, dim=0)
        known = torch.repeat_interleave(x.t(), counts.int(), dim=1, output_size=2 * x.shape[0])
        return rows * 2, known.sin(), torch.repeat_interleave(counts), x.masked_scatter(mask, x * 3)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        options = {"on_unsupported": "error"}
        fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=options)
        for n in (5, 2, 9):
            counts = torch.arange(n) % 3
            counts[-1] = 2 * n - counts[:-1].sum()
            x = torch.randn(n, 3, requires_grad=True)
            results = fast(x, counts, x > 0), function(x, counts, x > 0)
            torch.testing.assert_close(*results)
            grads = [torch.autograd.grad((a**2).sum() + b.sum() + (d**2).sum(), x)[0]
                     for a, b, _, d in results]  # fmt: skip
            torch.testing.assert_close(*grads)


def test_equal_operations_have_equal_sizes_of_data():
    """One of them goes, and no size of it is left."""

    def function(x):
        first, second = (torch.cat([x[x > 0], x]) for _ in range(2))
        return first * x.sum().item(), second + x.sum().item(), x[x < 0]

    module = make_fx(function, tracing_mode="symbolic")(torch.randn(7))
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    first, second, other = (node.meta["val"].shape[0] for node in output.args[0])
    assert str(first) != str(second)
    merge_equal_sizes_of_data(module)
    assert str(first) == str(second)
    assert str(first - 7) != str(other)
    targets = [node.target for node in module.graph.nodes]
    assert targets.count(torch.ops.aten.index.Tensor) == 2
    assert targets.count(torch.ops.aten._local_scalar_dense.default) == 1
    x = torch.randn(5)
    for mine, own in zip(module(x), function(x), strict=True):
        torch.testing.assert_close(mine, own)
