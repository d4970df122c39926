"""Kind `dense`: from the products of a fusion to one plan."""

from __future__ import annotations

from dataclasses import replace

from shlo_disc.base.later import imported_later
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, is_in_loop, terminator
from shlo_disc.lower.cpu.dense.plan import Planner
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import KernelPlan, Output, Step, Workspace
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.contraction import Dense, analyze_dense, turned
from shlo_disc.passes.match_dense import DenseRecord
from shlo_disc.passes.match_rows import RowRecord
from shlo_disc.passes.records import Planned

fused_horizontally = imported_later("shlo_disc.lower.cpu.dense.horizontal", "fused_horizontally")
largest = imported_later("shlo_disc.lower.cpu.dense.batches", "largest")
row_work = imported_later("shlo_disc.lower.cpu.dense.row_work", "RowWork")


def emit_dense(fusion: Planned[DenseRecord], machine: Machine) -> KernelPlan:
    """The plan of a `dense` fusion: for every result a dot_general, perhaps transposes in front and
    behind, then element-wise ops.

    A right operand shared by all batch entries is packed into panels, which the runtime keeps
    beside an immutable buffer; others are read in place or packed piece by piece by the tasks.

    Raises UnsupportedError for an element type that is not compiled.
    """
    block, record, shapes = fusion.block, fusion.record, fusion.shapes
    products = analyze_dense(record, list(block.arguments), shapes)
    if record.rows is not None:
        return _with_rows(products[0], record.rows, block, shapes, machine)
    planners = [
        Planner(Request.of(dense, block, shapes, machine, Output(number)))
        for number, dense in enumerate(products)
    ]
    plans = [planner.steps() for planner in planners]
    if record.bands is not None:
        return KernelPlan(plans[0])
    if len(plans) == 1:
        planner, problem = planners[0], products[0].problem
        may_be_tiny = problem.batch or is_in_loop(fusion.op)
        if may_be_tiny and (tiny := planner.in_batches()) is not None:
            return KernelPlan((tiny,))
        steps = _unless_few_columns(planner, products[0], plans[0], block)
        if may_be_tiny:
            steps = planner.unless_small(steps)
        short = (largest(problem),) if may_be_tiny else ()
        return KernelPlan(*planner.split(steps), short=short)
    if (merged := fused_horizontally(plans, machine)) is not None:
        return KernelPlan(merged)
    return KernelPlan(tuple(step for plan in plans for step in plan))


def _unless_few_columns(
    planner: Planner, dense: Dense, steps: tuple[Step, ...], block: ir.Block
) -> tuple[Step, ...]:
    """`steps`, or where a result has few columns, its operands in each other's place."""
    if planner.fill is not None or planner.gemm.has_tiles:
        return steps
    shapes = planner.request.shapes
    other_way = replace(dense, problem=turned(dense.problem, shapes))
    request = Request.of(other_way, block, shapes, planner.machine, planner.out)
    return Planner(request, may_use_words=False).unless_many_rows(steps)


def _with_rows(
    dense: Dense, record: RowRecord, block: ir.Block, shapes: ShapeAnalysis, machine: Machine
) -> KernelPlan:
    """The plan of a product with row work behind it."""
    given = dense.root
    yielded = list(terminator(block).operands)
    memory = Output(yielded.index(given)) if given in yielded else Workspace(0)
    outputs = [Output(yielded.index(root)) for root in record.roots]
    rows = row_work(record, block, shapes, machine, outputs, given, memory)
    request = Request.of(dense, block, shapes, machine, memory)
    return KernelPlan(Planner(request, rows=rows).steps(), rows.workspaces())
