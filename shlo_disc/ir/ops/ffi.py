"""What the attributes of an FFI call say (`ingest/foreign_calls.py` writes them).

A custom call with the attribute `disc.ffi` calls a handler of XLA's FFI, whatever its target is.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ir.attributes import flag
from shlo_disc.ir.mlir import ir, stablehlo

ANY_TARGET = "@any FFI target"
"""The row of FFI calls in the op table."""

CONFIGURATION = "disc.ffi"
"""The attributes that the handler reads, as a dictionary."""

SIZE_ATTRIBUTES = "shlo_disc.size_attributes"
"""Integer attributes that are sizes of operands: for each name dense<[operand, logical dimension]>.

No array<i64: ...>: some versions of StableHLO's portable form turn it into elements."""


def holds_pairs(value: ir.Value, order: Sequence[int]) -> bool:
    """True if an operand or result of this memory order is complex numbers for the handler.

    The program has pairs of numbers, one dimension more than the order says.
    """
    return int(ir.RankedTensorType(value.type).rank) == len(order) + 1


def is_ffi_call(op: ir.Operation) -> bool:
    """True if `op` calls a handler of XLA's FFI."""
    return op.name == "stablehlo.custom_call" and CONFIGURATION in op.attributes


def has_effect(op: ir.Operation) -> bool:
    """True if `op` is a call that runs as often as the program says, and in that order."""
    return flag(op, "has_side_effect")


def size_operands(op: ir.Operation) -> tuple[int, ...]:
    """The operands that are sizes of the results; the handler does not see them."""
    if "indices_of_shape_operands" not in op.attributes:
        return ()
    indices = ir.DenseIntElementsAttr(op.attributes["indices_of_shape_operands"])
    return tuple(int(i) for i in indices)


def aliases(op: ir.Operation) -> list[tuple[int, int]]:
    """(operand, result) that are in one place in memory: the handler changes the operand."""
    if "output_operand_aliases" not in op.attributes:
        return []
    found = []
    for attribute in ir.ArrayAttr(op.attributes["output_operand_aliases"]):
        alias = stablehlo.OutputOperandAlias(attribute)
        of_result = list(alias.output_tuple_indices)
        found.append((int(alias.operand_index), int(of_result[0]) if of_result else 0))
    return found
