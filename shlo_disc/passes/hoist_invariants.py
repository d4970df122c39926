"""hoist-invariants: what a loop computes anew from unchanged values is computed once, before it.

    while ... { %t = transpose %w;  %y = dot_general %x, %t }
    ==>
    %t = transpose %w
    while ... { %y = dot_general %x, %t }

Why     Conversions and products of weights inside `lax.scan` cost as much as the step itself.
Needs   `forward-carried`.
Keeps   every result. Loops that run zero times compute a little in vain; integer division, which
        may trap on data the loop would never have seen, stays inside.
Cost    O(ops in loops), inner loops first, so that a value can leave several.
Source  Loop-invariant code motion; MLIR's own does not know `stablehlo.while` as a loop.

Operations that are free inside a kernel (broadcasts, reshapes, iota, splats) leave only together
with a reader that is not free. Alone they would turn into arrays in memory.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.mlir import ir, ops_of, walk
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import CONTROL, EFFECTS, FREE, is_splat_constant

_STAYS = CONTROL | EFFECTS
_TRAPS = frozenset({"stablehlo.divide", "stablehlo.remainder"})


@dataclass(frozen=True)
class HoistInvariants(Pass):
    """See the module."""

    name: ClassVar[str] = "hoist-invariants"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of ops that left a loop, once for each loop they left."""
        return sum(_hoist(loop) for loop in ops_of(module, "stablehlo.while"))


def _hoist(loop: ir.Operation) -> int:
    body = loop.regions[1].blocks[0]
    inside: set[ir.Value] = set(body.arguments)
    invariant: list[ir.Operation] = []
    for view in list(body.operations)[:-1]:
        op = view.operation
        if _may_leave(op) and not any(v in inside for v in _read(op)):
            invariant.append(op)
        else:
            inside.update(op.results)
    # From the last one up: a free op leaves when something that leaves reads it.
    leaving: list[ir.Operation] = []
    needed: set[ir.Value] = set()
    for op in reversed(invariant):
        if not _is_free(op) or any(r in needed for r in op.results):
            leaving.append(op)
            needed.update(_read(op))
    for op in reversed(leaving):
        op.move_before(loop)
    return len(leaving)


def _may_leave(op: ir.Operation) -> bool:
    if op.name in _STAYS or not len(op.results):
        return False
    if op.name in _TRAPS:
        return isinstance(ir.RankedTensorType(op.results[0].type).element_type, ir.FloatType)
    return True


def _is_free(op: ir.Operation) -> bool:
    return op.name in FREE or op.name == "disc.shape" or is_splat_constant(op)


def _read(op: ir.Operation) -> list[ir.Value]:
    """Everything `op` reads: its operands and what its regions take from outside."""
    if not len(op.regions):
        return list(op.operands)
    values: list[ir.Value] = []
    walk(op, lambda inner: values.extend(inner.operands))
    return values


register(HoistInvariants())
