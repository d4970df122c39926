"""The driver of the rule passes, and what their rules may ask.

A rule takes an operation and gives the value that replaces its one result, or None. It builds with
`facts.build`, which records the shape of what it builds. It never erases: dead operations go when
the pass ends, so a value's shape, once analysed, stays true while rules run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import dialect
from shlo_disc.ir.indexing import gather_numbers
from shlo_disc.ir.mlir import at, ir, producer, run_pipeline, terminator, walk
from shlo_disc.ir.ops import names
from shlo_disc.passes.base import Pass
from shlo_disc.passes.op_classes import is_splat_constant

Sizes = tuple[Expr, ...]

_MAX_STEPS = 100
"""Rewrites of one value; rules that undo each other would go on for ever."""


@dataclass
class Facts:
    """Shapes of values, those of the module and those that rules made."""

    analysis: ShapeAnalysis
    made: dict[ir.Value, Sizes] = field(default_factory=dict)
    splats: dict[ir.Value, ir.Attribute | None] = field(default_factory=dict)
    numbers: dict[ir.Value, Sizes] = field(default_factory=dict)
    """The contents of values that rules made."""
    dead: set[ir.Operation] = field(default_factory=set)
    """Operations that rules replaced, and those that only such read."""

    def has_one_reader(self, value: ir.Value) -> bool:
        """True if one operation reads `value`."""
        return len({use.owner.operation for use in value.uses} - self.dead) == 1

    def bury(self, op: ir.Operation) -> None:
        """Nobody reads `op`, nor what only `op` read."""
        pending = [op]
        while pending:
            dead = pending.pop()
            self.dead.add(dead)
            for source in {producer(value) for value in dead.operands}:
                if source is not None and source not in self.dead and self._is_dead(source):
                    pending.append(source)

    def _is_dead(self, op: ir.Operation) -> bool:
        return self.dead.issuperset(
            use.owner.operation for result in op.results for use in result.uses
        )

    def splat_element(self, value: ir.Value) -> ir.Attribute | None:
        """The attribute of the number that every element of `value` is, or None."""
        if value not in self.splats:
            self.splats[value] = _splat_element(value)
        return self.splats[value]

    def splat(self, value: ir.Value) -> Any:
        """The number every element of `value` is (int, float or bool), or None."""
        element = self.splat_element(value)
        return None if element is None else element.value

    def shape(self, value: ir.Value) -> Sizes:
        """The symbolic sizes of `value`."""
        known = self.made.get(value)
        return self.analysis.shape(value) if known is None else known

    def contents(self, value: ir.Value) -> Sizes | None:
        """The elements of a small integer tensor of rank 0 or 1 computed from sizes only."""
        if value in self.made:
            return self.numbers.get(value)
        return self.analysis.contents(value)

    def same(self, a: Expr, b: Expr) -> bool:
        """True if two sizes are proved equal."""
        return a == b or self.analysis.constraints.equal(a, b)

    def same_shape(self, a: Sizes, b: Sizes) -> bool:
        """True if two shapes are proved equal."""
        return len(a) == len(b) and all(self.same(x, y) for x, y in zip(a, b, strict=True))

    def build(
        self,
        name: str,
        operands: Sequence[ir.Value],
        kind: ir.Type,
        shape: Sizes,
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        """A new op at the insertion point with one result of this type and these sizes."""
        op = ir.Operation.create(
            name, results=[kind], operands=list(operands), attributes=dict(attributes or {})
        )
        self.made[op.results[0]] = shape
        return op.results[0]

    def broadcast(
        self, value: ir.Value, dims: Sequence[int], kind: ir.Type, shape: Sizes
    ) -> ir.Value:
        """`value` broadcast to `kind`, static or dynamic as the types ask."""
        attributes = {"broadcast_dimensions": ir.DenseI64ArrayAttr.get(list(dims))}
        if kind.has_static_shape and value.type.has_static_shape:
            return self.build("stablehlo.broadcast_in_dim", [value], kind, shape, attributes)
        return self.build(
            "stablehlo.dynamic_broadcast_in_dim",
            [value, self.shape_operand(shape)],
            kind,
            shape,
            attributes,
        )

    def filled(self, element: ir.Attribute, kind: ir.Type, shape: Sizes) -> ir.Value:
        """A value of type `kind` whose every element is `element`, static or dynamic."""
        own = kind if kind.has_static_shape else ir.RankedTensorType.get([], kind.element_type)
        value = ir.DenseElementsAttr.get_splat(own, element)
        sizes = shape if own == kind else ()
        constant = self.build("stablehlo.constant", [], own, sizes, {"value": value})
        return constant if own == kind else self.broadcast(constant, [], kind, shape)

    def reshape(self, value: ir.Value, kind: ir.Type, shape: Sizes) -> ir.Value:
        """`value` reshaped to `kind`, static or dynamic as the types ask."""
        if kind.has_static_shape and value.type.has_static_shape:
            return self.build("stablehlo.reshape", [value], kind, shape)
        return self.build(
            "stablehlo.dynamic_reshape", [value, self.shape_operand(shape)], kind, shape
        )

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """`value` with dimension `order[k]` as its dimension k."""
        shape = self.shape(value)
        return self.build(
            "stablehlo.transpose",
            [value],
            permuted(value.type, order),
            tuple(shape[d] for d in order),
            {"permutation": ir.DenseI64ArrayAttr.get(list(order))},
        )

    def shape_operand(self, shape: Sizes, element: ir.Type | None = None) -> ir.Value:
        """A value that holds `shape`, for a dynamic op; of i64 without an `element` type."""
        value = dialect.shape(shape, element or ir.IntegerType.get_signless(64))
        self.made[value] = (Expr.const(len(shape)),)
        self.numbers[value] = shape
        return value


Rule = Callable[[ir.Operation, Facts], ir.Value | None]


def imported_rules(module: str, *names: str) -> dict[str, tuple[Rule, ...]]:
    """`RULES` of a module of passes for ops of these names, imported when such an op is there."""

    def rules_of(name: str) -> tuple[Rule, ...]:
        def rule(op: ir.Operation, facts: Facts) -> ir.Value | None:
            home = importlib.import_module(f"{__package__}.{module}")
            return _first(op, home.RULES[name], facts)

        rule.__name__ = module
        return (rule,)

    return {name: rules_of(name) for name in names}


@dataclass(frozen=True)
class RulePass(Pass):
    """A pass that applies rules."""

    name: str  # type: ignore[misc]
    rules: Mapping[str, Sequence[Rule]]
    """By op name."""

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Apply the rules until none applies; how many did.

        Operands come before their users, so each op is looked at once, and what replaces it again.
        """
        if shapes.names.isdisjoint(self.rules):
            return 0
        ops: list[ir.Operation] = []
        walk(module, ops.append)
        facts = Facts(shapes.now())
        changed = 0
        for op in ops:
            changed += _exhaust(op, self.rules, facts)
        if facts.made:  # even if none of it is used
            shapes.changed()
        if changed:
            run_pipeline(module, "trivial-dce")
            dialect.tidy(module)
            run_pipeline(module, "cse")
        return changed


def _exhaust(op: ir.Operation, rules: Mapping[str, Sequence[Rule]], facts: Facts) -> int:
    for step in range(_MAX_STEPS):
        if op.name not in rules or len(op.results) != 1:
            return step
        made = len(facts.made)
        new = _first(op, rules[op.name], facts)
        if new is None:
            return step
        if new in facts.made and (numbers := facts.contents(op.results[0])) is not None:
            facts.numbers[new] = numbers
        op.results[0].replace_all_uses_with(new)
        facts.bury(op)
        for value in list(facts.made)[made:]:
            inner = producer(value)
            if value != new and inner is not None and inner not in facts.dead:
                _exhaust(inner, rules, facts)
        source = producer(new)
        if source is None:
            return step + 1
        op = source
    names = ", ".join(rule.__name__ for rule in rules[op.name])
    raise InternalError(
        f"rewriting {op.name} does not end; one of the rules {names} undoes another"
    )


def _first(op: ir.Operation, rules: Sequence[Rule], facts: Facts) -> ir.Value | None:
    with at(op):
        for rule in rules:
            new = rule(op, facts)
            # Uses such as `return` need the very type.
            if new is not None and new.type == op.results[0].type:
                return new
    return None


# --- questions rules ask ------------------------------------------------------------------------


def defined_by(value: ir.Value, *names: str) -> ir.Operation | None:
    """The op that computes `value` when it has one of these names."""
    op = producer(value)
    return op if op is not None and op.name in names else None


def permuted(kind: ir.Type, order: Sequence[int]) -> ir.Type:
    """The tensor type whose dimension k is dimension `order[k]` of `kind`."""
    return ir.RankedTensorType.get([kind.shape[d] for d in order], kind.element_type)


def takes_one_window(gather: ir.Operation) -> bool:
    """True for a gather with a single start index: a slice at a place that data may say."""
    numbers = gather_numbers(gather)
    several = gather.operands[1].type.rank > 1 or numbers.index_vector_dim
    return not several and not numbers.batching_dims


def adds(op: ir.Operation) -> bool:
    """True if the region of `op`, of two elements, adds them."""
    block = op.regions[0].blocks[0]
    body = producer(terminator(block).operands[0])
    if body is None or body.name != "stablehlo.add":
        return False
    return set(body.operands) == set(block.arguments)


_BROADCASTS = names(lambda row: row.is_broadcast)
_NUMBERS = (ir.IntegerType, ir.FloatType)


def _splat_element(value: ir.Value) -> ir.Attribute | None:
    op = producer(value)
    while op is not None and op.name in _BROADCASTS:
        op = producer(op.operands[0])
    if op is None or not is_splat_constant(op):
        return None
    attribute = op.attributes["value"]
    element = attribute.type.element_type
    return attribute.get_splat_value() if isinstance(element, _NUMBERS) else None
