"""Sizes that are constants in a branch, because the sizes of a call choose the branch.

"stablehlo.case"(%k) ({ ... }, { here n is 3 })       %k = max(0, 1 - max(n - 3, 3 - n))
"""

from __future__ import annotations

from shlo_disc.dynamic.seen import Pairs
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.tails import zero_from
from shlo_disc.ir.mlir import ir


def branch_sizes(op: ir.Operation, shapes: ShapeAnalysis) -> Pairs:
    """The symbols that have one value whenever `op` runs, by the `stablehlo.case`s around it."""
    found: dict[str, int] = {}
    block = op.block
    while (around := _parent(block)) is not None:
        if around.name == "stablehlo.case":
            number = next(k for k, region in enumerate(around.regions) if region.blocks[0] == block)
            found |= _solution(around, number, shapes)
        block = around.block
    return tuple(sorted(found.items()))


def _parent(block: ir.Block) -> ir.Operation | None:
    """The operation around `block`; None for that of a function."""
    op = block.owner.operation
    return None if op.name == "func.func" else op


def _solution(case: ir.Operation, number: int, shapes: ShapeAnalysis) -> dict[str, int]:
    """The one symbol of the index of `case`, and its one value where branch `number` runs."""
    index = shapes.scalar(case.operands[0])
    tail = None if index is None or len(index.symbols()) != 1 or not number else zero_from(index)
    if index is None or tail is None or tail[0] not in shapes.positive:
        return {}
    symbol, count = tail[0], len(case.regions)
    chosen = [(n, index.evaluate({symbol: n})) for n in range(1, tail[1])]
    # An index that is no branch runs the last one.
    values = [n for n, k in chosen if (k if 0 <= k < count else count - 1) == number]
    return {symbol: values[0]} if len(values) == 1 else {}
