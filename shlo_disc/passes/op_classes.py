"""What the fusion planner may do with an op: classes of ops, derived from the op table.

The classes are facts about the op's semantics, not about a target; a test holds them against
what the emitters in `lower/` accept.
"""

from __future__ import annotations

from shlo_disc.ir.mlir import ir, producer
from shlo_disc.ir.ops import OPS, Flops, Role, ffi, names, row_of
from shlo_disc.ir.ops.ffi import is_ffi_call
from shlo_disc.ir.scalar_regions import takes_lanes

ELEMENTWISE = names(lambda row: row.role is Role.ELEMENTWISE)
DATA_MOVEMENT = names(lambda row: row.role is Role.MOVING)
FREE = names(lambda row: row.role is Role.FREE)
"""Splat constants are free, too: see `is_splat_constant`."""
EFFECTS = frozenset({"disc.guard", "stablehlo.custom_call", "stablehlo.rng"})
"""Ops that may have an effect, and random numbers: they run as often as the program says."""

CONTROL = names(lambda row: row.role is Role.CONTROL)
HOST_SCALARS = names(lambda row: row.on_host)
TRANSCENDENTAL = names(lambda row: row.flops is Flops.TRANSCENDENTAL)
MATERIALIZED_OPERANDS = {name: row.materialized for name, row in OPS.items() if row.materialized}
RESULT_SHAPE_OPERAND = {
    name: row.result_shape for name, row in OPS.items() if row.result_shape is not None
}

BROADCASTS = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim"})
IOTAS = frozenset({"stablehlo.dynamic_iota", "stablehlo.iota"})

GATHERS = frozenset({"stablehlo.dynamic_gather", "stablehlo.gather"})
"""Operand 1 tells where operand 0 is read."""

RESHAPES = frozenset({"stablehlo.reshape", "stablehlo.dynamic_reshape"})
"""Outside a kernel these are aliases of their operand."""


WHY = "disc.why"
"""An attribute of an op: a decision of a pass about it, a string that `explain()` shows."""


def size_operands(op: ir.Operation) -> tuple[int, ...]:
    """The positions of operands that are read as sizes, not as data: a `disc.shape` may be there
    and nowhere else.
    """
    if is_ffi_call(op):
        return ffi.size_operands(op)
    row = row_of(op)
    return row.size_operands if row.result_shape is None else (row.result_shape,)


def own_kind(op: ir.Operation) -> str | None:
    """The kind of a fusion around `op`, where it has an emitter of its own."""
    return row_of(op).kind or None


def is_integer_scalar(value: ir.Value) -> bool:
    """An integer tensor of rank 0."""
    kind = ir.RankedTensorType(value.type)
    return not kind.rank and isinstance(kind.element_type, ir.IntegerType)


def is_host_scalar(op: ir.Operation) -> bool:
    """True if the host program can compute the results of `op`, integer scalars."""
    if op.name not in HOST_SCALARS or not all(map(is_integer_scalar, op.results)):
        return False
    if any(1 < value.type.element_type.width < 8 for value in (*op.operands, *op.results)
           if is_integer_scalar(value)):  # fmt: skip
        return False
    return op.name not in ELEMENTWISE or all(map(is_integer_scalar, op.operands))


def is_row_reduction(op: ir.Operation) -> bool:
    """True for a `reduce` whose body can be computed in vector lanes."""
    return op.name == "stablehlo.reduce" and takes_lanes(op)


def is_flag(op: ir.Operation) -> bool:
    """True for a `reduce` that tells whether any of the truth values of an array is true."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or not len(op.operands):
        return False
    kind, init = ir.RankedTensorType(op.results[0].type), op.operands[1].owner
    is_truth = str(kind.element_type) == "i1" and not kind.rank
    if not is_truth or isinstance(init, ir.Block) or not is_splat_constant(init.operation):
        return False
    value = ir.DenseElementsAttr(init.operation.attributes["value"]).get_splat_value()
    block = op.regions[0].blocks[0]
    body = block.operations[0].operation
    return (
        not ir.BoolAttr(value).value
        and len(block.operations) == 2
        and body.name == "stablehlo.or"
        and set(body.operands) == set(block.arguments)
    )


def is_splat_constant(op: ir.Operation) -> bool:
    """True for a `stablehlo.constant` of one repeated element (rank 0 included)."""
    if op.name != "stablehlo.constant":
        return False
    value = op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and bool(value.is_splat)


def constant_float(value: ir.Value) -> float | None:
    """The float that `value` holds at every index, where it is a constant; else None."""
    op = producer(value)
    while op is not None and (op.name in RESHAPES or op.name in BROADCASTS):
        op = producer(op.operands[0])
    if op is None or not is_splat_constant(op):
        return None
    splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    return float(splat.value) if isinstance(splat, ir.FloatAttr) else None
