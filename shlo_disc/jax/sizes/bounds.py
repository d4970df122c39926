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

Sizes are in the normal form of `Expr`, where `k*floordiv(x, k)` is `x - mod(x, k)`. JAX does not
relate `x` and `floordiv(x, k)` then. So a size with quotients is bounded by its multiple, too, that
has only remainders. `x - mod(x, k)` is at least the last multiple of `k` up to the least `x`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from shlo_disc.base import locks
from shlo_disc.jax.sizes.symbolic import SizeScope
from shlo_disc.jax_private.sizes import (
    BEST,
    Comparator,
    DecisionByElimination,
    DimExpr,
    InconclusiveDimensionOperation,
    use_bounds,
)

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
    scope, key = size.scope, (id(size), precision)
    if id(size) not in scope.exprs:
        return _searched(size, precision)
    found = scope.bounds.get(key)
    if found is None:
        found = scope.bounds[key] = _searched(size, precision)
    return found


def _searched(size: Any, precision: Any) -> Interval:
    try:
        low, high = _bounds(size, precision)
        divisor = math.lcm(*_divisors(size))
        if divisor > 1 and not _is_decisive(low, high):
            multiple = _bounds(size * divisor, BEST)
            low = max(low, _of_part(multiple[0], divisor, math.ceil))
            high = min(high, _of_part(multiple[1], divisor, math.floor))
    except InconclusiveDimensionOperation:  # a divisor may be 0
        return _UNKNOWN
    return low, high


def _bounds(size: Any, precision: Any) -> Interval:
    if not isinstance(size, DimExpr):
        return size, size
    made = _Decision.build(size.scope)
    low, high = made.bounds(size, precision, add_implicit_constraints=True)
    return low, high


def _divisors(size: Any) -> list[int]:
    """The numbers by which terms of a size divide."""
    return [
        divisor
        for term, _ in size._sorted_terms
        for factor, _ in term._factors
        if factor.operation == "floordiv"
        and (divisor := DimExpr._to_constant(factor.operands[1])) is not None
    ]


def _is_decisive(low: float, high: float) -> bool:
    """True for bounds that tell the sign."""
    return low >= 0 or high < 0


def _of_part(bound: float, divisor: int, rounded: Callable[[float], int]) -> float:
    return bound if math.isinf(bound) else rounded(bound / divisor)


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
        factor = t.to_factor()
        if factor is not None or t in self._processed_for_internal_constraints:
            known = t in self._processed_for_internal_constraints
            super().add_implicit_constraints_term(t)
            if not known and factor is not None and factor.operation == "mod":
                self._add_whole_multiple(t, *factor.operands)
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

    def _add_whole_multiple(self, t: Any, size: Any, divisor: Any) -> None:
        """`x - mod(x, k)` is a multiple of `k`, which bounds of `x` bound."""
        k = DimExpr._to_constant(divisor)
        if k is None or k < 1:
            return
        low, high = self.bounds(size, BEST)
        whole = size - DimExpr._from_term(t, 1, self.scope)
        if not math.isinf(low):
            self.combine_and_add_constraint(Comparator.GEQ, whole, math.floor(low / k) * k)
        if not math.isinf(high):
            self.combine_and_add_constraint(Comparator.GEQ, math.floor(high / k) * k, whole)


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
