"""Fits the polynomials of `shlo_disc/lower/cpu/vector_math/coefficients.py` and prints that module.

    python tools/fit_math.py > shlo_disc/lower/cpu/vector_math/coefficients.py

Near-minimax fits by Chebyshev interpolation at 60 digits (mpmath.chebyfit), rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def fit(function: Callable[[mp.mpf], mp.mpf], low: float, high: float, count: int) -> list[mp.mpf]:
    """`count` coefficients, lowest power first."""
    return list(reversed(mp.chebyfit(function, [mp.mpf(low), mp.mpf(high)], count)))


def expm1_tail(r: mp.mpf) -> mp.mpf:
    """(exp(r) - 1 - r) / r^2."""
    return mp.mpf(1) / 2 + r / 6 if abs(r) < 1e-15 else (mp.expm1(r) - r) / r**2


def log_tail(z: mp.mpf) -> mp.mpf:
    """(log((1+s)/(1-s)) - 2 s) / s^3 with z = s^2."""
    s = mp.sqrt(z)
    return mp.mpf(2) / 3 + 2 * z / 5 if z < 1e-15 else (2 * mp.atanh(s) - 2 * s) / s**3


def log1p_tail(f: mp.mpf) -> mp.mpf:
    """(log(1+f) - f + f^2/2) / f^3."""
    if abs(f) < 1e-12:
        return mp.mpf(1) / 3 - f / 4
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def sin_tail(z: mp.mpf) -> mp.mpf:
    """(sin(x) - x) / x^3 with z = x^2."""
    x = mp.sqrt(z)
    return -mp.mpf(1) / 6 + z / 120 if z < 1e-15 else (mp.sin(x) - x) / x**3


def cos_tail(z: mp.mpf) -> mp.mpf:
    """(cos(x) - 1 + x^2/2) / x^4 with z = x^2."""
    x = mp.sqrt(z)
    return mp.mpf(1) / 24 - z / 720 if z < 1e-8 else (mp.cos(x) - 1 + z / 2) / z**2


def atan_tail(z: mp.mpf) -> mp.mpf:
    """(atan(x) - x) / x^3 with z = x^2."""
    x = mp.sqrt(z)
    return -mp.mpf(1) / 3 + z / 5 if z < 1e-15 else (mp.atan(x) - x) / x**3


def erf_tail(z: mp.mpf) -> mp.mpf:
    """erf(x) / x - 1 with z = x^2."""
    x = mp.sqrt(z)
    return 2 / mp.sqrt(mp.pi) * (1 - z / 3) - 1 if z < 1e-20 else mp.erf(x) / x - 1


def erfcx(t: mp.mpf, shift: int) -> mp.mpf:
    """exp(x^2) erfc(x) with t = (x - shift) / (x + shift), times (1 + x)."""
    if t == 1:
        return 1 / mp.sqrt(mp.pi)
    x = shift * (1 + t) / (1 - t)
    return mp.exp(x * x) * mp.erfc(x) * (1 + x)


LN2 = float(np.log(2)) / 2 * 1.001
SQRT = 3 - 2 * 2**0.5
T = float((mp.sqrt(2) - 1) * mp.mpf("1.0001"))
PI4 = float(mp.pi / 4 * mp.mpf("1.001"))

TABLES = {
    "EXPM1_F32": (expm1_tail, -LN2, LN2, 5, "f32"),
    "EXPM1_F64": (expm1_tail, -LN2, LN2, 12, "f64"),
    "LOG_F64": (log_tail, 0.0, SQRT**2 * 1.001, 9, "f64"),
    "LOG_F32": (log1p_tail, 2**-0.5 - 1, 2**0.5 - 1, 9, "f32"),
    "SIN_F64": (sin_tail, 0.0, PI4**2, 7, "f64"),
    "COS_F64": (cos_tail, 0.0, PI4**2, 7, "f64"),
    "ATAN_F64": (atan_tail, 0.0, T**2, 12, "f64"),
    "ERF_F32": (erf_tail, 0.0, 1.0, 7, "f32"),
    "ERF_F64": (erf_tail, 0.0, 1.0, 14, "f64"),
    "ERFCX_F32": (lambda t: erfcx(t, 2), float(mp.mpf(-3) / 5), float(mp.mpf(9) / 13), 10, "f32"),
    "ERFCX_F64": (lambda t: erfcx(t, 4), float(mp.mpf(-7) / 9), float(mp.mpf(24) / 32), 24, "f64"),
}


def main() -> None:
    """Print the module."""
    print('"""Polynomials of the math functions, lowest power first; made by tools/fit_math.py."""')
    print("\nfrom __future__ import annotations\n")
    for name, (function, low, high, count, kind) in TABLES.items():
        dtype = np.float32 if kind == "f32" else np.float64
        print(f"{name} = (")
        for c in fit(function, low, high, count):
            print(f"    {float(dtype(mp.nstr(c, 40)))!r},")
        print(")")


if __name__ == "__main__":
    main()
