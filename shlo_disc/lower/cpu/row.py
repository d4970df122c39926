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
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.loop import fusion_name
from shlo_disc.lower.cpu.row_plan import analyze_rows, choose_row_lanes
from shlo_disc.lower.cpu.row_split import with_split
from shlo_disc.lower.cpu.row_writer import RowWriter, write_rows
from shlo_disc.lower.cpu.target import Target
from shlo_disc.lower.kernel import KernelPlan
from shlo_disc.mlir import ir

__all__ = ["emit"]


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
    whole = writer.launch(name, Expr.product(plan.rows), time)
    return with_split(plan, writer.space.factors[:-1], lanes, name, whole, target)
