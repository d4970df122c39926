"""Ops with regions or called computations that several front ends write."""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.ingest.size_values import binary, extent, number, vector
from shlo_disc.ir.builders import create, write_region
from shlo_disc.ir.mlir import ir


def joining_function(module: ir.Operation, name: str, element: ir.Type) -> ir.FlatSymbolRefAttr:
    """A private function that joins two elements by `stablehlo.NAME`, made once a module."""
    symbol = f"shlo_disc.{name}_{element}"
    body = module.regions[0].blocks[0]
    known = {
        ir.StringAttr(view.operation.attributes["sym_name"]).value
        for view in body.operations
        if "sym_name" in view.operation.attributes
    }
    if symbol not in known:
        scalar = ir.RankedTensorType.get([], element)
        with ir.InsertionPoint.at_block_begin(body):
            function = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get(symbol),
                    "function_type": ir.TypeAttr.get(
                        ir.FunctionType.get([scalar, scalar], [scalar])
                    ),
                    "sym_visibility": ir.StringAttr.get("private"),
                },
                regions=1,
            )
        block = function.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            joined = create(f"stablehlo.{name}", list(block.arguments), scalar)
            ir.Operation.create("func.return", operands=[joined])
    return ir.FlatSymbolRefAttr.get(symbol)


def running(
    module: ir.Operation, array: ir.Value, axis: int, name: str, start: ir.Value
) -> ir.Value:
    """Each element joined by `stablehlo.NAME` with those before it; `start` is the identity.

    The result has the type of `array`. `start` is rank-0, of the element type of `array`.
    """
    kind = ir.RankedTensorType(array.type)
    one, none = number(1), number(0)
    size = extent(array, axis)
    window = vector([size if k == axis else one for k in range(kind.rank)])
    ones = vector([one] * kind.rank)
    before = binary("subtract", size, one)
    padding = vector([v for k in range(kind.rank) for v in (before if k == axis else none, none)])
    pairs = ir.RankedTensorType.get([kind.rank, 2], ir.RankedTensorType(padding.type).element_type)
    padding = create("stablehlo.reshape", [padding], pairs)
    return create(
        "stablehlo.custom_call",
        [array, start, window, ones, ones, ones, padding],
        array.type,
        call_target_name=ir.StringAttr.get("stablehlo.dynamic_reduce_window"),
        called_computations=ir.ArrayAttr.get([joining_function(module, name, kind.element_type)]),
    )


def sorted_with_places(
    array: ir.Value,
    places: ir.Value,
    axis: int,
    comes_before: Callable[[ir.Value, ir.Value], ir.Value],
) -> tuple[ir.Value, ir.Value]:
    """`array` sorted along `axis`, and `places`, of the same shape, in that order.

    `comes_before` writes the comparison of two rank-0 elements of `array`, an i1. Equal elements
    keep their order.
    """
    op = ir.Operation.create(
        "stablehlo.sort",
        results=[array.type, places.type],
        operands=[array, places],
        attributes={
            "dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis),
            "is_stable": ir.BoolAttr.get(True),
        },
        regions=1,
    )
    scalars = [
        ir.RankedTensorType.get([], ir.RankedTensorType(v.type).element_type)
        for v in (array, array, places, places)
    ]
    write_region(op.regions[0], scalars, lambda a, b, *_: [comes_before(a, b)])
    return op.results[0], op.results[1]
