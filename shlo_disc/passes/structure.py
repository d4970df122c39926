"""What determines the kernel of a fusion, in a form that can be compared and hashed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from shlo_disc.ir.dialect import written_sizes
from shlo_disc.ir.mlir import ir


def structure(
    fusion: ir.Operation,
    open_constants: Collection[ir.Operation] = (),
    size: Callable[[ir.Attribute], object] | None = None,
) -> tuple[object, ...]:
    """Equal for `disc.fusion` ops that compute the same, whatever their values are named.

    The values of `open_constants`, ops of the fusion, have no part in it. `size` gives what stands
    for a size in it; else that is its text.
    """
    reduced, given = (fusion.attributes.get(name, None) for name in ("reduced", "given"))
    form = _form(fusion.regions[0].blocks[0], {}, open_constants, size)
    return fusion.attributes["kind"], reduced, given, form


def _form(
    block: ir.Block,
    numbers: dict[ir.Value, int],
    open_constants: Collection[ir.Operation],
    size: Callable[[ir.Attribute], object] | None,
) -> tuple[object, ...]:
    """The same of a block; values have numbers in the order in which they are made."""
    for argument in block.arguments:
        numbers[argument] = len(numbers)
    found: list[object] = [tuple(argument.type for argument in block.arguments)]
    for view in block.operations:
        op = view.operation
        operands = tuple(numbers[value] for value in op.operands)
        regions = tuple(
            _form(inner, numbers, open_constants, size)
            for region in op.regions
            for inner in region.blocks
        )
        for result in op.results:
            numbers[result] = len(numbers)
        attributes: tuple[object, ...] = ()
        if op not in open_constants:
            attributes = tuple(op.attributes.items())
        if size is not None and (own := written_sizes(op)):
            attributes = tuple(map(size, own))
        types = tuple(op.results.types)
        found.append((op.name, operands, attributes, types, regions))
    return tuple(found)
