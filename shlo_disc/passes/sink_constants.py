"""sink-constants: a reducer or comparator holds the constants it reads.

    %c = constant 0.0
    sort %x { compare %a, %c }        ==>    sort %x { %c = constant 0.0;  compare %a, %c }

Why     `cse` lets such a body share a constant of the function; a kernel sees only its arguments.
Needs   `cse` done: it would undo this.   Keeps   every result.
Cost    O(ops in bodies).

What is computed from constants alone comes along. A body that reads anything else from outside
is refused: no StableHLO operation but control flow gives that a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shlo_disc.errors import UnsupportedError
from shlo_disc.locations import source_line
from shlo_disc.mlir import ir, walk
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import CONTROL

__all__ = ["SinkConstants"]

_HOLDERS = CONTROL | {"builtin.module", "disc.fusion", "func.func"}
"""Their regions read what they like: the planner gives it to them."""


@dataclass(frozen=True)
class SinkConstants(Pass):
    """See the module."""

    name: ClassVar[str] = "sink-constants"

    def run(self, module: ir.Module) -> int:
        """Rewrite `module`; the number of ops copied into bodies. Raises UnsupportedError."""
        bodies: list[tuple[ir.Operation, ir.Block]] = []

        def visit(op: ir.Operation) -> None:
            if op.name not in _HOLDERS:
                bodies.extend((op, block) for region in op.regions for block in region.blocks)

        walk(module, visit)
        return sum(_sink(op, block) for op, block in bodies)


def _sink(op: ir.Operation, block: ir.Block) -> int:
    """Copy what `block` reads from outside of `op` to its beginning."""
    inside: set[ir.Value] = set()
    operations: list[ir.Operation] = []
    _enter(block, inside, operations)
    copies = _Copies(op, operations[0])
    for inner in operations:
        for position, value in enumerate(inner.operands):
            if value not in inside:
                inner.operands[position] = copies.of(value)
    return copies.count


def _enter(block: ir.Block, inside: set[ir.Value], operations: list[ir.Operation]) -> None:
    """Add the values that `block` and the blocks in it define, and its operations, in order."""
    inside.update(block.arguments)
    for view in block.operations:
        operations.append(view.operation)
        inside.update(view.operation.results)
        for region in view.operation.regions:
            for nested in region.blocks:
                _enter(nested, inside, operations)


class _Copies:
    """Copies of values outside of `holder`, at the beginning of a block inside."""

    def __init__(self, holder: ir.Operation, first: ir.Operation) -> None:
        self._holder, self._first = holder, first
        self._known: dict[ir.Value, ir.Value] = {}
        self.count = 0
        """Operations that were copied."""

    def of(self, value: ir.Value) -> ir.Value:
        """The copy of a value; raises UnsupportedError for one that is not constant."""
        if value not in self._known:
            owner = value.owner
            if isinstance(owner, ir.Block) or len(owner.operation.regions):
                raise UnsupportedError(
                    f"{source_line(self._holder)}: the computation inside {self._holder.name} "
                    "reads a value from outside that is not constant; pass it in or compute it "
                    "inside"
                )
            source = owner.operation
            operands = [self.of(v) for v in source.operands]
            with ir.InsertionPoint(self._first), source.location:
                made = source.clone().operation
            for position, operand in enumerate(operands):
                made.operands[position] = operand
            self._known.update(zip(source.results, made.results, strict=True))
            self.count += 1
        return self._known[value]


register(SinkConstants())
