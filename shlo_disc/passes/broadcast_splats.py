"""broadcast-splats: a large constant of one number is that number, broadcast by what reads it.

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
from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.builders import create
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import at, ir, ops_of, replace
from shlo_disc.passes.base import Pass, register

MIN_BYTES = 1 << 20
"""Smaller ones are read from a cache: what they cost was not measurable."""


_BROADCAST = "stablehlo.broadcast_in_dim"


@dataclass(frozen=True)
class BroadcastSplats(Pass):
    """See the module."""

    name: ClassVar[str] = "broadcast-splats"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of constants replaced."""
        return sum(_broadcast(op) for op in ops_of(module, "stablehlo.constant"))


def _broadcast(op: ir.Operation) -> bool:
    kind, value = ir.RankedTensorType(op.results[0].type), op.attributes["value"]
    size_bytes = math.prod(kind.shape) * element_type(kind.element_type).dtype.itemsize
    if size_bytes < MIN_BYTES or not (isinstance(value, ir.DenseElementsAttr) and value.is_splat):
        return False
    scalar = ir.RankedTensorType.get([], kind.element_type)
    with at(op):
        number = ir.DenseElementsAttr.get_splat(scalar, value.get_splat_value())
        constant = create("stablehlo.constant", [], scalar, value=number)
        replace(op, create(_BROADCAST, [constant], kind, broadcast_dimensions=[]))
    return True


register(BroadcastSplats())
