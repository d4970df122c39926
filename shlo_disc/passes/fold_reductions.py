"""fold-reductions: no loop over dimensions of size 1, nor over none.

    reduce(%x [b, 1], %init, add) over 1  ==>  add %init, (reshape %x [b])
    dot_general(%u [m], %v [n]), outer    ==>  multiply (broadcast %u), (broadcast %v)

Why     Derivatives of `keepdims` reductions sum over the unit dimension that a broadcast stretched.
        Such a reduction ends a row fusion: the gradient of a layer norm was five kernels. `jnp.sum`
        of a number is one over no dimension. Gradients of products of a matrix and a vector are
        outer products, which loops then add up in place.
Needs   `resolve-shapes`.
Keeps   every result, bit for bit: the initial value still takes part (0.0 + -0.0 is 0.0). A product
        of one term alone keeps the sign of a zero, as with XLA.
Cost    O(reductions).
Source  StableHLO spec, reduce, dot_general; XLA's algebraic simplifier does the same.
"""

from __future__ import annotations

from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.op_classes import ELEMENTWISE
from shlo_disc.passes.rules import Facts, RulePass


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


def outer_product(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """A dot_general of one term ==> multiply."""
    result = op.results[0]
    element = result.type.element_type
    if "algorithm" in op.attributes or any(v.type.element_type != element for v in op.operands):
        return None
    shape, sides = facts.shape(result), dot_sides(op)
    factors = []
    for given, side in zip(op.operands, sides, strict=True):
        operand = given
        sizes = facts.shape(operand)
        if not all(sizes[d].is_one for d in side.contracting):
            return None
        dims = {
            **{d: k for k, d in enumerate(side.batch)},
            **dict(zip(side.free, side.results, strict=True)),
        }
        kept = sorted(dims)
        if side.contracting:
            kind = ir.RankedTensorType.get([operand.type.shape[d] for d in kept], element)
            operand = facts.reshape(operand, kind, tuple(sizes[d] for d in kept))
        order = sorted(range(len(kept)), key=lambda k: dims[kept[k]])
        if order != sorted(order):
            operand = facts.transpose(operand, order)
        factors.append(facts.broadcast(operand, sorted(dims.values()), result.type, shape))
    return facts.build("stablehlo.multiply", factors, result.type, shape)


RULES = {"stablehlo.dot_general": (outer_product,), "stablehlo.reduce": (over_units,)}

register(RulePass("fold-reductions", RULES))
