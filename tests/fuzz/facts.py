"""What is known of a value before it is computed: its magnitude and how far rounding may move it.

Rounding moves a value by at most `error`. A value whose error is 0 is the same on every correct
implementation, so integers and comparisons may be computed from it and must agree to the bit.
Sums and products of numbers with few bits (`grain`) stay exact whatever their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import jax.numpy as jnp

_MANTISSA = {"bfloat16": 8, "float16": 11, "tf32": 11, "float32": 24, "float64": 53}
_MANTISSA |= {"complex64": 24, "complex128": 53}
_FLOAT_LIMIT = {"bfloat16": 1e6, "float16": 3e4, "float32": 1e6, "float64": 1e6}
_FLOAT_LIMIT |= {"complex64": 1e6, "complex128": 1e6}
_WORST = 0.25
"""Largest error of a value, in units of its magnitude, that still says something."""


@dataclass(frozen=True)
class Facts:
    """Bounds of the finite elements of a value."""

    magnitude: float
    error: float = 0.0
    grain: int | None = 0
    """Every element is a multiple of 2**-grain; None: unknown."""
    special: bool = False
    """There may be NaN and infinities."""

    @property
    def exact(self) -> bool:
        return self.error == 0

    def fits(self, dtype: str) -> bool:
        """Every value of these facts, and every sum on the way, is a number of `dtype`."""
        if self.grain is None or self.error:
            return False
        return self.grain + math.ceil(math.log2(max(self.magnitude, 1))) <= _MANTISSA[dtype]

    def implies(self, other: Facts) -> bool:
        """A value of these facts may stand where one of `other` stands."""
        grains = other.grain is None or (self.grain is not None and self.grain <= other.grain)
        return (
            self.magnitude <= other.magnitude
            and self.error <= other.error
            and grains
            and self.special <= other.special
        )


def is_float(dtype: str) -> bool:
    """True for what is rounded: complex numbers, too."""
    return "float" in dtype or is_complex(dtype)


def is_complex(dtype: str) -> bool:
    return "complex" in dtype


def is_bool(dtype: str) -> bool:
    return dtype == "bool"


def is_unsigned(dtype: str) -> bool:
    return dtype.startswith("uint")


def is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


def bits_of(dtype: str) -> int:
    return int(jnp.dtype(dtype).itemsize) * 8


def largest(dtype: str) -> float:
    """The largest magnitude of the finite values of `dtype`."""
    if is_bool(dtype):
        return 1.0
    if is_float(dtype):
        return float(jnp.finfo(dtype).max)
    return -float(jnp.iinfo(dtype).min) if is_signed(dtype) else float(jnp.iinfo(dtype).max)


def join(*many: Facts) -> Facts:
    """What holds of a value that is one of several."""
    grains = [f.grain for f in many]
    return Facts(
        max(f.magnitude for f in many),
        max(f.error for f in many),
        None if None in grains else max(g for g in grains if g is not None),
        any(f.special for f in many),
    )


def narrowed(facts: Facts) -> Facts:
    """Numbers of f32 rounded to tf32, which has 11 digits."""
    if facts.fits("tf32"):
        return facts
    return replace(facts, error=facts.error + 2.0**-11 * facts.magnitude, grain=None)


def rounded(dtype: str, facts: Facts, roundings: float = 1.0) -> Facts | None:
    """`facts` of the real result, for the result in `dtype`; None: it would say too little."""
    if not is_float(dtype):
        return Facts(min(facts.magnitude, largest(dtype)))
    if facts.fits(dtype):
        return facts
    epsilon = 2.0 ** (1 - _MANTISSA[dtype])
    error = facts.error + roundings * epsilon * max(facts.magnitude, 1e-3)
    if facts.magnitude > _FLOAT_LIMIT[dtype] or error > _WORST * max(facts.magnitude, 1e-3):
        return None
    return replace(facts, error=error, grain=None)
