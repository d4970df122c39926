"""Kind `dense`: from the products of a fusion to one plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shlo_disc.base.later import imported_later
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, is_in_loop, terminator
from shlo_disc.lower.cpu.dense.plan import Planner
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import KernelPlan, Output, Step, Workspace
from shlo_disc.lower.products.epilogue import BandEpilogue, Epilogue
from shlo_disc.lower.products.prologue import Prologue
from shlo_disc.lower.schedule.contraction import Dense, analyze_dense, turned
from shlo_disc.lower.values.elements import element_of
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
    planners = []
    products = analyze_dense(record, list(block.arguments), shapes)
    for number, dense in enumerate(products):
        out = Output(number)

        fill = partial(Prologue, dense.problem, block, shapes)
        finish = partial(Epilogue, dense, block, shapes)
        if dense.bands is not None:
            return _banded(dense, block, shapes, machine)
        if record.rows is not None:
            return _with_rows(dense, record.rows, block, shapes, machine)
        planners.append(
            Planner(
                dense.problem,
                shapes,
                machine,
                finish=finish if dense.root != dense.total else None,
                result=element_of(dense.root),
                out=out,
                fill=fill,
            )
        )
    plans = [planner.steps() for planner in planners]
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
    if planner.fill is not None:
        return steps
    shapes, machine = planner.shapes, planner.machine
    other_way = replace(dense, problem=turned(dense.problem, shapes))

    finish = partial(Epilogue, other_way, block, shapes)
    other = Planner(
        other_way.problem, shapes, machine, finish=finish if planner.finish is not None else None,
        result=planner.gemm.c, out=planner.out, may_use_words=False,
    )  # fmt: skip
    return other.unless_many_rows(steps)


def _banded(dense: Dense, block: ir.Block, shapes: ShapeAnalysis, machine: Machine) -> KernelPlan:
    """The plan of a product that is read in bands."""
    finish = partial(BandEpilogue, dense, block, shapes)
    element = element_of(dense.root)
    return Planner(dense.problem, shapes, machine, finish_bands=finish, result=element).plan()


def _with_rows(
    dense: Dense, record: RowRecord, block: ir.Block, shapes: ShapeAnalysis, machine: Machine
) -> KernelPlan:
    """The plan of a product with row work behind it."""
    given = dense.root
    yielded = list(terminator(block).operands)
    memory = Output(yielded.index(given)) if given in yielded else Workspace(0)
    outputs = [Output(yielded.index(root)) for root in record.roots]

    finish = partial(Epilogue, dense, block, shapes)
    rows = row_work(record, block, shapes, machine, outputs, given, memory)
    steps = Planner(
        dense.problem, shapes, machine, finish=finish if given != dense.total else None,
        result=element_of(given), out=memory, rows=rows,
    ).steps()  # fmt: skip
    return KernelPlan(steps, rows.workspaces())
