"""Slices of a given size, in terms of an op whose result shape is known.

    %limit = add %start, %sizes
    real_dynamic_slice %x, %start, %limit, 1    ==>    dynamic_gather %x, %start, %sizes

Why     JAX writes `dynamic_slice` of a symbolic size this way. The result has the shape `sizes`,
        but nothing says so once `start` is data: a limit minus a start is not a size. Whether a
        start is a size is not decided here. `fold-gathers` makes slices of gathers that start at
        sizes, where it can prove that the start is not clamped.
Needs   calls inlined and equal values merged.
Keeps   every result: a gather clamps its start as JAX has done already.
Cost    O(slices x size of their shape arithmetic).
Source  StableHLO spec, real_dynamic_slice and gather.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from shlo_disc.ir.mlir import at, ir, ops_of, producer, replace

_MOST = (1 << 31) - 1


def saturate_starts(slices: Iterable[ir.Operation]) -> int:
    """No start of these slices loses bits when JAX makes an i32 of it; how many changed.

        clamp 0, (convert %i), %room    ==>    clamp 0, (convert (clamp 0, %i, 2^31 - 1)), %room

    JAX lowers `dynamic_slice` of a symbolic size this way, so ui32 and 64-bit starts from 2^31 on
    come out negative. A conversion is JAX's own where it has the location of the slice. Runs
    before equal values are merged, because the program may convert the same index itself.
    """
    changed = 0
    for op in slices:
        clamped = producer(op.operands[1])
        if clamped is None or clamped.name != "stablehlo.clamp":
            continue
        for convert in _conversions(clamped.operands[1]):
            if convert.location == op.location and convert.location != ir.Location.unknown():
                changed += _saturate(convert)
    return changed


def _conversions(value: ir.Value) -> Iterator[ir.Operation]:
    op = producer(value)
    if op is not None and op.name == "stablehlo.convert":
        yield op
    elif op is not None and op.name in ("stablehlo.concatenate", "stablehlo.reshape"):
        for operand in op.operands:
            yield from _conversions(operand)


def _saturate(convert: ir.Operation) -> bool:
    index, kind = convert.operands[0], ir.RankedTensorType(convert.operands[0].type)
    element = ir.IntegerType(kind.element_type)
    if element.width < 32 or (element.width == 32 and not element.is_unsigned):
        return False
    low = 0 if element.is_unsigned else -_MOST
    with at(convert):
        ends = [
            ir.Operation.create(
                "stablehlo.constant",
                results=[kind],
                attributes={
                    "value": ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, end))
                },
            ).results[0]
            for end in (low, _MOST)
        ]
        convert.operands[0] = ir.Operation.create(
            "stablehlo.clamp", results=[kind], operands=[ends[0], index, ends[1]]
        ).results[0]
    return True


def gather_slices(module: ir.Module) -> int:
    """Every slice whose limit is its start and a size is a gather; how many."""
    found = [
        (op, sizes)
        for op in ops_of(module, "stablehlo.real_dynamic_slice")
        if (sizes := _sizes(op)) is not None
    ]
    for op, sizes in found:
        with at(op):
            replace(op, _gather(op, sizes))
    return len(found)


def _sizes(op: ir.Operation) -> ir.Value | None:
    """What is added to the start to give the limit, where strides are 1."""
    _, start, limit, strides = op.operands
    add = producer(limit)
    if add is None or add.name != "stablehlo.add" or start not in list(add.operands):
        return None
    if not _all_ones(strides):
        return None
    first, second = add.operands
    return second if first == start else first


def _all_ones(value: ir.Value) -> bool:
    op = producer(value)
    if op is None:
        return False
    if op.name == "stablehlo.constant":
        return bool((np.array(op.attributes["value"]) == 1).all())
    return op.name in ("stablehlo.concatenate", "stablehlo.reshape") and all(
        _all_ones(v) for v in op.operands
    )


def _gather(op: ir.Operation, sizes: ir.Value) -> ir.Value:
    source, start = op.operands[0], op.operands[1]
    axes = list(range(ir.RankedTensorType(source.type).rank))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {axes}, start_index_map = {axes}>"
    )
    return ir.Operation.create(
        "stablehlo.dynamic_gather",
        results=[op.results[0].type],
        operands=[source, start, sizes],
        attributes={"dimension_numbers": numbers, "indices_are_sorted": ir.BoolAttr.get(True)},
    ).results[0]
