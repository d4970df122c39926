"""Products of dequantised integers (QDQ), which `sum-integers` makes products of integers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

import shlo_disc

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def dequantised(q: Any, zero: Any, scale: Any) -> Any:
    x = q.astype(jnp.float32)
    if zero is not None:
        x = x - zero
    return x if scale is None else x * scale


def product(q: Any, p: Any, scales: Any, zeros: Any, bias: Any) -> Any:
    return dequantised(q, zeros[0], scales[0]) @ dequantised(p, zeros[1], scales[1]) + bias


def why(f: Any, *args: Any) -> str:
    return str(shlo_disc.jit(f).lower(*args).compile().executable.explain())


def integers(r: np.random.Generator, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    low, high = RANGES[dtype]
    found = r.integers(low, high + 1, shape)
    found[r.random(shape) < 0.2] = low  # saturated
    found[r.random(shape) < 0.2] = high
    return found.astype(dtype)


def exact(q: Any, z: Any, p: Any, w: Any) -> npt.NDArray[Any]:
    """Sums of integers of 64 bits."""
    q, z, p, w = (np.asarray(x).astype(np.int64) for x in (q, z, p, w))
    return (q - z) @ (p - w)


def close(got: Any, want: Any, magnitude: Any) -> None:
    """Within six roundings of the sums of magnitudes."""
    error = 6 * 2.0**-24 * np.asarray(magnitude) + 1e-30
    assert (abs(np.asarray(got, np.float64) - want) <= error).all()


def fitting(f: Any, q: Any, z: Any, p: Any, w: Any, factor: Any, bias: Any) -> None:
    """Compare `f()` with exact sums times `factor`, in float64."""
    sums = exact(q, z, p, w) * factor
    magnitude = exact(abs(q.astype(int) - z), 0, abs(p.astype(int) - w), 0) * abs(factor)
    close(f(), sums + bias, magnitude + abs(bias) + abs(sums + bias))


@pytest.mark.parametrize(
    ("left", "right", "z", "w"),
    [
        ("int8", "int8", None, None),
        ("uint8", "int8", 255, None),
        ("int8", "uint8", -128, 128),
        ("uint8", "uint8", 0, 255),
    ],
)
def test_zero_points_at_extremes(left, right, z, w):
    def f(q, p, scale, bias):
        return product(q, p, (0.03, scale), (z, w), bias)

    r, run = np.random.default_rng(0), shlo_disc.jit(f)
    for m, k, n in ((1, 16, 1), (7, 33, 19), (13, 400, 65), (0, 32, 8), (3, 17, 0), (2, 1, 5)):
        q, p = integers(r, (m, k), left), integers(r, (k, n), right)
        scale, bias = r.uniform(0.5, 2, n).astype(np.float32), r.normal(size=n).astype(np.float32)
        args = tuple(map(jnp.asarray, (q, p, scale, bias)))
        factor = np.float64(np.float32(0.03)) * scale
        fitting(lambda args=args: run(*args), q, z or 0, p, w or 0, factor, bias)
    assert "sums of integers: both" in why(f, *args)


def test_dynamic_quantisation_of_rows_and_weights_by_rows():
    def f(x, w, scale):
        mine = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
        q = jnp.clip(jnp.round(x / mine), -128, 127).astype(jnp.int8)
        return dequantised(q, None, mine) @ dequantised(w, None, scale[:, None]).T

    r, run = np.random.default_rng(0), shlo_disc.jit(f)
    for m, k, n in ((1, 64, 9), (20, 100, 33)):
        x = r.normal(size=(m, k)).astype(np.float32)
        x[0] = 0  # a scale of 0
        w, scale = integers(r, (n, k), "int8"), r.uniform(1e-3, 1, n).astype(np.float32)
        args = tuple(map(jnp.asarray, (x, w, scale)))
        mine = abs(x).max(-1, keepdims=True) / np.float32(127)
        with np.errstate(invalid="ignore"):
            q = np.nan_to_num(np.clip(np.rint(x / mine), -128, 127)).astype(np.int8)
        fitting(lambda args=args: run(*args), q, 0, w.T, 0, mine.astype(np.float64) * scale, 0.0)
    assert "sums of integers: both" in why(f, *args)


def test_scales_of_any_size():
    """Neither sums times the larger scale nor the product of scales may be of f32."""

    def f(q, p, s, t):
        return dequantised(q, None, s) @ dequantised(p, None, t)

    r, run = np.random.default_rng(0), shlo_disc.jit(f)
    q, p = integers(r, (5, 40), "int8"), integers(r, (40, 6), "int8")
    for s, t in ((1e-30, 1e33), (1e35, 1e-30), (-1e-25, 1e-12), (1e-41, 3.0), (0.0, 5.0)):
        s, t = np.float32(s), np.full(6, t, np.float32)
        args = tuple(map(jnp.asarray, (q, p, s, t)))
        fitting(lambda args=args: run(*args), q, 0, p, 0, np.float64(s) * t, 0.0)
    t[2] = np.nan
    got = np.asarray(run(*map(jnp.asarray, (q, p, np.float32(2), t))))
    assert np.isnan(got[:, 2]).all()
    assert np.isfinite(got[:, [0, 1, 3, 4, 5]]).all()
    assert not np.isfinite(run(*map(jnp.asarray, (q, p, np.float32(np.inf), t)))).any()


def test_requantised_layers():
    """Two layers, as exporters leave them: no value of 32 bits is stored between them."""

    def f(q, p1, p2, bias):
        h = product(q, p1, (0.02, 0.01), (3, None), bias)
        h = jnp.clip(jnp.round(jax.nn.relu(h) / 0.5) - 128, -128, 127).astype(jnp.int8)
        return product(h, p2, (0.5, 0.02), (-128, None), 0.0)

    r = np.random.default_rng(0)
    q, p1, p2 = (integers(r, s, "int8") for s in ((9, 48), (48, 70), (70, 21)))
    bias = r.normal(size=70).astype(np.float32)
    args = tuple(map(jnp.asarray, (q, p1, p2, bias)))
    factor = np.float32(np.float32(0.02) * np.float32(0.01))
    h = np.maximum(exact(q, 3, p1, 0).astype(np.float32) * factor + bias, 0) / np.float32(0.5)
    h = np.clip(np.rint(h) - 128, -128, 127).astype(np.int8)
    got = np.asarray(shlo_disc.jit(f)(*args))
    want = exact(h, -128, p2, 0) * (0.5 * np.float64(np.float32(0.02)))
    # A number that lies between two of the first layer's may have been rounded to the other one.
    assert (abs(got - want) <= 0.01 * 128 + 1e-5 * abs(want)).all()
    assert np.mean(abs(got - want) <= 1e-5 * abs(want) + 1e-6) > 0.9
    found = shlo_disc.jit(f).lower(*args).compile().executable
    assert found.explain().count("sums of integers: both") == 2


def test_a_sum_that_does_not_fit_is_one_of_floats():
    q, p = np.full((1, 70_000), -128, np.int8), np.full((70_000, 2), -128, np.int8)
    f = shlo_disc.jit(lambda q, p: dequantised(q, 127, 0.5) @ dequantised(p, 127, 0.5))
    for k in (1000, 70_000):
        got = f(jnp.asarray(q[:, :k]), jnp.asarray(p[:k]))
        np.testing.assert_allclose(got, np.full((1, 2), k * 127.5**2), rtol=1e-5)


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda q, p, s: dequantised(q, None, s[:, None]).T @ dequantised(p, None, 0.5),
         "a scale changes along the sum"),
        (lambda q, p, s: dequantised(q, s[0], 0.5).T @ dequantised(p, s[1], 0.5),
         "neither zero point is known to be an integer of 8 bits"),
    ],
)  # fmt: skip
def test_reasons_why_floats_stay(f, reason):
    r = np.random.default_rng(0)
    q, p = integers(r, (20, 3), "int8"), integers(r, (20, 4), "uint8")
    args = jnp.asarray(q), jnp.asarray(p), jnp.asarray(r.uniform(1, 2, 20), jnp.float32)
    np.testing.assert_allclose(shlo_disc.jit(f)(*args), jax.jit(f)(*args), rtol=1e-4, atol=1e-3)
    assert f"sums of floats: {reason}" in why(f, *args)


def test_zero_points_of_any_number():
    """Those of PyTorch are arrays of 64 bits, which may hold what they should not."""

    def f(q, p, z, scale):
        zero = z.astype(jnp.float32)
        return dequantised(q, 3, 0.5) @ dequantised(p, zero[:, None], scale[:, None]).T

    r, run = np.random.default_rng(0), shlo_disc.jit(f)
    q, p = integers(r, (9, 40), "uint8"), integers(r, (12, 40), "int8")
    p[:6] = p[:6, :1]  # where a zero point is equal to all integers, sums are 0
    z = np.float32([*p[:6, 0], 0, -128, 300, -1e7, 12.5, 126.7])
    scale = r.uniform(0.5, 2, 12).astype(np.float32)
    x, y = (q.astype(np.float64) - 3) * 0.5, (p.astype(np.float64) - z[:, None]) * scale[:, None]
    for zeros in (z, z[:9].astype(np.int32)):
        n = len(zeros)
        got = run(*map(jnp.asarray, (q, p[:n], zeros, scale[:n])))
        close(got, x @ y[:n].T, 3 * (abs(x) @ abs(y[:n].T)))
    assert "sums of integers: both" in why(f, *map(jnp.asarray, (q, p, z, scale)))
    z[3] = np.nan
    got = np.asarray(run(*map(jnp.asarray, (q, p, z, scale))))
    assert np.isnan(got[:, 3]).all()
    assert not np.isnan(np.delete(got, 3, 1)).any()
