"""spread-splats: a large constant of one number is that number, broadcast by what reads it.

    %0 = constant dense<1.0> : tensor<1000000000xf32>
    ==>
    %c = constant dense<1.0> : tensor<f32>
    %0 = broadcast_in_dim %c, dims = []

Why     A constant is memory: 4 GB here, next to the result or the temporary value it is copied to.
Needs   `fold-constants` done: it would undo this.   Keeps   every result.
Cost    O(ops).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from shlo_disc.builders import create
from shlo_disc.element_types import ELEMENT_TYPES
from shlo_disc.mlir import at, ir, ops_of, replace
from shlo_disc.passes.base import Pass, register

__all__ = ["SpreadSplats"]

MIN_BYTES = 1 << 20
"""Smaller ones are read from a cache: what they cost was not measurable."""


@dataclass(frozen=True)
class SpreadSplats(Pass):
    """See the module."""

    name: ClassVar[str] = "spread-splats"

    def run(self, module: ir.Module) -> int:
        """Rewrite `module`; the number of constants replaced."""
        return sum(_spread(op) for op in ops_of(module, "stablehlo.constant"))


def _spread(op: ir.Operation) -> bool:
    kind, value = ir.RankedTensorType(op.results[0].type), op.attributes["value"]
    size_bytes = math.prod(kind.shape) * ELEMENT_TYPES[str(kind.element_type)].dtype.itemsize
    if size_bytes < MIN_BYTES or not (isinstance(value, ir.DenseElementsAttr) and value.is_splat):
        return False
    scalar = ir.RankedTensorType.get([], kind.element_type)
    with at(op):
        number = ir.DenseElementsAttr.get_splat(scalar, value.get_splat_value())
        constant = create("stablehlo.constant", [], scalar, value=number)
        dims = ir.DenseI64ArrayAttr.get([])
        spread = create("stablehlo.broadcast_in_dim", [constant], kind, broadcast_dimensions=dims)
        replace(op, spread)
    return True


register(SpreadSplats())
