"""stack-results: what a loop writes slice by slice needs no first value.

    %r:2 = while(%i = 0, %ys = broadcast 0.0)             %e = disc.empty
      cond { %i < T }                               ==>   %r:2 = while(%i = 0, %ys = %e)
      do { return %i + 1,                                   ...
                  dynamic_update_slice %ys, %y, %i, 0 }     {disc.stacked = array<i64: 1>}

Why     The results of `lax.scan` start as zeros, and every zero is overwritten. That each step has
        a slice of its own also lets a later step read a value where an earlier one stored it.
Needs   `resolve-shapes`.   Keeps  every result: a loop of no steps has results of no elements.
Cost    O(carried values).
Source  StableHLO spec, while and dynamic_update_slice; what `lax.scan` lowers to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shlo_disc import dialect
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.mlir import at, ir, ops_of, producer
from shlo_disc.passes.base import Pass

__all__ = ["StackResults"]

_INVERTED = {"stablehlo.add": 1, "stablehlo.subtract": -1}


@dataclass(frozen=True)
class StackResults(Pass):
    """See the module."""

    name: ClassVar[str] = "stack-results"

    def run(self, module: ir.Module) -> int:
        """Rewrite `module`; the number of first values that went."""
        loops = ops_of(module, "stablehlo.while")
        if not loops:
            return 0
        shapes = analyze(module)
        return sum(_stack(loop, shapes) for loop in loops)


def _stack(loop: ir.Operation, shapes: ShapeAnalysis) -> int:
    counted = _counter(loop, shapes)
    if counted is None:
        return 0
    counter, steps = counted
    body = loop.regions[1].blocks[0]
    returned = body.operations[len(body.operations) - 1].operation
    stacked = [
        k
        for k, last in enumerate(returned.operands)
        if _writes_all(loop, k, last, body.arguments[counter], steps, shapes)
    ]
    if not stacked:
        return 0
    with at(loop):
        loop.attributes["disc.stacked"] = ir.DenseI64ArrayAttr.get(stacked)
        for k in stacked:
            initial = loop.operands[k]
            loop.operands[k] = dialect.empty(shapes.shape(initial), initial.type)
    return len(stacked)


def _counter(loop: ir.Operation, shapes: ShapeAnalysis) -> tuple[int, Expr] | None:
    """(the carried value that is 0, 1, 2, ..., how many steps the loop takes)."""
    condition, body = (region.blocks[0] for region in loop.regions)
    flag = condition.operations[len(condition.operations) - 1].operation.operands[0]
    compare = producer(flag)
    if compare is None or compare.name != "stablehlo.compare":
        return None
    less = "LT" in str(compare.attributes["comparison_direction"])
    arguments = list(condition.arguments)
    steps = shapes.elements(compare.operands[1])
    if not less or compare.operands[0] not in arguments or steps is None or len(steps) != 1:
        return None
    k = arguments.index(compare.operands[0])
    start = shapes.elements(loop.operands[k])
    returned = body.operations[len(body.operations) - 1].operation
    step = _along(returned.operands[k], body.arguments[k], shapes)
    if start is None or start[0] != 0 or step is None or step != (Expr.const(1), 1):
        return None
    return k, steps[0]


def _along(value: ir.Value, counter: ir.Value, shapes: ShapeAnalysis) -> tuple[Expr, int] | None:
    """`value` as `offset + sign * counter`; None for another form."""
    if value == counter:
        return Expr.const(0), 1
    known = shapes.elements(value)
    if known is not None and len(known) == 1:
        return known[0], 0
    op = producer(value)
    if op is None or op.name not in _INVERTED:
        return None
    left, right = (_along(operand, counter, shapes) for operand in op.operands)
    if left is None or right is None:
        return None
    sign = _INVERTED[op.name]
    return left[0] + right[0] * sign, left[1] + right[1] * sign


def _writes_all(
    loop: ir.Operation,
    k: int,
    last: ir.Value,
    counter: ir.Value,
    steps: Expr,
    shapes: ShapeAnalysis,
) -> bool:
    """Is carried value `k` only written, one slice of dimension 0 a step, until all are?"""
    condition, body = (region.blocks[0] for region in loop.regions)
    carried, op = body.arguments[k], producer(last)
    if op is None or op.name != "stablehlo.dynamic_update_slice":
        return False
    first = producer(loop.operands[k])
    if first is not None and first.name == "disc.empty":
        return False
    if op.operands[0] != carried or len(list(carried.uses)) != 1 or len(list(last.uses)) != 1:
        return False
    if any(True for _ in condition.arguments[k].uses) or op.block != body:
        return False
    sizes, window = shapes.shape(carried), shapes.shape(op.operands[1])
    equal = shapes.constraints.equal
    whole = all(equal(a, b) for a, b in zip(sizes[1:], window[1:], strict=True))
    if not sizes or not window[0].is_one or not whole or not equal(sizes[0], steps):
        return False
    place = _along(op.operands[2], counter, shapes)
    if place is None:
        return False
    offset, sign = place
    return (sign == 1 and offset == 0) or (sign == -1 and equal(offset, steps - 1))
