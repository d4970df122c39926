"""Spans of positions, and how far back those that cover a position reach, in O(log n) each."""

from __future__ import annotations


class Spans:
    """Pairs (first, last) of positions 0 .. n - 1. A span inside another one changes no answer."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._first = [n] * (2 * n)
        """A segment tree: the smallest `first` of the spans given for all positions of a node."""

    def add(self, first: int, last: int) -> None:
        """One more span."""
        # It covers the positions between its ends.
        low, high = first + 1 + self._n, last + self._n
        while low < high:
            if low & 1:
                self._first[low] = min(self._first[low], first)
                low += 1
            if high & 1:
                high -= 1
                self._first[high] = min(self._first[high], first)
            low //= 2
            high //= 2

    def oldest(self, position: int) -> int:
        """The first position that a chain of spans leads to, each covering the start of the next.

        `position` where no span covers it.
        """
        while (older := self._covering(position)) < position:
            position = older
        return position

    def _covering(self, position: int) -> int:
        node, first = position + self._n, self._n
        while node:
            first = min(first, self._first[node])
            node //= 2
        return first
