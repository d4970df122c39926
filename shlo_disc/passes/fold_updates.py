"""fold-updates: the sum of an array and an updated array of zeros is an update of the former.

    add %acc, (dynamic_update_slice (broadcast 0.0), %v, %i)  ==>  scatter[add] %acc, clamp %i, %v
    add %acc, (scatter[add] (broadcast 0.0), %places, %v)     ==>  scatter[add] %acc, %places, %v
    add %acc, (reshape %zeros_updated)          ==>  reshape (scatter[add] (reshape %acc), ...)
    add %acc, (reverse %zeros_updated)          ==>  scatter[add] %acc, %n - 1 - %places, ...
    add %acc, (case { %zeros } { %zeros_updated })
                   ==>  case { %acc } { scatter[add] %acc, ... }
    add %acc, (while (%a = zeros) { scatter[add] %a, ... })   ==>  while (%a = %acc) { ... }

Why     The derivative of `x[i]` in a loop adds such an array at each step. The sum takes time in
        proportion to all of `x`, the update in proportion to what is read. An update of a carried
        value is made in place.
Needs   `resolve-shapes`.
Keeps   every result but two properties, which XLA's algebraic simplifier changes, too. An element
        -0.0 of `%acc` that no update meets stays -0.0, and adding 0.0 would make it 0.0. Several
        updates of one element are added to it one by one, and not their sum.
Cost    O(additions).
Source  StableHLO spec, scatter (a window that is not inside is skipped) and dynamic_update_slice
        (start indices are clamped).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shlo_disc.base.later import imported_later
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import dialect
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import create, write_region
from shlo_disc.ir.indexing import IndexNumbers, scatter_attribute, scatter_numbers
from shlo_disc.ir.mlir import at, ir, producer, terminator
from shlo_disc.passes.base import register
from shlo_disc.passes.op_classes import CONTROL, RESHAPES
from shlo_disc.passes.rules import Facts, RulePass, adds, defined_by

if TYPE_CHECKING:
    from shlo_disc.passes.updated_zeros import Update

CHANGED = RESHAPES | {
    f"stablehlo.{name}"
    for name in (
        "convert", "dynamic_pad", "negate", "pad", "real_dynamic_slice", "reverse", "scatter",
        "slice", "transpose",
    )
}  # fmt: skip
"""What may stand between the updated zeros and the sum."""

changed = imported_later("shlo_disc.passes.updated_zeros", "changed")
new_update = imported_later("shlo_disc.passes.updated_zeros", "Update")


_BRANCHES = CONTROL - {"stablehlo.while"}


def into_sum(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """add(x, zeros with updates) ==> x with the updates added."""
    left, right = (_updates(value, facts) for value in op.operands)
    if left is None and right is None:
        return None
    if left is not None and right is not None and _is_term(op, facts):
        return None  # the sum that reads this one takes the updates of both
    base, updates = (op.operands[1], left) if right is None else (op.operands[0], right)
    branches = [update for update in updates or () if isinstance(update, _Branches)]
    if not all(_is_before(base, one.op, op) for one in branches):
        return None
    for one in sorted(branches, key=lambda one: one.count_before(branches)):
        base = one.added(base, facts)
    for update in updates or ():
        if not isinstance(update, _Branches):
            base = _added(base, update, facts)
    return base


@dataclass(frozen=True)
class _Branches:
    """Result `index` of branches of which some give out zeros there, perhaps with updates."""

    op: ir.Operation
    index: int

    @staticmethod
    def of(value: ir.Value, facts: Facts) -> _Branches | None:
        """`value`, which one operation reads, as such a result."""
        op = defined_by(value, *_BRANCHES)
        if op is None or not facts.has_one_reader(value):
            return None
        index = list(op.results).index(value)
        for region in op.regions:
            last = terminator(region.blocks[0])
            with at(last):
                given = last.operands[index]
                if facts.splat(given) == 0 or _updates(given, facts) is not None:
                    return _Branches(op, index)
        return None

    def count_before(self, others: Sequence[_Branches]) -> int:
        """How many of `others`, in the same block, come before this."""
        return sum(bool(other.op.is_before_in_block(self.op)) for other in others)

    def added(self, base: ir.Value, facts: Facts) -> ir.Value:
        """The result, to which each branch adds `base`."""
        for region in self.op.regions:
            last = terminator(region.blocks[0])
            given = last.operands[self.index]
            if facts.splat(given) != 0:
                with at(last):
                    total = [base, given]
                    last.operands[self.index] = facts.build(
                        "stablehlo.add", total, base.type, facts.shape(base)
                    )
            else:
                last.operands[self.index] = base
        return self.op.results[self.index]


def into_loop(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """add(x, what a loop adds up from zeros) ==> what the loop adds up from x.

    Sums of floats of 16 bits stay apart: what is added to a large one is mostly lost.
    """
    element = op.results[0].type.element_type
    if not isinstance(element, ir.IntegerType | ir.F32Type | ir.F64Type):
        return None
    for total, base in (op.operands, reversed(list(op.operands))):
        loop = defined_by(total, "stablehlo.while")
        if loop is None or total.type != base.type or not _is_before(base, loop, op):
            continue
        index = list(loop.results).index(total)
        if facts.splat(loop.operands[index]) != 0 or not _is_sum(loop, index, facts):
            continue
        loop.operands[index] = base
        return total
    return None


def _is_before(value: ir.Value, op: ir.Operation, reader: ir.Operation) -> bool:
    """True if `op`, in the block of a `reader` of `value`, comes after `value`."""
    source = producer(value)
    if op.block != reader.block:
        return False
    return source is None or source.block != op.block or bool(source.is_before_in_block(op))


def _is_sum(loop: ir.Operation, index: int, facts: Facts) -> bool:
    """True if a loop only adds to carried value `index`, whose end one operation reads."""
    condition, body = (region.blocks[0] for region in loop.regions)
    value = body.arguments[index]
    if any(True for _ in condition.arguments[index].uses):
        return False
    if not facts.has_one_reader(loop.results[index]):
        return False
    while facts.has_one_reader(value):
        (use,) = [use for use in value.uses if use.owner.operation not in facts.dead]
        reader, position = use.owner.operation, use.operand_number
        if reader == terminator(body):
            return bool(position == index)
        if reader.block != body or not _adds_to(reader, position, facts):
            return False
        value = reader.results[position]
    return False


def _adds_to(op: ir.Operation, position: int, facts: Facts) -> bool:
    """True if result `position` of `op` is the operand there, to which `op` may add."""
    if op.name == "stablehlo.while":
        return _is_sum(op, position, facts)
    if position or len(op.results) != 1:
        return False
    return op.name in RESHAPES or (op.name == "stablehlo.scatter" and adds(op))


def _is_term(op: ir.Operation, facts: Facts) -> bool:
    """True if one sum alone reads `op`, perhaps in another shape."""
    value = op.results[0]
    while facts.has_one_reader(value):
        readers = {use.owner.operation for use in value.uses} - facts.dead
        (reader,) = readers
        if reader.name == "stablehlo.add":
            return True
        if reader.name not in CHANGED:
            return False
        value = reader.results[0]
    return False


def _updates(value: ir.Value, facts: Facts) -> Sequence[Update | _Branches] | None:
    """The updates of zeros whose sum `value` is; None for another array."""
    op = producer(value)
    if op is None or not _is_number(value):
        return None
    if op.name in _BRANCHES:
        branches = _Branches.of(value, facts)
        return None if branches is None else [branches]
    if op.name == "stablehlo.dynamic_update_slice":
        return _of_slice(op, facts) if facts.splat(op.operands[0]) == 0 else None
    if op.name == "stablehlo.add":
        if not facts.has_one_reader(value):
            return None
        # An operand that is a sum comes last: each sum of a chain would follow it to the end.
        last = 0 if defined_by(op.operands[0], "stablehlo.add") is not None else 1
        if (first := _updates(op.operands[1 - last], facts)) is None:
            return None
        if (second := _updates(op.operands[last], facts)) is None:
            return None
        return [*first, *second] if last else [*second, *first]
    own = _of_scatters(op, facts) if op.name == "stablehlo.scatter" else None
    readers = {use.owner.operation for use in value.uses} - facts.dead
    if op.name not in CHANGED or not (len(readers) == 1 or all(r.name in CHANGED for r in readers)):
        return own
    if op.name == "stablehlo.scatter" and own is None:
        return None
    if op.name == "stablehlo.scatter" and facts.splat(op.operands[0]) != 0:
        return own
    inner = _updates(op.operands[0 if own is None else 2], facts)
    after = [
        None if isinstance(update, _Branches) else changed(op, update, facts)
        for update in inner or ()
    ]
    known = [update for update in after if update is not None]
    return known if inner is not None and len(known) == len(after) else own


def _is_number(value: ir.Value) -> bool:
    return isinstance(value.type.element_type, ir.IntegerType | ir.FloatType)


def _of_slice(op: ir.Operation, facts: Facts) -> list[Update] | None:
    """The update of a `dynamic_update_slice` of zeros; its start is clamped here."""
    array, updates, *starts = op.operands
    sizes, window = facts.shape(array), facts.shape(updates)
    moved = [d for d in range(len(sizes)) if not facts.same(sizes[d], window[d])]
    if not moved:
        return None
    element = starts[0].type.element_type
    at = [_clamped(starts[d], sizes[d] - window[d], facts) for d in moved]
    one, several = (
        ir.RankedTensorType.get([1], element),
        ir.RankedTensorType.get([len(at)], element),
    )
    places = [facts.reshape(start, one, (Expr.const(1),)) for start in at]
    if len(at) > 1:
        attributes = {"dimension": _number(0, ir.IntegerType.get_signless(64))}
        shape = (Expr.const(len(at)),)
        places = [facts.build("stablehlo.concatenate", places, several, shape, attributes)]
    numbers = IndexNumbers(tuple(range(len(sizes))), (), (), (), tuple(moved), 0)
    return [new_update(array.type, sizes, places[0], updates, numbers, True, True, True)]


def _clamped(start: ir.Value, room: Expr, facts: Facts) -> ir.Value:
    """`start`, an integer, at least 0 and at most `room`."""
    known, at_least = facts.contents(start), facts.analysis.constraints.at_least
    if known is not None and at_least(known[0], 0) and at_least(room, known[0]):
        return start
    kind, element = start.type, start.type.element_type
    most = (1 << element.width - (0 if element.is_unsigned else 1)) - 1
    zero = ir.DenseElementsAttr.get_splat(kind, _number(0, element))
    low = facts.build("stablehlo.constant", [], kind, (), {"value": zero})
    high = dialect.dim(room if at_least(most, room) else Expr.min(room, Expr.const(most)), element)
    facts.made[high] = ()
    return facts.build("stablehlo.clamp", [low, start, high], kind, ())


def _of_scatters(op: ir.Operation, facts: Facts) -> Sequence[Update | _Branches] | None:
    """The updates of a `scatter` into zeros, or into zeros with other updates."""
    if len(op.operands) != 3:
        return None
    if facts.splat(op.operands[0]) == 0:
        return _of_scatter(op, facts)
    if not adds(op) or not facts.has_one_reader(op.operands[0]):
        return None
    before, own = _updates(op.operands[0], facts), _of_scatter(op, facts)
    return None if before is None or own is None else [*before, *own]


def _of_scatter(op: ir.Operation, facts: Facts) -> list[Update] | None:
    """The updates of a `scatter` that adds, or writes no element of its zeros twice."""
    array, places, updates = op.operands
    numbers = scatter_numbers(op)
    is_unique = flag(op, "unique_indices") or _is_one_place(places, numbers, facts)
    block = op.regions[0].blocks[0]
    last = terminator(block)
    if not adds(op) and not (is_unique and last.operands[0] == block.arguments[1]):
        return None
    is_sorted, shape = flag(op, "indices_are_sorted"), facts.shape(array)
    return [new_update(array.type, shape, places, updates, numbers, is_sorted, is_unique, False)]


def _is_one_place(places: ir.Value, numbers: IndexNumbers, facts: Facts) -> bool:
    """True if each batch has one place."""
    sizes = facts.shape(places)
    dims = set(numbers.place_dims(len(sizes))) - set(numbers.index_batching_dims)
    return all(sizes[d].is_one for d in dims)


def _added(base: ir.Value, update: Update, facts: Facts) -> ir.Value:
    """`base` with `update` added."""
    if not update.is_reshaped:
        return _scatter(base, update, facts)
    kind, shape = base.type, facts.shape(base)
    inner = facts.reshape(base, update.type, update.shape)
    return facts.reshape(_scatter(inner, update, facts), kind, shape)


def _scatter(base: ir.Value, update: Update, facts: Facts) -> ir.Value:
    """`base`, of the shape of the array that is updated, with `update` added."""
    kind = base.type
    op = ir.Operation.create(
        "stablehlo.scatter",
        results=[base.type],
        operands=[base, update.places, update.updates],
        attributes={
            "scatter_dimension_numbers": scatter_attribute(update.numbers),
            "indices_are_sorted": ir.BoolAttr.get(update.is_sorted),
            "unique_indices": ir.BoolAttr.get(update.is_unique),
        },
        regions=1,
    )
    scalar = ir.RankedTensorType.get([], kind.element_type)
    write_region(op.regions[0], [scalar] * 2, lambda *pair: [create("stablehlo.add", pair, scalar)])
    value = op.results[0]
    facts.made[value] = facts.shape(base)
    return value


def _number(number: int, kind: ir.Type) -> ir.Attribute:
    return ir.IntegerAttr.get(kind, number)


def _zero(kind: ir.Type) -> ir.Attribute:
    return _number(0, kind) if isinstance(kind, ir.IntegerType) else ir.FloatAttr.get(kind, 0.0)


RULES = {"stablehlo.add": (into_sum, into_loop)}

register(RulePass("fold-updates", RULES))
