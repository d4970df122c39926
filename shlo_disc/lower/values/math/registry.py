"""The functions of this package by name; each states its error where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shlo_disc.base.records import dataclass
from shlo_disc.lower.values.typed import Register

_Formula = TypeVar("_Formula", bound=Callable[..., Register])


@dataclass(frozen=True)
class Function:
    """An elementary function of registers of one type, f32 or f64."""

    formula: Callable[..., Register]
    ulp: tuple[float, float]
    """The largest error in units in the last place of the result, (f32, f64); tested."""
    beside_zeros: str = ""
    """The number in whose last place the error is counted where the result may be far smaller."""


FUNCTIONS: dict[str, Function] = {}
"""By the name that `Op.math` says; atan2, polygamma, pow and zeta take two arguments."""


def function(
    *, ulp: tuple[float, float], name: str = "", beside_zeros: str = ""
) -> Callable[[_Formula], _Formula]:
    """Put a formula into `FUNCTIONS`, by its own name unless another is given."""

    def add(formula: _Formula) -> _Formula:
        FUNCTIONS[name or formula.__name__] = Function(formula, ulp, beside_zeros)
        return formula

    return add
