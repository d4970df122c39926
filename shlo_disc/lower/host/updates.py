"""Addresses of updates that are computed at their place in a larger array (see plan-buffers)."""

from __future__ import annotations

from collections.abc import Mapping

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.memory import element_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, ops_of
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.scalars import scalar_registers
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.values.typed import Mask, Pointer, Register
from shlo_disc.passes.places import stored_of
from shlo_disc.passes.records import update_of


def stored_updates(func: ir.Operation) -> dict[int, ir.Operation]:
    """The fusions of `func` whose updates are computed at their places, by `Place.number`."""
    found: dict[int, ir.Operation] = {}
    for fusion in ops_of(func, "disc.fusion"):
        if (number := stored_of(fusion)) is not None:
            found[number] = fusion
    return found


def _update_in(fusion: ir.Operation) -> ir.Operation:
    """The `dynamic_update_slice` of a fusion that `stored_of` numbers."""
    update = update_of(fusion)
    if update is None:
        raise InternalError(f"{source_line(fusion)}: a fusion is stored that updates nothing")
    return update


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
