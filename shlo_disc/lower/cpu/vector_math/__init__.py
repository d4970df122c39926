"""Vector math: every transcendental function as branch-free arithmetic, no libm, no tables.

f32 functions on the hot paths (exp, log, tanh, logistic, erf, erfc) have their own expansions;
the others are computed in f64 and rounded, which is within 0.51 ULP of the f64 result. 16-bit
floats are computed in f32 by the caller. NaN gives NaN; signed zeros, infinities and denormals
follow C99 Annex F. :data:`ULP` states the bound of every function;
`tests/lower/test_vector_math.py` holds them.

Sources: argument reductions after Cody and Waite, *Software Manual for the Elementary Functions*
(1980), and Payne and Hanek (1983); log, log1p and tanh after fdlibm (Sun, 1993); erf_inv after
Giles, *Approximating the erfinv function* (2010); polynomials fitted by `tools/fit_math.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.lower.cpu.text import Text, element_type, like
from shlo_disc.lower.cpu.vector_math.arith import Arith
from shlo_disc.lower.cpu.vector_math.erf import erf, erf_inv, erfc
from shlo_disc.lower.cpu.vector_math.exponential import (
    cbrt,
    exp,
    expm1,
    log,
    log1p,
    logistic,
    power,
    rsqrt,
    tanh,
)
from shlo_disc.lower.cpu.vector_math.trigonometric import atan2, cos, sin, tan

__all__ = ["ULP", "emit_math"]

_FUNCTIONS: dict[str, Callable[..., str]] = {
    "atan2": atan2,
    "cbrt": cbrt,
    "cos": cos,
    "erf": erf,
    "erf_inv": erf_inv,
    "erfc": erfc,
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "logistic": logistic,
    "pow": power,
    "rsqrt": rsqrt,
    "sin": sin,
    "tan": tan,
    "tanh": tanh,
}

_NATIVE_F32 = frozenset({"erf", "erfc", "exp", "log", "logistic", "rsqrt", "tanh"})

ULP: dict[str, tuple[float, float]] = {
    "atan2": (1.0, 3.0),
    "cbrt": (1.0, 2.0),
    "cos": (1.0, 2.0),
    "erf": (2.0, 3.0),
    "erf_inv": (2.0, 16.0),
    "erfc": (4.0, 6.0),
    "exp": (1.5, 1.5),
    "expm1": (1.0, 3.0),
    "log": (1.5, 1.5),
    "log1p": (1.0, 3.0),
    "logistic": (3.0, 3.0),
    "pow": (1.0, 8.0),
    "rsqrt": (1.5, 1.5),
    "sin": (1.0, 2.0),
    "tan": (1.0, 3.0),
    "tanh": (3.0, 4.0),
}
"""Largest error in units of the last place of the result: (f32, f64), normal results."""


def emit_math(b: Text, name: str, args: Sequence[str], type_: str) -> str:
    """The SSA name of function `name` of `args`, all of `type_` (f32, f64 or vectors of them).

    Raises KeyError for a name that is not in :data:`ULP`.
    """
    function = _FUNCTIONS[name]
    if element_type(type_) == "f64" or name in _NATIVE_F32:
        return function(Arith(b, type_), *args)
    wide = like(type_, "f64")
    widened = [b.cast("arith.extf", a, "f64") for a in args]
    return b.cast("arith.truncf", function(Arith(b, wide), *widened), "f32")
