"""Complex numbers inside a program, as arguments and as results; Fourier transforms."""

import pytest
import torch
from torch.export import Dim, export

import shlo_disc
import shlo_disc.torch
from tests.torch.models import Of

ERROR = {"on_unsupported": "error"}
SIZES = ((4, 6), (1, 5), (3, 7), (2, 16), (7, 3))


def z(b, s):
    return torch.randn(b, s, dtype=torch.complex64)


def x(b, s):
    return torch.randn(b, s)


def wide(b, s):
    return torch.randn(b, s, dtype=torch.complex128)


FUNCTIONS = {
    "rfft": (torch.fft.rfft, x),
    "of two dimensions": (lambda x: torch.fft.rfft2(x, norm="ortho").abs(), x),
    "fft of reals": (lambda x: torch.fft.fft(x).real, x),
    "fft of rows": (lambda z: torch.fft.fft(z, dim=0, norm="ortho"), z),
    "ifft2": (torch.fft.ifft2, z),
    "there and back": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="forward") * 2, x.shape[1]), x),
    "hfft": (torch.fft.hfft, z),
    "c128": (lambda z: torch.fft.fft(z * 2j, norm="forward"), wide),
    "arithmetic": (lambda a, b: a * b + (1 + 2j) * a - b / a, z, z),
    "of reals and complex": (lambda a, b: a * b + 2 * b - 1j, z, x),
    "parts": (lambda z: z.abs() + z.angle() + z.real * z.imag, z),
    "conjugate": (lambda z: (z.conj() * z).real + z.conj().imag, z),
    "views": (lambda z: torch.view_as_complex(torch.view_as_real(z) * 2), z),
    "moved": (lambda z: torch.cat([z.t()[1:], z.t().flip(0)])[:, 0].unsqueeze(1), z),
    "repeated": (lambda z: z.repeat(2, 1) + z.sum(0).expand(2 * z.shape[0], -1), z),
    "product": (lambda a, b: a @ b.t(), z, z),
    "einsum": (lambda a: torch.einsum("bs,bs->b", a, a), z),
    "totals": (lambda z: z.sum(-1, keepdim=True) - z.sum(), z),
    "mean": (lambda z: z.unsqueeze(-1).expand(-1, -1, 3).mean(-1), z),
    "polar": (lambda x: torch.polar(x.abs(), x), x),
    "functions": (
        lambda z: (z.exp() + z.sin().cos()).tanh() + z.sqrt() + z.log() + z**2 + 1 / z, z),
    "equal": (lambda a, b: (a == b) | (a != b.conj()), z, z),
    "chosen": (lambda a, b: torch.where(b > 0, a, a * 2).masked_fill(b > 1, 3), z, x),
    "constants": (lambda z: z + torch.zeros_like(z) + 2 * torch.ones_like(z), z),
    "converted": (lambda x: x.to(torch.complex64) * 1j, x),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_complex_numbers_are_right_at_every_size(name):
    function, *make = FUNCTIONS[name]
    torch.manual_seed(0)
    args = [one(*SIZES[0]) for one in make]
    dims = ({0: Dim("b", max=99), 1: Dim("s", min=2)},) * len(args)
    exe = shlo_disc.torch.compile(export(Of(function), tuple(args), dynamic_shapes=(dims,)))
    for sizes in SIZES:
        args = [one(*sizes) for one in make]
        torch.testing.assert_close(exe(*args), function(*args), rtol=1e-4, atol=1e-4)


def test_numbers_are_written_to_parts_of_complex_numbers():
    def written(z):
        copy = z.clone()
        copy[:, 1:3] = 0
        copy[0] = torch.tensor(2 + 1j)
        return copy

    compiled = torch.compile(written, backend="shlo_disc", dynamic=True, options=ERROR)
    for sizes in SIZES:
        given = z(*sizes)
        torch.testing.assert_close(compiled(given), written(given))


def test_rotary_embedding_with_complex_numbers():
    def rotated(x, angles):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:2], 4, 2))
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(2)

    fast = torch.compile(rotated, backend="shlo_disc", dynamic=True)
    for rows, steps in ((3, 5), (2, 7), (4, 11)):
        args = torch.randn(rows, steps, 8), torch.randn(steps, 4)
        torch.testing.assert_close(fast(*args), rotated(*args), rtol=1e-5, atol=1e-5)


def written(x, w):
    """A layer of a Fourier neural operator: some frequencies are written into zeros."""
    y = torch.fft.rfft(x)
    out = torch.zeros(x.shape[0], y.shape[1], dtype=y.dtype)
    out[:, : w.shape[0]] = torch.einsum("bm,mk->bk", y[:, : w.shape[0]], w)
    out[:, 0] += 1j
    return torch.fft.irfft(out, n=x.shape[1])


def long_convolution(x, w):
    n = 2 * x.shape[1]
    product = torch.fft.rfft(x, n=n) * torch.fft.rfft(w.real[:, :1].t(), n=n).conj()
    return torch.fft.irfft(product, n=n)[:, : x.shape[1]]


TRAINED = {
    "spectra": lambda x, w: (
        torch.fft.rfft(x).abs(), torch.fft.rfft2(x).angle(), torch.fft.ihfft(x),
        torch.fft.irfft(torch.fft.ifft(x), n=x.shape[1] + 1), torch.fft.hfft(x * w[0, 0]),
    ),
    "written": lambda x, w: (written(x, w), long_convolution(x, w)),
    "conjugated": lambda x, w: (
        torch.vdot(w[0], w[1]), torch.dot(w[0], w[1]), w.conj(), w.conj().imag, w.mH @ w,
    ),
    "moved": lambda x, w: (
        w.cumsum(0), w.roll(1, 0), w.tril(), w.gather(0, torch.tensor([[1, 0, 2]])),
        w.masked_scatter(w.real > 0, w.t()), w.index_add(0, torch.tensor([1, 1]), w[:2], alpha=2),
        torch.addmm(w, w, w, beta=2, alpha=1j), w.masked_fill(w.real > 0, 1j), w.mean(0),
        w.prod(0), w.cumprod(1),
    ),
    "functions": lambda x, w: [
        getattr(torch, name)(w)
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_complex_numbers_are_those_of_eager_mode(name):
    function = TRAINED[name]
    fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=ERROR)

    def gradients(function, *args):
        results = function(*args)
        results = results if isinstance(results, tuple | list) else [results]
        loss = sum(
            (y.abs() ** 2 + y.real * y.imag if y.is_complex() else y * y).sum() for y in results
        )
        return [*results, *torch.autograd.grad(loss, args, allow_unused=True)]

    for rows, steps in ((4, 10), (2, 7)):
        args = x(rows, steps).requires_grad_(), z(3, 3).requires_grad_()
        for own, true in zip(gradients(fast, *args), gradients(function, *args), strict=True):
            torch.testing.assert_close(own, true, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("function", [lambda z: torch.linalg.eigvals(z @ z.t()), torch.digamma])
def test_an_op_without_a_rule_is_refused_with_its_name(function):
    program = export(Of(function), (z(4, 6),), dynamic_shapes=(({0: Dim("b")},),))
    with pytest.raises(shlo_disc.UnsupportedError, match=r"aten\.\w+"):
        shlo_disc.torch.compile(program)
