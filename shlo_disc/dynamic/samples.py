"""Counterexample samples: sizes at which every known fact holds.

A claim that is wrong at one of them has no proof, so none is looked for, which takes time. Most
questions of a compilation are whether two sizes are equal, and most are not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from shlo_disc.dynamic.expr import Atom, Expr
from shlo_disc.dynamic.intervals import Interval

_TRIED, _KEPT = 32, 4
_STEPS = 64
"""Values tried for one symbol and one congruence."""

_SPREAD = 61
"""Sizes are taken from so many above their lower bound: both parities, several remainders."""

_SPREADS = {0: 8191, 1: 1}
"""The same of the first samples: claims such as `n < 64` are decided by large and least sizes."""


class _Point(dict[str, int]):
    """Values of symbols, chosen when first asked for; the same in every run."""

    def __init__(
        self, number: int, intervals: Mapping[str, Interval], divisors: Mapping[str, int]
    ) -> None:
        super().__init__()
        self._number, self._intervals, self._divisors = number, intervals, divisors
        self._known: dict[Atom, int] = {}

    def __missing__(self, name: str) -> int:
        low, high = self._intervals.get(name, (0, None))
        divisor = self._divisors.get(name, 1)
        if low is None or low < -_SPREAD:
            low = -(_SPREAD // 2) if high is None else min(high, 0) - _SPREAD // 2
        first, spread = -(-low // divisor), _SPREADS.get(self._number, _SPREAD)
        room = spread if high is None else max(high // divisor - first, 0) + 1
        offset = zlib.crc32(f"{name} {self._number}".encode()) % min(room, spread)
        value = self[name] = (first + offset) * divisor
        return value

    def __setitem__(self, name: str, value: int) -> None:
        self._known.clear()
        super().__setitem__(name, value)

    def value(self, expr: Expr) -> int | None:
        """The value of `expr`; None where it divides by 0."""
        try:
            return expr.evaluate(self, self._known)
        except ZeroDivisionError:
            return None


class CounterexampleSamples:
    """Values of symbols at which the facts hold.

    Each `zero` is 0, each `positive` is at least 0, and `congruent[i][1]` divides
    `congruent[i][0]`. Symbols lie in `intervals` and are multiples of `divisors`.
    """

    def __init__(
        self,
        intervals: Mapping[str, Interval],
        divisors: Mapping[str, int],
        zero: Iterable[Expr],
        positive: Iterable[Expr],
        congruent: Iterable[tuple[Expr, int]],
    ) -> None:
        self._points: list[_Point] = []
        zero, positive, congruent = list(zero), list(positive), list(congruent)
        for number in range(_TRIED):
            point = _Point(number, intervals, divisors)
            _repair(point, divisors, congruent)
            if (
                all(point.value(fact) == 0 for fact in zero)
                and all(
                    (value := point.value(fact)) is not None and value >= 0 for fact in positive
                )
                and all(_divides(k, fact, point) for fact, k in congruent)
            ):
                self._points.append(point)
                if len(self._points) == _KEPT:
                    break

    def against(self, expr: Expr, claim: Callable[[int], bool]) -> bool:
        """True if `claim` is wrong of the value of `expr` at one of the samples."""
        return any(not claim(value) for value in self.values(expr))

    def values(self, expr: Expr) -> Iterator[int]:
        """The value of `expr` at each sample; none where it divides by 0."""
        values = (point.value(expr) for point in self._points)
        return (value for value in values if value is not None)


def _repair(
    point: _Point, divisors: Mapping[str, int], congruent: Iterable[tuple[Expr, int]]
) -> None:
    """Move the values up until the congruences hold, one after the other.

    A congruence that holds is kept by steps that are multiples of its period. Facts such as "the
    half of n is even, its quarter is odd" hold together at one of 8 sizes only.
    """
    steps: dict[str, int] = {}
    for expr, k in congruent:
        for name in sorted(expr.symbols()):
            first, step = point[name], steps.get(name) or divisors.get(name, 1)
            for times in range(min(k, _STEPS)):
                point[name] = first + times * step
                if _divides(k, expr, point):
                    break
            else:
                point[name] = first
                continue
            steps[name] = step * k
            break


def _divides(k: int, expr: Expr, point: _Point) -> bool:
    value = point.value(expr)
    return value is not None and value % k == 0
