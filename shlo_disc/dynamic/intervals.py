"""Intervals of integers, open to infinity: None is minus infinity below and infinity above."""

from __future__ import annotations

from collections.abc import Callable

Bound = int | None
Interval = tuple[Bound, Bound]

EVERYTHING: Interval = (None, None)


def both(pick: Callable[[int, int], int], a: Bound, b: Bound) -> Bound:
    """`pick(a, b)`, known only if both are."""
    return None if a is None or b is None else pick(a, b)


def either(a: Bound, b: Bound, pick: Callable[[int, int], int] = max) -> Bound:
    """`pick(a, b)`; the known one where only one is."""
    if a is None or b is None:
        return b if a is None else a
    return pick(a, b)


def interval_sum(a: Bound, b: Bound) -> Bound:
    """The sum of two bounds on the same side."""
    return None if a is None or b is None else a + b


def interval_product(x: Interval, y: Interval) -> Interval:
    """The products of a number in `x` and one in `y`."""
    (a, b), (c, d) = x, y
    if a is not None and c is not None and a >= 0 and c >= 0:
        if b == 0 or d == 0:
            return 0, 0
        return a * c, None if b is None or d is None else b * d
    if c is not None and c == d:
        return _scaled(x, c)
    if a is not None and a == b:
        return _scaled(y, a)
    if a is None or b is None or c is None or d is None:
        return EVERYTHING
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _scaled(x: Interval, by: int) -> Interval:
    if by == 0:
        return 0, 0
    low = None if x[0] is None else x[0] * by
    high = None if x[1] is None else x[1] * by
    return (low, high) if by > 0 else (high, low)


def interval_floordiv(x: Interval, y: tuple[int, Bound]) -> Interval:
    """Quotients rounded down of a number in `x` by one in `y`, whose lower end is >= 1."""
    (a, b), (c, d) = x, y
    low: Bound = None
    if a is not None:
        # A negative number is least over the smallest divisor, a positive one over the largest.
        low = a // c if a < 0 else (0 if d is None else a // d)
    high: Bound = None
    if b is not None:
        high = b // c if b >= 0 else (-1 if d is None else b // d)
    return low, high
