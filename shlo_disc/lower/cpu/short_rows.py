"""Rows that are shorter than a vector: lanes hold rows, and columns follow one another.

The elements of as many rows as there are lanes are one run of memory. A kernel of rows of a known
length loads it in whole vectors and sorts these, and stores its results so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.seen import SHORT
from shlo_disc.ir.mlir import ir, is_in_loop
from shlo_disc.ir.ops import Role, row_of
from shlo_disc.lower.cpu.interleaved import store_vectors
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.short_factors import LIKELY, MOST_OPS, of_run
from shlo_disc.lower.kernels.row_layouts import RowStep
from shlo_disc.lower.kernels.row_writer import Full, RowWriter
from shlo_disc.lower.schedule.row_reduction import Materialised, Plan
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import Mask, Register
from shlo_disc.passes.match_rows import Layout
from shlo_disc.passes.op_classes import is_splat_constant

_FEW_OPS = 40
"""Ops of a fusion at most that gets variants for short rows of each length, free ones aside."""


_MOST_VECTORS = 4
"""Vectors of the widest element at most that a task takes."""

_FEW_COLUMNS = 4
"""Columns of rows at most of which a task takes several vectors."""


def short_row_lanes(plan: Plan, one: int, machine: Machine) -> int:
    """Number of rows of a task; `one`: lanes of a vector of the widest element.

    A few results of one byte cost as much as a whole vector of them. 1000 squared distances of
    points in a plane, compared with a number, take 400 ns with one vector a task, 280 ns with four.
    """
    narrowest = min(element_of(root).bytes for root in plan.roots)
    lanes = min(_MOST_VECTORS * one, machine.lanes(narrowest))
    return lanes if plan.cols.value <= _FEW_COLUMNS and are_short(plan, lanes) else one


def are_short(plan: Plan, lanes: int) -> bool:
    """True if rows of a constant length are better off in lanes; `lanes`: of one vector."""
    if plan.layout is not Layout.WHOLE or not lanes or not plan.cols.is_const:
        return False
    rows = Expr.product(plan.rows)
    many = plan.shapes.constraints.bounds(rows)[1]
    return 1 < plan.cols.value <= SHORT and (many is None or many >= lanes)


def short_at(plan: Plan, fusion: ir.Operation) -> tuple[tuple[str, int], ...]:
    """Values of a symbol, those of `LIKELY`, at which rows are short, for a fusion in a loop.

    Elsewhere a kernel for each of them does not run often enough to be worth its compilation.
    """
    names = plan.cols.symbols()
    if plan.layout is not Layout.WHOLE or len(names) != 1 or not is_in_loop(fusion):
        return ()
    ops = [view.operation for view in plan.block.operations]
    if sum(row_of(op).role is not Role.FREE and not is_splat_constant(op) for op in ops) > _FEW_OPS:
        return ()
    (name,) = names
    lengths = {value: plan.cols.substitute({name: value}) for value in LIKELY}
    return tuple((name, value) for value, size in lengths.items() if 1 < size.value <= SHORT)


class RowsInLanes(RowWriter):
    """Writes such rows of any length."""

    is_short: ClassVar[bool] = True


class ShortRows(RowsInLanes):
    """Writes such rows of a constant length."""

    def __init__(self, plan: Plan, factors: Sequence[Expr], lanes: int, b: KernelBuilder) -> None:
        super().__init__(plan, factors, lanes, b)
        self.unrolls = plan.cols.value * len(plan.block.operations) <= MOST_OPS
        self._found: dict[int, list[Register]] = {}
        """The columns of each result that is to be stored."""
        for operand in self.e.inputs if self.unrolls else ():
            self.e.overrides[operand] = functools.partial(of_run, self.e, operand, self.lane_factor)

    def columns(self, start: Sequence[Register], body: RowStep) -> list[Register]:
        """See `Rows.columns`."""
        if not self.unrolls:
            return super().columns(start, body)
        found, mask = list(start), self.line_mask
        for column in range(self.plan.cols.value):
            self.e.piece = column
            found = body(Ix(self.b.index(column), multiple=column), mask, found)
        self.e.piece = 0
        self.at(self.space.zero(), mask)
        first = self.space.flat(0, self.end).base
        for result, values in self._found.items():
            root = self.plan.roots[result]
            store_vectors(self.e, self.outputs[result], root, values, first, mask)
        self._found = {}
        return found

    def store_columns(self, full: Full, mask: Mask | None) -> None:
        """Results wait until all columns are there."""
        now: Full = []
        for register, where in full:
            result = where.output if isinstance(where, Materialised) else where
            if result is None or not self.unrolls:
                now.append((register, where))
            else:
                self._found.setdefault(result, []).append(register)
        super().store_columns(now, mask)
