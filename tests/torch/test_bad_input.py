"""Bad arguments and programs: a named error, and the tensors of the caller as before."""

from __future__ import annotations

import io

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from torch import nn  # noqa: E402
from torch.export import Dim, export, load, save  # noqa: E402

import shlo_disc.torch  # noqa: E402
from tests.torch.models import Block, Of  # noqa: E402

pytestmark = pytest.mark.torch
B = Dim("b")


@pytest.fixture(scope="module")
def added():
    x = torch.randn(3, 4)
    program = export(Of(lambda x, y: x + y), (x, x.clone()), dynamic_shapes=(({0: B}, {0: B}),))
    return shlo_disc.torch.compile(program)


def emptied(y):
    y.untyped_storage().resize_(0)
    return y


BAD = {
    "f64": (lambda y: y.double(), TypeError, "dtype is float64, the program takes float32"),
    "truths": (lambda y: y > 0, TypeError, "dtype is bool"),
    "complex": (lambda y: y.to(torch.complex64), TypeError, "dtype is complex64"),
    "rank": (lambda y: y[0], shlo_disc.ShapeMismatchError, "rank is 1"),
    "size": (lambda y: y[:2], shlo_disc.ShapeMismatchError, "dimension 0 is 2"),
    "meta": (lambda y: y.to("meta"), shlo_disc.DeviceError, "args_1 is on meta"),
    "sparse": (lambda y: y.to_sparse(), shlo_disc.UnsupportedError, "layout torch.sparse_coo"),
    "rows": (lambda y: y.to_sparse_csr(), shlo_disc.UnsupportedError, "layout torch.sparse_csr"),
    "mkldnn": (lambda y: y.to_mkldnn(), shlo_disc.UnsupportedError, "layout torch._mkldnn"),
    "quantized": (lambda y: torch.quantize_per_tensor(y, 0.1, 0, torch.qint8),
                  shlo_disc.UnsupportedError, "quantized"),
    "nested": (lambda y: torch.nested.nested_tensor([y[0], y[1]]), TypeError, "args_1"),
    "fake": (lambda y: torch._subclasses.FakeTensorMode().from_tensor(y),
             shlo_disc.UnsupportedError, "is a FakeTensor"),
    "without memory": (emptied, TypeError, "without memory"),
    "number": (lambda y: 3, TypeError, "must be a torch.Tensor, got int"),
    "nothing": (lambda y: None, TypeError, "must be a torch.Tensor, got NoneType"),
    "parameter": (nn.Parameter, RuntimeError, "requires a gradient"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of PyTorch's prototypes
@pytest.mark.parametrize("name", BAD)
def test_a_bad_argument_is_named_and_nothing_is_written(added, name):
    make, error, says = BAD[name]
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    before = x.clone()
    with pytest.raises(error, match=says):
        added(x, make(y.clone()))
    assert torch.equal(x, before)
    assert torch.equal(added(x, y), x + y)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda run, x: torch.func.vmap(lambda y: run(y, y))(x.expand(2, 3, 4)),
        lambda run, x: torch.func.jvp(lambda y: run(y, y), (x,), (x,)),
        lambda run, x: torch.func.grad(lambda y: run(y, y).sum())(x),
    ],
)
def test_transformations_of_functions_are_refused(added, transformed):
    with pytest.raises((TypeError, RuntimeError), match="args_0"):
        transformed(added, torch.randn(3, 4))


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total += x.sum(0)
        return x * self.total


def test_a_refused_call_writes_no_buffer():
    program = export(Counted(), (torch.randn(3, 4),), dynamic_shapes=({0: B},))
    exe = shlo_disc.torch.compile(program)
    exe(torch.ones(2, 4))
    for bad in (torch.ones(2, 5), torch.ones(2, 4).double()):
        with pytest.raises((TypeError, shlo_disc.ShapeMismatchError)):
            exe(bad)
    assert torch.equal(exe(torch.ones(1, 4)), torch.full((1, 4), 3.0))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), "cond"),
        (lambda x: x * torch.bernoulli(x.sigmoid()), "rand"),
        (lambda x: torch.multinomial(x.abs() + 1, 2), "multinomial"),
        (lambda x: torch.linalg.eigvals(x @ x.T).real, "eig"),
    ],
)
def test_what_is_not_covered_is_refused_with_its_line(function, name):
    program = export(Of(function), (torch.randn(3, 4),), dynamic_shapes=(({0: B},),))
    with pytest.raises(shlo_disc.UnsupportedError, match=rf"\.py:\d+: .*{name}"):
        shlo_disc.torch.compile(program)


def test_a_saved_program_is_the_same():
    model = Block().eval()
    program = export(model, (torch.randn(2, 5, 32),), dynamic_shapes=({0: B, 1: Dim("s")},))
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    exe = shlo_disc.torch.compile(load(file))
    assert "tests/torch/models.py:" in exe.explain()
    for sizes in ((3, 7), (1, 1), (0, 4)):
        x = torch.randn(*sizes, 32)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
