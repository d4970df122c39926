"""f16 and bf16: sums, counts and numbers that the type has not; whole quotients of integers."""

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of
from tests.torch.test_backend import compiled

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(function, batches, tolerance):
    """One export for all batches, whose first dimension is dynamic."""
    dims = tuple({0: Dim.DYNAMIC} for _ in batches[0])
    exe = shlo_disc.torch.compile(export(Of(function), batches[0], dynamic_shapes=(dims,)))
    for batch in batches:
        torch.testing.assert_close(
            exe(*batch), function(*batch), rtol=tolerance, atol=tolerance, equal_nan=True
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_means_and_norms_of_many_elements(dtype):
    """The number of elements is more than f16 has, and so is their sum."""

    def reduced(x):
        rows, flat = x.unflatten(0, (-1, 1)), x.flatten()
        return (
            x.mean(), flat.mean(0), rows.mean((0, 2)), flat.nanmean(), F.l1_loss(x, -x),
            (x * 100).norm(), F.normalize(flat * 1000, dim=0) * 1000,
            F.binary_cross_entropy_with_logits(x, x), x.mean(dtype=torch.float32),
            F.adaptive_avg_pool1d(flat[None], 1), F.instance_norm(x.T[None]),
            F.batch_norm(x.T[None], None, None, None, None, True), torch.var_mean(x),
        )  # fmt: skip

    batches = [(torch.rand(n, 2).to(dtype),) for n in (70001, 257, 2)]
    check(reduced, batches, 2 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_windows_of_large_elements(dtype):
    def pooled(x):
        return F.avg_pool1d(x, 5), F.avg_pool2d(x[None], 2), F.interpolate(x, 4, mode="area")

    check(pooled, [((2e4 * torch.ones(n, 3, 8)).to(dtype),) for n in (2, 5)], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_numbers_that_the_type_has_not(dtype):
    def scaled(x):
        count = 70001 * x.shape[0]
        return (
            x / 1e5, 1e5 / x, x * 0.1, x * 70001 / 70001, x / torch.tensor(1e5), x / count,
            x / torch.tensor(3.0, dtype=torch.float64), x[0] * 1e-7 * 1e6, x / torch.tensor(70001),
        )  # fmt: skip

    check(scaled, [(1e4 + torch.rand(n).to(dtype),) for n in (3, 7)], TOLERANCE[dtype])


def test_gradients_of_a_mean_of_many_elements():
    def loss(x):
        return (x * x).mean() / 3e-5

    fast, grads = compiled(loss), []
    for rows in (70001, 3):
        x = torch.rand(rows).half()
        for run in (fast, loss):
            own = x.clone().requires_grad_()
            run(own).backward()
            grads.append(own.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=4e-3, atol=1e-6)
    torch.testing.assert_close(grads[2], grads[3], rtol=4e-3, atol=1e-6)


DIVISORS = (1 << 30, 3, -3, 7)
LARGE = (2**63 - 2, -(2**63) + 1, 1 << 62, (1 << 62) + 1, -3, 7, -7, 0, 1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_quotients_of_integers_are_exact(dtype):
    size = torch.iinfo(dtype)
    divisors = [d for d in DIVISORS if size.min <= d <= size.max]

    def quotients(x, y):
        found = [x // y, torch.floor_divide(x, y), torch.div(x, y, rounding_mode=None)]
        for d in (y, *divisors):
            found += [torch.div(x, d, rounding_mode=mode) for mode in ("floor", "trunc")]
        return (*found, *(x // d for d in divisors), x % y)

    values = [min(max(v, size.min), size.max) for v in LARGE]
    x = torch.tensor(values, dtype=dtype)
    y = torch.tensor([3, 5, 7, 2, 2, 3, 1, 9, 4], dtype=dtype)
    y = y if dtype is torch.uint8 else torch.where(torch.arange(9) % 2 == 1, -y, y)
    check(quotients, [(x, y), (x[:1], y[:1]), (x[2:7], y[2:7])], 0)
