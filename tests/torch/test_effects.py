"""Ops with an effect: errors of singular matrices, prints, and what a user's op does."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of
from tests.torch.test_backend import compiled

linalg = torch.linalg

CHECKED = {
    "inv": linalg.inv,
    "solve": lambda a: linalg.solve(a, a * 2 + 1),
    "negative power": lambda a: linalg.matrix_power(a, -2),
    "two, one unused": lambda a: (linalg.inv(a), linalg.inv(2 * a).mT)[1],
}


def regular(count):
    return torch.randn(count, 4, 4) + 4 * torch.eye(4)


def assert_as_eager(run, function):
    for count in (3, 7):
        a = regular(count)
        torch.testing.assert_close(run(a), function(a), rtol=1e-4, atol=1e-4)
    singular = regular(3)
    singular[1] = 1
    for each in (run, function):
        with pytest.raises(linalg.LinAlgError, match="Batch element 1"):
            each(singular)


@pytest.mark.parametrize("name", CHECKED)
def test_a_singular_matrix_raises_what_eager_mode_raises(name):
    with torch.no_grad():
        assert_as_eager(compiled(CHECKED[name]), CHECKED[name])


def test_gradients_of_what_may_raise():
    a = regular(3)
    fast, slow = a.clone().requires_grad_(), a.clone().requires_grad_()
    compiled(linalg.inv)(fast).sin().sum().backward()
    linalg.inv(slow).sin().sum().backward()
    torch.testing.assert_close(fast.grad, slow.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("apart", [False, True], ids=["exported", "decomposed"])
def test_exported_programs_raise_it_too(apart):
    program = export(Of(linalg.inv), (regular(3),), dynamic_shapes=(({0: Dim("b")},),))
    program = program.run_decompositions() if apart else program
    assert_as_eager(shlo_disc.torch.compile(program), linalg.inv)


SEEN = []


@torch.library.custom_op("shlo_disc_tests::note", mutates_args=())
def note(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(float(x.sum()))
    return x * 3


note.register_fake(torch.empty_like)
_register_effectful_op("shlo_disc_tests::note", _EffectType.ORDERED)


def noted(x):
    first = note(linalg.inv(x)).sum()
    return first + note(x * 2).sum()


def test_pytorch_runs_other_effects_in_their_order():
    with torch.no_grad():
        fast = compiled(noted, on_unsupported="eager")
        for count in (3, 5):
            x = regular(count)
            SEEN.clear()
            torch.testing.assert_close(fast(x), noted(x), rtol=1e-4, atol=1e-4)
            assert SEEN[:2] == pytest.approx(SEEN[2:], rel=1e-4)
    (graph,) = shlo_disc.torch.compilations()
    assert [op.split()[0] for op in graph.eager] == ["shlo_disc_tests.note.default"] * 2
    assert set(graph.eager.values()) == {"has an effect outside the program"}


def test_effects_of_exports_are_refused():
    def printed(x):
        torch.ops.aten._print("hi")
        return x * 2

    program = export(Of(printed), (torch.ones(3),))
    with pytest.raises(shlo_disc.UnsupportedError, match=r"_print.default has an effect outside"):
        shlo_disc.torch.compile(program)
