"""Convolutions whose windows have sizes that a call gives, and groups of features of any size."""

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim, export

import shlo_disc.torch
from shlo_disc.base.errors import ShapeMismatchError
from tests.torch.models import Of
from tests.torch.test_indexed_ops import assert_right

STEPS = {
    "plain": {},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"padding": 2, "dilation": 2},
    "grouped": {"stride": 2, "padding": 1, "groups": 2},
}
SETS = [((9, 8, 7), 3), ((7, 13, 11), 2), ((11, 7, 5), 1), ((5, 8, 7), 4)]
"""Sizes of pictures, and of the first dimension of a window; the others are larger by 0 or 1."""


def operands(count, groups):
    """A picture of 4 features, a weight of 6 by 4, or transposed of 4 by 6, and a bias."""

    def make(sizes, window):
        windows = [window + k % 2 for k in range(count)]
        return (
            torch.randn(2, 4, *sizes[:count]),
            torch.randn(6, 4 // groups, *windows),
            torch.randn(4, 6 // groups, *windows),
            torch.randn(6),
        )

    return make


def both(count, steps):
    """A convolution, and a transposed one."""
    plain, back = (getattr(F, f"{kind}{count}d") for kind in ("conv", "conv_transpose"))
    return lambda x, w, t, b: (plain(x, w, b, **steps), back(x, t, b, **steps))


@pytest.mark.parametrize(
    ("count", "name"), [(1, "grouped"), (3, "grouped"), *((2, n) for n in STEPS)]
)
def test_windows_of_any_size(count, name):
    steps = STEPS[name]
    window = dict.fromkeys(range(2, 2 + count), Dim.DYNAMIC)
    dims = ({0: Dim.AUTO, **window}, window, window, {})
    assert_right(both(count, steps), operands(count, steps.get("groups", 1)), dims, SETS)


def test_gradients_of_windows_of_any_size():
    make, function = operands(2, 2), both(2, STEPS["grouped"])
    torch._dynamo.reset()
    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    torch.manual_seed(0)
    for sizes in SETS[:2]:
        args = [x.requires_grad_() for x in make(*sizes)]
        for x in args[:3]:
            torch._dynamo.maybe_mark_dynamic(x, [0, 2, 3])
        exact = [x.detach().double().requires_grad_() for x in args]
        mine, own = (
            torch.autograd.grad([y.square().sum() for y in f(*xs)], xs)
            for f, xs in ((fast, args), (function, exact))
        )
        for a, b in zip(mine, own, strict=True):
            limit = 1e-5 * b.abs().max().item()
            torch.testing.assert_close(a.double(), b, rtol=0, atol=limit)
    torch._dynamo.reset()


def test_same_padding_of_windows_of_any_size():
    """PyTorch pads an even window by one more behind, and decides so when it traces."""
    function = lambda x, w: F.conv2d(x, w, padding="same", dilation=2)  # noqa: E731
    window = {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    assert_right(
        function,
        lambda *sizes: (torch.randn(2, 3, 9, 8), torch.randn(4, 3, *sizes)),
        ({}, window),
        [(3, 2), (4, 5), (1, 3)],
    )


def test_a_window_that_does_not_fit_is_refused():
    window = {2: Dim.DYNAMIC}
    args = torch.randn(2, 3, 9), torch.randn(4, 3, 3)
    program = export(Of(F.conv1d), args, dynamic_shapes=((window, window),))
    fast = shlo_disc.torch.compile(program)
    torch.testing.assert_close(fast(*args), F.conv1d(*args))
    with pytest.raises(ShapeMismatchError):
        fast(torch.randn(2, 3, 4), torch.randn(4, 3, 5))


def test_what_follows_groups_of_any_number_of_features():
    """The bias of one group was read for another: `3*(o // 3)` was taken for less than `o`."""

    def make(o):
        return torch.randn(2, 3, 9, 8), torch.randn(o, 1, 3, 2), torch.randn(o)

    def function(x, w, b):
        y = F.conv2d(x, w, b, groups=3)
        return torch.relu(y) + b[:, None, None]

    features = {0: Dim.DYNAMIC}
    assert_right(function, make, ({}, features, features), [(6,), (3,), (21,)])


def test_strides_that_dynamo_takes_for_sizes_are_numbers():
    """An int of a closure is a symbol with `dynamic=True`: another one compiles again."""
    steps = {"stride": 2, "dilation": 2, "groups": 2}
    x, w = torch.randn(2, 4, 9), torch.randn(6, 2, 3)
    torch._dynamo.reset()

    def made(steps):
        return lambda x, w: F.conv1d(x, w, **steps)

    function = made(steps)
    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    for new in ({}, {"stride": 3}, {"dilation": 3, "stride": 1}):
        steps.update(new)
        torch.testing.assert_close(fast(x, w), function(x, w))
    torch._dynamo.reset()
