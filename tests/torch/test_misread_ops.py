"""Ops that torch-mlir lowers to something else: pools in ceil mode, unsigned numbers, truths."""

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from tests.torch.test_indexed_ops import BS, B, assert_right

aten = torch.ops.aten

POOLS = {
    "mean": lambda x: F.avg_pool2d(x, 3, 2, 0, True),
    "mean with padding": lambda x: F.avg_pool2d(x, 3, 2, 1, True, True),
    "mean without padding": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "mean with a divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, True, True, 5),
    "mean of rows": lambda x: F.avg_pool1d(x[:, 0], 3, 2, 0, True),
    "maximum": lambda x: F.max_pool2d(x, 3, 2, 1, 1, True),
    "maximum of far neighbours": lambda x: F.max_pool2d(x, 2, 3, 0, 2, True),
    "maximum of single pixels": lambda x: F.max_pool2d(x, 1, 3, 0, 1, True),
    "places": lambda x: aten.max_pool2d_with_indices(x, [3, 2], [2, 3], [1, 0], [1, 1], True),
}


def test_largest_elements_without_strides():
    """torch-mlir moved these windows by 1, not by their size."""
    assert_right(
        lambda x: (
            *F.max_pool2d(x, 2, return_indices=True),
            aten.max_pool2d(x, [3, 2]),
            aten.max_pool1d(x[:, 0], [2]),
        ),
        lambda b, s: (torch.randn(b, 3, 12, 9),),
        ({0: B},),
        [(4, 6), (1, 5), (3, 9)],
    )


@pytest.mark.parametrize("name", POOLS)
def test_pools_in_ceil_mode(name):
    def make(b, h):
        return (torch.randn(b, 3, h, h + 1),)

    sets = [(4, 12), (3, 15), (1, 18)]  # PyTorch asks for one remainder by the stride
    assert_right(POOLS[name], make, ({0: B, 2: Dim.AUTO, 3: Dim.AUTO},), sets)
    assert_right(lambda x: POOLS[name](x[:, :, :10, :12]), make, ({0: B},), [(4, 13), (1, 13)])


def test_the_place_of_a_maximum_is_the_first_or_that_of_nan():
    x = torch.tensor([[1.0, 1.0, 0.0, torch.nan, 2.0, 2.0, -torch.inf, -torch.inf, -torch.inf]])
    assert_right(
        lambda x: aten.max_pool2d_with_indices(x, [1, 3], [1, 3], [0, 0], [1, 1], True),
        lambda b: (x.repeat(b, 1, 1),),
        ({0: B},),
        [(3,), (1,)],
    )


def of_type(dtype, low, high):
    return lambda b, s: (torch.randint(low, high, (b, s)).to(dtype),)


REDUCTIONS = {
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "max": torch.max,
    "min": torch.min,
    "max of rows": lambda x: x.max(1),
    "min of rows": lambda x: x.min(1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0),
    "abs": torch.abs,
    "any": lambda x: (x.any(1), x.all(), x.any()),
    "pool": lambda x: F.max_pool2d(x.unsqueeze(0), (1, 2)),
    "shifts": lambda x: (x << 2, x >> 1, 1 << (x % 8)),
}


@pytest.mark.parametrize(("low", "high"), [(0, 100), (150, 256)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_unsigned_numbers(name, low, high):
    make = of_type(torch.uint8, low, high)
    assert_right(REDUCTIONS[name], make, (BS,), [(4, 6), (1, 5), (3, 7)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.max(1), x.min(0)),
        lambda x: (x < 2, x >= 1, x == 1, x != 3, x > -1),
        lambda x: (x.any(), x.all(1), x.amax(0)),
    ],
)
def test_truth_values(function):
    make = of_type(torch.bool, 0, 2)
    assert_right(function, make, (BS,), [(4, 6), (1, 5), (3, 7)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_remainders_and_shifts_of_signed_numbers(dtype):
    assert_right(
        lambda x: (x % -3, torch.fmod(x, -3), -7 % (x.abs() + 1), x >> 1, x << 2, x % x.shape[1]),
        of_type(dtype, -60, 60),
        (BS,),
        [(4, 6), (1, 5), (3, 7)],
    )


def test_an_extreme_element_is_a_nan_and_the_first_of_equal_ones():
    def function(x):
        return (
            *x.max(1), *x.min(0, keepdim=True), x.argmax(1), x.argmin(0, keepdim=True), x.argmax(),
            x.argmin(), *torch.aminmax(x, dim=1),
        )  # fmt: skip

    def make(b, s):
        x = torch.randint(-2, 3, (b, s)).float()
        x[-1, -1] = x[-1, 1] = float("nan")
        x[0] = float("-inf")
        return x

    dims = ({0: Dim("b", min=2), 1: Dim("s", min=3)},)
    sets = ((4, 6), (2, 3), (7, 5), (3, 17), (2, 130))
    assert_right(function, lambda *n: (make(*n),), dims, sets)
    assert_right(function, lambda *n: (make(*n).nan_to_num(),), dims, sets)


def test_bounds_of_other_ranks():
    """torch-mlir's op of these ends the process."""
    dims = (BS, {0: Dim("s", min=5)}, {})
    assert_right(
        lambda x, low, high: (
            x.clamp(low, high), x.clamp_min(low), x.clamp_max(high), low.clamp(x, high),
        ),
        lambda b, s: (torch.randn(b, s), torch.randn(s), torch.tensor(0.5)),
        dims,
        ((4, 6), (1, 5), (3, 7), (2, 17)),
    )  # fmt: skip


def test_transposed_convolution_of_one_picture():
    weight = torch.randn(3, 2, 4)
    assert_right(
        lambda x: torch.nn.functional.conv_transpose1d(x, weight, stride=2),
        lambda b, s: (torch.randn(3, s),),
        ({1: Dim("s", min=5)},),
        ((4, 6), (1, 5), (3, 7)),
    )


def test_comparisons_of_constants_with_numbers_of_another_kind():
    """torch-mlir compared bits (1.0 == 1 was false), or ended the process (7 > 1.5)."""
    comparisons = (aten.eq, aten.ne, aten.lt, aten.ge)
    pairs = ((1.0, 1), (5.0, 1), (-2.0, -2), (7, 1.5), (1, 1.0), (True, 0.5))

    def function(x):
        zero = torch.where(x > 5, 1, 0)
        return [
            zero + op.Scalar(torch.scalar_tensor(a, dtype=torch.tensor(a).dtype), b)
            for a, b in pairs
            for op in comparisons
        ] + [(x * 2).to(torch.int64) > 0.5, (x * 2).to(torch.int32) <= -1.0, x.double() == 1]

    assert_right(function, lambda b, s: (torch.randn(b, s),), (BS,), ((4, 6), (1, 5)))


def test_running_totals_without_elements():
    assert_right(
        lambda x: (x.cumsum(0), x.cumprod(1), *x.cummax(1), x.cumsum(1)),
        lambda b, s: (torch.randn(b, 0),),
        ({0: B},),
        ((4, 6), (2, 6)),
    )


def test_reductions_of_a_scalar():
    """torch-mlir's passes end the process on those that keep the dimension."""
    assert_right(
        lambda x: (x.amax(0, True), x.sum(0, True), x.mean(0), x.prod(0), x.logsumexp(0, True)),
        lambda *sizes: (torch.tensor(0.7),),
        ({},),
        ((4, 6),),
    )


def test_a_mean_of_volumes_with_a_divisor():
    assert_right(
        lambda x: F.avg_pool3d(x, (6, 3, 4), (2, 3, 2), (3, 1, 0), divisor_override=2),
        lambda b, s: (torch.randn(b, 1, 7, 5, 7),),
        ({0: B},),
        ((4, 6), (1, 5), (3, 7)),
    )
