"""A stable bottom-up merge sort of records (one element of each of several arrays), in scratch.

Runs of 16 by insertion, then merges between two halves of the scratch memory. Two runs of equal
length are merged from both ends at once. Neither end can leave its run, so there are no bounds to
check. The two chains of dependent loads overlap.

Source: the two-ended merge of O. Peters and L. Bergdoll, "driftsort" (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

_RUN = 16

Record = list[Register]
"""One register per array, as it lies in memory."""

Keys = list[Register | None]
"""A record with only the arrays that are compared."""


class MergeSort:
    """Sorts `n` records in a kernel being written; see the module."""

    def __init__(
        self,
        b: KernelBuilder,
        storages: Sequence[tuple[str, int]],
        size: Expr,
        less: Callable[[Keys, Keys], Mask],
        keys: Sequence[bool],
    ) -> None:
        """`storages`: (MLIR type, bytes) of each array; `less(a, b)`: a must come before b, reads
        only the arrays where `keys`.
        """
        self.b, self.less, self.keys = b, less, list(keys)
        self.n = b.param(size, opaque=True)
        self.memory = []
        at = Expr.const(0)
        for type_, bytes_ in storages:
            self.memory.append(b.scratch(type_, b.param(at)))
            at = at + _block(size, bytes_)

    @staticmethod
    def scratch_bytes(storages: Sequence[tuple[str, int]], size: Expr) -> Expr:
        """Scratch memory it needs for records of `storages`."""
        total = Expr.const(0)
        for _, bytes_ in storages:
            total = total + _block(size, bytes_)
        return total

    def put(self, at: IndexValue, record: Record) -> None:
        """Set record `at` before :meth:`sort`."""
        for memory, value in zip(self.memory, record, strict=True):
            memory.store(value, at)

    def get(self, at: IndexValue) -> Record:
        """Record `at` of the half where :meth:`sort` left the result (an offset is included)."""
        return [memory.load(at, readonly=False) for memory in self.memory]

    def sort(self) -> IndexValue:
        """Sort; returns the offset of the first record in order."""
        b, n = self.b, self.n
        with b.loop(0, n, _RUN, hint="run") as runs:
            last = b.min(runs.index + _RUN, n)
            with b.loop(runs.index + 1, last, 1, hint="i") as i:
                self._insert(runs.index, i.index)

        def go_on(carried: list[IndexValue]) -> Mask:
            return carried[0] < n

        def widen(carried: list[IndexValue]) -> list[IndexValue]:
            width, source = carried
            target = n - source
            double = width + width
            with b.loop(0, n, double, hint="low") as pairs:
                low = pairs.index
                middle = b.min(low + width, n)
                high = b.min(low + double, n)
                even = (high - middle).equals(width)
                with b.if_(even) as branch:
                    self._merge_even(source, target, low, middle, width)
                    with branch.otherwise():
                        self._merge(source, target, low, middle, high)
            return [double, target]

        run, zero = b.index(_RUN), b.index(0)
        return b.while_([run, zero], go_on, widen)[1]

    def _insert(self, first: IndexValue, at: IndexValue) -> None:
        """Record `at` into the sorted records from `first` on."""
        b = self.b
        record = self.get(at)

        def go_on(carried: list[IndexValue]) -> Mask:
            (j,) = carried
            before = b.max(j - 1, first)
            smaller = self.less([*record], self._read(before))
            return (j > first) & smaller

        def shift(carried: list[IndexValue]) -> list[IndexValue]:
            before = carried[0] - 1
            self.put(carried[0], self.get(before))
            return [before]

        (place,) = b.while_([at], go_on, shift)
        self.put(place, record)

    def _read(self, at: IndexValue) -> Keys:
        """The record with only the arrays `less` reads."""
        return [
            memory.load(at, readonly=False) if key else None
            for memory, key in zip(self.memory, self.keys, strict=True)
        ]

    def _choose(
        self, right_first: Mask, left: IndexValue, right: IndexValue, a: Keys, b: Keys
    ) -> Record:
        """The record at `right` when `right_first`, else that at `left`; `a`, `b`: what is read."""
        at = self.b.select(right_first, right, left)
        return [
            memory.load(at, readonly=False)
            if x is None or y is None
            else self.b.select(right_first, y, x)
            for memory, x, y in zip(self.memory, a, b, strict=True)
        ]

    def _merge_even(
        self,
        source: IndexValue,
        target: IndexValue,
        low: IndexValue,
        middle: IndexValue,
        width: IndexValue,
    ) -> None:
        b = self.b
        left, right = source + low, source + middle
        left_end = left + width - 1
        right_end = right + width - 1
        out = target + low
        out_end = out + (width + width) - 1
        one, zero = b.index(1), b.index(0)
        with b.loop(0, width, 1, [left, right, left_end, right_end], hint="k") as loop:
            i, j, p, q = loop.args
            x, y = self._read(i), self._read(j)
            first = self.less(y, x)
            u, v = self._read(p), self._read(q)
            last = self.less(v, u)  # the left record is the larger one
            front = self._choose(first, i, j, x, y)
            back = self._choose(last, q, p, v, u)
            self.put(out + loop.index, front)
            self.put(out_end - loop.index, back)
            step, back_step = b.select(first, one, zero), b.select(last, one, zero)
            loop.yield_(
                i + 1 - step,
                j + step,
                p - back_step,
                q - 1 + back_step,
            )

    def _merge(
        self,
        source: IndexValue,
        target: IndexValue,
        low: IndexValue,
        middle: IndexValue,
        high: IndexValue,
    ) -> None:
        """Runs of any lengths (the right one may be empty)."""
        b = self.b
        one, zero = b.index(1), b.index(0)
        with b.loop(low, high, 1, [low, middle], hint="k") as loop:
            i, j = loop.args
            left = source + b.min(i, middle - 1)
            right = source + b.min(j, high - 1)
            x, y = self._read(left), self._read(right)
            left_done = i >= middle
            before = left_done | self.less(y, x)
            first = (j < high) & before
            self.put(target + loop.index, self._choose(first, left, right, x, y))
            step = b.select(first, one, zero)
            loop.yield_(i + 1 - step, j + step)


def _block(size: Expr, bytes_: int) -> Expr:
    """Bytes of both halves of one array, a multiple of 64."""
    return (size * (2 * bytes_) + 63) // 64 * 64
