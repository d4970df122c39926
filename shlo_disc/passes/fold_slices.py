"""fold-slices: a column of what is computed column by column is computed by itself.

    slice (add %x, (transpose (multiply %h, (concatenate %a [1, n], %b [1, n])))) [:, 1:2]
==> add (slice %x [:, 1:2]), (multiply (slice %h [1:2, :]), %b)            all reshaped to [n]

Why     Integrators of a batch of states (`vmap` of Runge-Kutta) stack the derivatives, step, and
        take the columns apart again. Column by column all stages are one kernel of vectors. As a
        whole each stage is written to memory, because a slice reads it at other places.
Needs   `resolve-shapes`, and gathers at known places as slices (`fold-gathers`).
Keeps   every result. Work: elements that several operations read are computed once, as before.
Cost    O(operations between a slice and the concatenation) for each slice.
Source  StableHLO spec, slice and concatenate.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.attributes import broadcast_dims, permutation
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.base import register
from shlo_disc.passes.fold_gathers import slice_of
from shlo_disc.passes.fold_scatters import lesser, lesser_type, unit_dims_moved
from shlo_disc.passes.op_classes import BROADCASTS, ELEMENTWISE, IOTAS, RESHAPES
from shlo_disc.passes.rules import Facts, RulePass

MOST_COLUMNS = 8
"""Columns of a value that is taken apart."""

_SLICES = ("stablehlo.real_dynamic_slice", "stablehlo.slice")
_PRODUCTS = ("stablehlo.convolution", "stablehlo.dot_general")
_ZERO, _ONE = Expr.const(0), Expr.const(1)


class _Column(NamedTuple):
    """One index of one dimension of a value."""

    dim: int
    place: int


def of_columns(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Column of a value that a concatenation of columns leads to ==> what it is computed from."""
    value, column = op.operands[0], _column_of(op, facts)
    if column is None or not _leads(value, column, facts, set()):
        return None
    result = op.results[0]
    return facts.reshape(_taken(value, column, facts), result.type, facts.shape(result))


def _column_of(op: ir.Operation, facts: Facts) -> _Column | None:
    """The column that a slice takes; None where it takes anything else."""
    if op.name == "stablehlo.slice":
        names = ("start_indices", "limit_indices", "strides")
        starts, ends, steps = (
            tuple(map(Expr.const, ir.DenseI64ArrayAttr(op.attributes[name]))) for name in names
        )
    else:
        found = [facts.contents(v) for v in op.operands[1:]]
        if None in found:
            return None
        starts, ends, steps = (x or () for x in found)
    sizes, column = facts.shape(op.operands[0]), None
    for d, (start, end, step, size) in enumerate(zip(starts, ends, steps, sizes, strict=True)):
        if start == _ZERO and step == _ONE and facts.same(end, size):
            continue
        one = start.is_const and end.is_const and end.value == start.value + 1
        few = size.is_const and size.value <= MOST_COLUMNS
        if column is not None or not one or not few:
            return None
        column = _Column(d, start.value)
    return column


def _leads(value: ir.Value, column: _Column, facts: Facts, inside: set[ir.Value]) -> bool:
    """True if a concatenation gives the column, perhaps by operations that nobody else needs whole.

    `inside`: values that are part of one that is taken apart.
    """
    op = producer(value)
    if op is None:
        return False
    if op.name == "stablehlo.concatenate":
        return not _is_stored(value, op.block) and _piece(op, column, facts) is not None
    if op.name == "stablehlo.transpose" or op.name in RESHAPES:
        below = _below(op, column, facts)
        return below is not None and _leads(op.operands[0], below, facts, inside | {value})
    if op.name not in ELEMENTWISE or not _is_read_in_columns(value, column.dim, facts, inside):
        return False
    inside = inside | {value}
    leads = [_leads(v, column, facts, inside) for v in op.operands if v.type.rank]
    others = [v for v in op.operands if v.type.rank]
    return any(leads) and all(
        found or _is_at_hand(v, facts, inside) for found, v in zip(leads, others, strict=True)
    )


def _is_read_in_columns(value: ir.Value, dim: int, facts: Facts, inside: set[ir.Value]) -> bool:
    """True if all that reads `value` are slices of columns, or operations that are taken apart."""
    for use in value.uses:
        reader = use.owner.operation
        if reader in facts.dead or any(result in inside for result in reader.results):
            continue
        if reader.name == "stablehlo.transpose":
            turned = permutation(reader).index(dim)
            if _is_read_in_columns(reader.results[0], turned, facts, inside):
                continue
            return False
        column = _column_of(reader, facts) if reader.name in _SLICES else None
        if column is None or column.dim != dim:
            return False
    return True


def _is_stored(value: ir.Value, block: ir.Block) -> bool:
    """True if a product or a region reads `value`, which then is in memory: columns are cheap."""
    for use in value.uses:
        reader = use.owner.operation
        if reader.block != block or reader.name in _PRODUCTS:
            return True
        is_same = reader.name == "stablehlo.transpose" or reader.name in RESHAPES
        if is_same and _is_stored(reader.results[0], block):
            return True
    return False


def _is_at_hand(value: ir.Value, facts: Facts, inside: set[ir.Value]) -> bool:
    """True if a column of `value` is a load, or as cheap as one: it is in memory, or a number."""
    op = producer(value)
    if op is None or facts.splat_element(value) is not None or op.name in IOTAS:
        return True
    if op.name in (*BROADCASTS, *RESHAPES, *_SLICES, "stablehlo.transpose"):
        return _is_at_hand(op.operands[0], facts, inside)
    if op.name == "stablehlo.dynamic_slice":
        return True
    if op.name not in ELEMENTWISE or any(
        use.owner.operation not in facts.dead
        and not any(result in inside for result in use.owner.operation.results)
        for use in value.uses
    ):
        return False
    return all(_is_at_hand(v, facts, inside | {value}) for v in op.operands)


def _piece(op: ir.Operation, column: _Column, facts: Facts) -> tuple[ir.Value, int] | None:
    """The operand of a concatenation that has the column, and its place there."""
    if int(ir.IntegerAttr(op.attributes["dimension"])) != column.dim:
        return None
    place = column.place
    for piece in op.operands:
        size = facts.shape(piece)[column.dim]
        if not size.is_const:
            return None
        if place < size.value:
            return piece, place
        place -= size.value
    return None


def _below(op: ir.Operation, column: _Column, facts: Facts) -> _Column | None:
    """The column of the operand of a transpose or reshape."""
    if op.name == "stablehlo.transpose":
        return column._replace(dim=permutation(op)[column.dim])
    inner = {own: inner for inner, own in unit_dims_moved(op, facts).items()}.get(column.dim)
    return None if inner is None else column._replace(dim=inner)


def _taken(value: ir.Value, column: _Column, facts: Facts) -> ir.Value:
    """The column of `value`, without its dimension."""
    op, d = producer(value), column.dim
    shape, kind = lesser(facts.shape(value), d), lesser_type(value.type, d)
    element = facts.splat_element(value)
    if element is not None:
        return facts.filled(element, kind, shape)
    if op is not None and op.name == "stablehlo.concatenate":
        found = _piece(op, column, facts)
        if found is not None:
            piece, place = found
            if not facts.shape(piece)[d].is_one:
                piece = _sliced(piece, column._replace(place=place), facts)
            return facts.reshape(piece, kind, shape)
    elif op is not None and (op.name == "stablehlo.transpose" or op.name in RESHAPES):
        below = _below(op, column, facts)
        if below is not None:
            inner = _taken(op.operands[0], below, facts)
            if op.name in RESHAPES:
                return inner if inner.type == kind else facts.reshape(inner, kind, shape)
            order = [k - (k > below.dim) for k in permutation(op) if k != below.dim]
            return inner if order == sorted(order) else facts.transpose(inner, order)
    elif op is not None and op.name in ELEMENTWISE:
        operands = [_taken(v, column, facts) if v.type.rank else v for v in op.operands]
        return facts.build(op.name, operands, kind, shape, dict(op.attributes.items()))
    elif op is not None and op.name in BROADCASTS:
        inner, dims = op.operands[0], broadcast_dims(op)
        if d in dims:
            own = dims.index(d)
            if facts.shape(inner)[own].is_one:
                less = lesser_type(inner.type, own)
                inner = facts.reshape(inner, less, lesser(facts.shape(inner), own))
            else:
                inner = _taken(inner, column._replace(dim=own), facts)
        return facts.broadcast(inner, [k - (k > d) for k in dims if k != d], kind, shape)
    return facts.reshape(_sliced(value, column, facts), kind, shape)


def _sliced(value: ir.Value, column: _Column, facts: Facts) -> ir.Value:
    """The column of `value`, loaded from it, with a size of 1 in its place."""
    sizes, d = facts.shape(value), column.dim
    starts, ends, steps = [_ZERO] * len(sizes), list(sizes), [_ONE] * len(sizes)
    starts[d], ends[d] = Expr.const(column.place), Expr.const(column.place + 1)
    declared = [1 if k == d else n for k, n in enumerate(value.type.shape)]
    kind = ir.RankedTensorType.get(declared, value.type.element_type)
    shape = (*sizes[:d], _ONE, *sizes[d + 1 :])
    return slice_of(value, starts, ends, steps, kind, shape, facts)


RULES = dict.fromkeys(_SLICES, (of_columns,))

register(RulePass("fold-slices", RULES))
