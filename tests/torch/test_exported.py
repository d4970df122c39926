"""`shlo_disc.torch.compile`: one compilation for all sizes, as accurate as PyTorch."""

import copy
import itertools
import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import shlo_disc
import shlo_disc.torch
from tests.children import python
from tests.torch.models import CASES, B, Block, Of, Perceptron, S


@pytest.fixture(autouse=True)
def without_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def exported(model, args, *dims, **kwargs):
    """`model`, exported with these dynamic dimensions of its arguments, gradients recorded."""
    if isinstance(model, Of):
        dims = (dims,)
    with torch.enable_grad():
        return export(model.eval(), args, dynamic_shapes=dims, **kwargs)


def assert_as_accurate(model, args, got):
    """The errors against f64 are at most twice those of PyTorch's own f32, and an ulp or two."""
    wide = copy.deepcopy(model).double()
    twice = [
        a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args
    ]
    exact, own = (pytree.tree_leaves(run) for run in (wide(*twice), model(*args)))
    for want, eager, result in zip(exact, own, pytree.tree_leaves(got), strict=True):
        if not isinstance(eager, torch.Tensor):
            assert result == eager
            continue
        assert (result.shape, result.dtype) == (eager.shape, eager.dtype)
        if not eager.is_floating_point():
            assert torch.equal(result, eager)
            continue
        error, allowed = ((x.double() - want).abs().max().item() for x in (result, eager))
        assert error <= 2 * allowed + 5e-7 * max(want.abs().max().item(), 1e-30)


@pytest.mark.parametrize("name", CASES)
def test_one_compilation_is_right_at_every_size(name):
    case = CASES[name]
    model = case.make()
    exe = shlo_disc.torch.compile(exported(model, case.arguments(), *case.dims))
    for seed, values in enumerate(case.sets):
        args = case.arguments(values, seed)
        assert type(exe.executable) is shlo_disc.Executable  # no size comes from data
        assert_as_accurate(model, args, exe(*args))


@pytest.mark.parametrize("name", ["perceptron", "block", "masked", "grouped", "cumsum", "sort"])
def test_sizes_may_be_zero(name):
    case = CASES[name]
    model = case.make()
    exe = shlo_disc.torch.compile(exported(model, case.arguments(), *case.dims))
    usual = case.sets[0]
    for values in ((0, *usual[1:]), (*usual[:-1], 0), tuple(0 for _ in usual)):
        args = case.arguments(values)
        got, want = pytree.tree_leaves(exe(*args)), pytree.tree_leaves(model(*args))
        for mine, own in zip(got, want, strict=True):
            torch.testing.assert_close(mine, own, equal_nan=True)


@pytest.mark.parametrize("name", ["causal", "masked", "biased", "grouped", "block"])
def test_attention_is_one_kernel(name):
    case = CASES[name]
    exe = shlo_disc.torch.compile(exported(case.make(), case.arguments(), *case.dims))
    assert [use.kind for use in exe.executable.host.uses].count("attention") == 1


def test_not_a_number_is_the_largest_in_an_order():
    x = torch.tensor([[3.0, torch.nan, -1.0, torch.inf, torch.nan, -0.0, 0.0]]).repeat(2, 1)
    model = Of(lambda x: (*torch.sort(x, dim=1, stable=True), *torch.topk(x, 3, 1)))
    exe = shlo_disc.torch.compile(exported(model, (x,), {0: B}))
    values, places, largest, _ = exe(x)
    want = torch.sort(x, dim=1, stable=True)
    np.testing.assert_array_equal(values.numpy(), want[0].numpy())
    assert torch.equal(places, want[1])
    np.testing.assert_array_equal(largest.numpy(), torch.topk(x, 3, 1)[0].numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_element_types(dtype):
    model = Perceptron().to(dtype)
    x = torch.randn(5, 8).to(dtype)
    exe = shlo_disc.torch.compile(exported(model, (x,), {0: B}))
    got = exe(x)
    assert got.dtype == dtype
    tolerance = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(got, model(x), atol=tolerance, rtol=tolerance)


# -- the signature ------------------------------------------------------------------------------


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.constant = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, pair, *, options, factor):
        x, y = pair
        return {"sum": (x + y) * self.weight * factor, "more": [options["z"] + self.constant, None]}


def test_structures_keywords_and_constants():
    model = Structured()
    args, kwargs = (
        ((torch.randn(2, 3), torch.randn(2, 3)),),
        {
            "options": {"z": torch.randn(3)},
            "factor": 4,
        },
    )
    dims = {"pair": ({0: B}, {0: B}), "options": {"z": {}}, "factor": None}
    exe = shlo_disc.torch.compile(export(model, args, kwargs, dynamic_shapes=dims))
    pair = torch.randn(7, 3), torch.randn(7, 3)
    z = torch.randn(3)
    got = exe(pair, factor=4, options={"z": z})
    want = model(pair, options={"z": z}, factor=4)
    torch.testing.assert_close(got["sum"], want["sum"])
    torch.testing.assert_close(got["more"][0], want["more"][0])
    assert got["more"][1] is None
    with pytest.raises(TypeError, match=r"factor must be 4, as when .* exported, got 5"):
        exe(pair, factor=5, options={"z": z})
    with pytest.raises(TypeError, match="lack options"):
        exe(pair, factor=4)


class Counting(nn.Module):
    """Writes buffers: batch statistics, a count, and one that no state dict has."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x):
        self.seen += x.shape[0]
        return self.norm(x)


@pytest.mark.parametrize("freeze", [False, True])
def test_buffers_are_written(freeze):
    model = Counting().train()
    program = export(model, (torch.randn(8, 6),), dynamic_shapes=({0: B},))
    mine, own = copy.deepcopy(model), program.state_dict
    exe = shlo_disc.torch.compile(program, freeze=freeze)
    for count in (3, 4, 9):
        x = torch.randn(count, 6)
        torch.testing.assert_close(exe(x), mine(x))
    torch.testing.assert_close(own["norm.running_mean"], mine.norm.running_mean)
    torch.testing.assert_close(own["norm.running_var"], mine.norm.running_var)
    assert own["norm.num_batches_tracked"] == 3
    assert program.constants["seen"] == 16


class Remembering(nn.Module):
    """Multiplies by a buffer that it writes: a frozen copy of it would be an old one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("matrix", torch.randn(64, 64))

    def forward(self, x):
        result = x @ self.matrix
        self.matrix.mul_(0.5)
        return result


def test_a_written_buffer_is_not_frozen():
    model = Remembering()
    program = export(model, (torch.randn(3, 64),), dynamic_shapes=({0: B},))
    own = copy.deepcopy(model)  # the program has the model's buffers
    exe = shlo_disc.torch.compile(program, freeze=True)
    for size in (40, 40, 40, 3):
        x = torch.randn(size, 64)
        torch.testing.assert_close(exe(x), own(x), rtol=1e-4, atol=1e-5)


class Writing(nn.Module):
    def forward(self, x, y):
        x.mul_(2)
        return x + y


def test_an_argument_that_the_program_writes_is_written():
    program = export(Writing(), (torch.randn(3), torch.randn(3)), dynamic_shapes=({0: B}, {0: B}))
    exe = shlo_disc.torch.compile(program)
    x, y = torch.ones(5), torch.ones(5)
    assert torch.equal(exe(x, y), torch.full((5,), 3.0))
    assert torch.equal(x, torch.full((5,), 2.0))


def test_weights_are_read_at_every_call_unless_frozen():
    model = Perceptron()
    program = exported(model, (torch.randn(3, 8),), {0: B})
    exe = shlo_disc.torch.compile(program)
    x = torch.randn(4, 8)
    changes = {
        "in place": lambda w: w.mul_(2),
        ".data": lambda w: w.data.add_(1),
        "an optimizer": lambda w: torch.optim.SGD([w], lr=0.1).step(),
        "copy_": lambda w: w.copy_(torch.randn_like(w)),
        "a view": lambda w: w[0].zero_(),
        "numpy": lambda w: np.multiply(w.numpy(), 2, out=w.numpy()),
    }
    for name, change in changes.items():
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
            change(weight.detach() if name == "numpy" else weight)
        torch.testing.assert_close(exe(x), model(x), msg=name)
    frozen = shlo_disc.torch.compile(program, freeze=True)
    for _ in range(3):
        torch.testing.assert_close(frozen(x), model(x))


# -- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t().contiguous().t(), lambda x: x[::2], lambda x: x.flip(0)[1:],
        lambda x: x[:, :1].expand(-1, 8), lambda x: torch.cat([x, x], 1)[:, 3:11],
        lambda x: torch.view_as_complex(torch.stack([x, x], -1)).conj().imag,
    ],
)  # fmt: skip
def test_views_of_any_strides(view):
    model = Of(lambda x: x * 2 + 1)
    exe = shlo_disc.torch.compile(exported(model, (torch.randn(3, 8),), {0: B, 1: S}))
    x = view(torch.randn(6, 8))
    assert torch.equal(exe(x), model(x))


def test_results_are_new_tensors_without_gradients():
    exe = shlo_disc.torch.compile(exported(Perceptron(), (torch.randn(3, 8),), {0: B}))
    x = torch.randn(4, 8)
    first = exe(x)
    again = first.clone()
    exe(torch.randn(4, 8))
    assert torch.equal(first, again)
    with torch.enable_grad():
        assert not exe(x).requires_grad
        with pytest.raises(RuntimeError, match="x requires a gradient"):
            exe(x.clone().requires_grad_())
    with torch.inference_mode():
        assert torch.equal(exe(x), first)


class Wrapped(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda x: x.numpy(), TypeError, "x must be a torch.Tensor, got ndarray"),
        (lambda x: x.double(), TypeError, "float64.*float32"),
        (lambda x: x[0], shlo_disc.ShapeMismatchError, "rank"),
        (lambda x: x[:, :7], shlo_disc.ShapeMismatchError, "7"),
        (lambda x: x.to("meta"), shlo_disc.DeviceError, "x is on meta"),
        (lambda x: x.to_sparse(), shlo_disc.UnsupportedError, r"pass x.to_dense\(\)"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), shlo_disc.UnsupportedError,
         "quantized"),
        (lambda x: x.as_subclass(Wrapped), shlo_disc.UnsupportedError, "is a Wrapped"),
        (lambda x: x.to(torch.complex64), TypeError, "complex64"),
    ],
)  # fmt: skip
def test_a_tensor_that_cannot_be_read(make, error, says):
    exe = shlo_disc.torch.compile(exported(Perceptron(), (torch.randn(3, 8),), {0: B}))
    x = torch.randn(3, 8)
    with pytest.raises(error, match=says):
        exe(make(x))
    assert exe(x).shape == (3, 4)


# -- sizes --------------------------------------------------------------------------------------


def test_bounds_and_requirements_are_checked_at_every_call():
    def function(x, y):
        torch._check(2 * x.shape[0] >= y.shape[1])
        return x.sum() + y.sum()

    program = exported(
        Of(function),
        (torch.randn(8, 6), torch.randn(3, 5)),
        {0: Dim("n", min=3, max=20), 1: Dim.AUTO},
        {1: Dim.AUTO},
    )
    exe = shlo_disc.torch.compile(program, constraints="args_0_1 != 5")
    x = torch.randn
    torch.testing.assert_close(exe(x(4, 1).fill_(1), x(3, 8).fill_(1)), torch.tensor(28.0))
    for sizes in ((2, 6, 4), (21, 6, 4), (4, 6, 9), (8, 5, 5)):
        with pytest.raises(shlo_disc.ShapeMismatchError):
            exe(x(sizes[0], sizes[1]), x(3, sizes[2]))


D = Dim("d", min=3, max=9)


@pytest.mark.parametrize(
    ("size", "low", "high"), [(2 * D, 6, 18), (D + 1, 4, 10), (4 * D - 1, 11, 35)]
)
def test_bounds_of_a_size_made_of_another_are_checked_at_every_call(size, low, high):
    program = exported(Of(lambda x: x * 2), (torch.randn(low + 4, 3),), {0: size})
    exe = shlo_disc.torch.compile(program)
    for n in (low, high):
        assert exe(torch.ones(n, 3)).sum() == 6 * n
    for n in (low - 1, high + 1):
        for run in (exe, program.module()):  # as PyTorch does
            with pytest.raises((shlo_disc.ShapeMismatchError, AssertionError)):
                run(torch.ones(n, 3))


CONDITIONS = {
    "a remainder": lambda x, y: x.shape[0] % 3 != 1,
    "beside another argument": lambda x, y: x.shape[0] > 3 * y.shape[0],
    "of both": lambda x, y: x.shape[0] + y.shape[0] != 9,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_on_a_size_made_of_another_are_checked_at_every_call(name):
    def function(x, y):
        torch._check(CONDITIONS[name](x, y))
        return x.sum(0) + y.sum(0)

    args = (torch.randn(24, 3), torch.randn(5, 3))
    program = exported(Of(function), args, {0: 2 * Dim("d")}, {0: Dim("n")})
    exe = shlo_disc.torch.compile(program)
    allowed = set()
    for rows, count in itertools.product((6, 8, 10, 12), (1, 2, 3)):
        given = torch.randn(rows, 3), torch.randn(count, 3)
        holds = CONDITIONS[name](*given)
        allowed.add(holds)
        if holds:
            torch.testing.assert_close(exe(*given), function(*given))
        else:
            with pytest.raises(shlo_disc.ShapeMismatchError, match="requires"):
                exe(*given)
    assert allowed == {True, False}


def test_equal_sizes_have_the_name_of_the_first_argument_that_has_them():
    program = exported(Of(lambda x, y: x @ y), (torch.randn(3, 4), torch.randn(4, 5)),
                       {0: B, 1: S}, {0: S})  # fmt: skip
    exe = shlo_disc.torch.compile(program, likely={"args_0_0": [8]})
    assert [a.sizes for a in exe.signature.arguments] == [
        ("args_0_0", "args_0_1"),
        ("args_0_1", "5"),
    ]
    with pytest.raises(ValueError, match=r"likely names s77, but .* are: args_0_0"):
        shlo_disc.torch.compile(program, likely={"s77": 8})


# -- reports ------------------------------------------------------------------------------------


def test_reports_name_lines_and_weights_of_the_model():
    exe = shlo_disc.torch.compile(exported(Block(), (torch.randn(2, 5, 32),), {0: B, 1: S}))
    text = exe.explain()
    assert "tests/torch/models.py:" in text
    assert "copies kept packed beside" in text
    assert exe.signature.arguments[0].name == "norms.0.weight"
    assert "stablehlo" in exe.as_text("stablehlo")
    assert "x_0" in str(exe.cost_analysis()["flops"])


def test_what_has_no_lowering_is_named_with_its_line():
    program = exported(Of(torch.linalg.eigvals), (torch.randn(3, 3),), {})
    with pytest.raises(
        shlo_disc.UnsupportedError, match=r"tests/torch/models\.py:\d+: aten\.linalg_eig"
    ):
        shlo_disc.torch.compile(program)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5).eval(), nn.Dropout(0.0).train()])
def test_dropout_of_nothing_is_the_identity(layer):
    exe = shlo_disc.torch.compile(export(layer, (torch.randn(4),)))
    x = torch.randn(4)
    assert torch.equal(exe(x), x)


def test_only_an_exported_program_is_taken():
    with pytest.raises(TypeError, match=r"torch\.export\.export"):
        shlo_disc.torch.compile(Perceptron())


def test_one_compilation_for_all_calls(caplog):
    exe = shlo_disc.torch.compile(exported(Perceptron(), (torch.randn(3, 8),), {0: B}))
    with caplog.at_level(logging.INFO, "shlo_disc"):
        for size in (1, 2, 3, 17, 64):
            exe(torch.randn(size, 8))
    assert "compiled" not in caplog.text


WITHOUT_JAX = """
import sys
import torch
import shlo_disc.torch
class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2
exe = shlo_disc.torch.compile(torch.export.export(Double(), (torch.ones(3),)))
assert torch.equal(exe(torch.ones(3)), torch.full((3,), 2.0))
x = torch.ones(3, requires_grad=True)
torch.compile(Double(), backend="shlo_disc")(x).sum().backward()
assert torch.equal(x.grad, torch.full((3,), 2.0))
unwanted = ("jax.", "jaxlib.", "torch._inductor.lowering.")
print([name for name in sys.modules if f"{name}.".startswith(unwanted)])
"""


def test_neither_jax_nor_inductor_is_imported():
    assert python(WITHOUT_JAX) == "[]"
