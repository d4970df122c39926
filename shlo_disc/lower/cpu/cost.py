"""Estimated time of element-wise work, for the host's choice of grain.

Cycles per vector register and op, from reading the code generated for AVX-512 and AVX2. They decide
how many tasks make a worthwhile piece for another core (a few microseconds). A factor of two or
three does no harm.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, is_in_loop
from shlo_disc.ir.ops import Role, row_of
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.values.elements import element_of
from shlo_disc.passes.op_classes import is_flag


def op_cycles(op: ir.Operation) -> int:
    """Cycles of one op on one vector register: an addition takes one."""
    return row_of(op).cost


def of_block(block: ir.Block, shapes: ShapeAnalysis, elements: Expr, machine: Machine) -> Expr:
    """Nanoseconds to compute `elements` elements of every value of a fusion, on one core.

    A reduction inside multiplies the work by the elements it reduces.
    """
    times = Expr.const(1)
    for view in block.operations:
        op = view.operation
        if op.name == "stablehlo.reduce" and not is_flag(op):  # a flag is told on the way
            sizes = shapes.shape(op.operands[0])
            gone = ir.DenseI64ArrayAttr(op.attributes["dimensions"])
            times = Expr.max(times, Expr.product(sizes[d] for d in gone))
        elif op.name == "stablehlo.reduce_window":
            windows = ir.DenseI64ArrayAttr(op.attributes["window_dimensions"])
            times = Expr.max(times, Expr.product(int(w) for w in windows))
    return (elements * times * _picoseconds(block, machine)) // 1000 + 10


def _picoseconds(block: ir.Block, machine: Machine) -> int:
    """Of an element of every value: at 3 GHz, and 10 GB/s of memory traffic a core."""
    cycles = 4 + sum(op_cycles(view.operation) for view in block.operations)
    traffic = sum(element_of(argument).bytes for argument in block.arguments)
    return cycles * 333 * 4 // machine.vector_bytes + traffic * 100


def of_rows(block: ir.Block, cols: Expr, machine: Machine) -> Expr:
    """Nanoseconds of one row of a row fusion."""
    return (cols * _picoseconds(block, machine)) // 1000 + 20


def of_short_rows(
    block: ir.Block, shapes: ShapeAnalysis, cols: int, lanes: int, machine: Machine
) -> Expr:
    """Nanoseconds of `lanes` rows of `cols` elements each, side by side in lanes.

    What has one element a row, or one alone, is not counted for every column. In loops, operands
    are in a cache.
    """
    full = {
        Expr.product(shapes.shape(view.operation.operands[0]))
        for view in block.operations
        if view.operation.name == "stablehlo.reduce"
    }

    def columns(value: ir.Value) -> int:
        count = Expr.product(shapes.shape(value))
        return 0 if count.is_one else cols if count in full else 1

    cycles, traffic = 4, 0
    for view in block.operations:
        op = view.operation
        if row_of(op).role in (Role.ELEMENTWISE, Role.MOVING, Role.LOOP):
            of_all = op.operands if op.name == "stablehlo.reduce" else op.results
            cycles += op_cycles(op) * columns(of_all[0])
    for argument in block.arguments:
        traffic += element_of(argument).bytes * columns(argument)
    byte = 20 if is_in_loop(block.owner.operation) else 100
    picoseconds = cycles * 333 * 4 // machine.vector_bytes + traffic * byte
    return Expr.const(lanes * picoseconds // 1000 + 2)
