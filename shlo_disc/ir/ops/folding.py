"""NumPy functions with the semantics of StableHLO, for `Op.fold`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def wide(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function` of floats, evaluated in float64."""
    return lambda x: function(x.astype(np.float64))


def _first_zero(a: Array, b: Array) -> Array:
    """Where both are zeros and the first one is -0.0: NumPy takes either, IEEE 754 orders them."""
    zeros: Array = (a == 0) & (b == 0) & np.signbit(a)
    return zeros


def maximum(a: Array, b: Array) -> Array:
    """The larger; +0.0 is larger than -0.0, and NaN wins."""
    return np.where(_first_zero(a, b), b, np.where(_first_zero(b, a), a, np.maximum(a, b)))


def minimum(a: Array, b: Array) -> Array:
    """The smaller; -0.0 is smaller than +0.0, and NaN wins."""
    return np.where(_first_zero(a, b), a, np.where(_first_zero(b, a), b, np.minimum(a, b)))


def sign(x: Array) -> Array:
    """-1, 1, or `x` itself where it is a zero or NaN."""
    return np.where(np.isnan(x) | (x == 0), x, np.sign(x)).astype(x.dtype)
