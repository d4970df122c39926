"""fold-reshapes: one reshape at most between two computations.

    dynamic_reshape (dynamic_reshape %x, %s), %t  ==>  dynamic_reshape %x, %t
    dynamic_reshape %x, (the shape of %x)         ==>  %x
    reshape (broadcast of a scalar)               ==>  broadcast of that scalar

Why     A reshape is free between kernels but ends fusion when its shapes do not line up; `vmap`
        and `einsum` leave pairs that undo each other.
Needs   `resolve-shapes` (guards hold the element counts from then on).
Keeps   every result, bit for bit.   Cost  O(reshapes x chain length).
Source  StableHLO spec, reshape_c1 and dynamic_reshape: elements keep their row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shlo_disc.mlir import ir
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.rules import Facts, apply_rules, defined_by

__all__ = ["RULES", "FoldReshapes"]

_BROADCASTS = ("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")


def to_same_shape(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(x) to x's own shape ==> x."""
    operand = op.operands[0]
    if facts.same_shape(facts.shape(operand), facts.shape(op.results[0])):
        return operand
    return None


def of_reshape(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(reshape(x)) ==> reshape(x)."""
    inner = defined_by(op.operands[0], *RESHAPES)
    if inner is None:
        return None
    result = op.results[0]
    return facts.reshape(inner.operands[0], result.type, facts.shape(result))


def of_scalar_broadcast(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(broadcast(scalar)) ==> broadcast(scalar)."""
    inner = defined_by(op.operands[0], *_BROADCASTS)
    if inner is None or inner.operands[0].type.rank != 0:
        return None
    result = op.results[0]
    return facts.broadcast(inner.operands[0], [], result.type, facts.shape(result))


def of_splat_constant(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(splat constant), static ==> splat constant."""
    inner = defined_by(op.operands[0], "stablehlo.constant")
    result = op.results[0]
    if inner is None or not result.type.has_static_shape:
        return None
    value = inner.attributes["value"]
    element = result.type.element_type
    if not isinstance(element, ir.IntegerType | ir.FloatType) or not value.is_splat:
        return None
    value = ir.DenseElementsAttr.get_splat(result.type, value.get_splat_value())
    return facts.build("stablehlo.constant", [], result.type, facts.shape(result), {"value": value})


_ALL = (to_same_shape, of_reshape, of_scalar_broadcast, of_splat_constant)
RULES = dict.fromkeys(sorted(RESHAPES), _ALL)


@dataclass(frozen=True)
class FoldReshapes(Pass):
    """See the module."""

    name: ClassVar[str] = "fold-reshapes"

    def run(self, module: ir.Module) -> int:
        """Rewrite `module`; the number of reshapes changed."""
        return apply_rules(module, RULES)


register(FoldReshapes())
