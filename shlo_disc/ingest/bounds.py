"""Types whose dynamic dimensions have bounds become plain types.

    main(%x: tensor<?xf32, #stablehlo.bounds<10>>)   ==>   main(%x: tensor<?xf32>)
                                                           {disc.constraints = ["d0_0 <= 10"]}

A bound is what XLA allocates. Here an array has its true size, so only arguments are checked.
`reshape` and `broadcast_in_dim` have dynamic results only with bounds: they become their dynamic
forms, whose sizes follow from the operand.
Source: TypeExtensions in the StableHLO specification; `set_dimension_size` in XLA's semantics.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arguments import argument_attributes, set_argument_attributes
from shlo_disc.ingest.present import bounds_of
from shlo_disc.ingest.size_values import scalar_type
from shlo_disc.ir.builders import broadcast, create, dimension, integer, vector
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, replace, walk

_ATTRIBUTE = "disc.bounds"
_NO_BOUND = ir.ShapedType.get_dynamic_size()


def drop_bounds(module: ir.Module, main: Any) -> None:
    """No type of `module` has bounds; those of the arguments of `main` are attributes of these.

    Raises UnsupportedError for a result whose size its operand does not tell.
    """
    attributes = [argument_attributes(main, i) for i in range(len(main.arguments))]
    for own, argument in zip(attributes, main.arguments, strict=True):
        if bounds := bounds_of(argument.type):
            own[_ATTRIBUTE] = ir.DenseI64ArrayAttr.get(bounds)
    if attributes:
        set_argument_attributes(main, attributes)

    static_forms: list[ir.Operation] = []

    def plain(op: ir.Operation) -> None:
        if op.name in _DYNAMIC_FORMS and bounds_of(op.results[0].type) is not None:
            static_forms.append(op)
        for value in _values(op):
            if bounds_of(value.type) is not None:
                value.set_type(_plain(value.type))
        if op.name == "func.func":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            new = ir.FunctionType.get(
                [_plain(t) for t in kind.inputs], [_plain(t) for t in kind.results]
            )
            op.attributes["function_type"] = ir.TypeAttr.get(new)

    walk(module, plain)
    for op in static_forms:
        with at(op):
            replace(op, _DYNAMIC_FORMS[op.name](op))


def _reshape(op: ir.Operation) -> ir.Value:
    """A reshape to a type of one dynamic dimension, which has all elements that others leave."""
    (operand,) = op.operands
    kind = ir.RankedTensorType(op.results[0].type)
    others = math.prod(n for n in kind.shape if n != _NO_BOUND)
    if list(kind.shape).count(_NO_BOUND) != 1 or others == 0:
        raise _refusal(op, "dynamic_reshape")
    total = functools.reduce(
        lambda a, b: create("stablehlo.multiply", [a, b], scalar_type(32)),
        [dimension(operand, k) for k in range(ir.RankedTensorType(operand.type).rank)],
        integer(1, scalar_type(32)),
    )
    rest = create("stablehlo.divide", [total, integer(others, scalar_type(32))], scalar_type(32))
    sizes = [rest if n == _NO_BOUND else integer(n, scalar_type(32)) for n in kind.shape]
    return create("stablehlo.dynamic_reshape", [operand, vector(sizes)], kind)


def _broadcast(op: ir.Operation) -> ir.Value:
    """A broadcast to dynamic dimensions: those of the operand."""
    (operand,) = op.operands
    own, kind = (ir.RankedTensorType(v.type) for v in (operand, op.results[0]))
    axes = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    given = {axis: k for k, axis in enumerate(axes) if own.is_dynamic_dim(k)}
    if any(n == _NO_BOUND and axis not in given for axis, n in enumerate(kind.shape)):
        raise _refusal(op, "dynamic_broadcast_in_dim")
    sizes = [
        dimension(operand, given[axis]) if n == _NO_BOUND else integer(n, scalar_type(32))
        for axis, n in enumerate(kind.shape)
    ]
    return broadcast(operand, axes, kind, lambda: vector(sizes))


_DYNAMIC_FORMS = {"stablehlo.broadcast_in_dim": _broadcast, "stablehlo.reshape": _reshape}


def _refusal(op: ir.Operation, form: str) -> UnsupportedError:
    return UnsupportedError(
        f"{source_line(op)}: {op.name}: its operand does not tell the size of its bounded result "
        f"{op.results[0].type}; use stablehlo.{form}"
    )


def bounds_of_arguments(main: Any) -> list[str]:
    """The relations that arguments must satisfy, in the symbols of `disc.shape`."""
    attributes = [argument_attributes(main, i) for i in range(len(main.arguments))]
    found = []
    for index, own in enumerate(attributes):
        bounds = own.pop(_ATTRIBUTE, None)
        for axis, bound in enumerate(() if bounds is None else ir.DenseI64ArrayAttr(bounds)):
            if bound != _NO_BOUND:
                stated = own.get("disc.shape")
                size = f"d{index}_{axis}" if stated is None else ir.StringAttr(stated[axis]).value
                found.append(f"{size} <= {bound}")
    if found:
        set_argument_attributes(main, attributes)
    return found


def _values(op: ir.Operation) -> Iterator[ir.Value]:
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.arguments


def _plain(kind: ir.Type) -> ir.Type:
    if bounds_of(kind) is None:
        return kind
    return ir.RankedTensorType.get(kind.shape, kind.element_type)
