"""Computations in a type of their own: what they accumulate is converted to that type first.

    reduce(%x : i8, %init : i8) { (%a : i32, %b : i32) -> i32 }
    ==>
    reduce(convert %x : i32, convert %init : i32) { (%a : i32, %b : i32) -> i32 }

Why     The specification promotes implicitly; later stages see one element type in such an op.
Needs   calls inlined.
Keeps   every result. A `select` of select_and_scatter compares what it was given: its arguments
        are converted back, which a type in between makes exact.
Cost    O(ops).
Source  StableHLO spec, `is_promotable` and each op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.ir.builders import convert, create, element_of, with_element
from shlo_disc.ir.mlir import at, ir, ops_of, terminator


def promote_accumulators(module: ir.Module, present: set[str]) -> int:
    """Accumulated operands have the element types of the regions; the number of ops changed.

    `present` names the ops that the module has.
    """
    changed = 0
    for name in (name for name in _ACCUMULATED if name in present):
        for op in ops_of(module, name):
            accumulated = _ACCUMULATED[name](op)
            elements = [element_of(argument) for argument in op.regions[-1].blocks[0].arguments]
            if [element_of(op.operands[k]) for k in accumulated] == elements:
                continue
            if name == "stablehlo.select_and_scatter":
                _promote_selection(op)
            else:
                for k, element in zip(accumulated, elements, strict=True):
                    op.operands[k] = promoted(op.operands[k], element, op)
            changed += 1
    return changed


def promoted(value: ir.Value, element: ir.Type, op: ir.Operation) -> ir.Value:
    """`value` with elements of the type `element`, converted in front of `op`."""
    with at(op):
        return convert(value, with_element(value.type, element))


def _inputs_and_inits(op: ir.Operation) -> Sequence[int]:
    return range(2 * len(op.results))


def _arrays_and_updates(op: ir.Operation) -> Sequence[int]:
    """The indices are in the middle."""
    count = len(op.results)
    return [*range(count), *range(count + 1, 2 * count + 1)]


def _source_and_init(_: ir.Operation) -> Sequence[int]:
    return (1, 2)


_ACCUMULATED: dict[str, Callable[[ir.Operation], Sequence[int]]] = {
    "stablehlo.reduce": _inputs_and_inits,
    "stablehlo.reduce_window": _inputs_and_inits,
    "stablehlo.scatter": _arrays_and_updates,
    "stablehlo.select_and_scatter": _source_and_init,
}
"""The operands that are arguments of the last region, in their order there."""


def _promote_selection(op: ir.Operation) -> None:
    """Operand, source and initial value of a select_and_scatter are promoted."""
    select, scatter = (region.blocks[0] for region in op.regions)
    given, element = element_of(op.operands[0]), element_of(scatter.arguments[0])
    wide = _holding_both(given, element)
    for k, value in enumerate(op.operands):
        op.operands[k] = promoted(promoted(value, element, op) if k else value, wide, op)
    _retype_arguments(select, wide)
    if wide == element:
        return
    _retype_arguments(scatter, wide)
    end = terminator(scatter)
    end.operands[0] = promoted(end.operands[0], wide, end)
    result = op.results[0]
    result.set_type(with_element(result.type, wide))
    with ir.InsertionPoint.after(op), op.location:
        narrow = create("stablehlo.convert", [result], with_element(result.type, element))
    result.replace_all_uses_except(narrow, narrow.owner.operation)


def _holding_both(given: ir.Type, element: ir.Type) -> ir.Type:
    """A type with the values of both; promotable types of integers and of 32 bits are wider."""
    is_small_float = isinstance(element, ir.FloatType) and ir.FloatType(element).width < 32
    return ir.F32Type.get() if is_small_float and given != element else element


def _retype_arguments(block: ir.Block, wide: ir.Type) -> None:
    """The block takes numbers of type `wide`, and computes with what it computed with before."""
    for argument in block.arguments:
        old = argument.type
        if element_of(argument) == wide:
            continue
        argument.set_type(with_element(argument.type, wide))
        with ir.InsertionPoint.at_block_begin(block), argument.location:
            narrow = create("stablehlo.convert", [argument], old)
        argument.replace_all_uses_except(narrow, narrow.owner.operation)
