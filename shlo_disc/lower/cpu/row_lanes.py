"""Number of elements that the vectors of a row kernel hold."""

from __future__ import annotations

from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.kernels.lanes import choose_lanes
from shlo_disc.lower.schedule.row_reduction import Plan


def choose_row_lanes(plan: Plan, machine: Machine) -> int:
    """Several vectors at once hide latency; fewer when the work itself needs registers."""
    base = choose_lanes(plan.block, machine)
    expensive = any(MODEL.costs.is_expensive(view.operation) for view in plan.block.operations)
    lanes = base * (2 if expensive else 4)
    if plan.cols.is_const:
        while lanes > 4 and lanes // 2 >= plan.cols.value:
            lanes //= 2
    return lanes
