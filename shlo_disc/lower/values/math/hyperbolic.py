"""cosh, sinh.

With 2^n e^r = e^|x| as in `exp`. A quarter of e^|x| is finite wherever cosh and sinh are, so no
argument of theirs needs a case of its own.
"""

from __future__ import annotations

from shlo_disc.lower.values.math.exponential import (
    exp_reduced,
    expm1_reduced,
    power_of_two,
    split,
)
from shlo_disc.lower.values.math.formulas import fma, select
from shlo_disc.lower.values.math.registry import function
from shlo_disc.lower.values.typed import Register

_LIMIT = {"f32": 89.5, "f64": 710.6}
"""Both functions are infinite from here on."""


def _split_quarter(x: Register) -> tuple[Register, Register]:
    """(q, r) with e^|x| = 4 q e^r."""
    _, n, r = split(x.abs().at_most(_LIMIT[x.element]))
    return power_of_two(n - 2, x.element), r


@function(ulp=(1.5, 1.5))
def cosh(x: Register) -> Register:
    """With w = e^|x| / 4: 2 (w + 1 / (16 w))."""
    quarter, r = _split_quarter(x)
    w = quarter * exp_reduced(r)
    half = w + 0.0625 / w
    return half + half


@function(ulp=(2.5, 2.5))
def sinh(x: Register) -> Register:
    """With t = (e^|x| - 1) / 4: 2 (t + t / (4t + 1)), which cancels nowhere."""
    quarter, r = _split_quarter(x)
    t = fma(quarter, expm1_reduced(r), quarter - 0.25)
    half = t + t / fma(t, 4.0, 1.0)
    tiny = 2.0**-13 if x.element == "f32" else 2.0**-28
    return select(x.abs() < tiny, x, (half + half).copysign(x))  # -0 and denormals stay
