"""drop-barriers: what is computed again for less memory is known by now to be computed again.

    %b = optimization_barrier %x
    %y = sine %b                     ==>    %y = sine %x

Why     `jax.checkpoint` computes values again in a derivative. A barrier before them keeps `cse`
        from taking those of the forward part, which would then stay in memory.
Needs   `cse` done: it would undo this.   Keeps   every result.
Cost    O(ops).
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.mlir import ir, ops_of, replace
from shlo_disc.passes.base import Pass, register

_BARRIER = "stablehlo.optimization_barrier"


@dataclass(frozen=True)
class DropBarriers(Pass):
    """See the module."""

    name: ClassVar[str] = "drop-barriers"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of barriers."""
        barriers = ops_of(module, _BARRIER) if _BARRIER in shapes.names else []
        for op in barriers:
            replace(op, *op.operands)
        return len(barriers)


register(DropBarriers())
