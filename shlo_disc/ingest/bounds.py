"""Types whose dynamic dimensions have bounds become plain types.

    main(%x: tensor<?xf32, #stablehlo.bounds<10>>)   ==>   main(%x: tensor<?xf32>)
                                                           {disc.constraints = ["d0_0 <= 10"]}

A bound is what XLA allocates. Here an array has its true size, so only arguments are checked.
Source: TypeExtensions in the StableHLO specification; `set_dimension_size` in XLA's semantics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shlo_disc.ingest.arguments import argument_attributes, set_argument_attributes
from shlo_disc.mlir import ir, stablehlo, walk

__all__ = ["bounds_of_arguments", "drop_bounds", "has_bounds"]

_ATTRIBUTE = "disc.bounds"
_NO_BOUND = ir.ShapedType.get_dynamic_size()


def has_bounds(functions: Sequence[Any], present: set[str]) -> bool:
    """Whether a value may have a bounded type: an argument, or what comes from one."""
    return "stablehlo.set_dimension_size" in present or any(
        _bounds(argument.type) is not None for f in functions for argument in f.arguments
    )


def drop_bounds(module: ir.Module, main: Any) -> None:
    """No type of `module` has bounds; those of the arguments of `main` are attributes of these."""
    attributes = [argument_attributes(main, i) for i in range(len(main.arguments))]
    for own, argument in zip(attributes, main.arguments, strict=True):
        if bounds := _bounds(argument.type):
            own[_ATTRIBUTE] = ir.DenseI64ArrayAttr.get(bounds)
    if attributes:
        set_argument_attributes(main, attributes)

    def plain(op: ir.Operation) -> None:
        for value in _values(op):
            if _bounds(value.type) is not None:
                value.set_type(_plain(value.type))
        if op.name == "func.func":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            new = ir.FunctionType.get(
                [_plain(t) for t in kind.inputs], [_plain(t) for t in kind.results]
            )
            op.attributes["function_type"] = ir.TypeAttr.get(new)

    walk(module, plain)


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


def _bounds(kind: ir.Type) -> list[int] | None:
    if not isinstance(kind, ir.RankedTensorType) or kind.encoding is None:
        return None
    if not stablehlo.TypeExtensions.isinstance(kind.encoding):
        return None
    return list(stablehlo.TypeExtensions(kind.encoding).bounds)


def _plain(kind: ir.Type) -> ir.Type:
    if _bounds(kind) is None:
        return kind
    return ir.RankedTensorType.get(kind.shape, kind.element_type)
