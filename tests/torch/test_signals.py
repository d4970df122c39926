"""Windows, frequencies, histograms, rows in order, pairs of rows, and bits as other elements."""

import numpy as np
import pytest
import torch

import shlo_disc.torch  # noqa: F401

ERROR = {"on_unsupported": "error"}
WINDOWS = ("bartlett", "blackman", "hamming", "hann")


def windows(x):
    made = [getattr(torch, f"{name}_window") for name in WINDOWS]
    n = x.shape[0]
    return (
        *(one(n) for one in made), *(one(n, periodic=False) for one in made),
        *(one(1) for one in made), torch.hamming_window(n, True, 0.5, 0.4),
        torch.kaiser_window(n, True, 8.0), torch.fft.fftfreq(n, 0.3), torch.fft.rfftfreq(n),
    )  # fmt: skip


def counted(x):
    rows = (x.reshape(-1, 1) * torch.tensor([1.0, -1.0, 2.0])).round()
    return (
        torch.histc(x, 5), torch.histc(x, 7, -1, 1), torch.histc(x * 0, 3),
        torch.unique_consecutive(rows, dim=0, return_inverse=True, return_counts=True),
    )  # fmt: skip


def bits(x):
    pairs = torch.stack([x, -x], -1)
    return (
        x.view(torch.int16), x.double().view(torch.int32), pairs.view(torch.int64),
        pairs.view(torch.complex64) * 1j, torch.complex(x, -x).view(torch.float32),
        torch.complex(x, -x).view(torch.int64), x.view(torch.uint8).view(torch.int16),
    )  # fmt: skip


@pytest.mark.parametrize("function", [windows, counted, bits])
def test_results_are_those_of_eager_mode(function):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=ERROR)
        for n in (9, 16):
            x = torch.randn(n)
            torch.testing.assert_close(fast(x), function(x))


def test_distances_of_pairs_with_gradients():
    def function(x):
        return torch.pdist(x), torch.pdist(x, 1)

    fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=ERROR)
    for n in (5, 8):
        x = torch.randn(n, 3, requires_grad=True)
        results = fast(x), function(x)
        torch.testing.assert_close(*results)
        torch.testing.assert_close(
            *(torch.autograd.grad((a**2).sum() + b.sum(), x) for a, b in results)
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_normal_numbers_beside_those_of_scipy(dtype):
    special = pytest.importorskip("scipy.special")

    def function(x, p):
        return torch.special.erfcx(x), torch.special.log_ndtr(x), torch.special.ndtri(p), 0.1 - x

    x = torch.cat([torch.linspace(-8, 30, 777), torch.tensor([torch.nan, torch.inf, -torch.inf])])
    p = torch.cat([torch.linspace(0, 1, 501), torch.logspace(-35, -1, 99), torch.tensor([-1, 2.0])])
    x, p = x.to(dtype), p.to(dtype)
    found = torch.compile(function, backend="shlo_disc", dynamic=True, options=ERROR)(x, p)
    wide = x.double().numpy()
    true = [special.erfcx(wide), special.log_ndtr(wide), special.ndtri(p.double().numpy()),
            0.1 - wide]  # fmt: skip
    for own, exact in zip(found, true, strict=True):
        # log_ndtr is as exact as that of eager mode: it is the logarithm of a difference.
        rtol = 2e-5 if dtype is torch.float32 else 1e-12
        np.testing.assert_allclose(own.double(), exact, rtol=rtol, atol=1e-37)
