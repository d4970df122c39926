"""Kind `host`: a few integer operations on scalars, computed by the host program itself.

Loop counters and conditions would otherwise be kernels of one element; a loop of small steps spends
more time calling those than on its work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir, terminator
from shlo_disc.ir.ops import names
from shlo_disc.lower.host.memory import HostMemory, Memory, memory_of
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.values.elementwise import emit_scalar
from shlo_disc.lower.values.typed import Mask, Pointer, Register
from shlo_disc.passes.op_classes import ELEMENTWISE, is_integer_scalar

_SAME = names(lambda row: row.is_broadcast)


def emit_scalars(
    w: HostWriter, memory: HostMemory, op: ir.Operation, pointers: Mapping[ir.Value, Pointer]
) -> None:
    """Write the body of a `host` fusion: loads, arithmetic, stores."""
    registers = scalar_registers(w, memory, op, pointers)
    block = op.regions[0].blocks[0]
    last = terminator(block)
    for value, result in zip(last.operands, op.results, strict=True):
        _store(w, memory_of(result, memory), registers[value], pointers[result])


def scalar_registers(
    w: HostWriter, memory: HostMemory, op: ir.Operation, pointers: Mapping[ir.Value, Pointer]
) -> dict[ir.Value, Register]:
    """The integer scalars of a fusion, as registers: what it is given, and what it computes of
    that. Everything else in it is left out.
    """
    block = op.regions[0].blocks[0]
    registers: dict[ir.Value, Register] = {}
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        if is_integer_scalar(argument):
            own = memory_of(operand, memory)
            registers[argument] = _load(w, own, pointers[operand], argument.type)
    for view in block.operations:
        inner = view.operation
        if len(inner.results) and is_integer_scalar(inner.results[0]):
            registers[inner.results[0]] = _compute(w, inner, registers)
    return registers


def _element(kind: ir.Type) -> Any:
    return ir.RankedTensorType(kind).element_type


def _bits(kind: ir.Type) -> int:
    """Of the register of a scalar; 1 is a `Mask`."""
    return int(_element(kind).width)


def _load(w: HostWriter, memory: Memory, pointer: Pointer, kind: ir.Type) -> Register:
    bits = _bits(kind)
    if bits == 1:
        return read_flag(w, memory, pointer, "scalar")
    return memory.read(w, pointer, bits, "scalar")


def read_flag(w: HostWriter, memory: Memory, pointer: Pointer, hint: str = "byte") -> Mask:
    """The flag at `pointer`, which is a byte in memory."""
    return Mask.of(memory.read(w, pointer, 8, hint).cast("llvm.trunc", "i1"))


def _store(w: HostWriter, memory: Memory, register: Register, pointer: Pointer) -> None:
    if isinstance(register, Mask):
        register = register.cast("llvm.zext", "i8")
    memory.write(w, register, pointer)


def _compute(w: HostWriter, op: ir.Operation, registers: Mapping[ir.Value, Register]) -> Register:
    bits = _bits(op.results[0].type)
    if op.name == "stablehlo.constant":
        value = op.attributes["value"].get_splat_value()
        number = ir.IntegerAttr(value).value if not isinstance(value, int) else value
        return w.flags(bool(number)) if bits == 1 else w.const(int(number), bits)
    if op.name == "disc.dim":
        size = w.size(Expr.parse(ir.StringAttr(op.attributes["dim"]).value))
        return size if bits == 64 else size.cast("arith.trunci", f"i{bits}")
    given = [registers[value] for value in op.operands if value in registers]
    if op.name in _SAME:
        return given[0]
    if op.name in ELEMENTWISE:
        return emit_scalar(w, op, given)
    raise InternalError(f"{op.name} cannot be computed by the host program")
