"""sink-constants: a reducer or comparator holds the constants it reads.

    %c = constant 0.0
    sort %x { compare %a, %c }        ==>    sort %x { %c = constant 0.0;  compare %a, %c }

Why     `cse` lets such a body share a constant of the function; a kernel sees only its arguments.
Needs   `cse` done: it would undo this.   Keeps   every result.
Cost    O(ops in bodies).

What is computed from such constants alone comes along. Anything else that a body reads from outside
is an input of its kernel. Arrays of different elements are: they leave a body.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.mlir import clone, ir, producer, walk
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import CONTROL, is_splat_constant

_HOLDERS = CONTROL | {"builtin.module", "disc.fusion", "func.func"}
"""Their regions read what they like: the planner gives it to them."""


@dataclass(frozen=True)
class SinkConstants(Pass):
    """See the module."""

    name: ClassVar[str] = "sink-constants"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of ops copied into bodies."""
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
    copies = _Copies(operations[0])
    for inner in operations:
        if _is_array(inner):
            inner.move_before(op)
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


def _is_array(op: ir.Operation) -> bool:
    """True for a constant of different elements, which kernels read in memory."""
    return op.name == "stablehlo.constant" and not is_splat_constant(op)


class _Copies:
    """Copies of values from outside, in front of the op `first` of a body."""

    def __init__(self, first: ir.Operation) -> None:
        self._first = first
        self._known: dict[ir.Value, ir.Value] = {}
        self.count = 0
        """Operations that were copied."""

    def of(self, value: ir.Value) -> ir.Value:
        """The copy of a value that is computed from constants; any other value itself."""
        if value in self._known:
            return self._known[value]
        for op in _computed_from_constants(value) or ():
            if op.results[0] in self._known:
                continue
            with ir.InsertionPoint(self._first), op.location:
                made = clone(op, self._known)
            self._known.update(zip(op.results, made.results, strict=True))
            self.count += 1
        return self._known.setdefault(value, value)


def _computed_from_constants(value: ir.Value) -> list[ir.Operation] | None:
    """The ops that compute a value from nothing, in order; None if it depends on data."""
    found: dict[ir.Operation, None] = {}
    stack = [(value, False)]
    while stack:
        at, is_ready = stack.pop()
        op = producer(at)
        if op is None or len(op.regions) or _is_array(op):
            return None
        if is_ready:
            found[op] = None
        elif op not in found:
            stack += [(at, True), *((operand, False) for operand in op.operands)]
    return list(found)


register(SinkConstants())
