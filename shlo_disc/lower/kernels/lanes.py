"""Number of elements that the vectors of a kernel hold."""

from __future__ import annotations

from shlo_disc.ir.mlir import ir
from shlo_disc.ir.scalar_regions import takes_lanes
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.values.elements import element_of


def choose_lanes(block: ir.Block, machine: TaskMachine) -> int:
    """One vector register of the widest float computed with (of the widest integer without any).

    None (0) where an op computes element by element.
    """
    if not all(takes_lanes(view.operation) for view in block.operations):
        return 0
    floats, others = [], [1]
    values = list(block.arguments)
    for view in block.operations:
        values += [] if view.operation.name.startswith("disc.") else view.operation.results
    for value in values:
        element = element_of(value)
        if element.is_float:
            floats.append(8 if element.bits == 64 else 4)
        elif ir.ShapedType(value.type).rank:  # a scalar index costs no lanes
            others.append(element.bytes)
    return machine.lanes(max(floats) if floats else max(others))
