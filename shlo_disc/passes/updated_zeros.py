"""Arrays of zeros with updates, and what operations make of them.

A reverse, a pad, a slice and a scatter at even steps move places along a dimension: place `p`
becomes `first + step * p`. What leaves the array is outside of it, where `scatter` adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import attributes as attr
from shlo_disc.ir import dialect
from shlo_disc.ir.attributes import permutation
from shlo_disc.ir.indexing import IndexNumbers, scatter_numbers
from shlo_disc.ir.mlir import ir, stablehlo
from shlo_disc.passes.even_steps import even_steps
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.rules import Facts, Sizes


@dataclass(frozen=True)
class Update:
    """An array of zeros to which `updates` are added at `places`, as `scatter` has these."""

    type: ir.Type
    shape: Sizes
    """Of the array."""
    places: ir.Value
    updates: ir.Value
    numbers: IndexNumbers
    is_sorted: bool
    is_unique: bool
    """No element is updated twice."""
    is_inside: bool
    """Every update is in the array."""
    is_reshaped: bool = False
    """The sum has the array in another shape."""


def _converted(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """Zeros stay zeros, and of elements that are updated once each update is converted."""
    if not update.is_unique:
        return None
    element = op.results[0].type.element_type
    given = ir.RankedTensorType(update.updates.type)
    kind = ir.RankedTensorType.get(given.shape, element)
    updates = facts.build(op.name, [update.updates], kind, facts.shape(update.updates))
    return replace(
        update, type=ir.RankedTensorType.get(update.type.shape, element), updates=updates
    )


def _negated(op: ir.Operation, update: Update, facts: Facts) -> Update:
    """The negative of a sum is the sum of the negatives, rounded alike."""
    kind, shape = update.updates.type, facts.shape(update.updates)
    return replace(update, updates=facts.build(op.name, [update.updates], kind, shape))


def _reshaped(_op: ir.Operation, update: Update, _facts: Facts) -> Update:
    """The array that is updated takes the shape of the zeros."""
    return replace(update, is_reshaped=True)


def _transposed(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """The same places in another order of dimensions."""
    if update.is_reshaped:
        return None
    order, numbers = permutation(op), update.numbers
    rank = len(order)
    new = {old: d for d, old in enumerate(order)}
    kept = [new[d] for d in numbers.kept_dims(rank)]
    window = dict(zip(kept, numbers.window_dims, strict=True))
    # Window dimensions keep their positions in the updates, and are in the order of the array's.
    of_update = list(range(len(facts.shape(update.updates))))
    for position, d in zip(numbers.window_dims, sorted(kept), strict=True):
        of_update[position] = window[d]
    updates = update.updates
    if of_update != sorted(of_update):
        updates = facts.transpose(updates, of_update)
    # Both lists of batching dimensions are in one order, as `scatter` wants its own sorted.
    pairs = [(new[d], i) for d, i in
             zip(numbers.batching_dims, numbers.index_batching_dims, strict=True)]  # fmt: skip
    pairs.sort()
    return replace(
        update,
        type=ir.RankedTensorType.get(
            [update.type.shape[d] for d in order], update.type.element_type
        ),
        shape=tuple(update.shape[d] for d in order),
        updates=updates,
        numbers=IndexNumbers(
            numbers.window_dims,
            tuple(sorted(new[d] for d in numbers.collapsed_dims)),
            tuple(d for d, _ in pairs),
            tuple(i for _, i in pairs),
            tuple(new[d] for d in numbers.indexed_dims),
            numbers.index_vector_dim,
        ),
        is_sorted=update.is_unique and update.is_sorted,
    )


def _reversed(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """The last element becomes the first one."""
    marked = None if update.is_reshaped else _marked(update, facts)
    if marked is None:
        return None
    update = marked
    for d in attr.integers(op, "dimensions"):
        if d in update.numbers.batching_dims:
            return None
        if d in update.numbers.indexed_dims:
            moved = _moved(update, d, update.shape[d] - _window(update, d, facts), -1, facts)
        else:
            moved = update if d in update.numbers.kept_dims(len(update.shape)) else None
        if moved is None:
            return None
        update = _turned(moved, d, facts)
    return update


def _turned(update: Update, d: int, facts: Facts) -> Update:
    """The updates in reverse order along dimension `d` of the array."""
    if _window(update, d, facts).is_one:
        return update
    kept = update.numbers.kept_dims(len(update.shape))
    along = ir.DenseI64ArrayAttr.get([update.numbers.window_dims[kept.index(d)]])
    value, shape = update.updates, facts.shape(update.updates)
    turned = facts.build("stablehlo.reverse", [value], value.type, shape, {"dimensions": along})
    return replace(update, updates=turned)


def _padded(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """Elements move by the padding in front, and apart by that between them."""
    if facts.splat(op.operands[1]) != 0:
        return None
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    numbers = _sizes(op, keys, 2, facts)
    if numbers is None:
        return None
    at_least = facts.analysis.constraints.at_least
    moves: list[_Move] = []
    for low, high, between in zip(*numbers, strict=True):
        if not between.is_const:
            return None
        moves.append(_Move(low, between.value + 1, at_least(low, 0) and at_least(high, 0)))
    return _all_moved(op, update, moves, facts)


def _sliced(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """Elements move to the front by the start."""
    numbers = _sizes(op, ("start_indices", "limit_indices", "strides"), 1, facts)
    if numbers is None or not all(stride.is_one for stride in numbers[2]):
        return None
    moves = [
        _Move(-start, 1, facts.same(start, Expr.const(0)) and facts.same(limit, size))
        for start, limit, size in zip(*numbers[:2], update.shape, strict=False)
    ]
    return _all_moved(op, update, moves, facts)


def _scattered(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """The updates of a `scatter` of whole windows in even steps, or of one window, into zeros."""
    numbers, sizes = scatter_numbers(op), facts.shape(op.results[0])
    count = len(numbers.place_dims(len(facts.shape(op.operands[1]))))
    if numbers.batching_dims or len(sizes) != len(update.shape) or count > 1:
        return None
    starts = facts.contents(op.operands[1]) if not count else None
    steps = even_steps(op.operands[1], facts) if count else None
    if starts is not None and not numbers.collapsed_dims:
        moves = [_Move(Expr.const(0), 1, True)] * len(sizes)
        for d, start in zip(numbers.indexed_dims, starts, strict=True):
            if not _holds(sizes[d], start, start + update.shape[d] - 1, facts):
                return None  # perhaps the whole window is outside
            moves[d] = _Move(start, 1, True)
        return _all_moved(op, update, moves, facts)
    if steps is None or not steps.step or numbers.indexed_dims != numbers.collapsed_dims:
        return None
    (along,) = numbers.indexed_dims
    others = tuple(d for d in range(len(sizes)) if d != along)
    if numbers.window_dims != others:
        return None
    if not all(facts.same(sizes[d], update.shape[d]) for d in others):
        return None
    last = steps.first + (update.shape[along] - 1) * steps.step
    ends = (steps.first, last) if steps.step > 0 else (last, steps.first)
    is_inside = _holds(sizes[along], *ends, facts)
    moves = [_Move(Expr.const(0), 1, True)] * len(sizes)
    moves[along] = _Move(steps.first, steps.step, is_inside)
    return _all_moved(op, update, moves, facts)


def _holds(size: Expr, first: Expr, last: Expr, facts: Facts) -> bool:
    """True if `first` and `last`, in this order, are proved to be places of `size` elements."""
    at_least = facts.analysis.constraints.at_least
    return at_least(first, 0) and at_least(size, last + 1)


@dataclass(frozen=True)
class _Move:
    """Along a dimension, element `p` becomes element `first + step * p`."""

    first: Expr
    step: int
    is_inside: bool
    """Every element stays in the array."""


def _all_moved(
    op: ir.Operation, update: Update, moves: Sequence[_Move], facts: Facts
) -> Update | None:
    """The updates of the result of `op`, which moves elements along its dimensions."""
    if update.is_reshaped:
        return None
    result, zero = op.results[0], Expr.const(0)
    shape = facts.shape(result)
    marked = _marked(update, facts)
    if marked is None:
        return None
    update = marked
    for d, move in enumerate(moves):
        is_still = move.step == 1 and move.is_inside and facts.same(move.first, zero)
        is_indexed = d in update.numbers.indexed_dims
        grows = not update.is_inside and not facts.same(shape[d], update.shape[d])
        if is_still and not (is_indexed and grows):
            continue
        needs_one = move.step != 1 or not move.is_inside
        if not is_indexed:
            return None
        if needs_one and not _window(update, d, facts).is_one:
            return None
        moved = _moved(update, d, move.first, move.step, facts)
        if moved is None:
            return None
        update = replace(moved, is_inside=moved.is_inside and move.is_inside)
    return replace(
        update,
        type=result.type,
        shape=shape,
        is_sorted=update.is_sorted and all(move.step > 0 for move in moves),
    )


_FAR, _MOST_STEPS = -(1 << 40), 1 << 20
"""A place outside of every array, and after a move by such steps still."""


def _marked(update: Update, facts: Facts) -> Update | None:
    """The update with places of i64, and with `_FAR` for an index below 0 or after the last one.

    So a place outside remains outside when indices move and the array grows.
    """
    places, numbers = update.places, update.numbers
    shape, i64 = facts.shape(places), ir.IntegerType.get_signless(64)
    if places.type.element_type != i64:
        if places.type.element_type.is_unsigned and places.type.element_type.width == 64:
            return None
        kind = ir.RankedTensorType.get(places.type.shape, i64)
        places = facts.build("stablehlo.convert", [places], kind, shape)
    if not update.is_inside:
        ends = [update.shape[d] - _window(update, d, facts) for d in numbers.indexed_dims]
        places = _far_if_outside(places, _vector(ends, update, places, facts), facts)
    return replace(update, places=places, is_sorted=update.is_sorted and update.is_inside)


def _moved(update: Update, d: int, first: Expr, step: int, facts: Facts) -> Update | None:
    """Place `p` along dimension `d` becomes `first + step * p`, one that is far remains so."""
    if abs(step) > _MOST_STEPS:
        return None
    numbers, places = update.numbers, update.places
    shape = facts.shape(places)
    factors = [step if k == d else 1 for k in numbers.indexed_dims]
    firsts = [first if k == d else Expr.const(0) for k in numbers.indexed_dims]
    for name, terms, neutral in (
        ("stablehlo.multiply", [Expr.const(factor) for factor in factors], Expr.const(1)),
        ("stablehlo.add", firsts, Expr.const(0)),
    ):
        if all(term == neutral for term in terms):
            continue
        terms_of = _vector(terms, update, places, facts)
        places = facts.build(name, [places, terms_of], places.type, shape)
    return replace(update, places=places, is_sorted=update.is_sorted and step > 0)


def _vector(terms: Sequence[Expr], update: Update, places: ir.Value, facts: Facts) -> ir.Value:
    """An array like `places` with the same number for each index of a place."""
    element, shape = places.type.element_type, facts.shape(places)
    scalars = []
    for term in terms:
        scalars.append(dialect.dim(term, element))
        facts.made[scalars[-1]] = ()
    if len(scalars) == 1:
        return facts.broadcast(scalars[0], [], places.type, shape) if shape else scalars[0]
    one = ir.RankedTensorType.get([1], element)
    ones = [facts.reshape(scalar, one, (Expr.const(1),)) for scalar in scalars]
    kind, count = ir.RankedTensorType.get([len(ones)], element), Expr.const(len(ones))
    along = {"dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)}
    vector = facts.build("stablehlo.concatenate", ones, kind, (count,), along)
    return facts.broadcast(vector, [update.numbers.index_vector_dim], places.type, shape)


def _far_if_outside(places: ir.Value, ends: ir.Value, facts: Facts) -> ir.Value:
    """`places` with `_FAR` for indices below 0 and after those of `ends`."""
    kind, shape = places.type, facts.shape(places)
    one = ir.IntegerType.get_signless(64)
    mask = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(1))

    def filled(number: int) -> ir.Value:
        return facts.filled(ir.IntegerAttr.get(one, number), kind, shape)

    sides = []
    for side, bound in (("GE", filled(0)), ("LE", ends)):
        direction = {"comparison_direction": stablehlo.ComparisonDirectionAttr.get(side)}
        sides.append(facts.build("stablehlo.compare", [places, bound], mask, shape, direction))
    is_inside = facts.build("stablehlo.and", sides, mask, shape)
    return facts.build("stablehlo.select", [is_inside, places, filled(_FAR)], kind, shape)


def _window(update: Update, d: int, facts: Facts) -> Expr:
    """The size of an update along dimension `d` of the array."""
    numbers = update.numbers
    kept = numbers.kept_dims(len(update.shape))
    if d not in kept:
        return Expr.const(1)
    return facts.shape(update.updates)[numbers.window_dims[kept.index(d)]]


def _sizes(op: ir.Operation, keys: Sequence[str], first: int, facts: Facts) -> list[Sizes] | None:
    """What attributes `keys`, or in the dynamic form the operands from `first` on, consist of."""
    if keys[0] in op.attributes:
        return [tuple(map(Expr.const, attr.integers(op, key))) for key in keys]
    numbers = [facts.contents(value) for value in list(op.operands)[first:]]
    known = [n for n in numbers if n is not None]
    return known if len(known) == len(numbers) else None


_Change = Callable[[ir.Operation, Update, Facts], Update | None]

CHANGES: dict[str, _Change] = {
    "stablehlo.convert": _converted,
    "stablehlo.negate": _negated,
    "stablehlo.transpose": _transposed,
    "stablehlo.reverse": _reversed,
    "stablehlo.pad": _padded,
    "stablehlo.dynamic_pad": _padded,
    "stablehlo.slice": _sliced,
    "stablehlo.real_dynamic_slice": _sliced,
    "stablehlo.scatter": _scattered,
    **dict.fromkeys(RESHAPES, _reshaped),
}
"""What may stand between the updated zeros and the sum."""


def changed(op: ir.Operation, update: Update, facts: Facts) -> Update | None:
    """What `op`, of one of :data:`CHANGES`, makes of `update`; None: no such array."""
    return CHANGES[op.name](op, update, facts)
