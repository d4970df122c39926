"""`lhs op rhs` on symbolic sizes, for given values of the symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from shlo_disc.dynamic.expr import Expr

__all__ = ["RELATIONS", "holds"]

RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What the relations of guards, checks and variants mean."""


def holds(lhs: Expr, relation: str, rhs: Expr, sizes: Mapping[str, int]) -> bool:
    """Is it true for these values? Raises KeyError for a symbol without one."""
    return RELATIONS[relation](lhs.evaluate(sizes), rhs.evaluate(sizes))
