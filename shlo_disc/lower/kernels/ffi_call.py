"""Kind `ffi`: a call of an XLA FFI handler, as data for the host program and the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.ir.element_types import element_type, known_element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import ffi
from shlo_disc.lower.constants import array_of
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import (
    Buffer,
    FfiAlias,
    FfiAttribute,
    FfiCall,
    Input,
    KernelPlan,
)
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

DATA_TYPES = {
    "i1": 1,
    "i8": 2,
    "i16": 3,
    "i32": 4,
    "i64": 5,
    "ui8": 6,
    "ui16": 7,
    "ui32": 8,
    "ui64": 9,
    "f16": 10,
    "f32": 11,
    "f64": 12,
    "complex<f32>": 15,
    "bf16": 16,
    "complex<f64>": 18,
}
"""`XLA_FFI_DataType` by element type."""

_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4
"""`XLA_FFI_AttrType`."""


def emit_ffi(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of an FFI call: one step that no thread shares.

    Raises UnsupportedError for an attribute of a type that FFI does not have.
    """
    single, shapes = SingleOp.of(fusion, machine), fusion.shapes
    op = single.op
    sizes_at = ffi.size_operands(op)
    given = [k for k in range(len(op.operands)) if k not in sizes_at]
    operands = [op.operands[k] for k in given]
    inputs = list(fusion.block.arguments)
    results, workspaces = single.places(list(op.results))
    buffers: list[Buffer] = [Input(inputs.index(value)) for value in operands]
    orders = [
        list(ir.DenseI64ArrayAttr(order))
        for name in ("disc.operand_orders", "disc.result_orders")
        for order in ir.ArrayAttr(op.attributes[name])
    ]
    values = [*operands, *op.results]
    sizes = [
        shapes.shape(value)[order.index(axis)]
        for value, order in zip(values, orders, strict=True)
        for axis in range(len(order))
    ]
    aliases = [
        FfiAlias(given.index(operand), result, value_bytes(op.results[result], shapes))
        for operand, result in ffi.aliases(op)
    ]
    attributes = tuple(_attributes(ir.DictAttr(op.attributes[ffi.CONFIGURATION]), op))
    size_attributes = []
    if ffi.SIZE_ATTRIBUTES in op.attributes:
        names = [attribute.name for attribute in attributes]
        for entry in ir.DictAttr(op.attributes[ffi.SIZE_ATTRIBUTES]):
            operand, axis = (int(i) for i in ir.DenseIntElementsAttr(entry.attr))
            position = given.index(operand)
            size = shapes.shape(operands[position])[orders[position].index(axis)]
            size_attributes.append((names.index(entry.name), size))
    call = FfiCall(
        target=str(ir.StringAttr(op.attributes["call_target_name"]).value),
        attributes=attributes,
        elements=tuple(map(_element, values, orders)),
        ranks=tuple(len(order) for order in orders),
        operands=tuple(buffers),
        results=tuple(results),
        sizes=tuple(sizes),
        aliases=tuple(aliases),
        size_attributes=tuple(size_attributes),
    )
    return KernelPlan((call,), workspaces)


def _element(value: ir.Value, order: Sequence[int]) -> str:
    """The element type the handler is told."""
    name = element_type(ir.ShapedType(value.type).element_type).name
    return f"complex<{name}>" if ffi.holds_pairs(value, order) else name


def _attributes(found: ir.DictAttr, op: ir.Operation) -> Iterator[FfiAttribute]:
    """In the order of names, which handlers rely on."""
    named = {entry.name: entry.attr for entry in found}
    for name in sorted(named, key=str.encode):
        yield _attribute(name, named[name], op)


def _name_of(element: ir.Type) -> str:
    """The name of an element type that XLA's FFI has, too; empty for others."""
    row = known_element_type(element)
    return row.name if row is not None and row.name in DATA_TYPES else ""


def _attribute(name: str, value: ir.Attribute, op: ir.Operation) -> FfiAttribute:
    """Source: XLA's xla/ffi/attribute_map.cc."""
    if isinstance(value, ir.DictAttr):
        return FfiAttribute(name, _DICTIONARY, entries=tuple(_attributes(value, op)))
    if isinstance(value, ir.StringAttr):
        return FfiAttribute(name, _STRING, bytes=value.value_bytes)
    if isinstance(value, ir.FlatSymbolRefAttr):
        return FfiAttribute(name, _STRING, bytes=value.value.encode())
    if isinstance(value, ir.BoolAttr):
        return FfiAttribute(name, _SCALAR, DATA_TYPES["i1"], 1, bytes([value.value]))
    element = ""
    if isinstance(value, ir.IntegerAttr | ir.FloatAttr):
        element = _name_of(value.type)
        if element:
            # A splat is what reads the number exactly.
            kind = ir.RankedTensorType.get([], value.type)
            data = array_of(ir.DenseElementsAttr.get_splat(kind, value), kind, op).tobytes()
            return FfiAttribute(name, _SCALAR, DATA_TYPES[element], 1, data)
    elif isinstance(value, ir.DenseElementsAttr):
        kind = ir.RankedTensorType(value.type)
        element = _name_of(kind.element_type)
        if element:
            array = array_of(value, kind, op)
            data = array.tobytes()
            return FfiAttribute(name, _ARRAY, DATA_TYPES[element], array.size, data)
    elif (element := _DENSE_ARRAYS.get(type(value), "")) != "":
        array = np.array(list(value), _NUMPY[element])
        return FfiAttribute(name, _ARRAY, DATA_TYPES[element], array.size, array.tobytes())
    raise UnsupportedError(
        f"{source_line(op)}: attribute {name!r} = {value} of an FFI call has no form in XLA's FFI; "
        "give numbers, strings, arrays or dictionaries of these"
    )


_DENSE_ARRAYS = {
    ir.DenseBoolArrayAttr: "i1",
    ir.DenseI8ArrayAttr: "i8",
    ir.DenseI16ArrayAttr: "i16",
    ir.DenseI32ArrayAttr: "i32",
    ir.DenseI64ArrayAttr: "i64",
    ir.DenseF32ArrayAttr: "f32",
    ir.DenseF64ArrayAttr: "f64",
}
_NUMPY = {"i1": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}
