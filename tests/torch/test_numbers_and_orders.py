"""Mathematical functions, ops of elements in order, padding and transforms by sizes."""

import random

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.export import Dim, export
from torch.utils._sympy.functions import ToFloat, TruncToInt

import shlo_disc.torch
from shlo_disc.torch.sizes import exact_floor
from tests.torch.models import Of
from tests.torch.test_composite_ops import assert_right

aten = torch.ops.aten
B, S = Dim("b"), Dim("s", min=3)
SETS = [(4, 6), (1, 5), (7, 3), (0, 13)]

ONE = {
    "gamma": lambda x: (torch.lgamma(x * 3), torch.digamma(x.abs() + 0.1)),
    "polygamma": lambda x: torch.special.polygamma(2, x.abs() + 0.5),
    "multivariate gamma": lambda x: torch.mvlgamma(x.abs() + 2, 3),
    "zeta": lambda x: torch.special.zeta(x.abs() + 1.5, x.abs() + 0.5),
    "error function": lambda x: (torch.erfc(x), torch.erfinv(x.tanh() * 0.99)),
    "bessel": lambda x: (torch.i0(x), torch.special.i0e(x * 9), torch.special.i1(x)),
    "scaled bessel": lambda x: torch.special.i1e(x * 5),
    "fractions": lambda x: torch.frexp(x * 100)[:1],
    "softmax": lambda x: (x.softmax(1, torch.float64), x.log_softmax(0, torch.float64)),
}

TWO = {
    "hypot": lambda x, y: torch.hypot(x * 10, y),
    "signs": lambda x, y: (torch.copysign(x, y), torch.signbit(x), torch.copysign(x, -2.0)),
    "threshold": lambda x, y: (
        aten.threshold_backward(x, y, 0.5),
        aten.threshold_backward((x * 9).long(), y, 0),
    ),
    "extreme numbers": lambda x, y: (torch.fmax(x, y[0]), torch.fmin(x[:, :1], y)),
}


@pytest.mark.parametrize("name", ONE)
def test_functions_of_numbers(name):
    assert_right(ONE[name], lambda b, s: (torch.randn(b, s),), ({0: B, 1: S},), SETS)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name):
    sets = SETS[:3] if name == "extreme numbers" else SETS
    assert_right(
        TWO[name], lambda b, s: (torch.randn(b, s), torch.randn(b, s)), ({0: B, 1: S},) * 2, sets
    )


def test_special_numbers():
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 3e38, 1.0])

    def function(x, y):
        return (
            torch.hypot(x, y), torch.copysign(x, y), torch.signbit(x), torch.fmax(x, y),
            torch.fmin(x, y), *torch.frexp(x), torch.i0(x.clamp(-9, 9)), torch.nextafter(x, y),
        )  # fmt: skip

    def make(b):
        return special.repeat_interleave(8).repeat(b), special.repeat(8 * b)

    program = export(Of(function), make(2), dynamic_shapes=(({0: Dim.AUTO},) * 2,))
    exe = shlo_disc.torch.compile(program)
    for b in (2, 1, 0):
        args = make(b)
        results = zip(exe(*args), function(*args), strict=True)
        for place, (got, want) in enumerate(results):
            torch.testing.assert_close(got, want, equal_nan=True)
            if place in (1, 5):  # the sign of a maximum of zeros is any
                assert torch.equal(got.signbit() | got.isnan(), want.signbit() | want.isnan())


def with_ties(*shape):
    x = torch.randint(-3, 4, shape).float()
    x[torch.rand(shape) < 0.1] = float("nan")
    return x


ORDERED = {
    "kthvalue": None,
    "median": lambda x: (x.median(1)[0], x.median(1, True)[0], x.median()),
    "nanmedian": lambda x: (x.nanmedian(1)[0], x.nanmedian()),
    "mode": lambda x: (x.nan_to_num(9).mode(1)[0], x.nan_to_num(9).mode(0, True)[0]),
    "static places": lambda x: (torch.nonzero_static(x, size=7), aten.nonzero_static(x, size=1)),
}


@pytest.mark.parametrize("name", ORDERED)
def test_elements_in_order(name):
    function = ORDERED[name]
    sets = SETS[:3] if name == "mode" else SETS
    if name == "kthvalue":  # places of equal elements are any

        def function(x):
            middle, least = x.kthvalue(x.shape[1] // 2, 1), x.kthvalue(x.shape[1] - 2, 1, True)
            return (*x.kthvalue(2, 1), x.kthvalue(3, 1, True)[0], *middle, *least)

        dims = ({0: B, 1: Dim.AUTO},)
        sets = [(4, 6), (1, 5), (7, 4), (0, 13)]
        assert_right(function, lambda b, s: (torch.randn(b, s),), dims, sets)
    else:
        assert_right(function, lambda b, s: (with_ties(b, s),), ({0: B, 1: S},), sets)


DISTINCT = {
    "sorted": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "values": lambda x: (torch.unique(x),),
    "consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "counted": lambda x: (torch.bincount(x.flatten() + 3, minlength=2),),
    "weights": lambda x: (torch.bincount(x.flatten() + 3, x.flatten() * 0.5),),
    "as many as a size": lambda x: (
        torch.bincount(x.flatten() + 3, minlength=x.shape[0]),
        torch.bincount(x.flatten() + 3, x.flatten() * 0.5, minlength=x.shape[0]),
    ),
}


@pytest.mark.parametrize("name", DISTINCT)
def test_distinct_elements(name):
    function = DISTINCT[name]

    def make(b):
        return (torch.randint(-3, 4, (b, 3)),)

    exe = shlo_disc.torch.compile(export(Of(function), make(4), dynamic_shapes=(({0: B},),)))
    # PyTorch takes a size to be 2 at least, and so the number of results.
    for b in (4, 2, 7, 13) if name == "as many as a size" else (4, 1, 7, 0, 13):
        (x,) = make(b)
        for got, want in zip(exe(x), function(x), strict=True):
            torch.testing.assert_close(got, want, check_dtype=not got.is_floating_point())


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_index_reduce(reduce, include_self):
    def function(x, index, source):
        return torch.index_reduce(x, 1, index, source, reduce, include_self=include_self)

    def make(b, n):
        return torch.randn(b, 5), torch.randint(0, 5, (n,)), torch.randn(b, n)

    assert_right(
        function, make, ({0: B}, {0: Dim("n")}, {0: B, 1: Dim("n")}),
        [(4, 6), (1, 3), (0, 5), (7, 2)],
    )  # fmt: skip


PADDED = {
    "numbers": lambda x: F.pad(x, (0, x.shape[0], x.shape[1], 1), value=2.5),
    "to a size": lambda x: F.pad(x, (0, 20 - x.shape[1])),
    "cut": lambda x: F.pad(x, (x.shape[1] - 4, 4 - x.shape[1])),
    "transform": lambda x: torch.view_as_real(torch.fft.fft2(x, [8, 8])),
    "half": lambda x: torch.view_as_real(torch.fft.rfftn(x, [9, 8])),
    "of rows": lambda x: torch.view_as_real(torch.fft.fft(x, 8)),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_by_sizes(name):
    sets = [(4, 6), (2, 5), (7, 3), (3, 7)]
    assert_right(
        PADDED[name], lambda b, s: (torch.randn(b, s),), ({0: Dim.AUTO, 1: Dim.AUTO},), sets
    )


@pytest.mark.parametrize("factor", [0.8, 0.1, 1 / 3, 0.6, 1.7, 0.55, 1.5, 0.7, 2.3])
def test_a_size_times_a_float_is_exact_or_refused(factor):
    """0.7 and 2.3 are below p/q in f64: some products with whole numbers are rounded to less."""
    n = sympy.Symbol("n", integer=True, positive=True)
    found = exact_floor(TruncToInt(sympy.Float(factor) * ToFloat(n)))
    assert (found is None) == (factor in (0.7, 2.3))
    if found is not None:
        numerator, denominator = int(found[0] / n), found[1]
        draw = random.Random(0)
        for k in [*range(3000), *(denominator * draw.randrange(1 << 25) for _ in range(3000))]:
            assert int(factor * k) == numerator * k // denominator


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_interpolation_by_a_factor(mode):
    def function(x):
        more = {} if mode in ("nearest", "area") else {"align_corners": False}
        return F.interpolate(x, scale_factor=0.6, mode=mode, **more)

    assert_right(
        function, lambda b, s: (torch.randn(b, 2, s, 10),), ({0: B, 2: Dim.AUTO},),
        [(4, 10), (1, 7), (2, 13)],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_common_divisors_and_multiples(dtype):
    def make(b, s):
        x, y = (torch.randint(-9 if dtype.is_signed else 0, 10, (b, s)).to(dtype) for _ in "xy")
        y[0, :2] = 0
        return x, y

    def function(x, y):
        return torch.gcd(x, y), torch.lcm(x, y), torch.gcd(x[0, 0], y[0, 0]), torch.gcd(x, y[0])

    assert_right(function, make, ({0: B, 1: S},) * 2, [(4, 6), (1, 5), (3, 7)])
