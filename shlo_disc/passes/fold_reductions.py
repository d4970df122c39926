"""fold-reductions: no loop over dimensions of size 1, nor over none.

    reduce(%x [b, 1], %init, add) over 1  ==>  add %init, (reshape %x [b])

Why     Derivatives of `keepdims` reductions sum over the unit dimension that a broadcast stretched.
        Such a reduction ends a row fusion: the gradient of a layer norm was five kernels. `jnp.sum`
        of a number is one over no dimension.
Needs   `resolve-shapes`.
Keeps   every result, bit for bit: the initial value still takes part (0.0 + -0.0 is 0.0).
Cost    O(reductions).
Source  StableHLO spec, reduce; XLA's algebraic simplifier does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.mlir import ir
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import ELEMENTWISE
from shlo_disc.passes.rules import Facts, apply_rules

__all__ = ["RULES", "FoldReductions"]


def over_units(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Reduce over dimensions of size 1, or over none ==> its body, once."""
    if len(op.operands) != 2:
        return None
    operand, init = op.operands
    sizes = facts.shape(operand)
    dimensions = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    block = op.regions[0].blocks[0]
    ops = [view.operation for view in block.operations]
    if not all(sizes[d].is_one for d in dimensions) or len(ops) != 2:
        return None
    body, result = ops[0], op.results[0]
    if body.name not in ELEMENTWISE or ops[1].operands[0] != body.results[0]:
        return None
    if set(body.operands) != set(block.arguments):
        return None
    shape = facts.shape(result)
    value = facts.reshape(operand, result.type, shape) if dimensions else operand
    start = facts.broadcast(init, [], result.type, shape) if result.type.rank else init
    values = [start if x == block.arguments[0] else value for x in body.operands]
    return facts.build(body.name, values, result.type, shape)


RULES = {"stablehlo.reduce": (over_units,)}


@dataclass(frozen=True)
class FoldReductions(Pass):
    """See the module."""

    name: ClassVar[str] = "fold-reductions"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of reductions replaced."""
        return apply_rules(module, RULES, shapes)


register(FoldReductions())
