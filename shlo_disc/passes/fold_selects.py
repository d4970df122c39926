"""fold-selects: the choice between an array and an update of it is an update of what is chosen.

    select %p, (scatter %x, %places, %v), %x  ==>  scatter %x, (select %p, %places, -1), %v
    select %p, (dynamic_update_slice %x, %v, %i), %x    (or another update of %x)
                   ==>  dynamic_update_slice %x, (select %p, %v, (dynamic_slice %x, %i)), %i
    add (select %p, %x, 0), (select %p, 0, %y)  ==>  select %p, %x, %y
    (and so where an update with zeros stands between)
    gather (select %scalar, %x, 0), %places     ==>  select %scalar, (gather %x, %places), 0

Why     `jnp.where(p, x.at[i].set(v), x)`, and a `lax.cond` of it under `vmap`, in a loop. An update
        of a carried value is made in place; a choice takes time in proportion to all of `x`. The
        last form is in the derivative.
Needs   `resolve-shapes`.
Keeps   every result, but for the sign of zeros that 0 was added to, as `fold-updates` does.
Cost    O(selects).
Source  StableHLO spec, scatter: a window that is not inside is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.ir.attributes import broadcast_dims
from shlo_disc.ir.indexing import scatter_numbers
from shlo_disc.ir.mlir import ir, producer, terminator
from shlo_disc.passes.base import register
from shlo_disc.passes.op_classes import BROADCASTS
from shlo_disc.passes.rules import Facts, RulePass, Sizes, defined_by

_UPDATES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")


def into_update(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """select(p, updates of x, other updates of x) ==> all updates of x; one side may have none."""
    predicate, *sides = op.operands
    (first, base), (second, other) = (
        _updates(side, predicate, k, facts) for k, side in enumerate(sides, 1)
    )
    if base != other or not (first or second):
        return None
    value: ir.Value | None = base
    for updates, is_true in ((first, True), (second, False)):
        choice = _Choice.of(predicate, is_true, facts)
        for update in reversed(updates):
            if value is not None:
                build = _of_scatter if update.name == "stablehlo.scatter" else _of_slice
                value = build(update, value, choice, facts)
    return value


def _updates(
    value: ir.Value, predicate: ir.Value, position: int, facts: Facts
) -> tuple[list[ir.Operation], ir.Value]:
    """The updates that make `value`, which nobody else reads, the last one first; and of what.

    `value` is operand `position` of a choice by `predicate`, so only its elements there count.
    """
    found: list[ir.Operation] = []
    while (update := defined_by(value, *_UPDATES)) is not None:
        if len(update.results) != 1 or not facts.has_one_reader(value):
            break
        found.append(update)
        value = update.operands[0]
    return found, _where(value, predicate, position)


def of_one_choice(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """add(select(p, x, 0), select(p, 0, y)) ==> select(p, x, y); zeros may be written into one."""
    for one, other in (op.operands, reversed(list(op.operands))):
        select = defined_by(other, "stablehlo.select")
        if select is None:
            continue
        predicate, *sides = select.operands
        for position in (1, 2):
            kept, chosen = sides[2 - position], _where(one, predicate, position)
            if facts.splat(sides[position - 1]) != 0:
                continue
            if not _is_zero_elsewhere(one, predicate, position, facts):
                continue
            if chosen == kept:
                return kept
            result, parts = op.results[0], [chosen, kept]
            parts = [predicate, *(parts if position == 1 else reversed(parts))]
            return facts.build("stablehlo.select", parts, result.type, facts.shape(result))
    return None


def _is_zero_elsewhere(value: ir.Value, predicate: ir.Value, position: int, facts: Facts) -> bool:
    """True if `value` is 0 where `predicate` does not select operand `position`."""
    while (update := defined_by(value, *_UPDATES)) is not None:
        number = 1 if update.name == "stablehlo.dynamic_update_slice" else 2
        if len(update.results) != 1 or facts.splat(update.operands[number]) != 0:
            return False
        if number == 2:
            block = update.regions[0].blocks[0]
            if terminator(block).operands[0] != block.arguments[1]:
                return False
        value = update.operands[0]
    select = defined_by(value, "stablehlo.select")
    if select is None or select.operands[0] != predicate:
        return False
    return bool(facts.splat(select.operands[3 - position]) == 0)


def out_of_part(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """part(select(scalar, x, number)) ==> select(scalar, part(x), number)."""
    select = defined_by(op.operands[0], "stablehlo.select")
    if select is None:
        return None
    predicate, *sides = select.operands
    choice = _Choice.of(predicate, True, facts)
    if choice.predicate.type.rank:
        return None
    kind, shape = op.results[0].type, facts.shape(op.results[0])
    for position, side in enumerate(sides):
        number = facts.splat_element(side)
        if number is not None:
            part = op.clone()
            part.operands[0] = sides[1 - position]
            facts.made[part.results[0]] = shape
            parts = [part.results[0], facts.filled(number, kind, shape)]
            parts = [choice.predicate, *(parts if position else reversed(parts))]
            return facts.build("stablehlo.select", parts, kind, shape)
    return None


def _where(value: ir.Value, predicate: ir.Value, position: int) -> ir.Value:
    """What `value` is where `predicate` selects operand `position`."""
    select = defined_by(value, "stablehlo.select")
    if select is None or select.operands[0] != predicate:
        return value
    return select.operands[position]


@dataclass(frozen=True)
class _Choice:
    """Which elements of an array are those of its update: `predicate` along dimensions `dims`."""

    predicate: ir.Value
    dims: tuple[int, ...]
    is_true: bool
    """True if elements where the predicate holds are."""

    @staticmethod
    def of(predicate: ir.Value, is_true: bool, facts: Facts) -> _Choice:
        """The choice that `predicate`, of the array's shape or a scalar, stands for."""
        source = producer(predicate)
        if source is None or not predicate.type.rank:
            return _Choice(predicate, tuple(range(predicate.type.rank)), is_true)
        if source.name in BROADCASTS:
            return _Choice(source.operands[0], tuple(broadcast_dims(source)), is_true)
        if source.name == "stablehlo.compare":  # of broadcasts, as `vmap` compares branch numbers
            sides = [defined_by(value, *BROADCASTS) for value in source.operands]
            wide = [s for s in sides if s is not None and s.operands[0].type.rank]
            narrow = [facts.splat_element(value) for value in source.operands]
            if len(wide) == 1 and any(n is not None for n in narrow):
                value = wide[0].operands[0]
                kind, shape = value.type, facts.shape(value)
                parts = [value if n is None else facts.filled(n, kind, shape) for n in narrow]
                mask = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(1))
                kept = dict(source.attributes.items())
                chosen = facts.build(source.name, parts, mask, shape, kept)
                return _Choice(chosen, tuple(broadcast_dims(wide[0])), is_true)
        return _Choice(predicate, tuple(range(predicate.type.rank)), is_true)

    def select(
        self, places: Sequence[int], chosen: ir.Value, other: ir.Value, facts: Facts
    ) -> ir.Value:
        """`chosen` where the update is, else `other`; dimension k of the choice is `places[k]`."""
        kind, shape, predicate = chosen.type, facts.shape(chosen), self.predicate
        if predicate.type.rank:
            mask = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(1))
            predicate = facts.broadcast(predicate, places, mask, shape)
        sides = [chosen, other] if self.is_true else [other, chosen]
        return facts.build("stablehlo.select", [predicate, *sides], kind, shape)


def _of_slice(op: ir.Operation, array: ir.Value, choice: _Choice, facts: Facts) -> ir.Value | None:
    """`array` with the update `op` where it is chosen."""
    _, update, *starts = op.operands
    sizes, window = facts.shape(array), facts.shape(update)
    if not update.type.has_static_shape or not _is_whole(choice, sizes, window, facts):
        return None
    here = facts.build(
        "stablehlo.dynamic_slice",
        [array, *starts],
        update.type,
        window,
        {"slice_sizes": ir.DenseI64ArrayAttr.get(list(update.type.shape))},
    )
    update = choice.select(choice.dims, update, here, facts)
    return facts.build(op.name, [array, update, *starts], array.type, sizes)


def _is_whole(choice: _Choice, sizes: Sizes, window: Sizes, facts: Facts) -> bool:
    """True if the update is all of the array along the dimensions of the choice."""
    return all(facts.same(sizes[d], window[d]) for d in choice.dims)


def _of_scatter(
    op: ir.Operation, array: ir.Value, choice: _Choice, facts: Facts
) -> ir.Value | None:
    """`array` with the update `op` where it is chosen: elsewhere places are outside."""
    numbers, places = scatter_numbers(op), op.operands[1]
    batches = dict(zip(numbers.batching_dims, numbers.index_batching_dims, strict=True))
    element = places.type.element_type
    if not numbers.indexed_dims or element.is_unsigned or not batches.keys() >= {*choice.dims}:
        return None
    outside = facts.filled(ir.IntegerAttr.get(element, -1), places.type, facts.shape(places))
    chosen = choice.select([batches[d] for d in choice.dims], places, outside, facts)
    new = op.clone()
    new.operands[0], new.operands[1] = array, chosen
    if choice.dims:
        new.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)
    value: ir.Value = new.results[0]
    facts.made[value] = facts.shape(array)
    return value


RULES = {
    "stablehlo.select": (into_update,),
    "stablehlo.add": (of_one_choice,),
    **dict.fromkeys(
        ("stablehlo.gather", "stablehlo.dynamic_gather", "stablehlo.dynamic_slice"), (out_of_part,)
    ),
}

register(RulePass("fold-selects", RULES))
