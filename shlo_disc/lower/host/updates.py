"""Addresses of updates that are computed at their place in a larger array (see plan-buffers)."""

from __future__ import annotations

from collections.abc import Mapping

from shlo_disc.dynamic.memory import element_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.errors import InternalError
from shlo_disc.locations import source_line
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.scalars import scalar_registers
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.values.typed import Mask, Pointer, Register
from shlo_disc.mlir import ir
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.places import At, Mode, Place, carries_of, places_of
from shlo_disc.passes.records import update_of

__all__ = ["stored_update", "update_address"]


def stored_update(value: ir.Value) -> ir.Operation:
    """The fusion marked `disc.stored` whose update has the buffer of `value`.

    Raises InternalError where there is none.
    """
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses:
            op, position = use.owner.operation, use.operand_number
            if "disc.stored" in op.attributes and position == _update_position(op):
                return op
            waiting += _same_buffer(op, position)
    raise InternalError(f"no dynamic_update_slice stores {value}")


def _update_in(fusion: ir.Operation) -> ir.Operation:
    """The `dynamic_update_slice` of a fusion marked `disc.stored`."""
    update = update_of(fusion)
    if update is None:
        raise InternalError(f"{source_line(fusion)}: a fusion is stored that updates nothing")
    return update


def _update_position(fusion: ir.Operation) -> int:
    """The operand of `fusion` that its `dynamic_update_slice` writes; its starts are others."""
    arguments = list(fusion.regions[0].blocks[0].arguments)
    return arguments.index(_update_in(fusion).operands[1])


def _same_buffer(op: ir.Operation, position: int) -> list[ir.Value]:
    """The results of `op` that live where its operand lives, as plan-buffers decided."""
    if op.name in RESHAPES:
        return [op.results[0]]
    if op.name == "disc.fusion" and not position:
        return [op.results[0]] if places_of(op)[0] == Place(At.INPLACE) else []
    if op.name == "stablehlo.while":
        in_place = carries_of(op)[position].mode in (Mode.SAME, Mode.INITIAL)
        return [op.results[position]] if in_place else []
    return []


def update_address(
    w: HostWriter,
    memory: HostMemory,
    fusion: ir.Operation,
    pointers: Mapping[ir.Value, Pointer],
    shapes: ShapeAnalysis,
) -> Pointer:
    """Where the update of `fusion` begins; start indices are clamped, as specified."""
    registers = scalar_registers(w, memory, fusion, pointers)
    update = _update_in(fusion)
    sizes, window = (shapes.shape(update.operands[k]) for k in (0, 1))
    element = element_bytes(ir.RankedTensorType(update.operands[0].type).element_type)
    address = pointers[fusion.operands[0]]
    for d, stride in enumerate(dense_strides(sizes)):
        room = sizes[d] - window[d]
        if room == 0:
            continue
        start = update.operands[2 + d]
        at = _as_i64(w, registers[start], start.type)
        at = w.smaller(w.larger(at, w.const(0)), w.size(room))
        address = w.offset(address, at * w.size(stride * element))
    return address


def _as_i64(w: HostWriter, register: Register, kind: ir.Type) -> Register:
    element = ir.RankedTensorType(kind).element_type
    assert not isinstance(register, Mask), "an index is no boolean"
    if element.width == 64:
        most = w.const((1 << 63) - 1)
        if element.is_unsigned:
            return w.op("arith.minui", register, most)
        return register
    name = "arith.extui" if element.is_unsigned else "arith.extsi"
    return register.cast(name, "i64")
