"""Kind `scan`: running totals along one dimension (`cumsum`, `cummax`, ...), in one pass.

Along the innermost dimension a vector holds neighbours. Every lane takes in those before it in
log2(lanes) steps of shift and combine (Hillis and Steele, 1986), then the total before the vector.
Along another dimension lanes are independent and the loop carries a vector of totals.

Totals are kept in two levels, of a block and of the blocks before it. The rounding error of a sum
of n elements grows with block + n / block, not with n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import KernelPlan, Launch
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Ix
from shlo_disc.lower.values.reduction import Reducer
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

BLOCK = 64
"""Steps of a block."""

COLUMNS = 4
"""Vectors of neighbouring columns a task takes: two cache lines of a row."""


def emit_scan(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `disc.scan`.

    Raises UnsupportedError for an element type or a reducer that is not compiled.
    """
    single = SingleOp.of(fusion, machine)
    _, _, inner = scanned_dimension(single)
    within = inner.is_const and inner.value == 1
    kernel = _Rows if within else _Columns
    lanes = machine.lanes(max(element_of(single.op.operands[0]).bytes, 4)) * kernel.vectors
    return KernelPlan((kernel(single, single.kernel(lanes)).launch(),))


def scanned_dimension(single: SingleOp) -> tuple[Expr, Expr, Expr]:
    """The number of elements before, along and behind the dimension of a `disc.scan`."""
    axis = int(single.op.attributes["dimension"].value)
    sizes = single.shape(single.op.operands[0])
    return Expr.product(sizes[:axis]), sizes[axis], Expr.product(sizes[axis + 1 :])


class Scan:
    """What all kernels share."""

    vectors = 1

    def __init__(self, single: SingleOp, e: Elemental) -> None:
        op = self.op = single.op
        self.single, self.value, self.e = single, op.operands[0], e
        self.outer, self.size, self.inner = scanned_dimension(single)
        self.reverse = bool(op.attributes["reverse"].value)
        self.element = element_of(self.value)
        self.lanes, self.b = e.lanes, e.b
        self.reducer = Reducer(e, op)

    def load(self, at: Ix, mask: Mask | None) -> list[Register]:
        """Elements as accumulators."""
        group = Group(self.single.shape(self.value), at)
        register = self.e.value_at(self.value, (group,), mask)
        return [self.b.broadcast(self.reducer.widen(register, 0), self.lanes)]

    def store(self, value: Sequence[Register], at: Ix, mask: Mask | None) -> None:
        """Accumulators as elements of the result."""
        (place,) = self.single.results
        assert place is not None
        (register,) = self.reducer.finish(value)
        self.e.store(place, self.element, register, at, mask)

    def merge(self, before: Sequence[Register], after: Sequence[Register]) -> list[Register]:
        """The total of two neighbouring runs, `before` being nearer to where the scan begins."""
        pair = (after, before) if self.reverse else (before, after)
        return self.reducer.merge(*pair)

    def blocks(
        self,
        first: IndexValue,
        last: IndexValue,
        step: int,
        body: Callable[[IndexValue, list[Register], list[Register]], list[Register]],
        total: list[Register],
    ) -> list[Register]:
        """`body(index, total before the block, total in the block)` from `first` to `last`."""
        b = self.b
        with b.loop(first, last, step * BLOCK, total, hint="block") as block:
            before = list(block.args)
            end = b.min(block.index + step * BLOCK, last)
            own = self.reducer.neutral(self.lanes)
            with b.loop(block.index, end, step, own, hint="j") as j:
                j.yield_(*body(j.index, before, list(j.args)))
            block.yield_(*self.merge(before, j.results))
        return block.results


class _Rows(Scan):
    """Along the innermost dimension; a task is a row."""

    def launch(self) -> Launch:
        b = self.b
        n = b.param(self.size, opaque=True)
        whole = n.round_down(self.lanes)
        zero = b.index(0)
        with b.loop(b.lo, b.hi, 1, hint="row") as row:
            start = row.index * n

            def step(
                at: IndexValue, before: list[Register], own: list[Register], mask: Mask | None
            ) -> list[Register]:
                values = self._within(self._load(start, n, at, mask))
                values = self.merge(own, values)
                self._store(self.merge(before, values), start, n, at, mask)
                return [b.broadcast(b.extract(v, self.lanes - 1), self.lanes) for v in values]

            def whole_vector(
                at: IndexValue, before: list[Register], own: list[Register]
            ) -> list[Register]:
                return step(at, before, own, None)

            first = self.reducer.init(self.lanes)
            total = self.blocks(zero, whole, self.lanes, whole_vector, first)
            with b.if_(whole < n):
                mask = b.mask(n - whole, self.lanes)
                step(whole, total, self.reducer.neutral(self.lanes), mask)
        cost = self.size * 3 // self.lanes + 20
        return self.single.launch(self.e, "scan_rows", self.outer, cost)

    def _within(self, values: list[Register]) -> list[Register]:
        """The running totals inside one vector."""
        by = 1
        while by < self.lanes:
            order = [i if i < by else self.lanes + i - by for i in range(self.lanes)]
            neutral = self.reducer.neutral(self.lanes)
            moved = [self.b.shuffle(x, v, order) for x, v in zip(neutral, values, strict=True)]
            values = self.merge(moved, values)
            by *= 2
        return values

    def _load(
        self, start: IndexValue, n: IndexValue, at: IndexValue, mask: Mask | None
    ) -> list[Register]:
        if not self.reverse:
            return self.load(Ix(start + at, 1), mask)
        last = start + n - 1 - at
        return self.load(Ix(last, -1), mask)

    def _store(
        self,
        values: list[Register],
        start: IndexValue,
        n: IndexValue,
        at: IndexValue,
        mask: Mask | None,
    ) -> None:
        b, turned = self.b, list(range(self.lanes - 1, -1, -1))
        if not self.reverse:
            self.store(values, Ix(start + at, 1), mask)
            return
        first = start + n - at - self.lanes
        on = None if mask is None else b.shuffle(mask, mask, turned)
        self.store([b.shuffle(v, v, turned) for v in values], Ix(first, 1), on)


class _Columns(Scan):
    """Along another dimension; a task is a few neighbouring columns of one outer index."""

    vectors = COLUMNS

    def launch(self) -> Launch:
        b = self.b
        n, inner = b.param(self.size, opaque=True), b.param(self.inner, opaque=True)
        count = b.param(Expr.max(ceil_div(self.inner, self.lanes), 1))
        zero = b.index(0)
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            outer, column = task.index // count, task.index % count * self.lanes
            start = outer * n * inner + column

            def columns(mask: Mask | None) -> None:
                def step(
                    at: IndexValue, before: list[Register], own: list[Register]
                ) -> list[Register]:
                    row = n - 1 - at if self.reverse else at
                    place = Ix(start + row * inner, 1)
                    values = self.merge(own, self.load(place, mask))
                    self.store(self.merge(before, values), place, mask)
                    return values

                self.blocks(zero, n, 1, step, self.reducer.init(self.lanes))

            left = inner - column
            whole = left >= self.lanes
            b.either(whole, lambda: columns(None), lambda: columns(b.mask(left, self.lanes)))
        extent = self.outer * ceil_div(self.inner, self.lanes)
        return self.single.launch(self.e, "scan_columns", extent, self.size * 8 + 20)
