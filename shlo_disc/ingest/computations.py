"""Functions that custom calls name, as regions of operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shlo_disc.ir.builders import write_region
from shlo_disc.ir.mlir import clone, ir, ops_of


def computations(module: ir.Module) -> dict[str, Any]:
    """The functions of a module, by name."""
    return {f.name.value: f for f in module.body.operations if f.operation.name == "func.func"}


def called_by(op: ir.Operation, functions: dict[str, Any]) -> Any:
    """The function that a custom call names as its computation."""
    (name,) = ir.ArrayAttr(op.attributes["called_computations"])
    return functions[ir.FlatSymbolRefAttr(name).value]


def drop_computations(module: ir.Module, functions: dict[str, Any]) -> None:
    """Erase the functions nobody calls any more (`symbol-dce` refuses operations of `disc`)."""
    called = {"main"}
    for op in ops_of(module, "func.call", "stablehlo.custom_call"):
        for attribute in op.attributes.values():
            called.update(_symbols(attribute))
    for name, function in functions.items():
        if name not in called:
            function.operation.erase()


def _symbols(attribute: ir.Attribute) -> Iterator[str]:
    """The functions of the module that `attribute` names, at any depth."""
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        yield attribute.value
    elif isinstance(attribute, ir.SymbolRefAttr):
        yield attribute.value[0]
    elif isinstance(attribute, ir.ArrayAttr):
        for inner in attribute:
            yield from _symbols(inner)
    elif isinstance(attribute, ir.DictAttr):
        for named in attribute:
            yield from _symbols(named.attr)


def fill_region(new: ir.Operation, function: Any, location: ir.Location) -> None:
    """The body of `function` as the region of `new`."""
    body = function.operation.regions[0].blocks[0]
    kinds = [argument.type for argument in body.arguments]
    with location:
        write_region(new.regions[0], kinds, lambda *given: inlined(body, given))


def inlined(body: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """What the operations of `body`, copied to the insertion point, give for these arguments."""
    of: dict[ir.Value, ir.Value] = dict(zip(body.arguments, arguments, strict=True))
    *ops, end = (view.operation for view in body.operations)
    for op in ops:
        of.update(zip(op.results, clone(op, of).results, strict=True))
    return [of.get(value, value) for value in end.operands]
