"""Decompositions of mathematical functions of ATen, number by number.

    %y = aten.hypot(%a, %b)    ==>    %m = the larger one of |%a| and |%b|, %n the smaller one
                                      %y = %m * sqrt(1 + (%n / %m)^2)

Functions that CHLO has are bodies: `bodies/special.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shlo_disc.torch.type_rewrites import widened

aten = torch.ops.aten


def _floats(*values: Any) -> list[Tensor]:
    """Tensors and numbers as floats of one type."""
    found = [v if isinstance(v, Tensor) else torch.scalar_tensor(v) for v in values]
    dtype = torch.result_type(found[0], found[-1])
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return [v.to(dtype) for v in found]


def _division_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Divisions that torch-mlir lacks, or computes in f64.

    These are divisions that round nothing, and those of integers that round down.
    """
    mode = node.kwargs.get("rounding_mode")
    if mode is None:
        return lambda x, y, **kwargs: torch.div(x, y)
    is_integer = not node.meta["val"].dtype.is_floating_point
    return _floor_quotient if is_integer and mode == "floor" else None


DIVISIONS = dict.fromkeys((aten.div.Scalar_mode, aten.div.Tensor_mode), _division_rule)
"""Overload -> what says for which nodes it is rewritten."""


def _floor_quotient(x: Any, y: Any, **_: Any) -> Tensor:
    """Of integers: the truncated quotient, and 1 less where the rest has another sign than `y`."""
    quotient = torch.div(x, y, rounding_mode="trunc")
    if not quotient.dtype.is_signed:
        return quotient
    rest = x - quotient * y
    is_below = (rest != 0) & ((rest < 0) != (y < 0))
    return quotient - is_below.to(quotient.dtype)


def _copysign(x: Tensor, other: Any) -> Tensor:
    x, other = _floats(x, other)
    return torch.where(aten.signbit(other), -x.abs(), x.abs())


def _rsub(x: Tensor, other: float, alpha: float = 1) -> Tensor:
    """With `other` in the type of the result: torch-mlir rounds it to f32."""
    number = torch.scalar_tensor(other, dtype=torch.result_type(x, other))
    return torch.sub(number, x, alpha=alpha)


def _hypot(a: Tensor, b: Tensor) -> Tensor:
    """Without the square of the larger one, which may be too large for its type."""
    a, b = a.abs(), b.abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    is_plain = (large > 0) & (large < math.inf)
    ratio = small / torch.where(is_plain, large, 1.0)
    found = torch.where(is_plain, large * torch.sqrt(1 + ratio * ratio), large)
    return torch.where((a == math.inf) | (b == math.inf), math.inf, found)


def _extreme_number(choose: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The extreme one of two elements, where one is NaN the other one."""

    def rewritten(a: Tensor, b: Tensor) -> Tensor:
        kind = torch.result_type(a, b)
        a, b = a.to(kind), b.to(kind)
        if not kind.is_floating_point:
            return choose(a, b)
        return torch.where(a.isnan(), b, torch.where(b.isnan(), a, choose(a, b)))

    return rewritten


def _frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """The fraction in [0.5, 1) and the power of 2, of the bits of `x`."""
    wide = widened(x)
    is_double = wide.dtype is torch.float64
    bits, size, bias = (torch.int64, 52, 1022) if is_double else (torch.int32, 23, 126)
    ones = (1 << (11 if is_double else 8)) - 1
    small = wide.abs() < (2.0**-1022 if is_double else 2.0**-126)
    scaled = torch.where(small, wide * 2.0**size, wide)
    word = aten.view.dtype(scaled, bits)
    power = torch.bitwise_and(word >> size, ones)
    is_plain = (power != ones) & (scaled != 0)
    exponent = torch.where(is_plain, power - bias - torch.where(small, size, 0), 0)
    fraction = torch.bitwise_or(torch.bitwise_and(word, ~(ones << size)), bias << size)
    mantissa = torch.where(is_plain, aten.view.dtype(fraction, wide.dtype), wide)
    return mantissa.to(x.dtype), exponent.to(torch.int32)


def _threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    """In the common type of both; torch-mlir gives that of the gradient."""
    return torch.where(x <= threshold, 0, grad.to(torch.result_type(grad, x)))


_I0E_NEAR = (
    -4.41534164647933937950e-18, 3.33079451882223809783e-17, -2.43127984654795469359e-16,
    1.71539128555513303061e-15, -1.16853328779934516808e-14, 7.67618549860493561688e-14,
    -4.85644678311192946090e-13, 2.95505266312963983461e-12, -1.72682629144155570723e-11,
    9.67580903537323691224e-11, -5.18979560163526290666e-10, 2.65982372468238665035e-9,
    -1.30002500998624804212e-8, 6.04699502254191894932e-8, -2.67079385394061173391e-7,
    1.11738753912010371815e-6, -4.41673835845875056359e-6, 1.64484480707288970893e-5,
    -5.75419501008210370398e-5, 1.88502885095841655729e-4, -5.76375574538582365885e-4,
    1.63947561694133579842e-3, -4.32430999505057594430e-3, 1.05464603945949983183e-2,
    -2.37374148058994688156e-2, 4.93052842396707084878e-2, -9.49010970480476444210e-2,
    1.71620901522208775349e-1, -3.04682672343198398683e-1, 6.76795274409476084995e-1,
)  # fmt: skip
"""Chebyshev coefficients of exp(-x) i0(x) in [0, 8]; source: Cephes, `i0.c`."""

_I0E_FAR = (
    -7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17,
    3.46122286769746109310e-17, -2.82762398051658348494e-16, -3.42548561967721913462e-16,
    1.77256013305652638360e-15, 3.81168066935262242075e-15, -9.55484669882830764870e-15,
    -4.15056934728722208663e-14, 1.54008621752140982691e-14, 3.85277838274214270114e-13,
    7.18012445138366623367e-13, -1.79417853150680611778e-12, -1.32158118404477131188e-11,
    -3.14991652796324136454e-11, 1.18891471078464383424e-11, 4.94060238822496958910e-10,
    3.39623202570838634515e-9, 2.26666899049817806459e-8, 2.04891858946906374183e-7,
    2.89137052083475648297e-6, 6.88975834691682398426e-5, 3.36911647825569408990e-3,
    8.04490411014108831608e-1,
)  # fmt: skip
"""Those of exp(-x) sqrt(x) i0(x) from 8 on."""


def _chebyshev(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The series at `x` in [-2, 2], by Clenshaw's recurrence."""
    first: Any = torch.zeros_like(x)
    second: Any = first
    third: Any = first
    for c in coefficients:
        first, second, third = x * first - second + c, first, second
    return 0.5 * (first - third)


def _i0e(x: Tensor) -> Tensor:
    (x,) = _floats(x)
    size = x.abs()
    near = _chebyshev(0.5 * size.clamp(max=8) - 2, _I0E_NEAR)
    far = size.clamp(min=8)
    return torch.where(size <= 8, near, _chebyshev(32 / far - 2, _I0E_FAR) / far.sqrt())


def _i0(x: Tensor) -> Tensor:
    (x,) = _floats(x)
    return _i0e(x) * x.abs().exp()


def _i1(x: Tensor) -> Tensor:
    (x,) = _floats(x)
    return aten.special_i1e(x) * x.abs().exp()


def _series(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The polynomial at `x`, the highest power first."""
    found: Any = coefficients[0]
    for c in coefficients[1:]:
        found = found * x + c
    return found


_ERFCX_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3),
)  # fmt: skip
"""Numerator and denominator of exp(x^2) erfc(x) up to 4; source: Cody, "Rational Chebyshev
approximations for the error function", 1969, as in SPECFUN."""

_ERFCX_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346047, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip
"""Those of (1 / sqrt(pi) - x exp(x^2) erfc(x)) x^2 in x^-2 from 4 on."""


def _erfcx(x: Tensor) -> Tensor:
    """`exp(x^2) erfc(x)`, without the infinity that its factors have."""
    (x,) = _floats(x)
    wide = widened(x)
    size = wide.abs()
    middle = size.clamp(max=4)
    found = _series(middle, _ERFCX_MIDDLE[0]) / _series(middle, _ERFCX_MIDDLE[1])
    far = size.clamp(min=4)
    small = (1 / far) ** 2
    tail = small * _series(small, _ERFCX_FAR[0]) / _series(small, _ERFCX_FAR[1])
    found = torch.where(size <= 4, found, (1 / math.sqrt(math.pi) - tail) / far)
    # The square as one of a number of few bits, which is exact, and the rest.
    rounded = torch.trunc(wide * 16) / 16
    below = torch.exp(rounded * rounded) * torch.exp((wide - rounded) * (wide + rounded))
    near = torch.exp(wide * wide) * torch.erfc(wide)
    found = torch.where(wide < 0, 2 * below - found, found)
    found = torch.where(size < 0.46875, near, found)
    return torch.where(wide < -27, torch.inf, torch.where(wide.isnan(), wide, found)).to(x.dtype)


_NDTRI_NEAR = (
    (-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1,
     1.39312609387279679503e1, -1.23916583867381258016e0),
    (1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1,
     -2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1,
     1.59056225126211695515e1, -1.18331621121330003142e0),
)  # fmt: skip
_NDTRI_FAR = (
    (4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1,
     4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0,
     -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4),
    (1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1,
     1.50425385692907503408e1, 2.50464946208309415979e0, -1.42182922854787788574e-1,
     -3.80806407691578277194e-2, -9.33259480895457427372e-4),
)  # fmt: skip
_NDTRI_FARTHEST = (
    (3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0,
     1.33303460815807542389e0, 2.01485389549179081538e-1, 1.23716634817820021358e-2,
     3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9),
    (1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0,
     2.16236993594496635890e-1, 1.34204006088543189037e-2, 3.28014464682127739104e-4,
     2.89247864745380683936e-6, 6.79019408009981274425e-9),
)  # fmt: skip
"""Numerators and denominators by the distance from 1/2; source: Cephes, `ndtri.c`."""


def _ndtri(p: Tensor) -> Tensor:
    """The inverse of the distribution function of normal numbers."""
    (p,) = _floats(p)
    y = widened(p)
    is_high = y > 1 - math.exp(-2)
    part = torch.where(is_high, 1 - y, y)
    off = part - 0.5
    square = off * off
    near = off + off * square * _series(square, _NDTRI_NEAR[0]) / _series(square, _NDTRI_NEAR[1])
    inside = torch.where((part > 0) & (part < 1), part, 0.5)
    x = torch.sqrt(-2 * torch.log(inside))
    z = 1 / x
    far = z * _series(z, _NDTRI_FAR[0]) / _series(z, _NDTRI_FAR[1])
    farthest = z * _series(z, _NDTRI_FARTHEST[0]) / _series(z, _NDTRI_FARTHEST[1])
    tail = x - torch.log(x) / x - torch.where(x < 8, far, farthest)
    found = torch.where(
        part > math.exp(-2), near * math.sqrt(2 * math.pi), torch.where(is_high, tail, -tail)
    )
    found = torch.where(y == 0, -torch.inf, torch.where(y == 1, torch.inf, found))
    return torch.where((y >= 0) & (y <= 1), found, torch.nan).to(p.dtype)


prims = torch.ops.prims

_TRANSFORMS: dict[Any, Callable[..., Any]] = {
    prims.fft_c2c.default: lambda x, *, dim, forward: aten._fft_c2c(x, dim, 0, forward),
    prims.fft_c2r.default: lambda x, *, dim, last_dim_size: aten._fft_c2r(x, dim, 0, last_dim_size),
    prims.fft_r2c.default: lambda x, *, dim, onesided: aten._fft_r2c(x, dim, 0, onesided),
}
"""What PyTorch's decompositions of `torch.fft` are made of, without a factor."""

NUMBERS: dict[Any, Callable[..., Any]] = {
    **_TRANSFORMS,
    aten.copysign.Scalar: _copysign,
    aten.copysign.Tensor: _copysign,
    aten.fmax.default: _extreme_number(torch.maximum),
    aten.fmin.default: _extreme_number(torch.minimum),
    aten.frexp.Tensor: _frexp,
    aten.hypot.default: _hypot,
    aten.i0.default: _i0,
    aten.rsub.Scalar: _rsub,
    aten.special_erfcx.default: _erfcx,
    aten.special_i0e.default: _i0e,
    aten.special_i1.default: _i1,
    aten.special_ndtri.default: _ndtri,
    aten.threshold_backward.default: _threshold_backward,
}
"""Overload -> what it is traced from."""


def fused_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What `prims.fma` is traced from, which Dynamo writes for `addcmul_` and its like.

    By its name: PyTorch has the op only after an import that takes seconds. Eager mode rounds the
    product too.
    """
    return (lambda a, b, c: a * b + c) if node.target.name() == "prims::fma" else None
