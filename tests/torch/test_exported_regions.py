"""Exported programs with operations that PyTorch runs, between compiled regions."""

import copy
import logging

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import shlo_disc
import shlo_disc.torch
from shlo_disc.torch import regions
from tests.torch.models import Of

aten = torch.ops.aten
B = Dim("b", max=100)


def compiled(model, args, dims, **options):
    program = export(model, args, dynamic_shapes=dims)
    return shlo_disc.torch.compile(program, on_unsupported="eager", **options)


def assert_same(got, want):
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    for mine, own in zip(got, want, strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)
        assert not mine.requires_grad


def eager_ops(run):
    return sorted(op.split()[0].removeprefix("aten.") for op in run.eager)


class Mixed(nn.Module):
    """Draws, a buffer that is written, a structure, a mode and an op without a rule."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("total", torch.zeros(6))

    def forward(self, x, options):
        with torch.no_grad():
            y = self.layer(x).relu()
        self.total.add_(y.sum(0))
        rows = torch.multinomial(y.sigmoid(), 2)
        z = (self.drop(y) * options["scale"]).sum(1)
        return {"rows": rows, "z": z, "e": torch.linalg.eigvals(x.T @ x).abs() + x.sin().sum()}


@pytest.fixture(scope="module")
def mixed():
    torch.manual_seed(0)
    model = Mixed()
    args = (torch.randn(4, 6), {"scale": torch.ones(1)})
    dims = ({0: B}, {"scale": None})
    return model, compiled(model, args, dims, constraints="x_0 != 50", likely={"x_0": 8})


def test_a_call_is_as_eager_mode_with_its_writes_and_draws(mixed):
    model, run = mixed
    own = copy.deepcopy(model)
    for rows in (7, 1):
        args = (torch.randn(rows, 6), {"scale": torch.full((1,), 2.0)})
        with torch.no_grad():
            torch.manual_seed(rows)
            want = own(*args)
            torch.manual_seed(rows)
            assert_same(run(*args), want)
        assert_same(model.total, own.total)


def test_it_tells_what_pytorch_runs(mixed):
    run = mixed[1]
    assert eager_ops(run) == [
        "linalg_eigvals.default", "multinomial.default", "native_dropout.default",
    ]  # fmt: skip
    assert run.eager_count == 3
    text = run.explain()
    assert "PyTorch runs aten.linalg_eigvals.default at" in text
    assert "main_region_0" in text
    assert "stablehlo.dot_general" in run.as_text("stablehlo")
    assert "PyTorch runs 3 operations" in repr(run)
    with pytest.raises(shlo_disc.UnsupportedError, match="PyTorch runs a part of it"):
        run.cost_analysis()


@pytest.mark.parametrize(
    ("x", "error", "said"),
    [
        (torch.ones(50, 6), shlo_disc.ShapeMismatchError, "x_0 != 50"),
        (torch.ones(101, 6), shlo_disc.ShapeMismatchError, "x_0 <= 100"),
        (torch.ones(3, 5), shlo_disc.ShapeMismatchError, "dimension 1 is 5"),
        (torch.ones(6), shlo_disc.ShapeMismatchError, "rank is 1"),
        (torch.ones(3, 6).double(), TypeError, "dtype is float64"),
        (torch.ones(3, 6, requires_grad=True), RuntimeError, "requires a gradient"),
        (torch.ones(3, 6).to_sparse(), shlo_disc.UnsupportedError, "layout"),
    ],
)
def test_arguments_are_checked_before_anything_runs(mixed, x, error, said):
    model, run = mixed
    before = model.total.clone()
    with pytest.raises(error, match=said):
        run(x, {"scale": torch.ones(1)})
    assert_same(model.total, before)


def test_it_is_the_default_and_is_logged_once(by_default, caplog):
    assert by_default == "eager"
    regions._TOLD.clear()
    with caplog.at_level(logging.WARNING, "shlo_disc"):
        for _ in range(2):
            model = Of(lambda x: torch.igamma(x, x) + 1)
            run = compiled(model, (torch.rand(4, 3),), (({0: B},),))
    assert len(caplog.records) == 1
    assert "aten.igamma" in caplog.text
    x = torch.rand(9, 3)
    assert_same(run(x), model(x))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"constraints": "nope >= 2"}, shlo_disc.InvalidModuleError, "nope"),
        ({"likely": {"nope": 3}}, ValueError, "nope"),
        ({"donated": 9}, ValueError, "the argument 9"),
        ({"target": "cuda:sm_90"}, shlo_disc.UnsupportedError, "igamma"),
    ],
)
def test_options_are_checked(options, error, said):
    with pytest.raises(error, match=said):
        compiled(Of(lambda x: torch.igamma(x, x)), (torch.rand(4, 3),), (({0: B},),), **options)


def test_an_option_that_does_not_exist():
    program = export(Of(torch.sin), (torch.ones(3),))
    with pytest.raises(ValueError, match="'eager' or 'error'"):
        shlo_disc.torch.compile(program, on_unsupported="xla")


def written(x, y):
    x.add_(torch.igamma(y, y))
    return x.view(-1) * 2, y


def of_data(x):
    rows = torch.nonzero(x[:, 0] > 0.5)[:, 0]
    return torch.igamma(x[rows], x[rows]) * 2, rows


def of_sparse(x):
    places = (x[:, :2] * 0).long().T
    return torch.sparse_coo_tensor(places, x[:, 0], (2, 2)).to_dense() + 1


@pytest.mark.parametrize(
    ("function", "count", "ops"),
    [
        (written, 2, ["igamma.default"]),
        (of_data, 1, ["igamma.default"]),
        (of_sparse, 1,
         ["sparse_coo_tensor.indices_size", "to_dense.default"]),
    ],
)  # fmt: skip
def test_writes_sizes_of_data_and_sparse_tensors(function, count, ops):
    given = tuple(torch.rand(4, 3) for _ in range(count))
    run = compiled(Of(function), given, (({0: B},) * count,))
    assert eager_ops(run) == ops
    for rows in (5, 1):
        args = [torch.rand(rows, 3) for _ in range(count)]
        mine = [x.clone() for x in args]
        assert_same(run(*mine), function(*args))
        assert_same(mine, args)


def test_sparse_arguments():
    def function(x, y):
        return aten.values(x).sum() + aten.indices(x).float().mean() * y.sin(), x @ y

    def sparse():
        return (torch.rand(4, 6).round() + torch.eye(4, 6)).to_sparse()

    run = compiled(Of(function), (sparse(), torch.rand(6, 2)), None)
    assert run.parts  # of the sine
    for _ in range(2):
        args = sparse(), torch.rand(6, 2)
        assert_same(run(*args), function(*args))
    for bad in (torch.rand(4, 6), torch.rand(4, 6).to_sparse_csr()):
        with pytest.raises(TypeError, match="sparse_coo"):
            run(bad, args[1])
    with pytest.raises(shlo_disc.ShapeMismatchError):
        run(torch.rand(5, 6).to_sparse(), args[1])


def test_pytorch_runs_all_of_a_program_that_it_cannot_retrace():
    model = Of(lambda x: torch.empty(0).resize_(x.shape).copy_(x).sin())
    run = compiled(model, (torch.rand(4, 3),), (({0: B},),))
    assert "resize_.default" in eager_ops(run)
    assert not run.parts
    for rows in (5, 1):
        x = torch.rand(rows, 3)
        assert_same(run(x), model(x))
    with pytest.raises(shlo_disc.ShapeMismatchError, match="<= 100"):
        run(torch.rand(101, 3))


def test_effects_are_in_their_order(capfd):
    def printed(x):
        torch.ops.aten._print("first")
        y = torch.igamma(x, x)
        torch.ops.aten._print("second")
        return y + 1

    run = compiled(Of(printed), (torch.rand(3),), (({},),))
    assert run.eager_count == 3
    capfd.readouterr()
    x = torch.rand(3)
    assert_same(run(x), torch.igamma(x, x) + 1)
    assert capfd.readouterr().out.split() == ["first", "second"]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.complex32])
def test_an_element_type_that_no_program_has(dtype):
    args = torch.ones(3).to(dtype), torch.ones(3)
    run = compiled(Of(lambda x, y: (x.view(-1, 1), y * 2)), args, (({0: B}, {0: B}),))
    x = torch.ones(7).to(dtype)
    got = run(x, torch.ones(7))
    assert torch.equal(got[0].float(), torch.ones(7, 1))
    assert_same(got[1], torch.full((7,), 2.0))
    with pytest.raises(TypeError, match=f"{dtype}"):
        run(torch.ones(7), torch.ones(7))
    with pytest.raises(shlo_disc.ShapeMismatchError):
        run(x, torch.ones(6))
