"""Branches in regions of scalars, as selects where both sides are cheap.

    reduce %x { if %p { return %a } else { return %b } }  ==>  reduce %x { select %p, %a, %b }

A region without control flow can be computed in vector lanes. Its ops are total and have no side
effects. A `while` may never end, so a branch with a loop stays a branch.
"""

from __future__ import annotations

from shlo_disc.ir.builders import compare, integer, select
from shlo_disc.ir.mlir import at, ir, ops_of, replace, terminator
from shlo_disc.ir.ops import OPS, Role
from shlo_disc.ir.scalar_regions import in_scalar_region

BRANCHES = ("stablehlo.case", "stablehlo.if")

MOST = 128
"""Cost of all branches together, in additions, up to which they become selects. An estimate: in 8
lanes that is 16 cycles an element, as much as one branch that is predicted wrongly."""


def select_in_regions(root: ir.Operation) -> None:
    """Replace the cheap branches in regions of scalars under `root`, inner ones first."""
    for op in ops_of(root, *BRANCHES):
        if in_scalar_region(op) and _is_cheap(op):
            _select(op)


def _is_cheap(op: ir.Operation) -> bool:
    cost = 0
    for region in op.regions:
        for view in region.blocks[0].operations:
            row = OPS.get(view.operation.name)
            if row is None or row.role is Role.CONTROL or len(view.operation.regions):
                return False
            cost += row.cost
    return cost <= MOST


def _select(op: ir.Operation) -> None:
    rows = []
    for region in op.regions:
        block = region.blocks[0]
        last = terminator(block)
        rows.append(list(last.operands))
        for view in list(block.operations)[:-1]:
            view.operation.move_before(op)
    chosen = op.operands[0]
    with at(op):
        values = rows[-1]
        for number, row in reversed(list(enumerate(rows[:-1]))):
            is_this = chosen if op.name == "stablehlo.if" else _equals(chosen, number)
            values = [select(is_this, a, b) for a, b in zip(row, values, strict=True)]
    replace(op, *values)


def _equals(value: ir.Value, number: int) -> ir.Value:
    return compare("EQ", value, integer(number, value.type))
