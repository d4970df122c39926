"""What a step is drawn from: random numbers and the values that are there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tests.fuzz.program import Value


class NothingFits(Exception):
    """A step that was drawn has no operands, or results that cannot be compared."""


class Draws:
    """The values a step may read."""

    def __init__(self, rng: random.Random, visible: Iterable[Value]) -> None:
        self.rng = rng
        self.values = list(visible)
        self.read: set[str] = set()
        """Names of values that a step reads already."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def find(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """As :meth:`pick`; None where no value is wanted."""
        try:
            return self.pick(wanted)
        except NothingFits:
            return None

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value:
        """A value that is wanted; later ones, and ones nothing reads yet, more often."""
        found = [v for v in self.values if wanted(v)]
        if not found:
            raise NothingFits
        weights = [(1 + i) * (1 if v.name in self.read else 4) for i, v in enumerate(found)]
        return self.rng.choices(found, weights)[0]
