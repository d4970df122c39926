"""Fourier transforms of symbolic lengths, for what JAX computes from numbers.

Lengths given by the caller become numbers in JAX, and derivatives of real transforms ask whether
a length is odd. Each function takes JAX's function first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.lax import FftType

from shlo_disc.jax.sizes.marks import has_symbols
from shlo_disc.jax.sizes.symbolic import is_size
from shlo_disc.jax_private.sizes import fft_of_lengths, min_size, size_as_array


def _fft_core(
    original: Callable[..., Any],
    name: str,
    kind: FftType,
    a: Any,
    s: Any,
    axes: Any,
    norm: str | None,
) -> Any:
    """JAX's `_fft_core`: the transform of `a` cropped or padded to the lengths `s`."""
    a = jnp.asarray(a)
    if s is None or not has_symbols(s):
        return original(name, kind, a, s, axes, norm)
    places = tuple(range(a.ndim - len(s), a.ndim)) if axes is None else tuple(axes)
    if len(places) != len(s) or len({place % a.ndim for place in places}) != len(s):
        return original(name, kind, a, (1,) * len(s), axes, norm)  # raises
    if any(length <= 0 for length in s):
        raise ValueError("Shape should be positive.")
    last = tuple(range(a.ndim - len(s), a.ndim))
    a = jnp.moveaxis(a, places, last)
    wanted = [*a.shape[: -len(s)], *s]
    if kind == FftType.IRFFT:
        wanted[-1] = wanted[-1] // 2 + 1
    kept = [min_size(old, new) for old, new in zip(a.shape, wanted, strict=True)]
    a = lax.slice(a, (0,) * a.ndim, kept)
    borders = [(0, new - old, 0) for old, new in zip(kept, wanted, strict=True)]
    a = lax.pad(a, jnp.zeros((), a.dtype), borders)
    result = fft_of_lengths(a, kind, s)
    if norm is not None:
        result *= _scale(name, s, norm, result.dtype)
    return jnp.moveaxis(result, last, places)


def _scale(name: str, lengths: Any, norm: str, dtype: Any) -> Any:
    """What `norm` multiplies the result with; NumPy's three ways."""
    if norm == "backward":
        return 1
    if norm not in ("ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    count = jnp.prod(jnp.array(lengths, dtype))
    factor = jnp.sqrt(count) if norm == "ortho" else count
    return factor if name.startswith("i") else 1 / factor


def _weights(length: Any, count: Any, dtype: Any) -> Any:
    """How often each of `count` numbers of a real transform stands in the whole one: 1 or 2."""
    place = jnp.arange(count)
    length = size_as_array(length) if is_size(length) else length
    return jnp.where((place == 0) | (2 * place == length), 1, 2).astype(dtype)


def _rfft_transpose(original: Callable[..., Any], t: Any, fft_lengths: Any) -> Any:
    if not is_size(fft_lengths[-1]):
        return original(t, fft_lengths)
    t = lax.conj(t) / _weights(fft_lengths[-1], t.shape[-1], t.dtype)
    return math.prod(fft_lengths) * lax.fft(t, FftType.IRFFT, fft_lengths)


def _irfft_transpose(original: Callable[..., Any], t: Any, fft_lengths: Any) -> Any:
    if not is_size(fft_lengths[-1]):
        return original(t, fft_lengths)
    x = lax.fft(t, FftType.RFFT, fft_lengths)
    weights = _weights(fft_lengths[-1], x.shape[-1], t.dtype)
    return lax.conj((1 / math.prod(fft_lengths)) * weights * x)


def _dct_deinterleave(original: Callable[..., Any], x: Any, axis: int) -> Any:
    """Even places of the result come from the first half, odd ones from the end backwards."""
    size = x.shape[axis]
    if not is_size(size):
        return original(x, axis)
    place = jnp.arange(size)
    half = place // 2
    source = jnp.where(place % 2 == 0, half, size_as_array(size) - 1 - half)
    return jnp.take(x, source, axis=axis, mode="clip")


REPLACED: dict[str, Callable[..., Any]] = {
    "_dct_deinterleave": _dct_deinterleave,
    "_fft_core": _fft_core,
    "_irfft_transpose": _irfft_transpose,
    "_rfft_transpose": _rfft_transpose,
}
"""The replacement of every function, by the function's name in JAX."""
