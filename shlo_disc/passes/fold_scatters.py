"""fold-scatters: indices that count become windows or batches, one known place a slice.

    scatter %x [v, k], %places [n, k, 2], %updates [n, k]      places[i, j] = (%i[i], j)
==> scatter %x [v, k], %places [n, 1], %updates [n, k]         window [1, k], places[i] = (%i[i])

    scatter %x [n], 0, %v                                          by a body that returns %v
==> dynamic_update_slice %x, (reshape %v), 0

    dynamic_update_slice (concatenate %a [1], %b), %v [1], 0   ==>  concatenate %v, %b

    scatter %x [v, k], %places [v, n, 2], %updates [v, n]      places[i, j] = (i, %i[i, j])
==> scatter %x [v, k], %places [v, n, 1], %updates [v, n]      batches of the first dimensions

Why     `scatter_add(0, i[:, None].expand(-1, k), x)` of PyTorch and `x.at[i[:, None], arange(k)]`
        of JAX have an index for every element. Rows are read and written in vectors. Of sorted
        indices, a place is read and written once (`lower/kernels/scatter.py`). An update at a known
        place, as in `x.at[0].set(v)`, is a store: no kernel copies `x`. Behind a roll it is one of
        two pieces.
Needs   `resolve-shapes`, and broadcasts that are plain.
Keeps   every result: each element of a window is in the operand if the updates have no more of
        them than the operand. Updates of one element stay in their order. Batches are as many as
        the operand has.
Cost    O(ops that compute the indices) for each scatter.
Source  StableHLO spec, scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import attributes as attr
from shlo_disc.ir import dialect
from shlo_disc.ir.attributes import broadcast_dims
from shlo_disc.ir.comparisons import less_than
from shlo_disc.ir.indexing import IndexNumbers, scatter_attribute, scatter_numbers
from shlo_disc.ir.mlir import ir, producer, terminator
from shlo_disc.passes.base import register
from shlo_disc.passes.fold_constants import constant_array
from shlo_disc.passes.op_classes import BROADCASTS, ELEMENTWISE, IOTAS, RESHAPES
from shlo_disc.passes.rules import Facts, RulePass, Sizes, adds, defined_by

ZERO, ONE = Expr.const(0), Expr.const(1)

_WIDE = 32
"""Bits of integers that count the elements of any dimension."""


def of_rows(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Scatter whose indices count along a dimension ==> scatter of windows along it."""
    if len(op.results) != 1:
        return None
    numbers, (array, places, updates) = scatter_numbers(op), op.operands
    columns = _columns(places, numbers)
    if len(columns) < 2:
        return None
    dims = numbers.place_dims(places.type.rank)
    scattered = [d for d in range(updates.type.rank) if d not in numbers.window_dims]
    for number, column in enumerate(columns):
        d, along = _counted(column, facts), numbers.indexed_dims[number]
        if d not in dims or along not in numbers.collapsed_dims:
            continue
        others = [c for k, c in enumerate(columns) if k != number]
        of_update = scattered[dims.index(d)]
        fits = facts.analysis.constraints.at_least(
            facts.shape(array)[along], facts.shape(updates)[of_update]
        )
        windowed = _windowed(numbers, number, d, of_update, array.type.rank)
        if not fits or windowed is None:
            continue
        less = _Along(d, facts).less
        kept = [c for column in others if (c := less(column)) is not None]
        if len(kept) == len(others):
            dimensions = scatter_attribute(windowed)
            joined = _joined(kept, windowed, facts)
            return _again(op, facts, joined, scatter_dimension_numbers=dimensions)
    return None


def of_batches(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Scatter whose indices count the first dimension ==> scatter with a batching dimension.

        places[i, j] = (i, %k[i, j])    ==>    places[i, j] = (%k[i, j],)

    Updates of one batch never meet those of another.
    """
    if len(op.results) != 1:
        return None
    numbers, (array, places, _) = scatter_numbers(op), op.operands
    columns = _columns(places, numbers)
    if len(columns) < 2 or 0 in numbers.index_batching_dims:
        return None
    for number, column in enumerate(columns):
        along = numbers.indexed_dims[number]
        if _counted(column, facts) != 0 or along not in numbers.collapsed_dims:
            continue
        if not facts.same(facts.shape(array)[along], facts.shape(places)[0]):
            continue
        batches = [*zip(numbers.batching_dims, numbers.index_batching_dims, strict=True)]
        own, its = zip(*sorted([*batches, (along, 0)]), strict=True)
        batched = replace(
            numbers,
            collapsed_dims=tuple(o for o in numbers.collapsed_dims if o != along),
            batching_dims=own,
            index_batching_dims=its,
            indexed_dims=tuple(o for o in numbers.indexed_dims if o != along),
        )
        return _again(
            op,
            facts,
            _joined([c for k, c in enumerate(columns) if k != number], batched, facts),
            scatter_dimension_numbers=scatter_attribute(batched),
            indices_are_sorted=ir.BoolAttr.get(False),
        )
    return None


def _columns(places: ir.Value, numbers: IndexNumbers) -> list[ir.Value]:
    """The numbers of places, each of extent 1 along `index_vector_dim`; none if they are mixed."""
    joined = defined_by(places, "stablehlo.concatenate")
    if joined is None or int(ir.IntegerAttr(joined.attributes["dimension"])) != (
        numbers.index_vector_dim
    ):
        return []
    columns = list(joined.operands)
    return columns if len(columns) == len(numbers.indexed_dims) else []


def _windowed(
    numbers: IndexNumbers, column: int, d: int, of_update: int, rank: int
) -> IndexNumbers | None:
    """`numbers` with a window where `column` counts; None where windows are in another order."""
    along = numbers.indexed_dims[column]
    window = (*numbers.window_dims, of_update)
    goes_to = dict(zip(window, (*numbers.kept_dims(rank), along), strict=True))
    changed = replace(
        numbers,
        window_dims=tuple(sorted(window)),
        collapsed_dims=tuple(o for o in numbers.collapsed_dims if o != along),
        index_batching_dims=tuple(i - (i > d) for i in numbers.index_batching_dims),
        indexed_dims=tuple(o for o in numbers.indexed_dims if o != along),
        index_vector_dim=numbers.index_vector_dim - (numbers.index_vector_dim > d),
    )
    kept = changed.kept_dims(rank)
    is_ordered = tuple(goes_to[u] for u in changed.window_dims) == kept
    return changed if is_ordered and d not in numbers.index_batching_dims else None


def _joined(columns: Sequence[ir.Value], numbers: IndexNumbers, facts: Facts) -> ir.Value:
    """Places of these columns."""
    if len(columns) == 1:
        return columns[0]
    first, dim = columns[0], numbers.index_vector_dim
    sizes = list(facts.shape(first))
    sizes[dim] *= len(columns)
    declared = list(first.type.shape)
    declared[dim] = len(columns)
    kind = ir.RankedTensorType.get(declared, first.type.element_type)
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)
    return facts.build(
        "stablehlo.concatenate", columns, kind, tuple(sizes), {"dimension": dimension}
    )


def _again(
    op: ir.Operation, facts: Facts, places: ir.Value | None = None, **attributes: ir.Attribute
) -> ir.Value:
    """The scatter `op`, perhaps at other places, with these attributes changed."""
    new = op.clone()
    if places is not None:
        new.operands[1] = places
    for name, value in attributes.items():
        new.attributes[name] = value
    facts.made[new.results[0]] = facts.shape(op.results[0])
    return new.results[0]


# --- what indices are ---------------------------------------------------------------------------


def _counted(value: ir.Value, facts: Facts) -> int | None:
    """The dimension whose index each element of `value` is, if there is one."""
    op, element = producer(value), value.type.element_type
    if op is None or not isinstance(element, ir.IntegerType) or element.width < _WIDE:
        return None
    if (numbers := constant_array(value, facts)) is not None:  # an iota of few elements
        counts: Sequence[npt.NDArray[np.int_]] = np.indices(numbers.shape, sparse=True)
        return next((d for d, own in enumerate(counts) if (numbers == own).all()), None)
    if op.name in IOTAS:
        return int(ir.IntegerAttr(op.attributes["iota_dimension"]))
    if op.name == "stablehlo.select":
        return _counted(op.operands[2], facts) if _is_wrapped(op, facts) else None
    if op.name not in (*BROADCASTS, *RESHAPES, "stablehlo.convert"):
        return None
    inner = _counted(op.operands[0], facts)
    if inner is None or op.name == "stablehlo.convert":
        return inner
    if op.name in BROADCASTS:
        own = broadcast_dims(op)[inner]
        return own if _same_size(op, inner, own, facts) else None
    return unit_dims_moved(op, facts).get(inner)


def _is_wrapped(select: ir.Operation, facts: Facts) -> bool:
    """True for `x < 0 ? ... : x`: of what counts, that is x."""
    below = less_than(select.operands[0])
    return below is not None and below[0] == select.operands[2] and facts.splat(below[1]) == 0


def _same_size(op: ir.Operation, inner: int, own: int, facts: Facts) -> bool:
    """True if dimension `inner` of the operand has the size of dimension `own` of the result."""
    return facts.same(facts.shape(op.operands[0])[inner], facts.shape(op.results[0])[own])


def unit_dims_moved(reshape: ir.Operation, facts: Facts) -> dict[int, int]:
    """Dimension of the operand -> that of the result, where a reshape adds or drops sizes of 1."""
    before, after = (facts.shape(v) for v in (reshape.operands[0], reshape.results[0]))
    own, new = ([d for d, n in enumerate(s) if not n.is_one] for s in (before, after))
    if not facts.same_shape(tuple(before[d] for d in own), tuple(after[d] for d in new)):
        return {}
    return dict(zip(own, new, strict=True))


@dataclass
class _Along:
    """Values without dimension `d`, along which their elements are equal."""

    d: int
    facts: Facts
    made: dict[ir.Value, ir.Value | None] = field(default_factory=dict)

    def less(self, value: ir.Value) -> ir.Value | None:
        """`value` without the dimension; None if its elements may differ along it."""
        if value not in self.made:
            self.made[value] = self._less(value)
        return self.made[value]

    def _less(self, value: ir.Value) -> ir.Value | None:
        d, facts = self.d, self.facts
        shape, kind = lesser(facts.shape(value), d), lesser_type(value.type, d)
        element = facts.splat_element(value)
        if element is not None:
            return facts.filled(element, kind, shape)
        op = defined_by(value, *IOTAS, *BROADCASTS, *RESHAPES, *ELEMENTWISE)
        if op is None:
            return None
        if op.name in BROADCASTS:
            return self._broadcast(op, kind, shape)
        if op.name in RESHAPES:
            inner = {own: inner for inner, own in unit_dims_moved(op, facts).items()}.get(d)
            less = None if inner is None else _Along(inner, facts).less(op.operands[0])
            return None if less is None else facts.reshape(less, kind, shape)
        attributes = dict(op.attributes.items())
        if op.name in IOTAS:
            along = int(ir.IntegerAttr(op.attributes["iota_dimension"]))
            if along == d:
                return None
            i64 = ir.IntegerType.get_signless(64)
            attributes["iota_dimension"] = ir.IntegerAttr.get(i64, along - (along > d))
            operands = [] if kind.has_static_shape else [facts.shape_operand(shape)]
            name = "stablehlo.iota" if kind.has_static_shape else "stablehlo.dynamic_iota"
            return facts.build(name, operands, kind, shape, attributes)
        found = [v if v.type.rank == 0 else self.less(v) for v in op.operands]
        operands = [v for v in found if v is not None]
        if len(operands) < len(found):
            return None
        return facts.build(op.name, operands, kind, shape, attributes)

    def _broadcast(self, op: ir.Operation, kind: ir.Type, shape: Sizes) -> ir.Value | None:
        d, facts = self.d, self.facts
        inner, dims = op.operands[0], broadcast_dims(op)
        if d in dims:
            own, before = dims.index(d), facts.shape(inner)
            if not before[own].is_one:
                return None
            inner = facts.reshape(inner, lesser_type(inner.type, own), lesser(before, own))
        return facts.broadcast(inner, [x - (x > d) for x in dims if x != d], kind, shape)


def lesser(shape: Sizes, d: int) -> Sizes:
    """`shape` without dimension `d`."""
    return (*shape[:d], *shape[d + 1 :])


def lesser_type(kind: ir.Type, d: int) -> ir.Type:
    """The tensor type without dimension `d`."""
    sizes = [n for k, n in enumerate(kind.shape) if k != d]
    return ir.RankedTensorType.get(sizes, kind.element_type)


# --- indices that are sorted --------------------------------------------------------------------


def in_order(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Scatter at places that never decrease ==> the same, marked so."""
    if len(op.results) != 1 or attr.integer(op, "indices_are_sorted", 0):
        return None
    if not _ascends(op.operands[1], facts):
        return None
    return _again(op, facts, indices_are_sorted=ir.BoolAttr.get(True))


def of_narrow(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Scatter at places that were widened ==> at the narrow ones."""
    if len(op.results) != 1:
        return None
    places = op.operands[1]
    reshape = defined_by(places, *RESHAPES)
    convert = defined_by(places if reshape is None else reshape.operands[0], "stablehlo.convert")
    if convert is None or not _is_widened(convert):
        return None
    narrow = convert.operands[0]
    if reshape is not None:
        kind = ir.RankedTensorType.get(places.type.shape, narrow.type.element_type)
        narrow = facts.reshape(narrow, kind, facts.shape(places))
    return _again(op, facts, narrow)


_SAME_ORDER = ("stablehlo.add", "stablehlo.subtract", "stablehlo.maximum", "stablehlo.minimum")


def _ascends(value: ir.Value, facts: Facts) -> bool:
    """True if `value` is a vector of integers, none of which is below the one before it.

    Other dimensions may have one element. The numbers added are 1 at most: nothing overflows.
    """
    op, several = producer(value), [size for size in facts.shape(value) if not size.is_one]
    if op is None or len(several) > 1 or not isinstance(value.type.element_type, ir.IntegerType):
        return False
    if (numbers := constant_array(value, facts)) is not None:
        return bool((np.diff(numbers.flatten()) >= 0).all())
    if op.name in IOTAS:
        return bool(value.type.element_type.width >= _WIDE)
    if op.name in RESHAPES or (op.name == "stablehlo.convert" and _is_widened(op)):
        return _ascends(op.operands[0], facts)
    if op.name == "disc.scan":
        return _adds_up_ones(op, facts)
    if op.name in _SAME_ORDER:
        number = facts.splat(op.operands[1])
        return isinstance(number, int) and abs(number) <= 1 and _ascends(op.operands[0], facts)
    return False


def _is_widened(convert: ir.Operation) -> bool:
    before, after = (v.type.element_type for v in (convert.operands[0], convert.results[0]))
    is_integer = isinstance(before, ir.IntegerType) and not before.is_unsigned
    return is_integer and after.width >= before.width >= _WIDE


def _adds_up_ones(scan: ir.Operation, facts: Facts) -> bool:
    """True for a running total of what a scatter of ones into zeros has counted."""
    element = scan.results[0].type.element_type
    counts = defined_by(scan.operands[0], "stablehlo.scatter")
    return (
        counts is not None
        and element.width >= _WIDE
        and len(scan.results) == 1
        and all(map(adds, (scan, counts)))
        and not attr.integer(scan, "reverse", 0)
        and facts.splat(counts.operands[0]) == 0
        and facts.splat(counts.operands[2]) == 1
    )


# --- one place ----------------------------------------------------------------------------------


def at_a_place(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Scatter that sets one window, at a place inside that sizes tell ==> update of a slice."""
    if len(op.results) != 1:
        return None
    numbers, (array, places, updates) = scatter_numbers(op), op.operands
    block = op.regions[0].blocks[0]
    sets = terminator(block).operands[0] == block.arguments[1]
    at = facts.contents(places)
    if not sets or at is None or numbers.place_dims(places.type.rank) or numbers.batching_dims:
        return None
    sizes, shape = facts.shape(array), facts.shape(updates)
    first, window, declared = [ZERO] * len(sizes), [ONE] * len(sizes), [1] * len(sizes)
    for place, d in zip(numbers.window_dims, numbers.kept_dims(len(sizes)), strict=True):
        window[d], declared[d] = shape[place], updates.type.shape[place]
    for start, d in zip(at, numbers.indexed_dims, strict=True):
        first[d] = start
    at_least = facts.analysis.constraints.at_least
    ends = [start + size for start, size in zip(first, window, strict=True)]
    if not all(at_least(start, 0) for start in first) or not all(map(at_least, sizes, ends)):
        return None
    kind = ir.RankedTensorType.get(declared, updates.type.element_type)
    part = updates if kind == updates.type else facts.reshape(updates, kind, tuple(window))
    starts = [_number(start, places.type.element_type, facts) for start in first]
    return facts.build("stablehlo.dynamic_update_slice", [array, part, *starts], array.type, sizes)


def of_pieces(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Update of whole pieces of a concatenation ==> concatenation with the update instead."""
    array, update, *starts = op.operands
    joined = defined_by(array, "stablehlo.concatenate")
    if joined is None or not facts.has_one_reader(array):
        return None
    axis = int(ir.IntegerAttr(joined.attributes["dimension"]))
    (at,) = facts.contents(starts[axis]) or (None,)
    sizes, window = facts.shape(array), facts.shape(update)
    others = (d for d in range(len(sizes)) if d != axis)
    if at is None or not all(facts.same(sizes[d], window[d]) for d in others):
        return None
    pieces, ends = list(joined.operands), [ZERO]
    for piece in pieces:
        ends.append(ends[-1] + facts.shape(piece)[axis])
    first, last = (
        next((k for k, end in enumerate(ends) if facts.same(end, place)), None)
        for place in (at, at + window[axis])
    )
    if first is None and last == len(pieces) and facts.analysis.constraints.at_least(at, 0):
        rest = _without_first(pieces[0], axis, window[axis], sizes[axis], facts)
        if rest is None:
            return None
        pieces = [rest, update]
    elif first is None or last is None or first >= last:
        return None
    else:
        pieces[first:last] = [update]
    dimension = {"dimension": joined.attributes["dimension"]}
    return facts.build("stablehlo.concatenate", pieces, array.type, sizes, dimension)


def _without_first(
    piece: ir.Value, axis: int, count: Expr, size: Expr, facts: Facts
) -> ir.Value | None:
    """`x[count:]` of a `piece` `x[count mod size:]`, the first one of `x` rolled by `-count`.

    In front of its last `count` elements the rolled array has these, also where `count` is `size`.
    """
    op = defined_by(piece, "stablehlo.real_dynamic_slice")
    if op is None or not facts.same(facts.shape(op.operands[0])[axis], size):
        return None
    starts, ends, steps = (facts.contents(v) for v in op.operands[1:])
    if starts is None or ends is None or steps is None:
        return None
    begins, step = facts.same(starts[axis], count % size), facts.same(steps[axis], ONE)
    if not begins or not step or not facts.same(ends[axis], size):
        return None
    starts = (*starts[:axis], count, *starts[axis + 1 :])
    shape = tuple(size - count if d == axis else n for d, n in enumerate(facts.shape(piece)))
    bounds = [facts.shape_operand(x) for x in (starts, ends, steps)]
    return facts.build(op.name, [op.operands[0], *bounds], piece.type, shape)


def _number(size: Expr, element: ir.Type, facts: Facts) -> ir.Value:
    """A scalar that holds `size`."""
    scalar = ir.RankedTensorType.get([], element)
    if size.is_const:
        made = facts.filled(ir.IntegerAttr.get(element, size.value), scalar, ())
    else:
        made = dialect.dim(size, element)
        facts.made[made] = ()
    facts.numbers[made] = (size,)
    return made


RULES = {
    "stablehlo.dynamic_update_slice": (of_pieces,),
    "stablehlo.scatter": (at_a_place, of_rows, of_batches, of_narrow, in_order),
}

register(RulePass("fold-scatters", RULES))
