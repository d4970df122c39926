"""Bounds of symbolic sizes of ours: JAX's procedure, made sound and bounded in time.

JAX decides `n >= m`, `max` and `min` of sizes by the bounds of a difference. It eliminates one term
after the other, and searches all combinations with what it knows of each term. Three things are
different for the scopes of shlo_disc.

A search ends after `LARGEST` combinations. Their number is exponential: JAX took minutes for the
sizes in the gradient of a U-Net, which are quotients of quotients. A bound that is not found until
then is unknown, and a question gets the answer of the call.

Bounds of products are those of intervals. JAX takes the bounds of `q**2` to be the squares of the
bounds of `q`, which is wrong if `q` may be negative. It fails where a bound of 0 meets an unknown
bound.

A divisor that may be 0 makes bounds unknown. It is no error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from shlo_disc import locks
from shlo_disc.frontend.sizes import SizeScope
from shlo_disc.jax_private import (
    BEST,
    Comparator,
    DecisionByElimination,
    DimExpr,
    InconclusiveDimensionOperation,
    use_bounds,
)

__all__ = ["LARGEST", "install", "power_of", "product_of"]

LARGEST = 400
"""Combinations that one decision may try.

99 of 100 decisions of a U-Net's gradient need at most 51. With 200, 400 and 1000 the program gets
the same guards. 400 take 10 ms.
"""

Interval = tuple[float, float]

_UNKNOWN: Interval = (-math.inf, math.inf)

_lock = locks.lock()
_installed: list[bool] = []


def install() -> None:
    """Let JAX ask this module for bounds, once; sizes of other scopes have those of JAX."""
    with _lock:
        if not _installed:
            use_bounds(_decided)
            _installed.append(True)


def _decided(original: Callable[[Any, Any], Interval], size: Any, precision: Any) -> Interval:
    """The bounds of a size as `precision` asks for."""
    if not isinstance(size, DimExpr) or type(size.scope) is not SizeScope:
        return original(size, precision)
    try:
        return _Decision.build(size.scope).bounds(size, precision, add_implicit_constraints=True)
    except InconclusiveDimensionOperation:  # a divisor may be 0
        return _UNKNOWN


class _Decision(DecisionByElimination):
    """One decision, or what is known before any (`SizeScope._decision_initial_state`)."""

    def __init__(self, scope: Any, decisions: int = 1) -> None:
        super().__init__(scope)
        self._left = LARGEST * decisions

    @staticmethod
    def build(scope: Any) -> _Decision:
        """A decision that knows the constraints of `scope`."""
        constraints = len(scope._explicit_constraints)
        if not scope._initialized or not constraints:
            made = _Decision(scope, 1 + constraints)
            made.initialize()
            return made
        if not scope._decision_initial_state:
            scope._decision_initial_state = _Decision(scope, constraints).initialize()
        known, made = scope._decision_initial_state, _Decision(scope)
        made._processed_for_internal_constraints = known._processed_for_internal_constraints.copy()
        made._term_bounds = known._term_bounds.copy()
        made._expr_constraints = {t: all_.copy() for t, all_ in known._expr_constraints.items()}
        return made

    def bounds(self, e: Any, prec: Any, add_implicit_constraints: bool = False) -> Interval:
        low, high = super().bounds(e, prec, add_implicit_constraints)
        if self._left < 0 and not add_implicit_constraints:
            self.scope._bounds_cache.pop(e, None)  # a part of a decision that has ended: ask again
        return low, high

    def combine_term_with_existing(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            return []
        return super().combine_term_with_existing(*args, **kwargs)

    def _bounds_for_sorted_terms(self, *args: Any) -> Interval:
        if self._left < 0:
            return _UNKNOWN
        low, high = super()._bounds_for_sorted_terms(*args)
        return low, high

    def add_implicit_constraints_term(self, t: Any) -> None:
        if t.to_factor() is not None or t in self._processed_for_internal_constraints:
            super().add_implicit_constraints_term(t)
            return
        self._processed_for_internal_constraints.add(t)
        product: Interval = (1, 1)
        for factor, exponent in t._factors:
            single = type(t).from_factor(factor, 1)
            self.add_implicit_constraints_term(single)
            size = DimExpr._from_term(single, 1, self.scope)
            product = product_of(product, power_of(self.bounds(size, BEST), exponent))
        low, high = product
        size = DimExpr._from_term(t, 1, self.scope)
        self.combine_and_add_constraint(Comparator.GEQ, size, low)
        self.combine_and_add_constraint(Comparator.GEQ, high, size)


def power_of(interval: Interval, exponent: int) -> Interval:
    """The interval of the powers with a positive exponent of the numbers in an interval."""
    low, high = interval
    ends = low**exponent, high**exponent
    if exponent % 2 or low >= 0:
        return ends
    return (min(ends) if high < 0 else 0), max(ends)


def product_of(a: Interval, b: Interval) -> Interval:
    """The interval of the products of a number in `a` and one in `b`."""
    ends = [0 if 0 in pair else pair[0] * pair[1] for pair in itertools.product(a, b)]
    return min(ends), max(ends)
