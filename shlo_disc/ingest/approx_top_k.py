"""Approximate selections become exact ones.

    custom_call @ApproxTopK(%x, %places, %init, %no_place) {called_computations = [@greater],
        mhlo.backend_config = {reduction_dim = 1, top_k = 3, ...}}
    ==>
    chlo.top_k(%x, k = 3)                            of the last dimension, where @greater is GT
    sort %x, %places by @greater, then a slice       else

Why     On CPUs XLA computes both exactly, too: jax.lax.approx_max_k is faster on TPUs only.
Needs   calls inlined.
Keeps   every result; the order of NaNs, which the comparison leaves open, is that of `top_k`.
Cost    O(calls).
Source  jax/_src/lax/ann.py; ApproxTopKFallback of XLA sorts and slices.
"""

from __future__ import annotations

from typing import Any

from shlo_disc.ingest.computations import (
    called_by,
    computations,
    drop_computations,
    fill_region,
)
from shlo_disc.ingest.present import APPROX_TOP_K, target_of
from shlo_disc.ir.builders import create, integer, vector
from shlo_disc.ir.builders import dimension as dimension_of
from shlo_disc.ir.comparisons import comparison
from shlo_disc.ir.mlir import at, ir, ops_of, producer, replace


def expand_approx_top_k(module: ir.Module) -> int:
    """No call of :data:`APPROX_TOP_K` is left; how many there were."""
    functions = computations(module)
    calls = [op for op in ops_of(module, "stablehlo.custom_call") if target_of(op) in APPROX_TOP_K]
    for op in calls:
        with at(op):
            replace(op, *_selected(op, called_by(op, functions)))
    drop_computations(module, functions)
    return len(calls)


def _selected(op: ir.Operation, comparator: Any) -> list[ir.Value]:
    count = len(op.results)
    inputs = list(op.operands)[:count]
    config = ir.DictAttr(op.attributes["mhlo.backend_config"])
    axis = int(ir.IntegerAttr(config["reduction_dim"]).value)
    k = op.operands[2 * count] if "top_k" not in config else None
    if k is None and _is_greater(comparator) and _are_places(inputs, axis):
        return _top_k(op, inputs[0])
    return _sorted(op, inputs, axis, k, comparator)


def _is_greater(comparator: Any) -> bool:
    """Whether the function is `p0 > p1` of its first two arguments."""
    block = comparator.operation.regions[0].blocks[0]
    test = block.operations[0].operation
    return (
        len(block.operations) == 2
        and test.name == "stablehlo.compare"
        and list(test.operands) == list(block.arguments)[:2]
        and comparison(test) == "GT"
    )


def _are_places(inputs: list[ir.Value], axis: int) -> bool:
    """Whether there is one array besides the places of its elements in the last dimension."""
    if len(inputs) != 2 or axis != ir.RankedTensorType(inputs[0].type).rank - 1:
        return False
    kind = ir.RankedTensorType(inputs[1].type).element_type
    made = producer(inputs[1])
    return (
        kind == ir.IntegerType.get_signless(32)
        and made is not None
        and made.name in ("stablehlo.iota", "stablehlo.dynamic_iota")
        and int(ir.IntegerAttr(made.attributes["iota_dimension"]).value) == axis
    )


def _top_k(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    kinds = [result.type for result in op.results]
    count = ir.RankedTensorType(kinds[0]).shape[-1]
    k = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    new = ir.Operation.create("chlo.top_k", results=kinds, operands=[x], attributes={"k": k})
    return list(new.results)


def _sorted(
    op: ir.Operation, inputs: list[ir.Value], axis: int, k: ir.Value | None, comparator: Any
) -> list[ir.Value]:
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    new = ir.Operation.create(
        "stablehlo.sort",
        results=[x.type for x in inputs],
        operands=inputs,
        attributes={"dimension": dimension, "is_stable": ir.BoolAttr.get(True)},
        regions=1,
    )
    fill_region(new, comparator, op.location)
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    results = []
    for x, result in zip(new.results, op.results, strict=True):
        rank = range(ir.RankedTensorType(x.type).rank)
        size = integer(ir.RankedTensorType(result.type).shape[axis], i32) if k is None else k
        limits = [size if d == axis else dimension_of(x, d) for d in rank]
        vectors = map(
            vector, ([integer(0, i32) for _ in rank], limits, [integer(1, i32) for _ in rank])
        )
        results.append(create("stablehlo.real_dynamic_slice", [x, *vectors], result.type))
    return results
