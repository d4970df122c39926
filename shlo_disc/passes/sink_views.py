"""sink-views: slices and transposes that feed a `dot_general` are cloned next to each product.

    %s = slice %w                               while ... {
    while ... { dot_general %x, %s }      ==>     %s = slice %w;  dot_general %x, %s
                                                }

Why     A dense kernel reads its operands in place through slices and transposes of its own. It
        keeps panels of a weight between calls if the weight is an argument.
Needs   loop-invariant code outside of its loops.
Keeps   every result.
Cost    O(products x length of a chain).

Only views of arguments of the program go into a loop. No panels are kept of other memory: every
step would copy what one copy before the loop gives.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import SLICES, view_of
from shlo_disc.ir.attributes import permutation
from shlo_disc.ir.mlir import ir, ops_of, producer, run_pipeline
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import RESHAPES

_MOVES = SLICES | {"stablehlo.transpose"}


def chain_of(value: ir.Value, shapes: ShapeAnalysis) -> list[ir.Operation]:
    """The ops that make `value` a view of another value, the last one first; none where it is not.

    The chain ends with a slice or a transpose: a reshape below them is an array of its own name.
    """
    chain = _moves(value)
    while chain and view_of(value, [chain[-1].operands[0]], shapes) is None:
        chain = _trimmed(chain[:-1])
    return chain


def _trimmed(chain: list[ir.Operation]) -> list[ir.Operation]:
    """`chain` up to its last slice or transpose."""
    while chain and chain[-1].name in RESHAPES:
        chain = chain[:-1]
    return chain


def _moves(value: ir.Value) -> list[ir.Operation]:
    """The ops that move `value` from where it was computed, down to a slice or a transpose."""
    chain: list[ir.Operation] = []
    op = producer(value)
    while op is not None and (op.name in _MOVES or op.name in RESHAPES):
        chain.append(op)
        op = producer(op.operands[0])
    return _trimmed(chain)


@dataclass(frozen=True)
class SinkViews(Pass):
    """See the module."""

    name: ClassVar[str] = "sink-views"
    keeps_known: ClassVar[bool] = True

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of ops copied to a product."""
        perhaps = [
            (dot, position)
            for dot in ops_of(module, "stablehlo.dot_general")
            for position, value in enumerate(dot.operands)
            if (chain := _moves(value)) and _pays(dot, chain)
        ]
        if not perhaps:
            return 0
        known = shapes.now()
        found = [
            (dot, position, chain)
            for dot, position in perhaps
            if (chain := chain_of(dot.operands[position], known)) and _pays(dot, chain)
        ]
        for dot, position, chain in found:
            value = chain[-1].operands[0]
            for op in reversed(chain):
                with ir.InsertionPoint(dot), op.location:
                    copy = op.clone().operation
                copy.operands[0] = value
                value = copy.results[0]
                known.carry(op.results[0], value)
            dot.operands[position] = value
        if found:
            run_pipeline(module, "trivial-dce")
        return sum(len(chain) for _, _, chain in found)


def _pays(dot: ir.Operation, chain: list[ir.Operation]) -> bool:
    """True if something is won when `dot` has the chain beside it."""
    inside = dot.block
    if all(op.block == inside for op in chain):
        shared = any(len(list(op.results[0].uses)) > 1 for op in chain)
        return shared and any(op.name in SLICES or _keeps_rows(op) for op in chain)
    base = chain[-1].operands[0]
    while (op := producer(base)) is not None and op.name in RESHAPES:
        base = op.operands[0]
    return isinstance(base.owner, ir.Block) and base.owner == _main(dot)


def _keeps_rows(op: ir.Operation) -> bool:
    """True for a transpose of whole rows, which costs a product nothing."""
    if op.name != "stablehlo.transpose":
        return False
    order = permutation(op)
    return order[-1] == len(order) - 1


def _main(op: ir.Operation) -> ir.Block:
    while op.name != "func.func":
        block, op = op.block, op.parent
    return block


register(SinkViews())
