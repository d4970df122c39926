"""`jnp.fft` under `shlo_disc.jit` at lengths that are symbols, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc

pytest.importorskip("shlo_disc.ral._ral", reason="the runtime extension is not built here")

REAL = True

SIZES = ((8, 6), (7, 5), (1, 1), (101, 2), (2, 64))
"""Powers of two, odd and prime lengths, and one."""


def numbers(*shape):
    rng = np.random.default_rng(shape[0])
    return rng.normal(size=shape).astype("f4"), rng.normal(size=shape).astype("f4")


def transforms(fft, x, z):
    """Transforms of a real and of a complex matrix by `jax.numpy.fft` or `numpy.fft`."""
    n, m = x.shape
    return {
        "whole": (fft.fft(z), fft.ifft(z), fft.fft(x), fft.rfft(x), fft.ihfft(x)),
        "axes": (fft.fft(z, axis=0), fft.fft2(z), fft.ifftn(z, axes=(0,)), fft.rfft2(x)),
        "norms": [
            (fft.fft(z, norm=way), fft.irfft(z, n=m, norm=way))
            for way in ("ortho", "forward", "backward")
        ],
        "longer": (fft.rfft(x, n=2 * m), fft.fft(z, n=n + m, axis=0), fft.fft2(z, s=(n + 1, m))),
        "shorter": (fft.fft(z, n=(m + 1) // 2), fft.rfft(x, n=(n + 1) // 2, axis=0)),
        "inverse": (fft.irfft(z, n=m), fft.irfft2(z, s=(n, m)), fft.hfft(z, n=n + m)),
        "around": (fft.irfft(fft.rfft(x), n=m), fft.fftshift(fft.fftfreq(n))),
    }


def gradients(x):
    def of(function):
        return jax.grad(lambda x: jnp.arctan(function(x)).sum())(x)

    return (
        of(lambda x: jnp.abs(jnp.fft.rfft(x, axis=0)) ** 2),
        of(lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2j, n=x.shape[1])),
        of(lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x) * 2, s=x.shape)),
        jax.vmap(jax.grad(lambda row: jnp.abs(jnp.fft.fft(row)).sum()))(x),
        jax.jvp(jnp.fft.ihfft, (x,), (x + 1,)),
    )


def close(got, want, scale=4e-7):
    """Errors are measured beside the largest number of the transform, as bounds of FFTs are."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= scale * (1 + np.abs(want).max())


def test_transforms_beside_numpy():
    f = shlo_disc.jit(lambda x, y: transforms(jnp.fft, x, x + 1j * y))
    for n, m in SIZES:
        x, y = numbers(n, m)
        x64, y64 = x.astype("f8"), y.astype("f8")
        jax.tree.map(close, f(x, y), transforms(np.fft, x64, x64 + 1j * y64))
    assert f.cache_info().misses == 1


def test_gradients_beside_jax():
    f = shlo_disc.jit(gradients)
    for n, m in SIZES:
        x, _ = numbers(n, m)
        got = f(x)
        with jax.enable_x64(True):
            want = jax.jit(gradients)(x.astype("f8"))
        jax.tree.map(lambda a, b: close(a, b, 1e-5), got, want)
    assert f.cache_info().misses == 1


@pytest.mark.slow
def test_four_dimensions_and_cosines():
    def function(x):
        parts = jnp.fft.rfftn(x), jnp.fft.irfftn(x + 1j, s=x.shape), jnp.fft.fftn(x)
        cosines = jax.scipy.fft.dctn(x[0, 0]), jax.scipy.fft.idct(x, axis=1, norm="ortho")
        return parts, cosines

    f = shlo_disc.jit(function)
    for shape in ((2, 3, 4, 5), (3, 2, 5, 4), (2, 2, 7, 2)):
        x, _ = numbers(*shape)
        got = f(x)
        with jax.enable_x64(True):
            want = jax.jit(function)(x.astype("f8"))
        jax.tree.map(lambda a, b: close(a, b, 2e-6), got, want)
    assert f.cache_info().misses == 1


def test_a_product_of_transforms_is_a_convolution():
    def convolve(x, y):
        n = x.shape[0] + y.shape[0] - 1
        return jnp.fft.irfft(jnp.fft.rfft(x, n=n) * jnp.fft.rfft(y, n=n), n=n)

    f = shlo_disc.jit(convolve)
    for n, m in SIZES:
        x, y = numbers(n)[0], numbers(m)[1]
        close(f(x, y), np.convolve(x.astype("f8"), y), 1e-6)
    assert f.cache_info().misses == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: jnp.fft.fft(x, n=x.shape[1] - 9), "Shape should be positive"),
        (lambda x: jnp.fft.fft(x, n=x.shape[1], norm="none"), "Invalid norm"),
        (lambda x: jnp.fft.fft2(x, s=(x.shape[1],)), "different lengths"),
        (lambda x: jnp.fft.fft2(x, s=x.shape, axes=(1, 1)), "repeated axes"),
    ],
)
def test_errors_are_jaxs(call, error):
    x = np.ones((4, 6), "f4")
    for jit in (jax.jit, shlo_disc.jit):
        with pytest.raises(ValueError, match=error):
            jit(call)(x)
