"""Bad arguments and programs: a named error, and the tensors of the caller as before."""

import enum
import io
import threading

import pytest
import torch
from torch import nn
from torch.export import Dim, export, load, save

import shlo_disc.torch
from tests.torch.models import Block, Of

B = Dim("b")


@pytest.fixture(scope="module")
def added():
    x = torch.randn(3, 4)
    program = export(Of(lambda x, y: x + y), (x, x.clone()), dynamic_shapes=(({0: B}, {0: B}),))
    return shlo_disc.torch.compile(program)


class Counting(torch.Tensor):
    """A class of tensors that sees every function that is called with one."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


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
    "nested": (lambda y: torch.nested.nested_tensor([y[0], y[1]]),
               shlo_disc.UnsupportedError, "args_1 is nested"),
    "ragged": (lambda y: torch.nested.nested_tensor([y[0], y[1]], layout=torch.jagged),
               shlo_disc.UnsupportedError, "args_1 is nested"),
    "subclass": (lambda y: y.as_subclass(Counting), shlo_disc.UnsupportedError, "is a Counting"),
    "list": (lambda y: [y], TypeError, "must be a torch.Tensor, got list"),
    "scalar": (lambda y: y.sum(), shlo_disc.ShapeMismatchError, "rank is 0"),
    "many dimensions": (lambda y: y.reshape([1] * 30 + [3, 4]),
                        shlo_disc.ShapeMismatchError, "rank is 32"),
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


READ = {
    "negated": torch._neg_view,
    "conjugated": lambda y: torch.complex(y, y).conj().imag,
    "expanded": lambda y: y[:1].expand(3, 4),
    "one element": lambda y: y[0, 0].expand(3, 4),
    "overlapping": lambda y: y.as_strided((3, 4), (1, 1)),
    "behind an offset": lambda y: torch.cat([y, y]).flatten()[5:17].view(3, 4),
    "transposed": lambda y: y.t().contiguous().t(),
    "every second": lambda y: y.repeat(2, 2)[::2, ::2],
    "parameter": lambda y: nn.Parameter(y, requires_grad=False),
    "of inference mode": lambda y: torch.inference_mode()(y.clone)(),
    "plain subclass": lambda y: y.as_subclass(type("Plain", (torch.Tensor,), {})),
}


@pytest.mark.parametrize("name", READ)
def test_an_odd_tensor_is_read_as_pytorch_reads_it(added, name):
    y = READ[name](torch.randn(3, 4))
    x = torch.randn(3, 4)
    assert torch.equal(added(x, y), x + y)
    assert torch.equal(added(y, x), x + y)


def test_a_plain_subclass_is_taken_by_the_backend_beside_other_threads():
    class Plain(torch.Tensor):
        pass

    run = torch.compile(lambda y: y * 2 + 1, backend="shlo_disc", dynamic=True)
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        for rows in (3, 5):
            y = torch.randn(rows, 4)
            got = run(y.as_subclass(Plain))
            assert type(got) is Plain
            assert torch.equal(got.as_subclass(torch.Tensor), y * 2 + 1)
    finally:
        stop.set()
        other.join()


class Structured(nn.Module):
    def forward(self, x, more, *, mode="a", bias=None, n=2):
        y = x * more["k"][0] + (0 if bias is None else bias)
        return -y if mode == "a" else y * n


def test_structures_are_those_of_the_export_and_differences_are_named():
    x = torch.randn(3, 4)
    exported = export(
        Structured(),
        (x, {"k": [x], "j": (x,)}),
        {"mode": "b", "bias": None, "n": 5},
        dynamic_shapes={"x": {0: B}, "more": {"k": [{0: B}], "j": ({0: B},)}, "mode": None,
                        "bias": None, "n": Dim.DYNAMIC},
    )  # fmt: skip
    run = shlo_disc.torch.compile(exported)
    given = {"mode": "b", "bias": None, "n": 7}
    for more in ({"k": [x], "j": (x,)}, {"j": (x,), "k": [x]}):
        for named in (given, dict(reversed(given.items()))):
            torch.testing.assert_close(run(x, more, **named), 7 * x * x)
    right = {"k": [x], "j": (x,)}
    for args, named, says in (
        ((x,), given, "takes 2 arguments by position and by name mode, bias, n"),
        ((x, right, x), given, "takes 2 arguments by position"),
        ((x, right), {"mode": "b", "n": 7}, "the arguments lack bias; by name it takes mode, bias"),
        ((x, right), {**given, "scale": 1}, "the export had no argument scale"),
        ((x, {"k": [x]}), given, "argument 1 must be a dict with the keys 'k', 'j', as in the"),
        ((x, {"k": (x,), "j": (x,)}), given, r"argument 1\['k'\] must be a list of 1, as in the "),
        ((x, {"k": [x, x], "j": (x,)}), given, r"must be a list of 1, .* got a list of 2"),
        ((x, {"k": [None], "j": (x,)}), given, "more_k_0 must be a torch.Tensor, got NoneType"),
        ((x, x), given, "argument 1 must be a dict .* got a tensor"),
        ((x, right), {**given, "mode": "a"}, "mode must be 'b', as when the program was exported"),
        ((x, right), {**given, "mode": x}, "mode must be 'b', .* got a Tensor"),
        ((x, right), {**given, "bias": x}, "bias must be None, as when the program was exported"),
        ((x, right), {**given, "n": 2.0}, "n must be an int, got 2.0"),
        ((x, right), {**given, "n": True}, "n must be an int, got True"),
        ((x, right), {**given, "n": None}, "n must be an int, got None"),
        ((x, right), {**given, "n": x}, "n must be an int, got a Tensor"),
    ):
        with pytest.raises(TypeError, match=says):
            run(*args, **named)


@pytest.mark.parametrize(
    ("option", "error", "says"),
    [
        ({"constraints": 3}, TypeError, "constraints must be strings"),
        ({"freeze": 1}, TypeError, "freeze must be True or False"),
    ],
)
def test_options_of_an_export_are_checked(option, error, says):
    program = export(nn.Linear(4, 4), (torch.randn(3, 4),))
    with pytest.raises(error, match=says):
        shlo_disc.torch.compile(program, **option)


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).sum()


def test_a_joint_graph_of_forward_and_backward_says_what_trains():
    from torch.export.experimental import _export_forward_backward

    joint = _export_forward_backward(export(Loss(), (torch.randn(3, 4),)))
    with pytest.raises(shlo_disc.UnsupportedError, match="a joint graph of forward and backward"):
        shlo_disc.torch.compile(joint)


def test_an_argument_that_is_an_object_of_python_is_refused():
    class Mode(enum.Enum):
        TWICE = 2

    program = export(Of(lambda x, mode: x * mode.value), (torch.randn(3), Mode.TWICE))
    with pytest.raises(shlo_disc.UnsupportedError, match="is an object of Python"):
        shlo_disc.torch.compile(program)


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


def test_a_tensor_that_the_program_resizes_is_refused():
    x = torch.zeros(3, 4, dtype=torch.int64)
    program = export(Of(lambda x: torch.arange(1, 13, out=x)), (x,))
    with pytest.raises(
        shlo_disc.UnsupportedError, match=r"args_0 the shape \(12,\), it has \(3, 4\)"
    ):
        shlo_disc.torch.compile(program)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64])
def test_an_element_type_that_is_not_supported(dtype):
    program = export(Of(lambda x: x + x), (torch.ones(3).to(dtype),), dynamic_shapes=(({},),))
    with pytest.raises(shlo_disc.UnsupportedError, match=f"elements of type {dtype} are not sup"):
        shlo_disc.torch.compile(program)
