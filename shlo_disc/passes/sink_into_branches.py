"""sink-into-branches: what one branch alone reads is computed in that branch.

    %y = exponential %x
    if %p { return %y } else { return %x }
    ==>
    if %p { %y = exponential %x;  return %y } else { return %x }

Why     A value that is computed before the branch costs its time when the other branch is taken.
        Its consumers in the branch cannot be fused with it.
Needs   `hoist-invariants` and `cse` done: a loop in a branch keeps its invariant code outside.
Keeps   every result. Random numbers and calls, which may have an effect, stay.
Cost    O(ops).
Source  XLA's conditional code motion, into branches.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.mlir import ir, walk
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import EFFECTS

_BRANCHES = frozenset({"stablehlo.case", "stablehlo.if"})


@dataclass(frozen=True)
class SinkIntoBranches(Pass):
    """See the module."""

    name: ClassVar[str] = "sink-into-branches"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of ops that went into a branch, once for each branch."""
        count = 0
        blocks = [block for region in module.operation.regions for block in region.blocks]
        while blocks:  # outer blocks first: what goes into a branch may go into one inside of it
            block = blocks.pop()
            operations = [view.operation for view in block.operations]
            if any(op.name in _BRANCHES for op in operations):
                count += sum(_sink(op) for op in reversed(operations))
            for view in block.operations:
                blocks.extend(inner for region in view.operation.regions for inner in region.blocks)
        return count


def _sink(op: ir.Operation) -> bool:
    """Move `op` to the beginning of the only branch that reads it; False where there is none."""
    readers = [use.owner for result in op.results for use in result.uses]
    if not readers:
        return False
    branch, *others = [_branch_of(reader, op.block) for reader in readers]
    if branch is None or any(other is None or other != branch for other in others):
        return False
    if not _may_move(op):
        return False
    op.move_before(branch.operations[0].operation)
    return True


def _branch_of(reader: ir.Operation, outer: ir.Block) -> ir.Block | None:
    """The branch of an op of `outer` that holds `reader`; None where no branch does."""
    block, op = reader.operation.block, reader.operation
    inner: ir.Block | None = None
    while block != outer:
        inner, op = block, op.parent.operation
        block = op.block
    return inner if op.name in _BRANCHES else None


def _may_move(op: ir.Operation) -> bool:
    names: set[str] = set()
    walk(op, lambda inner: names.add(inner.name))
    return not names & EFFECTS


register(SinkIntoBranches())
