"""Complex numbers inside a program, as arguments and as results; Fourier transforms."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from torch.export import Dim, export  # noqa: E402

import shlo_disc  # noqa: E402
import shlo_disc.torch  # noqa: E402
from tests.torch.models import Of  # noqa: E402

pytestmark = pytest.mark.torch
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


def test_rotary_embedding_with_complex_numbers():
    def rotated(x, angles):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:2], 4, 2))
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(2)

    fast = torch.compile(rotated, backend="shlo_disc", dynamic=True)
    for rows, steps in ((3, 5), (2, 7), (4, 11)):
        args = torch.randn(rows, steps, 8), torch.randn(steps, 4)
        torch.testing.assert_close(fast(*args), rotated(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [lambda z: z.cumsum(0), lambda z: torch.linalg.inv(z @ z.t()), lambda z: z.prod(1),
     torch.sinh],
)  # fmt: skip
def test_an_op_without_a_rule_is_refused_with_its_name(function):
    program = export(Of(function), (z(4, 6),), dynamic_shapes=(({0: Dim("b")},),))
    with pytest.raises(shlo_disc.UnsupportedError, match=r"aten\.\w+"):
        shlo_disc.torch.compile(program)
