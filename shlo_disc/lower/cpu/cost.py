"""Estimated time of element-wise work, for the host's choice of grain.

Cycles per vector register and op, from reading the code generated for AVX-512 and AVX2; they need
to be right within a factor of two or three only: they decide how many tasks make a worthwhile
piece for another core (a few microseconds).
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.values.elements import element_of
from shlo_disc.mlir import ir

__all__ = ["is_expensive", "of_block", "op_cycles"]

_CYCLES = {
    "chlo.erf": 25,
    "chlo.erf_inv": 40,
    "chlo.erfc": 40,
    "stablehlo.atan2": 40,
    "stablehlo.cbrt": 30,
    "stablehlo.cosine": 30,
    "stablehlo.divide": 8,
    "stablehlo.exponential": 15,
    "stablehlo.exponential_minus_one": 20,
    "stablehlo.log": 20,
    "stablehlo.log_plus_one": 25,
    "stablehlo.logistic": 25,
    "stablehlo.power": 50,
    "stablehlo.remainder": 40,
    "stablehlo.rsqrt": 15,
    "stablehlo.sine": 30,
    "stablehlo.sqrt": 10,
    "stablehlo.tan": 40,
    "stablehlo.tanh": 25,
}
_GATHERS = frozenset({"stablehlo.concatenate", "stablehlo.pad", "stablehlo.transpose"})


def op_cycles(op: ir.Operation) -> int:
    """Cycles of one op on one vector register."""
    return _CYCLES.get(op.name, 4 if op.name in _GATHERS else 1)


def is_expensive(op: ir.Operation) -> bool:
    """Worth more than a store and a load of its result in L1."""
    return op_cycles(op) >= 8


def of_block(block: ir.Block, shapes: ShapeAnalysis, elements: Expr, machine: Machine) -> Expr:
    """Nanoseconds to compute `elements` elements of every value of a fusion, on one core.

    A reduction inside multiplies the work by the elements it reduces.
    """
    cycles, traffic, times = 4, 0, Expr.const(1)
    for view in block.operations:
        op = view.operation
        cycles += op_cycles(op)
        if op.name == "stablehlo.reduce":
            sizes = shapes.shape(op.operands[0])
            gone = ir.DenseI64ArrayAttr(op.attributes["dimensions"])
            times = Expr.max(times, Expr.product(sizes[d] for d in gone))
        elif op.name == "stablehlo.reduce_window":
            windows = ir.DenseI64ArrayAttr(op.attributes["window_dimensions"])
            times = Expr.max(times, Expr.product(int(w) for w in windows))
    for argument in block.arguments:
        traffic += element_of(argument).bytes
    # At 3 GHz, and 10 GB/s of memory traffic a core: picoseconds an element.
    picoseconds = cycles * 333 * 4 // machine.vector_bytes + traffic * 100
    return (elements * times * picoseconds) // 1000 + 10


def of_rows(block: ir.Block, shapes: ShapeAnalysis, cols: Expr, machine: Machine) -> Expr:
    """Nanoseconds of one row of a row fusion."""
    cycles, traffic = 4, 0
    for view in block.operations:
        cycles += op_cycles(view.operation)
    for argument in block.arguments:
        traffic += element_of(argument).bytes
    picoseconds = cycles * 333 * 4 // machine.vector_bytes + traffic * 100
    return (cols * picoseconds) // 1000 + 20
