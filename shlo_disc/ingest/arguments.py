"""The arguments of `main`: their attributes, and how one of them goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shlo_disc.ir.mlir import ir

_GLOBAL = "jax.global_constant"


def argument_attributes(function: Any, index: int) -> dict[str, ir.Attribute]:
    """The attributes of an argument, by name."""
    if "arg_attrs" not in function.operation.attributes:
        return {}
    return {a.name: a.attr for a in ir.DictAttr(function.arg_attrs[index])}


def set_argument_attributes(function: Any, attributes: Sequence[dict[str, ir.Attribute]]) -> None:
    """Every argument has exactly these attributes from now on."""
    function.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [ir.DictAttr.get(own) for own in attributes]
    )


def global_name(function: Any, index: int) -> str | None:
    """The size (or other global constant) that a call passes in an argument; None for an array."""
    attribute = argument_attributes(function, index).get(_GLOBAL)
    return None if attribute is None else str(ir.StringAttr(attribute).value)


def erase_arguments(main: Any, replacements: dict[int, Callable[[], ir.Value]]) -> None:
    """Replace arguments by values built at the start of the body."""
    block = main.operation.regions[0].blocks[0]
    attributes = [argument_attributes(main, i) for i in range(len(main.arguments))]
    for index, build in replacements.items():
        with ir.InsertionPoint.at_block_begin(block), main.operation.location:
            value = build()
        main.arguments[index].replace_all_uses_with(value)
    for index in sorted(replacements, reverse=True):
        block.erase_argument(index)
        del attributes[index]
    set_signature(main, [a.type for a in block.arguments], main.type.results)
    set_argument_attributes(main, attributes)


def set_signature(main: Any, inputs: Sequence[ir.Type], results: Sequence[ir.Type]) -> None:
    """The types of arguments and results."""
    kind = ir.FunctionType.get(list(inputs), list(results))
    main.operation.attributes["function_type"] = ir.TypeAttr.get(kind)


def constant(number: int, kind: ir.Type) -> ir.Value:
    """A new constant of type `kind`, every element `number`."""
    element = ir.RankedTensorType(kind).element_type
    value = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, number))
    return ir.Operation.create(
        "stablehlo.constant", results=[kind], attributes={"value": value}
    ).results[0]
