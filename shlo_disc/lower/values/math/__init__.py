"""Vector math of our own: elementary functions as `arith`, `math.fma` and `vector` operations.

No library calls, no tables in memory; branch-free but for the reduction of very large angles. All
functions take f32 or f64, scalar or any number of lanes. They are right for NaN, infinities, -0 and
denormals, as arguments and as results. The caller widens 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.errors import InternalError
from shlo_disc.lower.values.math import error, exponential, logarithm, power, roots, trigonometric
from shlo_disc.lower.values.typed import Register

__all__ = ["FUNCTIONS", "ULP", "emit_math"]

FUNCTIONS: dict[str, Callable[..., Register]] = {
    "atan2": trigonometric.atan2,
    "cbrt": roots.cbrt,
    "cos": trigonometric.cos,
    "erf": error.erf,
    "erf_inv": error.erf_inv,
    "erfc": error.erfc,
    "exp": exponential.exp,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "logistic": exponential.logistic,
    "pow": power.power,
    "rsqrt": roots.rsqrt,
    "sin": trigonometric.sin,
    "sqrt": roots.sqrt,
    "tan": trigonometric.tan,
    "tanh": exponential.tanh,
}
"""Every function by name; atan2 and pow take two arguments, the others one."""

ULP: dict[str, tuple[float, float]] = {
    "atan2": (2.0, 2.0),
    "cbrt": (0.51, 0.51),
    "cos": (2.0, 2.0),
    "erf": (3.0, 1.5),
    "erf_inv": (2.0, 4.0),
    "erfc": (4.0, 4.0),
    "exp": (1.1, 1.1),
    "expm1": (2.0, 2.0),
    "log": (1.0, 1.0),
    "log1p": (1.0, 1.0),
    "logistic": (2.5, 2.5),
    "pow": (0.6, 1.5),
    "rsqrt": (1.5, 1.5),
    "sin": (2.0, 2.0),
    "sqrt": (0.51, 0.51),
    "tan": (4.0, 4.0),
    "tanh": (2.5, 2.0),
}
"""Largest error in units in the last place of the result, (f32, f64); tested."""


def emit_math(name: str, args: Sequence[Register]) -> Register:
    """Function `name` of registers of one type (f32, f64 or a vector of them).

    Raises InternalError for a function or type there is no expansion for.
    """
    if name not in FUNCTIONS or args[0].element not in ("f32", "f64"):
        raise InternalError(f"no vector math for {name} on {args[0].type}")
    return FUNCTIONS[name](*args)
