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

    def enter(inner: ir.Block) -> None:
        inside.update(inner.arguments)
        for view in inner.operations:
            operations.append(view.operation)
            inside.update(view.operation.results)
            for region in view.operation.regions:
                for nested in region.blocks:
                    enter(nested)

    enter(block)
    first = operations[0]
    copies: dict[ir.Value, ir.Value] = {}
    count = 0

    def copy(value: ir.Value) -> ir.Value:
        nonlocal count
        if value not in copies:
            owner = value.owner
            if isinstance(owner, ir.Block) or len(owner.operation.regions):
                raise UnsupportedError(
                    f"{source_line(op)}: the computation inside {op.name} reads a value from "
                    "outside that is not constant; pass it in or compute it inside"
                )
            source = owner.operation
            operands = [copy(v) for v in source.operands]
            with ir.InsertionPoint(first), source.location:
                made = source.clone().operation
            for position, operand in enumerate(operands):
                made.operands[position] = operand
            copies.update(zip(source.results, made.results, strict=True))
            count += 1
        return copies[value]

    for inner in operations:
        for position, value in enumerate(inner.operands):
            if value not in inside:
                inner.operands[position] = copy(value)
    return count


register(SinkConstants())
