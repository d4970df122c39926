"""Few long rows: a kernel over pieces of them, and one that combines the pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.elements import element_of
from shlo_disc.lower.cpu.index import Ix
from shlo_disc.lower.cpu.loop import ceil_div, odometer
from shlo_disc.lower.cpu.reduction import Reducer
from shlo_disc.lower.cpu.row_plan import Plan, Sweep
from shlo_disc.lower.cpu.row_writer import RowWriter
from shlo_disc.lower.cpu.target import Target
from shlo_disc.lower.kernel import (
    Condition,
    If,
    KernelPlan,
    Launch,
    Workspace,
)

__all__ = ["with_split"]

SPLIT_COLUMNS = 16384
"""Columns of a task when rows are split: 64 KiB of f32, a few microseconds. It fixes the order of
the sum, so another value gives other roundings."""

SPLIT_ROWS = 64
"""Fewer rows than this are split when they are long; more rows keep any machine busy."""


def with_split(
    plan: Plan, factors: Sequence[Expr], lanes: int, name: str, whole: Launch, target: Target
) -> KernelPlan:
    """`whole`, and a two-stage variant where there can be few long rows.

    Stage one reduces pieces of a row into a workspace, stage two the pieces in order. Only single
    sweeps of known operations are split; the choice depends on the sizes alone.
    """
    high = plan.shapes.constraints.bounds(plan.cols)[1]
    rows = Expr.product(plan.rows)
    long, many = 4 * SPLIT_COLUMNS, plan.shapes.constraints.bounds(rows)[0]
    possible = (high is None or high >= long) and (many is None or many < SPLIT_ROWS)
    (only, *more) = plan.sweeps
    if more or only.general or not only.simple or not possible:
        return KernelPlan((whole,))
    pieces = ceil_div(plan.cols, SPLIT_COLUMNS)
    partial = _PartialWriter(plan, factors, lanes, pieces)
    partial.write()
    piece = Expr.const(SPLIT_COLUMNS)
    time = cost.of_rows(plan.block, plan.shapes, piece, target)
    one = partial.launch(name + "_pieces", rows * pieces, time)
    combine = _CombineWriter(plan, factors, lanes, pieces)
    combine.write()
    two = combine.launch(name + "_combine", rows, pieces * 2 + 20)
    workspaces = tuple(
        rows * pieces * max(element_of(op.results[0]).bytes, 4) for op in only.simple
    )
    inner = If(Condition(plan.cols, ">=", Expr.const(long)), (one, two), (whole,))
    outer = If(Condition(rows, "<", Expr.const(SPLIT_ROWS)), (inner,), (whole,))
    return KernelPlan((outer,), workspaces)


class _PartialWriter(RowWriter):
    """Stage one: a task is a piece of a row; accumulators go to workspaces."""

    def __init__(self, plan: Plan, factors: Sequence[Expr], lanes: int, pieces: Expr) -> None:
        super().__init__(plan, factors, lanes)
        self.pieces = pieces
        self.piece_number = ""

    def write(self) -> Self:
        b, space = self.b, self.space
        sizes = [*(b.param(f) for f in space.factors[:-1]), b.param(self.pieces)]

        def task(number: str, digits: list[str]) -> None:
            self.piece_number = number
            self.digits = [Ix(d) for d in digits[: self.rank]]
            space.tiles = [*self.digits, space.zero()]
            self.first = b.mul(digits[-1], SPLIT_COLUMNS)
            self.last = b.min(b.add(self.first, SPLIT_COLUMNS), self.cols)
            self.sweep(self.plan.sweeps[0])

        odometer(b, sizes, task)
        return self

    def _finish(self, reducer: Reducer, accs: Sequence[str], in_order: bool) -> None:
        (value,) = self._across_lanes(reducer, accs, in_order)
        memory, element = _workspace(self, reducer)
        if element == "i8":
            value = self.b.cast("arith.extui", value, "i8")
        self.b.store(value, memory, self.piece_number)


class _CombineWriter(RowWriter):
    """Stage two: a task is a row; its pieces are reduced in order, one after the other."""

    def __init__(self, plan: Plan, factors: Sequence[Expr], lanes: int, pieces: Expr) -> None:
        super().__init__(plan, factors, lanes)
        self.pieces = pieces

    def sweep(self, sweep: Sweep, asks_ahead: bool = False) -> None:
        b = self.b
        count = b.param(self.pieces)
        row = self.space.force(self.space.flat_lazy(0, self.rank)).base
        for op in sweep.simple:
            reducer = Reducer(self.e, op)
            memory, element = _workspace(self, reducer)
            with b.loop(0, count, 1, reducer.neutral(0), hint="piece") as loop:
                at = b.add(b.mul(row, count), loop.index)
                value = b.load(memory, at)
                if element == "i8":
                    value = b.cmpi("ne", value, b.constant(0, "i8"))
                loop.yield_(*reducer.merge(loop.args, [value]))
            self.publish(reducer, loop.results)


def _workspace(writer: RowWriter, reducer: Reducer) -> tuple[str, str]:
    """(memref, its element) of the pieces of a reduction."""
    compute = reducer.elements[0].compute
    element = "i8" if compute == "i1" else compute
    number = writer.plan.sweeps[0].simple.index(reducer.op)
    slot = writer.arguments.slot(Workspace(number))
    return writer.b.memref(slot, element), element
