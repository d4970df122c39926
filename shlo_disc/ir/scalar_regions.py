"""Regions that compute with scalars: those of reductions, windows, sorts, scatters and maps.

A region may hold arithmetic, control flow and small arrays, and read values from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.ir.builders import zero
from shlo_disc.ir.mlir import at, ir, terminator
from shlo_disc.ir.ops import Role, names

SCALAR_REGIONS = frozenset(
    {
        "disc.reduce_window",
        "disc.scan",
        "stablehlo.map",
        "stablehlo.reduce",
        "stablehlo.reduce_window",
        "stablehlo.scatter",
        "stablehlo.select_and_scatter",
        "stablehlo.sort",
    }
)
"""Ops whose regions are called once for each element, or pair of elements."""

_IN_LANES = names(lambda row: row.role is Role.ELEMENTWISE) | {
    "disc.dim",
    "stablehlo.broadcast_in_dim",
    "stablehlo.constant",
    "stablehlo.reshape",
    "stablehlo.return",
}


def takes_lanes(op: ir.Operation) -> bool:
    """True if the regions of `op` can be computed for several elements at a time.

    Control flow and arrays need elements one by one.
    """
    return all(
        view.operation.name in _IN_LANES
        and not any(
            ir.RankedTensorType(v.type).rank
            for v in (*view.operation.operands, *view.operation.results)
        )
        for region in op.regions
        for block in region.blocks
        for view in block.operations
    )


def in_scalar_region(op: ir.Operation) -> bool:
    """True if `op` is inside of a region that computes with scalars."""
    parent = op.parent
    while parent is not None and parent.name != "func.func":
        if parent.name in SCALAR_REGIONS:
            return True
        parent = parent.parent
    return False


def on_arrays(
    op: ir.Operation, arrays: Sequence[ir.Value], spread: Callable[[ir.Value], ir.Value]
) -> list[ir.Value]:
    """The first region of `op`, applied to every element of `arrays`; its results as arrays.

    The arrays have one shape, to which `spread` broadcasts a scalar. Ops of scalars become ops of
    arrays. A region with other ops becomes the body of a `reduce` over no dimensions.
    """
    block = op.regions[0].blocks[0]
    *body, last = [view.operation for view in block.operations]
    if not all(map(_is_of_scalars, body)):
        return _one_by_one(op, arrays, spread)
    known = dict(zip(block.arguments, arrays, strict=True))

    def wide(value: ir.Value) -> ir.Value:
        if value not in known:  # a scalar from outside
            known[value] = spread(value)
        return known[value]

    sizes = ir.RankedTensorType(arrays[0].type).shape
    for inner in body:
        if inner.name == "stablehlo.constant":
            known[inner.results[0]] = spread(inner.clone().results[0])
            continue
        new = ir.Operation.create(
            inner.name,
            results=[
                ir.RankedTensorType.get(sizes, ir.RankedTensorType(result.type).element_type)
                for result in inner.results
            ],
            operands=[wide(value) for value in inner.operands],
            attributes=dict(inner.attributes.items()),
        )
        known.update(zip(inner.results, new.results, strict=True))
    return [wide(value) for value in last.operands]


def _is_of_scalars(op: ir.Operation) -> bool:
    values = (*op.operands, *op.results)
    return not len(op.regions) and not any(ir.RankedTensorType(v.type).rank for v in values)


def _one_by_one(
    op: ir.Operation, arrays: Sequence[ir.Value], spread: Callable[[ir.Value], ir.Value]
) -> list[ir.Value]:
    """A `reduce` over no dimensions calls its body once for each element.

    The body keeps the elements of `arrays`, adds its results, and ignores the accumulators.
    """
    holder = op.clone().operation
    block = holder.regions[0].blocks[0]
    old, last = list(block.arguments), terminator(block)
    kinds = [value.type for value in (*old, *last.operands)]
    inits = [zero(ir.RankedTensorType(kind).element_type) for kind in kinds]
    inputs = [*arrays, *map(spread, inits[len(arrays) :])]
    made = ir.Operation.create(
        "stablehlo.reduce",
        results=[value.type for value in inputs],
        operands=[*inputs, *inits],
        attributes={"dimensions": ir.DenseI64ArrayAttr.get([])},
        regions=1,
    )
    block.append_to(made.regions[0])
    holder.erase()
    added = [block.add_argument(kind, op.location) for kind in (*kinds, *kinds)]
    elements = added[len(kinds) : len(kinds) + len(old)]
    for argument, element in zip(old, elements, strict=True):
        argument.replace_all_uses_with(element)
    with at(last):
        ir.Operation.create("stablehlo.return", operands=[*elements, *last.operands])
    last.erase()
    for _ in old:
        block.erase_argument(0)
    return list(made.results)[len(arrays) :]
