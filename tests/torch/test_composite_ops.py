"""Ops that PyTorch composes of others, and ops whose decompositions write tensors."""

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of

aten = torch.ops.aten
B, S = Dim("b"), Dim("s")


def assert_right(function, make, dims, sets, dtype=torch.float64):
    """`function` of `make(*sizes)` is what it is in f64, at every set of sizes, compiled once."""
    torch.manual_seed(0)
    program = export(Of(function), make(*sets[0]), dynamic_shapes=(dims,))
    exe = shlo_disc.torch.compile(program)
    for sizes in sets:
        args = make(*sizes)
        wide = [x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                for x in args]  # fmt: skip
        got, want = exe(*args), function(*wide)
        flat = [(x,) if isinstance(x, torch.Tensor) else tuple(x) for x in (got, want)]
        for a, b in zip(*flat, strict=True):
            assert a.shape == b.shape
            torch.testing.assert_close(
                a, b, rtol=1e-5, atol=2e-6, equal_nan=True, check_dtype=not a.is_floating_point()
            )


MOVES = {
    "cut": lambda x: (*x.hsplit(3), *x.hsplit([2, 5]), *x.tensor_split([1, 4], 1)),
    "turned": lambda x: (x.mT, x.mH, x.movedim(1, 0), x.T, x.T.movedim([0, 1], [1, 0])),
    "flat": lambda x: (x.ravel(), torch.atleast_3d(x), +x, x.view_as(x + 1)),
    "copied": lambda x: (
        aten.permute_copy(x, [1, 0]), *aten.unbind_copy(x, 1), aten.narrow_copy(x, 1, 2, 4),
        aten.unfold_copy(x, 1, 3, 2), x.unfold(1, 4, 1), aten.squeeze_copy(x[:, :1], 1),
        aten.t_copy(x),
    ),
    "numbers": lambda x: (x.resolve_conj(), x.real, x.angle(), torch.conj_physical(x), x.float()),
    "products": lambda x: (torch.cartesian_prod(x[:, 0], x[0]), torch.addmv(x[:, 0], x, x[0, :6])),
    "rolled": lambda x: (
        x.roll(2, 0), x.roll([-3, 8], [0, 1]), x.roll(1), x[:, :0].roll(1, 1),
        torch.fft.fftshift(x),
    ),
    "written": lambda x: torch.put(x, torch.tensor([0, -2]), torch.ones(2, dtype=x.dtype)),
    # It writes a tensor, and has a view that only PyTorch's primitive ops have.
    "smoothed": lambda x: F.cross_entropy(x, torch.arange(x.shape[0]) % 6, label_smoothing=0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_composite_ops(name):
    def make(b):
        return (torch.randn(b, 6),)

    sets = [(4,), (1,), (7,), (13,), *([(0,)] if name not in ("products", "written") else [])]
    assert_right(MOVES[name], make, ({0: B},), sets)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.chunk(3, 1),
        lambda x: aten.unsafe_chunk(x, 3, 1),
        lambda x: x.tensor_split(3, 1),
        lambda x: (*x.chunk(2, 0), *x.tensor_split(2, 0)),
    ],
)
def test_parts_of_a_size(function):
    sets = [(4, 12), (6, 9), (8, 15), (10, 6)]  # where there are as many chunks
    assert_right(function, lambda b, s: (torch.randn(b, s),), ({0: Dim.AUTO, 1: Dim.AUTO},), sets)


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_a_written_diagonal(offset):
    def make(b, n):
        length = torch.zeros(n, 5).diagonal(offset).shape[0]
        return torch.randn(b, n, 5), torch.randn(b, length)

    for n in (3, 5, 8):
        assert_right(
            lambda x, y: torch.diagonal_scatter(x, y, offset, 1, 2),
            make, ({0: B}, {0: B}), [(2, n), (1, n), (0, n), (5, n)],
        )  # fmt: skip


WRITERS = {
    "cosine_similarity": F.cosine_similarity,
    "cosine_embedding": lambda x, y: F.cosine_embedding_loss(x, y, y[:, 0].sign()),
    "hinge": lambda x, y: F.hinge_embedding_loss(x, y.sign(), reduction="none"),
    "margin": lambda x, y: F.margin_ranking_loss(x, y, y.sign(), 0.3, reduction="none"),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y.abs(), full=True, reduction="none"),
    "isclose": lambda x, y: (torch.isclose(x, y, 0.5, 0.1), torch.isclose(x, x / y.sign())),
    "nanmean": lambda x, y: torch.nanmean(torch.where(x > y, x, torch.nan), 1),
    "quantile": lambda x, y: (torch.quantile(x, 0.3, 1), torch.nanquantile(y, 0.7, 1)),
    "differences": lambda x, y: torch.diff(x, 1, 1, y),
    "circular": lambda x, y: F.pad(x.unsqueeze(0), (2, 1), "circular"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_decompositions_that_write(name):
    sets = [
        (4, 6),
        (1, 5),
        (7, 11),
        (3, 4),
        *([] if name in ("cosine_embedding", "quantile") else [(0, 7)]),
    ]
    assert_right(
        WRITERS[name], lambda b, s: (torch.randn(b, s), torch.randn(b, s)),
        ({0: B, 1: Dim("s", min=3, max=99)},) * 2, sets,
    )  # fmt: skip


def native_norm(x, mean, variance, weight, bias, training):
    return torch.native_batch_norm(x, weight, bias, mean, variance, training, 0.1, 1e-5)[0]


@pytest.mark.parametrize("function", [F.instance_norm, F.batch_norm, native_norm])
def test_running_statistics_are_written(function):
    """Their schemas tell nothing of that."""
    is_instance = function is F.instance_norm

    def norm(x, mean, variance, weight, bias):
        more = {} if is_instance else {"training": True}
        return function(x, mean, variance, weight, bias, **more)

    def make(b, s):
        return torch.randn(b, 3, s), *(torch.rand(3) + 0.5 for _ in range(4))

    program = export(Of(norm), make(4, 6), dynamic_shapes=(({0: B, 2: S}, *[None] * 4),))
    exe = shlo_disc.torch.compile(program)
    for sizes in ((4, 6), (1, 5), (3, 7), (5, 2)):
        args = make(*sizes)
        copies = [x.double() for x in args]
        torch.testing.assert_close(exe(*args).double(), norm(*copies), rtol=1e-4, atol=1e-4)
        for mine, theirs in zip(args, copies, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5)


def test_a_native_norm_of_given_statistics():
    """Its statistics of the batch have no elements."""

    def function(x, mean, variance):
        return torch.native_batch_norm(x, None, mean, mean, variance, False, 0.1, 1e-5)

    assert_right(
        function, lambda b: (torch.randn(b, 3, 2), torch.randn(3), torch.rand(3)),
        ({0: B}, None, None), [(4,), (1,), (7,)],
    )  # fmt: skip


def test_operands_whose_nodes_are_equal_stay_apart():
    """They are traced once, and had one value: a trace took both for the same tensor."""

    def function(x, y):
        return torch.rsub(aten._unsafe_view(x, [-1]), aten._unsafe_view(y, [-1]), alpha=2)

    assert_right(
        function, lambda b: (torch.randn(b, 3), torch.randn(b, 3)), ({0: B}, {0: B}),
        [(4,), (1,), (0,), (5,)],
    )  # fmt: skip


def test_a_refusal_names_the_op_whose_constants_are_left():
    """Of an op without a lowering, torch-mlir reports the constants that are its operands."""
    program = export(
        Of(lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([4]))),
        (torch.randn(4, 3),), dynamic_shapes=(({0: B},),),
    )  # fmt: skip
    with pytest.raises(shlo_disc.UnsupportedError, match=r"^\S+:\d+: aten.segment_reduce has no"):
        shlo_disc.torch.compile(program)


QUANTIZED = {
    "tensor": ("quantize_per_tensor", "dequantize_per_tensor", (0.1, 3, -128, 127, torch.int8)),
    "channels": (
        "quantize_per_channel",
        "dequantize_per_channel",
        (torch.tensor([0.1, 0.02, 0.3]), torch.tensor([0, 5, -7]), 1, 0, 255, torch.uint8),
    ),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_ops_of_quantized_models(name):
    import torch.ao.quantization.fx._decomposed  # defines them

    down, up, numbers = QUANTIZED[name]
    ops = torch.ops.quantized_decomposed

    def function(x):
        small = getattr(ops, down)(x, *numbers)
        return small, getattr(ops, up)(small, *numbers)

    assert_right(
        function, lambda b: (torch.randn(b, 3) * 9,), ({0: B},), ((2,), (1,), (7,)), torch.float32
    )


@pytest.mark.parametrize("name", ["choose_qparams", "choose_qparams_symmetric"])
def test_numbers_of_quantization_that_are_chosen_from_a_tensor(name):
    import torch.ao.quantization.fx._decomposed  # defines them

    choose = getattr(torch.ops.quantized_decomposed, name).tensor

    def function(x):
        return *choose(x, -128, 127, 1e-5, torch.int8), *choose(x + 3, 0, 255, 1e-5, torch.uint8)

    def make(b):
        return (torch.randn(b, 3) * b,)

    assert_right(function, make, ({0: B},), ((2,), (1,), (7,)), torch.float32)
