"""Kind `row`: element-wise work around reductions of the trailing dimensions (softmax, layer-norm).

A task is one row. A row is swept once per level of chained reductions, and once more for results
that need the last of them: `x -> max -> exp(x - max) -> sum -> quotient` is three sweeps. Row
values live in scalar registers; a full-size value used by a later sweep is kept, in the result's
own row or in scratch memory, when computing it again costs more than storing and loading it.

Order of a reduction: lane i of W accumulators takes columns i, i + W, ...; the lanes are then
combined as a balanced tree and the init value comes last. W depends on the fusion and the machine's
vector width only: results do not depend on the number of threads. A body that is not one known
commutative operation (arg-max) gives lane i the i-th run of neighbouring columns instead, so that
only associativity is used.

Long rows are cut into pieces where there are few of them, and where rows of scratch memory would be
needed, which then would not fit a cache: see `row_split.py`. The choice depends on sizes alone.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.loop import fusion_name
from shlo_disc.lower.cpu.row_plan import analyze_rows, choose_row_lanes
from shlo_disc.lower.cpu.row_split import SPLIT_COLUMNS, SplitRows
from shlo_disc.lower.cpu.row_stages import stages_of
from shlo_disc.lower.cpu.row_writer import RowWriter, write_rows
from shlo_disc.lower.cpu.target import Target
from shlo_disc.lower.kernel import Condition, If, KernelPlan
from shlo_disc.mlir import ir

__all__ = ["emit"]

_LONG = 4 * SPLIT_COLUMNS
"""Columns of a row that may be split."""

_FEW = 64
"""Fewer rows than this are split when they are long; more rows keep any machine busy."""


def emit(fusion: ir.Operation, shapes: ShapeAnalysis, target: Target) -> KernelPlan:
    """The plan of a `row` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    block = fusion.regions[0].blocks[0]
    roots = list(block.operations[len(block.operations) - 1].operation.operands)
    plan = analyze_rows(block, shapes, roots)
    lanes = choose_row_lanes(plan, target)
    writer = write_rows(plan, shapes, lambda factors: RowWriter(plan, factors, lanes).write())
    name = fusion_name(fusion, "row")
    time = cost.of_rows(plan.block, shapes, plan.cols, target)
    rows = Expr.product(plan.rows)
    whole = writer.launch(name, time)
    bounds = shapes.constraints.bounds
    high, few = bounds(plan.cols)[1], bounds(rows)[0]
    can_be_long = high is None or high >= _LONG
    can_be_few = few is None or few < _FEW or bool(plan.slots)
    if not (can_be_long and can_be_few):
        return KernelPlan((whole,))
    again = analyze_rows(block, shapes, roots, keep=False)
    split = SplitRows(
        again, stages_of(again), writer.space.factors[: writer.rank], lanes, name, target
    )
    step = If(Condition(plan.cols, ">=", Expr.const(_LONG)), tuple(split.launches), (whole,))
    if not plan.slots:
        step = If(Condition(rows, "<", Expr.const(_FEW)), (step,), (whole,))
    return KernelPlan((step,), tuple(split.workspaces))
