"""Products of dequantised integers (QDQ), which `sum-integers` makes products of integers."""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize(("left", "right"), itertools.product(RANGES, RANGES))
def test_zero_points_at_extremes(left, right):
    r = np.random.default_rng(0)
    for m, k, n in ((1, 16, 1), (7, 33, 19), (13, 400, 65), (0, 32, 8), (3, 17, 0)):
        q, p = integers(r, (m, k), left), integers(r, (k, n), right)
        scale, bias = r.uniform(0.5, 2, n).astype(np.float32), r.normal(size=n).astype(np.float32)
        for z, w in itertools.product((None, *RANGES[left]), (None, *RANGES[right])):

            def f(q, p, scale, bias, z=z, w=w):
                return product(q, p, (0.03, scale), (z, w), bias)

            args = tuple(map(jnp.asarray, (q, p, scale, bias)))
            factor = np.float64(np.float32(0.03)) * scale
            sums = exact(q, z or 0, p, w or 0) * factor
            magnitude = exact(abs(q.astype(int) - (z or 0)), 0, abs(p.astype(int) - (w or 0)), 0)
            magnitude = magnitude * factor + abs(bias) + abs(sums + bias)
            close(shlo_disc.jit(f)(*args), sums + bias, magnitude)
        if m and n:
            assert "sums of integers" in why(f, *args)
