"""Sizes of parts, windows and derived dimensions; programs exported with gradients recorded."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import shlo_disc.torch
from shlo_disc.torch.decompositions import decompose
from tests.torch.models import B, Of
from tests.torch.test_backend import assert_trains_as_eager, compiled, kinds

SIDE = Dim("side", min=5)


class Behind(nn.Module):
    """Functions of the results of a layer, which require gradients, and of the argument."""

    def __init__(self, *functions):
        super().__init__()
        self.layer, self.functions = nn.Linear(5, 4), functions

    def forward(self, x):
        y = self.layer(x)
        return [function(x, y) for function in self.functions]


def assert_equal_to_eager(run, function, *args):
    with torch.no_grad():
        got, want = (pytree.tree_leaves(f(*args)) for f in (run, function))
    for mine, own in zip(got, want, strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5, check_stride=False)


def assert_exports(functions, dims, *shapes):
    """One program for all functions, exported at the first shape, is right at every shape."""
    model = Behind(*functions)
    program = export(model, (torch.randn(shapes[0]),), dynamic_shapes=(dims,))
    run = shlo_disc.torch.compile(program)
    for shape in shapes:
        assert_equal_to_eager(run, model, torch.randn(shape))


# -- exported while gradients are recorded --------------------------------------------------------

PADDED = (
    lambda x, y: F.pad(y, (0, 0, 1, 0)),
    lambda x, y: F.pad(y, (0, 0, 0, 0)),
    lambda x, y: F.pad(y, (0, 0, -1, 2), value=1.5),
    lambda x, y: F.pad(y, (0, 0, x.shape[0] % 2, 0)),
    lambda x, y: nn.ZeroPad2d(1)(y),
    lambda x, y: nn.ConstantPad1d((1, 2), 3.0)(y),
)
OF_WINDOWS = (
    lambda x, y: F.local_response_norm(y.transpose(1, 2), 2),
    lambda x, y: F.unfold(y[:, None], (2, 2)),
    lambda x, y: F.fold(F.unfold(y[:, None], (2, 2)), (x.shape[1], 4), (2, 2)),
)
TRANSFORMED = (
    lambda x, y: torch.fft.rfft(y).abs(),
    lambda x, y: torch.fft.irfft(torch.fft.rfft(y.transpose(1, 2)), n=x.shape[1]),
    lambda x, y: torch.fft.irfft(torch.fft.rfft(y, n=2 * x.shape[1], dim=1), n=9, dim=1),
    lambda x, y: torch.stft(y[..., 0], 4, 2, window=torch.ones(4), return_complex=True).abs(),
)


@pytest.mark.parametrize("functions", [PADDED, OF_WINDOWS, TRANSFORMED], ids=["pad", "win", "fft"])
def test_what_reads_sizes_behind_a_layer(functions):
    assert_exports(functions, {0: B, 1: SIDE}, (3, 7, 5), (1, 5, 5), (5, 12, 5))


def test_classes_are_checked_in_an_exported_program():
    def function(i):
        return F.one_hot(i, 4), F.one_hot(i + 1, 6) * 2

    example = torch.tensor([0, 1, 2])
    run = shlo_disc.torch.compile(
        export(Of(function), (example,), dynamic_shapes=(({0: Dim("n")},),))
    )
    for classes in ([0, 1, 2], [3], [1, 0, 2, 3, 1]):
        assert_equal_to_eager(run, function, torch.tensor(classes))
    for classes, says in (([0, 4], "smaller than num_classes"), ([-1, 2], "non-negative")):
        with pytest.raises(RuntimeError, match=says):
            run(torch.tensor(classes))


# -- dimensions that are terms of a symbol --------------------------------------------------------

HALVED = (
    lambda x, y: x.chunk(2)[0] - x.chunk(2)[1],
    lambda x, y: y.split(x.shape[0] // 2)[1],
    lambda x, y: y.tensor_split(2)[1] * 2,
    lambda x, y: F.glu(y, 0),
    lambda x, y: F.pad(x, (0, x.shape[0] % 4)),
    lambda x, y: F.pad(y, (0, 0, -x.shape[0] % 4, 0)),
    lambda x, y: torch.arange(x.shape[0] // 2) * (x.shape[0] % 3),
)
LESS_ONE = (
    lambda x, y: y[1:] - y[:-1],
    lambda x, y: F.pad(y, (0, 0, 0, (x.shape[0] + 1) // 4)),
    lambda x, y: x[: (x.shape[0] + 1) // 4] * 2,
)


def test_a_dimension_that_is_a_multiple():
    assert_exports(HALVED, {0: 2 * Dim("half")}, (10, 5), (4, 5), (12, 5))


def test_a_dimension_that_is_a_multiple_less_one():
    assert_exports(LESS_ONE, {0: 4 * Dim("quarter", min=2) - 1}, (11, 5), (7, 5), (39, 5))


# -- dimensions of one element ---------------------------------------------------------------------


def squeezed_in_place(x):
    y = x + 1
    y.squeeze_(0)
    return y


SQUEEZED = {
    "every dimension": (torch.squeeze, [(1, 5), (3, 1), (1, 1)]),
    "one": (lambda x: x.squeeze(-1) + 1, [(3, 1)]),
    "several": (lambda x: x.squeeze((0, 1)) * 2, [(1, 5), (3, 1)]),
    "in place": (squeezed_in_place, [(1, 5)]),
    "copied": (lambda x: torch.squeeze_copy(x, 0), [(1, 5)]),
    "of a sum": (lambda x: x.sum(0, keepdim=True).squeeze(), [(3, 1)]),
    "of a sum of all": (lambda x: (x.sum(1, keepdim=True) + x[:, :1]).squeeze(-1), []),
}
"""Functions of a matrix, with the shapes at which eager mode gives a result of another rank."""


@pytest.mark.parametrize("name", SQUEEZED)
def test_a_result_of_another_rank_is_refused(name):
    """PyTorch exports for sizes of at least 2, and runs the program at the others all the same."""
    function, refused = SQUEEZED[name]
    dims = (Dim.DYNAMIC, Dim.DYNAMIC)
    program = export(Of(function), (torch.randn(4, 6),), dynamic_shapes=((dims,),))
    run = shlo_disc.torch.compile(program)
    for shape in ((4, 6), (7, 3), (1, 5), (3, 1), (1, 1), (2, 4)):
        x = torch.randn(shape)
        if program.module()(x).dim() != program.module()(torch.randn(5, 5)).dim():
            assert shape in refused or shape == (1, 1)
            with pytest.raises(shlo_disc.ShapeMismatchError, match="!= 1"):
                run(x)
        else:
            assert shape not in refused
            assert_equal_to_eager(run, function, x)


def test_a_program_that_is_compiled_again_requires_the_same_of_its_sizes():
    """PyTorch keeps what it was asked of sizes, and adds no guard for what it has kept."""
    program = export(
        Of(lambda x: x.chunk(2)), (torch.randn(4, 6),), dynamic_shapes=(({0: Dim.DYNAMIC},),)
    )
    first, second = (
        decompose(copy.deepcopy(program.graph_module), lambda node: False, libraries=False)
        for _ in range(2)
    )
    assert first
    assert first == second


# -- parts ----------------------------------------------------------------------------------------


def gated(x):
    first, second = x.chunk(2, 1)
    return F.silu(first) * second


def written(x):
    y = x.clone()
    first, second = y.chunk(2)
    first.mul_(2)
    second.add_(1)
    return y


PARTS = {
    "halves": lambda x: [y * 2 for y in x.chunk(2)],
    "columns": gated,
    "fifths": lambda x: [y.sum(-1) for y in x.chunk(5, -1)],
    "of a size": lambda x: [y + 1 for y in x.split((x.shape[0] + 1) // 2)],
    "unsafe": lambda x: [y + 1 for y in torch.unsafe_chunk(x, 3)],
    "copied": lambda x: [y + 1 for y in torch.split_copy(x, (x.shape[0] + 2) // 3)],
    "written": written,
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_dimension(name):
    function = PARTS[name]
    run = compiled(function)
    for shape in ((9, 10), (12, 20), (8, 30)):
        assert_equal_to_eager(run, function, torch.randn(shape))
    assert len(kinds()) == (2 if name == "written" else 1)  # PyTorch compiles odd numbers apart


def test_gradients_of_parts():
    def function(x):
        return gated(x), [y * y for y in x.chunk(3)]

    model = nn.Sequential(nn.Linear(6, 6), Of(lambda x: function(x.flatten(1))))
    assert_trains_as_eager(model, [(torch.randn(b, s, 6),) for b, s in ((9, 7), (6, 5))])


# -- windows of an image --------------------------------------------------------------------------


def windows(x, w=4):
    b, height, width, c = x.shape
    y = x.view(b, height // w, w, width // w, w, c).permute(0, 1, 3, 2, 4, 5)
    return y.reshape(-1, w * w, c)


@pytest.mark.parametrize("is_trained", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_dimension_more_than_the_windows(is_trained):
    scale = torch.tensor(2.0, requires_grad=is_trained)

    def function(x):
        return windows(x * scale).unsqueeze(1), windows(x)[:, None, :, None] * scale

    run = compiled(function)
    for shape in ((2, 16, 24, 3), (3, 4, 20, 3)):
        x = torch.randn(shape)
        if not is_trained:
            assert_equal_to_eager(run, function, x)
            continue
        for one in pytree.tree_leaves(run(x)):
            (mine,) = torch.autograd.grad((one * one).sum(), scale, retain_graph=True)
            (own,) = torch.autograd.grad((windows(x) * scale).square().sum(), scale)
            torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-4)


def test_a_size_that_a_later_operation_makes_a_number():
    def function(x):
        return x.split(2, 1)[0], x.unsqueeze(-1).expand(-1, -1, 3) * 1

    run = compiled(function)
    for rows in (7, 5):
        assert_equal_to_eager(run, function, torch.randn(rows, 9))


# -- as many elements as a size says --------------------------------------------------------------

LARGEST = {
    "at most": lambda x: x.topk(min(8, x.shape[1]), dim=1),
    "smallest": lambda x: x.topk(x.shape[0] // 2 + 1, dim=0, largest=False),
    "a share": lambda x: x.flatten().topk(x.numel() // 4)[0].mean(),
    "gathered": lambda x: x.gather(-1, x.topk(int(x.shape[-1] * 0.7))[1]),
}


@pytest.mark.parametrize("name", LARGEST)
def test_as_many_elements_as_a_size_says(name):
    function = LARGEST[name]
    run = compiled(function)
    for shape in ((2, 20), (4, 3), (5, 9)):
        assert_equal_to_eager(run, function, torch.randn(shape))
    assert kinds() == ["inference"]
