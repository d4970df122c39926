"""`select_and_scatter` of complex numbers in two steps, which have rules of their own.

    select_and_scatter %x, %source, %init
    ==>
    %place = reduce_window (%x, places, true): the place of the element that is selected
    scatter (broadcast %init) at %place with %source

StableHLO has no `select_and_scatter` of several operands, which the real and the imaginary parts
would be. Padding is no element: a third operand tells it from elements.

Source: select_and_scatter in the StableHLO specification.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import broadcast_to, flat, iota
from shlo_disc.ingest.complex_numbers.planes import is_complex
from shlo_disc.ingest.size_arithmetic import product, reshaped, sizes_of
from shlo_disc.ir.builders import (
    broadcast_like,
    create,
    integer,
    select,
    with_element,
    zero,
)
from shlo_disc.ir.mlir import at, ir, ops_of, replace


def expand_select_and_scatter(main: ir.Operation) -> int:
    """No such op of complex numbers is left; how many there were."""
    found = [
        op for op in ops_of(main, "stablehlo.select_and_scatter") if is_complex(op.operands[0].type)
    ]
    for op in found:
        with at(op):
            replace(op, _scattered(op, _selected(op)))
    return len(found)


def _selected(op: ir.Operation) -> ir.Value:
    """Of every window the place of its element in the flat operand; -1 without an element."""
    x, source, _ = op.operands
    i64, i1 = (ir.IntegerType.get_signless(bits) for bits in (64, 1))
    number, truth = (ir.RankedTensorType.get([], element) for element in (i64, i1))
    inside = broadcast_like(integer(1, truth), [], x)
    element = ir.RankedTensorType(x.type).element_type
    starts = [zero(element), integer(0, number), integer(0, truth)]
    names = ("window_dimensions", "window_strides", "padding")
    windows = ir.Operation.create(
        "stablehlo.reduce_window",
        results=[with_element(source.type, e) for e in (element, i64, i1)],
        operands=[x, _places(x), inside, *starts],
        attributes={name: op.attributes[name] for name in names if name in op.attributes},
        regions=1,
    )
    kinds = [start.type for start in starts]
    block = windows.regions[0].blocks.append(*kinds, *kinds, arg_locs=[op.location] * 6)
    with ir.InsertionPoint(block):
        a, b = list(block.arguments)[:3], list(block.arguments)[3:]
        (better,) = _inlined(op.regions[0].blocks[0], [a[0], b[0]])
        first = create("stablehlo.and", [a[2], better], truth)
        none = create("stablehlo.not", [b[2]], truth)
        first = create("stablehlo.or", [first, none], truth)
        chosen = [select(first, p, q) for p, q in zip(a, b, strict=True)]
        ir.Operation.create("stablehlo.return", operands=chosen)
    _, place, found = windows.results
    outside = broadcast_like(integer(-1, number), [], place)
    return select(found, place, outside)


def _inlined(block: ir.Block, values: list[ir.Value]) -> list[ir.Value]:
    """What the block returns for these arguments, as copies of its ops."""
    known = dict(zip(block.arguments, values, strict=True))
    *body, last = (view.operation for view in block.operations)
    for inner in body:
        copy = inner.clone()
        for k, operand in enumerate(inner.operands):
            copy.operands[k] = known.get(operand, operand)
        known.update(zip(inner.results, copy.results, strict=True))
    return [known.get(v, v) for v in last.operands]


def _scattered(op: ir.Operation, places: ir.Value) -> ir.Value:
    """`source` combined with the initial value at these places of the flat result."""
    x, source, init = op.operands
    into = broadcast_to(init, [], [product(sizes_of(x))])
    numbers = ir.Attribute.parse(
        "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        "index_vector_dim = 1>"
    )
    new = ir.Operation.create(
        "stablehlo.scatter",
        results=[into.type],
        operands=[into, flat(places), flat(source)],
        attributes={"scatter_dimension_numbers": numbers},
        regions=1,
    )
    op.regions[1].blocks[0].append_to(new.regions[0])
    return reshaped(new.results[0], sizes_of(x))


def _places(like: ir.Value) -> ir.Value:
    """The place of every element of `like` in row-major order."""
    sizes = sizes_of(like)
    return reshaped(iota([product(sizes)], 0, "i64"), sizes)
