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

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.loops import along, counted
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import at, ir, ops_of, producer, terminator
from shlo_disc.passes.base import Pass


@dataclass(frozen=True)
class StackResults(Pass):
    """See the module."""

    name: ClassVar[str] = "stack-results"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of first values that went."""
        loops = ops_of(module, "stablehlo.while")
        if not loops:
            return 0
        known = shapes.now()
        return sum(_stack(loop, known) for loop in loops)


def _stack(loop: ir.Operation, shapes: ShapeAnalysis) -> int:
    count = counted(loop, shapes)
    if count is None:
        return 0
    body = loop.regions[1].blocks[0]
    counters = [body.arguments[k] for k in count.counters]
    stacked = [
        k
        for k, last in enumerate(terminator(body).operands)
        if any(_writes_all(loop, k, last, c, count.steps, shapes) for c in counters)
    ]
    if not stacked:
        return 0
    with at(loop):
        loop.attributes["disc.stacked"] = ir.DenseI64ArrayAttr.get(stacked)
        for k in stacked:
            initial = loop.operands[k]
            loop.operands[k] = dialect.empty(shapes.shape(initial), initial.type)
    return len(stacked)


def _writes_all(
    loop: ir.Operation,
    k: int,
    last: ir.Value,
    counter: ir.Value,
    steps: Expr,
    shapes: ShapeAnalysis,
) -> bool:
    """True if carried value `k` is only written, one slice of dimension 0 a step, until all are."""
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
    place = along(op.operands[2], counter, shapes)
    if place is None:
        return False
    offset, sign = place
    return (sign == 1 and offset == 0) or (sign == -1 and equal(offset, steps - 1))
