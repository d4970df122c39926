"""Results have the strides of eager mode, where their memory has no holes."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import shlo_disc.torch
from tests.torch.models import Of


def last(*sizes: int) -> torch.Tensor:
    """Pictures with channels last."""
    return torch.randn(*sizes).to(memory_format=torch.channels_last)


class Convolution(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 8, 3, padding=1).to(memory_format=torch.channels_last)

    def forward(self, x):
        return torch.nn.functional.max_pool2d(self.layer(x).relu(), 2)


def heads(x):
    q = x.transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q)


PROGRAMS = {
    "convolution": (Convolution(), (last(2, 3, 6, 8), last(5, 3, 4, 10))),
    "elements": (Of(lambda x: x + 1), (last(2, 3, 5, 7), last(3, 3, 2, 9))),
    "transposed": (Of(lambda x: (x * 2).t()), (torch.randn(4, 6), torch.randn(5, 2))),
    "product": (Of(lambda x: (x @ x.t()).t()), (torch.randn(4, 6), torch.randn(7, 3))),
    "heads": (Of(heads), (torch.randn(2, 5, 3, 8), torch.randn(3, 7, 2, 8))),
    "complex": (Of(lambda x: torch.complex(x, -x).t()), (torch.randn(4, 6), torch.randn(3, 2))),
    "several": (
        Of(lambda x: (x.sum(1), (x * 2).permute(2, 0, 1), x.shape[0], x.mean(0).t())),
        (torch.randn(4, 6, 5), torch.randn(3, 2, 7)),
    ),
    "shared": (
        Of(lambda x: ((y := (x * 2).t()), y[1:], y.unsqueeze(0))),
        (torch.randn(4, 6), torch.randn(3, 5)),
    ),
}


def check(found, wanted):
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
        else:
            assert one == other


@pytest.mark.parametrize("name", PROGRAMS)
def test_backend(name):
    model, inputs = PROGRAMS[name]
    run = torch.compile(model, backend="shlo_disc", dynamic=True)
    with torch.no_grad():
        for x in inputs:
            check(run(x), model(x))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "shared"])
def test_exported(name):
    model, inputs = PROGRAMS[name]
    sizes = dict.fromkeys(range(inputs[0].dim()), Dim.AUTO)
    dims = (sizes,) if name == "convolution" else ((sizes,),)
    run = shlo_disc.torch.compile(torch.export.export(model, inputs[:1], dynamic_shapes=dims))
    with torch.no_grad():
        for x in inputs:
            check(run(x), model(x))


def test_memory_of_a_result_is_that_of_eager_mode():
    """`as_strided` reads memory, whatever the sizes are."""
    x = torch.randn(4, 6)
    run = torch.compile(lambda x: (x * 2).t(), backend="shlo_disc", dynamic=True)
    assert torch.equal(torch.as_strided(run(x), (24,), (1,)), x.flatten() * 2)


def test_gradients():
    model = Convolution()
    wanted = last(2, 3, 6, 8).requires_grad_()
    found = wanted.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    run = torch.compile(model, backend="shlo_disc", dynamic=True)
    gradients = []
    for function, x in ((model, wanted), (run, found)):
        model.zero_grad()
        function(x).square().sum().backward()
        gradients.append((x.grad, model.layer.weight.grad.clone()))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def test_what_the_backward_reads_is_row_major():
    """Activations with channels last would be copied there: a program reads row-major arrays."""
    model = Convolution()
    run = torch.compile(lambda x: model(x).sum(), backend="shlo_disc", dynamic=True)
    run(last(2, 3, 6, 8)).backward()
    (backward,) = (g for g in shlo_disc.torch.compilations() if g.kind == "backward")
    copied = {name for part in backward.parts for name in part.executable.copies.calls}
    assert copied <= {"x", "model.layer.weight"}


def test_donated_memory_becomes_a_result_of_another_order():
    exported = torch.export.export(
        Of(lambda x: (x * 2).t()), (torch.randn(4, 4),), dynamic_shapes=(({0: Dim.AUTO},),)
    )
    run = shlo_disc.torch.compile(exported, donated=0)
    x = torch.randn(5, 4)
    wanted = (x * 2).t()
    found = run(x)
    check(found, wanted)
    assert found.data_ptr() == x.data_ptr()
