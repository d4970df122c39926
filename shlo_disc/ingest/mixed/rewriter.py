"""The walk that rewrites a mixed module, and the types of what it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arguments import set_signature
from shlo_disc.ingest.check import foreign
from shlo_disc.ingest.present import converted
from shlo_disc.ingest.resources import read_resources
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.builders import create
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of, terminator

Rule = Callable[[Sizes, ir.Operation], Sequence[ir.Value]]
"""The values of the results, at the insertion point; operands are rewritten already."""

_ASSUMING = ("shape.assuming", "shape.assuming_yield")
_KEPT = ("builtin.", "chlo.", "disc.", "func.", "stablehlo.")


def rewrite_mixture(module: ir.Module, rules: Mapping[str, Rule]) -> None:
    """Rewrite every function by `rules`. Raises UnsupportedError for ops that have none."""
    for view in list(module.body.operations):
        if view.operation.name == "func.func":
            _Rewriter(rules).function(view)
    read_resources(ops_of(module, "stablehlo.constant"))


def operation(name: str, *attributes: str) -> Rule:
    """The rule for an op that StableHLO or CHLO has too, of the same operands."""

    def rule(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
        kept = {a: op.attributes[a] for a in attributes}
        return [create(name, list(op.operands), converted(op.results[0].type), **kept)]

    return rule


def _check_rank(kind: ir.Type, where: str) -> None:
    if isinstance(kind, ir.UnrankedTensorType):
        raise UnsupportedError(
            f"{where}: type {kind} is an unranked tensor; shlo_disc compiles arrays of known rank"
        )


class _Rewriter:
    """Rewrites one function."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules
        self.sizes = Sizes()
        self.dead: list[ir.Operation] = []

    def function(self, function: Any) -> None:
        """Rewrite the body, then the signature."""
        body = function.operation.regions[0].blocks
        if not len(body):
            return
        for block in body:
            self.block(block)
        for op in reversed(self.dead):  # readers first
            op.erase()
        returned = [value.type for value in terminator(body[0]).operands]
        set_signature(function, [a.type for a in body[0].arguments], returned)

    def block(self, block: ir.Block) -> None:
        """Rewrite the ops of `block` in order."""
        for argument in block.arguments:
            _check_rank(argument.type, "an argument")
            if (kind := converted(argument.type)) != argument.type:
                argument.set_type(kind)
        for view in list(block.operations):
            self.one(view.operation)

    def one(self, op: ir.Operation) -> None:
        """Rewrite `op` and what is in its regions."""
        rule = self.rules.get(op.name)
        if rule is None and op.name not in _ASSUMING and not op.name.startswith(_KEPT):
            raise foreign(op)
        for result in op.results:
            _check_rank(result.type, f"{source_line(op)}: {op.name}")
        for region in op.regions:
            for block in region.blocks:
                self.block(block)
        if op.name == "shape.assuming":
            self.unwrap(op)
        elif rule is not None:
            with at(op):
                values = rule(self.sizes, op)
            for result, value in zip(op.results, values, strict=False):  # but for witnesses
                result.replace_all_uses_with(value)
            self.dead.append(op)
        else:
            for result in op.results:
                if (kind := converted(result.type)) != result.type:
                    result.set_type(kind)

    def unwrap(self, op: ir.Operation) -> None:
        """The body in the place of a `shape.assuming`: its witness is asserted already."""
        inner = [view.operation for view in op.regions[0].blocks[0].operations]
        for moved in inner[:-1]:
            moved.move_before(op)
        for result, value in zip(op.results, inner[-1].operands, strict=True):
            result.replace_all_uses_with(value)
        self.dead.append(op)
