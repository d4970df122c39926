"""Ops of numbers, scalars and complex numbers whose operands torch-mlir does not take."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim, export

import shlo_disc.torch
from shlo_disc.base.errors import UnsupportedError
from tests.torch.models import Of
from tests.torch.test_indexed_ops import BS, assert_right

aten, prims = torch.ops.aten, torch.ops.prims
SETS = [(4, 6), (1, 5), (3, 7), (0, 8)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_functions_of_whole_numbers(dtype):
    def function(x):
        floats = (torch.reciprocal(x), torch.erf(x), torch.special.ndtr(x), x.clamp(0.5, 2.5))
        return *floats, torch.isinf(x), torch.isfinite(x), torch.digamma(x)

    def make(b, s):
        return (torch.randint(-9, 9, (b, s)).to(dtype),)

    assert_right(function, make, (BS,), SETS)


def test_digamma_at_whole_numbers_up_to_0():
    x = torch.tensor([[0.0, -0.0, -1.0, -3.0, 2.0, -0.5, torch.inf, torch.nan]])
    assert_right(torch.digamma, lambda b: (x.repeat(b, 1),), ({0: BS[0]},), [(2,), (1,)])


@pytest.mark.parametrize("spread", [1, 500])
def test_logarithms_of_running_sums(spread):
    def make(b, s):
        return (spread * torch.randn(b, s),)

    assert_right(lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), make, (BS,), SETS)
    odd = [1.0, -torch.inf, torch.inf, 2.0, torch.nan, 0.0]
    rows = torch.tensor([odd, [-torch.inf] * 6])
    assert_right(lambda x: x.logcumsumexp(-1), lambda b: (rows[:b],), ({0: BS[0]},), [(2,), (1,)])


def test_reductions_of_prims():
    def function(x):
        n = (x * 8).to(torch.int64)
        every = [prims.prod(x, [0]), prims.prod(n, [0, 1]), prims.sum(x, [1]), prims.sum(n, [0])]
        return *every, prims.amax(x, [1]), prims.amin(n, [1])

    assert_right(function, lambda b, s: (torch.randn(b, s),), (BS,), SETS)


@pytest.mark.parametrize("order", [0, 1, 2, 3.5, float("inf")])
def test_norms_of_complex_numbers_and_of_scalars(order):
    def function(x, y):
        z = torch.complex(x, y)
        norms = [torch.linalg.vector_norm(z, order, *dims) for dims in ([], [0], [1, True])]
        return *norms, *(torch.linalg.vector_norm(v.sum(), order) for v in (x, z))

    def make(b, s):
        return torch.randn(b, s), torch.randn(b, s)

    assert_right(function, make, (BS, BS), SETS[:3])


def test_an_index_of_rank_0_and_an_element_of_a_scalar():
    def function(x):
        one = torch.tensor([0])
        return x.index_select(1, torch.tensor(2)), x.sum().index_select(0, one)

    assert_right(function, lambda b, s: (torch.randn(b, s),), (BS,), SETS)


def test_a_scalar_is_gathered_and_scattered_as_one_element():
    def function(x):
        n, many, none, one = x.sum(), x.sum(0), torch.tensor(0), torch.tensor([0])
        return (
            many.gather(0, none + 2), n.gather(0, none), n.gather(-1, one),
            n.scatter(0, none, 2.0), n.scatter(0, one, n[None] * 2),
            many[:1].scatter(0, none, n), n.scatter_add(-1, none, n),
        )  # fmt: skip

    assert_right(function, lambda b, s: (torch.randn(b, s),), (BS,), SETS)


def test_rrelu_of_models_in_eval_mode_and_its_gradient():
    """torch-mlir took 1 - lower - upper for the slope of a gradient."""
    torch._dynamo.reset()
    fast = torch.compile(lambda x: F.rrelu(x, 0.1, 0.4), backend="shlo_disc", dynamic=True)
    for sizes in [(4, 6), (1, 5)]:
        x = torch.randn(sizes, requires_grad=True)
        y, own = fast(x), F.rrelu(x, 0.1, 0.4)
        torch.testing.assert_close(y, own)
        torch.testing.assert_close(*(torch.autograd.grad(v.square().sum(), x) for v in (y, own)))
    torch._dynamo.reset()


def test_rrelu_of_models_in_training_is_refused():
    program = export(Of(lambda x: F.rrelu(x, training=True)), (torch.randn(3),))
    with pytest.raises(UnsupportedError, match="is random"):
        shlo_disc.torch.compile(program)


@pytest.mark.parametrize("norm_type", [2.0, 1.0])
def test_an_embedding_with_a_largest_norm_writes_its_weight(norm_type):
    """Rows that are looked up become shorter, as often as they are named in one call."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    own = torch.nn.Embedding(7, 5, max_norm=1.0, norm_type=norm_type)
    mine = copy.deepcopy(own)
    fast = torch.compile(mine, backend="shlo_disc", dynamic=True)
    for index in ([[0, 5, 5]], [[1, 2], [5, 3]]):
        index = torch.tensor(index)
        torch.testing.assert_close(fast(index), own(index))
        torch.testing.assert_close(mine.weight, own.weight)
    torch._dynamo.reset()


def test_convolutions_by_other_names():
    rest = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, True]

    def function(x, w, s, v, b):
        plain = aten._convolution(x, w, b, *rest, True), aten._convolution(x, w, b, *rest)
        return *plain, torch.conv_tbc(s, v, b, 1), F.avg_pool2d(x, 2, divisor_override=3)

    def make(b, s):
        sequences = torch.randn(9, 2, 3), torch.randn(2, 3, 4)
        return torch.randn(b, 3, s, 6), torch.randn(4, 3, 2, 3), *sequences, torch.randn(4)

    dims = ({0: Dim.AUTO, 2: Dim.AUTO}, {}, {}, {}, {})
    assert_right(function, make, dims, [(4, 6), (1, 5), (3, 7)])


def test_nearest_pixels_of_a_size_and_factors_that_contradict_it():
    """The factors were taken for the size; PyTorch takes them for the steps, mostly."""
    up = aten.upsample_nearest2d

    def function(x):
        sizes = up(x, [18, 48], 3.0, 4.0), up(x, [17, 30], 3.0, None), up(x, [9, 31], 1.7, 2.1)
        return *sizes, F.interpolate(x, scale_factor=(2.1, 1.3)), F.interpolate(x, scale_factor=2)

    rows = {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    sets = [(6, 12), (9, 15), (3, 4), (2, 3)]
    assert_right(function, lambda h, w: (torch.randn(2, 3, h, w),), (rows,), sets)
