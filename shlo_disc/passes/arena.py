"""Slots of the arena for intervals of life: linear scan, sizes compared symbolically.

    needs [0, 2] 4*n, [1, 3] 4*n, [3, 4] 4*n    ==>    slots 0, 1, 0

A need gets a free slot of the same size, or one that is provably as large or may grow. The
number of slots that are compared is bounded, so the time is linear in the needs.

Source  Poletto and Sarkar, "Linear scan register allocation", 1999.
"""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice

from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr

_COMPARED = 32
"""Sizes of free slots that a need is compared with, where none is equal."""

_LOOKED_AT = 256
"""Free slots among which these sizes are looked for."""


_RELATIONS = (
    (Constraints.equal, operator.eq),
    (Constraints.at_least, operator.ge),
)
"""How the size of a free slot may be to that of a need: as proved, and at samples."""


class Arena:
    """The slots, of which `sizes` are in bytes. Needs come in the order of their starts."""

    def __init__(self, facts: Constraints) -> None:
        self.sizes: list[Expr] = []
        self._facts = facts
        self._busy: list[tuple[int, int]] = []
        """(last position, slot), a heap."""
        self._free: list[int] = []
        """Slots in their order."""
        self._samples: dict[Expr, tuple[int, ...]] = {}
        self._by_size: dict[Expr, list[int]] = {}
        """The free slots by canonical size, each list in order."""

    def slot(self, start: int, end: int, size: Expr) -> int:
        """The slot of a need from `start` to `end`; it may be of use to another one after `end`."""
        while self._busy and self._busy[0][0] < start:
            self._release(heapq.heappop(self._busy)[1])
        chosen, grows = self._chosen(size)
        if chosen == len(self.sizes):
            self.sizes.append(size)
        else:
            self._take(chosen)
        if grows:
            self.sizes[chosen] = size
        heapq.heappush(self._busy, (end, chosen))
        return chosen

    def _chosen(self, size: Expr) -> tuple[int, bool]:
        """A free slot that is big enough, or one that provably may grow to `size`, or a new one;
        whether it grows.
        """
        if same := self._by_size.get(self._facts.canonical(size)):
            return same[0], False
        compared = list(islice(self._other_sizes(), _COMPARED))
        for holds, at_samples in _RELATIONS:
            for k in compared:
                if self._may(at_samples, k, size) and holds(self._facts, self.sizes[k], size):
                    return k, False
        for k in compared:
            if self._may(operator.le, k, size) and self._facts.at_least(size, self.sizes[k]):
                return k, True
        return len(self.sizes), False

    def _may(self, relation: Callable[[int, int], bool], slot: int, size: Expr) -> bool:
        """False if the sizes of `slot` and of a need are not so at a sample: no proof is tried."""
        values = zip(self._sampled(self.sizes[slot]), self._sampled(size), strict=False)
        return all(relation(one, other) for one, other in values)

    def _sampled(self, size: Expr) -> tuple[int, ...]:
        if size not in self._samples:
            self._samples[size] = self._facts.sampled(size)
        return self._samples[size]

    def _other_sizes(self) -> Iterator[int]:
        """The first free slot of each size."""
        seen = set()
        for k in self._free[:_LOOKED_AT]:
            if self.sizes[k] not in seen:
                seen.add(self.sizes[k])
                yield k

    def _release(self, slot: int) -> None:
        insort(self._free, slot)
        insort(self._by_size.setdefault(self._key(slot), []), slot)

    def _take(self, slot: int) -> None:
        for slots in (self._free, self._by_size[self._key(slot)]):
            del slots[bisect_left(slots, slot)]

    def _key(self, slot: int) -> Expr:
        return self._facts.canonical(self.sizes[slot])
