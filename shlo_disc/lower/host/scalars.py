"""Kind `host`: a few integer operations on scalars, computed by the host program itself.

Loop counters and conditions would otherwise be kernels of one element; a loop of small steps spends
more time calling those than on its work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shlo_disc.comparisons import comparison
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import InternalError
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.mlir import ir, terminator
from shlo_disc.ops import names
from shlo_disc.passes.op_classes import is_integer_scalar

__all__ = ["emit_scalars", "read_flag", "scalar_registers"]

_BINARY = {
    "stablehlo.add": "arith.addi",
    "stablehlo.and": "arith.andi",
    "stablehlo.multiply": "arith.muli",
    "stablehlo.or": "arith.ori",
    "stablehlo.subtract": "arith.subi",
    "stablehlo.xor": "arith.xori",
}
_EXTREMES = {
    ("stablehlo.maximum", True): "arith.maxsi",
    ("stablehlo.maximum", False): "arith.maxui",
    ("stablehlo.minimum", True): "arith.minsi",
    ("stablehlo.minimum", False): "arith.minui",
}
_PREDICATES = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}
_SAME = names(lambda row: row.is_broadcast)


def emit_scalars(
    w: HostWriter, memory: HostMemory, op: ir.Operation, pointers: Mapping[ir.Value, str]
) -> None:
    """Write the body of a `host` fusion: loads, arithmetic, stores."""
    registers = scalar_registers(w, memory, op, pointers)
    block = op.regions[0].blocks[0]
    last = terminator(block)
    for value, result in zip(last.operands, op.results, strict=True):
        _store(w, memory, registers[value], pointers[result], value.type)


def scalar_registers(
    w: HostWriter, memory: HostMemory, op: ir.Operation, pointers: Mapping[ir.Value, str]
) -> dict[ir.Value, str]:
    """The integer scalars of a fusion, as registers: what it is given, and what it computes of
    that. Everything else in it is left out.
    """
    block = op.regions[0].blocks[0]
    registers: dict[ir.Value, str] = {}
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        if is_integer_scalar(argument):
            registers[argument] = _load(w, memory, pointers[operand], argument.type)
    for view in block.operations:
        inner = view.operation
        if len(inner.results) and is_integer_scalar(inner.results[0]):
            registers[inner.results[0]] = _compute(w, inner, registers)
    return registers


def _element(kind: ir.Type) -> Any:
    return ir.RankedTensorType(kind).element_type


def _register(kind: ir.Type) -> str:
    return f"i{_element(kind).width}"


def _load(w: HostWriter, memory: HostMemory, pointer: str, kind: ir.Type) -> str:
    type_ = _register(kind)
    if type_ == "i1":
        return read_flag(w, memory, pointer, "scalar")
    return memory.read(w, pointer, type_, "scalar")


def read_flag(w: HostWriter, memory: HostMemory, pointer: str, hint: str = "byte") -> str:
    """The i1 at `pointer`, which is a byte in memory."""
    byte = memory.read(w, pointer, "i8", hint)
    flag = w.fresh("flag")
    w.line(f"{flag} = llvm.trunc {byte} : i8 to i1")
    return flag


def _store(w: HostWriter, memory: HostMemory, register: str, pointer: str, kind: ir.Type) -> None:
    type_ = _register(kind)
    if type_ == "i1":
        byte = w.fresh("byte")
        w.line(f"{byte} = llvm.zext {register} : i1 to i8")
        register, type_ = byte, "i8"
    memory.write(w, register, pointer, type_)


def _compute(w: HostWriter, op: ir.Operation, registers: Mapping[ir.Value, str]) -> str:
    type_ = _register(op.results[0].type)
    if op.name == "stablehlo.constant":
        value = op.attributes["value"].get_splat_value()
        number = ir.IntegerAttr(value).value if not isinstance(value, int) else value
        literal = ("true" if number else "false") if type_ == "i1" else f"{int(number)} : {type_}"
        return w.once(f"arith.constant {literal}", "c")
    if op.name == "disc.dim":
        size = w.size(Expr.parse(ir.StringAttr(op.attributes["dim"]).value))
        return size if type_ == "i64" else w.once(f"arith.trunci {size} : i64 to {type_}")
    given = [registers[value] for value in op.operands if value in registers]
    if op.name in _SAME:
        return given[0]
    name = w.fresh("scalar")
    w.line(f"{name} = {_text(op, given, type_)}")
    return name


def _text(op: ir.Operation, given: list[str], type_: str) -> str:
    element = _element(op.operands[0].type)
    signed = not element.is_unsigned and element.width > 1
    if op.name in _BINARY:
        # Addition of i1 is "or", multiplication "and" (StableHLO spec).
        names = {"stablehlo.add": "arith.ori", "stablehlo.multiply": "arith.andi"}
        name = names.get(op.name, _BINARY[op.name]) if type_ == "i1" else _BINARY[op.name]
        return f"{name} {given[0]}, {given[1]} : {type_}"
    if (op.name, signed) in _EXTREMES:
        return f"{_EXTREMES[op.name, signed]} {given[0]}, {given[1]} : {type_}"
    if op.name in _OTHERS:
        return _OTHERS[op.name](op, given, type_, signed)
    raise InternalError(f"{op.name} cannot be computed by the host program")


def _compare(op: ir.Operation, given: list[str], _: str, signed: bool) -> str:
    direction = comparison(op)
    predicate = _PREDICATES[direction]
    if direction not in ("EQ", "NE"):
        predicate = ("s" if signed else "u") + predicate
    kind = _register(op.operands[0].type)
    return f"arith.cmpi {predicate}, {given[0]}, {given[1]} : {kind}"


def _select(_: ir.Operation, given: list[str], type_: str, __: bool) -> str:
    return f"arith.select {given[0]}, {given[1]}, {given[2]} : {type_}"


def _convert(op: ir.Operation, given: list[str], type_: str, signed: bool) -> str:
    source = _register(op.operands[0].type)
    before, after = int(source[1:]), int(type_[1:])
    if before == after:
        return f"arith.ori {given[0]}, {given[0]} : {type_}"  # a copy under a new name
    name = "arith.trunci" if after < before else "arith.extsi" if signed else "arith.extui"
    return f"{name} {given[0]} : {source} to {type_}"


_OTHERS: dict[str, Callable[[ir.Operation, list[str], str, bool], str]] = {
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.select": _select,
}
