"""Constants whose bytes are beside the program become constants that hold them.

    %0 = constant dense_resource<r> : tensor<2xf32>        ==>  %0 = constant dense<[1.0, 2.0]>
    {-# dialect_resources: { builtin: { r: "0x04000000" "0000803F00000040" } } #-}

The bindings give no access to the bytes: they are read from the printed form of a module with this
one constant. Behind four bytes with their alignment they are as in memory, little-endian.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ir.builders import create
from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, replace
from shlo_disc.ir.weights import resource_name, weight_bytes

_BLOB = r': "0x[0-9A-Fa-f]{8}([0-9A-Fa-f]*)"'


def read_resources(constants: Sequence[ir.Operation]) -> int:
    """None of `constants` refers to bytes beside the program; how many did.

    Raises UnsupportedError for bytes that are not there, InvalidModuleError for a wrong number.
    """
    found = [op for op in constants if _is_resource(op)]
    for op in found:
        with at(op):
            replace(op, _read(op))
    return len(found)


def _is_resource(op: ir.Operation) -> bool:
    try:
        value = op.attributes["value"]
    except TypeError:  # dense complex numbers, for which the bindings have no class
        return False
    return resource_name(value) is not None and weight_bytes(value) is None


def _read(op: ir.Operation) -> ir.Value:
    """The constant with its bytes, at the insertion point."""
    kind, value = ir.RankedTensorType(op.results[0].type), op.attributes["value"]
    name = str(value).partition(" : ")[0]
    alone = ir.Module.create()
    with ir.InsertionPoint(alone.body):
        create("stablehlo.constant", [], kind, value=value)
    blob = re.search(_BLOB, str(alone))
    if blob is None:
        raise UnsupportedError(
            f"{source_line(op)}: the bytes of {name} are not in the module; print it with its "
            "resources, or write the elements out"
        )
    element = str(kind.element_type)
    row = ELEMENT_TYPES.get(element)
    dtype = COMPLEX_TYPES.get(element) if row is None else row.dtype
    if dtype is None:
        raise UnsupportedError(f"{source_line(op)}: {name} has elements of type {element}")
    want = math.prod(kind.shape) * dtype.itemsize
    if len(blob[1]) != 2 * want:
        raise InvalidModuleError(
            f"{source_line(op)}: {name} has {len(blob[1]) // 2} bytes, but its type {kind} takes "
            f"{want}"
        )
    if element == "i1":  # a byte each here, a bit each in a dense attribute
        array = np.frombuffer(bytes.fromhex(blob[1]), np.bool_)
        bits = ir.DenseElementsAttr.get(array, type=kind.element_type, shape=list(kind.shape))
        return create("stablehlo.constant", [], kind, value=bits)
    # As an op: the bindings have no class for attributes of complex numbers.
    dense = f'dense<"0x{blob[1]}"> : {kind}' if want else f"dense<> : {kind}"
    new = ir.Operation.parse(
        f'"stablehlo.constant"() <{{value = {dense}}}> : () -> {kind} {op.location}'
    )
    ir.InsertionPoint.current.insert(new)
    return new.results[0]
