"""cbrt, rsqrt, sqrt."""

from __future__ import annotations

from shlo_disc.lower.values.math.exponential import power_of_two
from shlo_disc.lower.values.math.formulas import fma, horner, select
from shlo_disc.lower.values.math.logarithm import normalise
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.math.tables import TABLES
from shlo_disc.lower.values.typed import Register

_MAGIC = {"f32": (1.5 * 2.0**23, 0x4B400000), "f64": (1.5 * 2.0**52, 0x4338000000000000)}


@function(ulp=(0.51, 0.51))
def sqrt(x: Register) -> Register:
    """The square root, correctly rounded."""
    return x.sqrt()


@function(ulp=(1.5, 1.5))
def rsqrt(x: Register) -> Register:
    """1 / sqrt(x), both correctly rounded."""
    return 1.0 / x.sqrt()


@function(ulp=(0.51, 0.51))
def cbrt(x: Register) -> Register:
    """The cube root: Newton's iteration for m^(-1/3), then one corrected step for m^(1/3)."""
    double = x.is_double
    mantissa, bias = (52, 1023) if double else (23, 127)
    a = x.abs()
    scaled, shift = normalise(a)
    raw = scaled.bits()
    k = ((raw >> mantissa) - bias).cast("arith.sitofp", x.element) + shift
    m = ((raw & ((1 << mantissa) - 1)) | (bias << mantissa)).floats()
    # k = 3q + rest
    magic, magic_bits = _MAGIC[x.element]
    shifted = fma(k - 1.0, 1 / 3, magic)
    q = shifted - magic
    rest = fma(q, -3.0, k)
    is_one, is_two = rest.equals(1.0), rest.equals(2.0)
    z = horner(m, TABLES["cbrt", x.element])
    two = x.constant(2.0 ** (-2 / 3))
    z = z * select(is_two, two, select(is_one, x.constant(2.0 ** (-1 / 3)), 1.0))
    m = m * select(is_two, x.constant(4.0), select(is_one, x.constant(2.0), 1.0))
    for _ in range(2 if double else 1):
        z = fma(z * (1 / 3), fma(-(m * z), z * z, 1.0), z)
    square = z * z
    y = m * square
    y2 = y * y
    residue = fma(-y2, y, m) - fma(y, y, -y2) * y
    y = fma(residue, square * (1 / 3), y)
    result = (y * power_of_two(shifted.bits() - magic_bits, x.element)).copysign(x)
    regular = (a > 0.0) & (a < float("inf"))
    return select(regular, result, x)
