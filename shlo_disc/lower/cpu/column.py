"""Kind `column`: element-wise work around reductions of dimensions with kept ones behind them
(batch-norm, softmax along the first axis).

The columns that are reduced lie side by side in memory: a task is as many of them as there are
lanes, with all their rows, and sweeps over them as a row kernel sweeps over a row (see `row.py`).
What a sweep reads again comes from L2. Every column is reduced in order, first to last.

Tall columns are cut into pieces, for all cores and where L2 would not hold them: see
`row_split.py`. The choice depends on sizes alone.
"""

from __future__ import annotations

import functools

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.column_writer import ColumnWriter
from shlo_disc.lower.cpu.loop import choose_lanes, fusion_name
from shlo_disc.lower.cpu.row_plan import Plan, analyze_rows
from shlo_disc.lower.cpu.row_split import SPLIT_ROWS, SplitRows
from shlo_disc.lower.cpu.row_stages import stages_of
from shlo_disc.lower.cpu.row_writer import write_rows
from shlo_disc.lower.cpu.target import Target
from shlo_disc.lower.kernel import Condition, If, KernelPlan, Step
from shlo_disc.mlir import ir
from shlo_disc.passes.op_classes import TALL_COLUMNS

__all__ = ["emit"]

_TALL = 4 * SPLIT_ROWS
"""Rows of columns that are swept several times and are split: as many fill L2."""

_FEW = 16
"""Tasks that keep most machines busy: columns swept once are split where there are fewer."""

_PANEL_BYTES = 256
"""Of a row that a task reads: runs as short as a vector leave half of the bandwidth (measured with
batch-norm of 8192 x 256: 32, 64, 128 and 256 bytes take 1.6, 1.0, 0.8 and 0.7 ms)."""


def emit(fusion: ir.Operation, shapes: ShapeAnalysis, target: Target) -> KernelPlan:
    """The plan of a `column` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    emitter = _Columns(fusion, shapes, target)
    wide, narrow = _lanes(emitter.plan, target)
    if narrow == wide:
        return KernelPlan(emitter.steps(wide), tuple(emitter.workspaces))
    few = Condition(emitter.plan.inner, "<", Expr.const(wide))
    step = If(few, emitter.steps(narrow), emitter.steps(wide))
    return KernelPlan((step,), tuple(emitter.workspaces))


def _lanes(plan: Plan, target: Target) -> tuple[int, int]:
    """How many columns a task has, and how many where there are fewer: lanes that are off cost as
    much as the others, or more.
    """
    one, inner = choose_lanes(plan.block, target), plan.inner
    widest = one * min(8, max(1, _PANEL_BYTES // target.vector_bytes))
    if not inner.is_const:
        return widest, one
    while widest > one and (-(-inner.value // widest)) * widest > 1.3 * inner.value:
        widest //= 2
    return widest, widest


class _Columns:
    """The launches of one fusion."""

    def __init__(self, fusion: ir.Operation, shapes: ShapeAnalysis, target: Target) -> None:
        self.block, self.shapes, self.target = fusion.regions[0].blocks[0], shapes, target
        last = self.block.operations[len(self.block.operations) - 1].operation
        self.roots = list(last.operands)
        self.plan = analyze_rows(self.block, shapes, self.roots)
        self.name = fusion_name(fusion, "column")
        self.workspaces: list[Expr] = []

    def steps(self, lanes: int) -> tuple[Step, ...]:
        """All of it with tasks of `lanes` columns."""
        plan, shapes = self.plan, self.shapes
        write = functools.partial(ColumnWriter, plan, lanes=lanes)
        writer = write_rows(plan, shapes, lambda factors: write(factors).write())
        time = cost.of_rows(self.block, shapes, plan.cols * lanes, self.target)
        whole = writer.launch(self.name, time)
        several = len(plan.sweeps) > 1
        tall = _TALL if several else TALL_COLUMNS
        high = shapes.constraints.bounds(plan.cols)[1]
        few = shapes.constraints.bounds(whole.extent)[0]
        if (high is not None and high < tall) or (not several and few is not None and few >= _FEW):
            return (whole,)
        again = analyze_rows(self.block, shapes, self.roots, keep=False)
        factors = writer.space.factors[: writer.rank]
        split = SplitRows(again, stages_of(again), factors, lanes, self.name, self.target)
        self.workspaces = split.workspaces
        step = If(Condition(plan.cols, ">=", Expr.const(tall)), tuple(split.launches), (whole,))
        if not several:
            step = If(Condition(whole.extent, "<", Expr.const(_FEW)), (step,), (whole,))
        return (step,)
