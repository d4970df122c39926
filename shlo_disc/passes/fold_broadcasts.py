"""fold-broadcasts: a broadcast reads the value it spreads, not a spread or padded copy of it.

    %1 = reshape %w : 768 -> 1x1x768
    %2 = dynamic_broadcast_in_dim %1, [b, t, 768], dims = [0, 1, 2]
    ==>
    %2 = dynamic_broadcast_in_dim %w, [b, t, 768], dims = [2]

    dot_general %x, (broadcast %w along batch dimension 0)  ==>  dot_general %x, %w
    dot_general %x, (reshape %w : 8x16 -> 1x8x16)           ==>  dot_general %x, %w

Why     JAX spells `x + w` as reshape, broadcast, broadcast; kernels want to read `w` at index k.
        PyTorch spells the product of a batch with a matrix as one of two batches.
Needs   `resolve-shapes`.   Keeps  every result, bit for bit.
Cost    O(broadcasts x chain length).
Source  StableHLO spec, broadcast_in_dim: result[i] = operand[j] with j[d] = 0 where operand's
        size d is 1, else i[dims[d]].
"""

from __future__ import annotations

from shlo_disc.ir.attributes import broadcast_dims
from shlo_disc.ir.contractions import dot_numbers, dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.op_classes import BROADCASTS, RESHAPES
from shlo_disc.passes.rules import Facts, RulePass, Sizes, defined_by


def of_same_shape(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """broadcast(x) of x's own shape, dimensions in order ==> x."""
    operand = op.operands[0]
    shape, result = facts.shape(operand), facts.shape(op.results[0])
    if len(shape) != len(result) or broadcast_dims(op) != list(range(len(shape))):
        return None
    return operand if facts.same_shape(shape, result) else None


def of_units_only(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """broadcast(x) that only adds dimensions of size 1 ==> reshape(x), which is no kernel."""
    operand, result = op.operands[0], op.results[0]
    shape = facts.shape(operand)
    kept, dims = facts.shape(result), broadcast_dims(op)
    if not all(size.is_one for d, size in enumerate(kept) if d not in dims):
        return None
    if dims != sorted(dims) or not facts.same_shape(shape, tuple(kept[d] for d in dims)):
        return None
    return facts.reshape(operand, result.type, kept)


def of_broadcast(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """broadcast(broadcast(x)) ==> broadcast(x)."""
    inner = defined_by(op.operands[0], *BROADCASTS)
    if inner is None:
        return None
    outer_dims = broadcast_dims(op)
    dims = [outer_dims[d] for d in broadcast_dims(inner)]
    return _spread(op, inner.operands[0], dims, facts)


def of_added_unit_dimensions(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """broadcast(reshape(x)) where the reshape only adds dimensions of size 1 ==> broadcast(x)."""
    inner = defined_by(op.operands[0], *RESHAPES)
    if inner is None:
        return None
    places = added_unit_dimensions(
        facts.shape(inner.operands[0]), facts.shape(inner.results[0]), facts
    )
    if places is None:
        return None
    outer_dims = broadcast_dims(op)
    return _spread(op, inner.operands[0], [outer_dims[p] for p in places], facts)


def added_unit_dimensions(small: Sizes, large: Sizes, facts: Facts) -> list[int] | None:
    """Where each dimension of `small` is in `large`, when all others of `large` are 1; else None.

    The first fit is right. A size that is not 1 may match at two places; skipping the first would
    leave a dimension that is not 1.
    """
    places: list[int] = []
    for axis, size in enumerate(large):
        if len(places) < len(small) and facts.same(small[len(places)], size):
            places.append(axis)
        elif not size.is_one:
            return None
    return places if len(places) == len(small) else None


def _spread(op: ir.Operation, source: ir.Value, dims: list[int], facts: Facts) -> ir.Value | None:
    # Emitters read a broadcast as strides; dimensions out of order would be a transpose as well.
    if dims != sorted(dims):
        return None
    result = op.results[0]
    if op.name == "stablehlo.dynamic_broadcast_in_dim":
        attributes = {"broadcast_dimensions": ir.DenseI64ArrayAttr.get(dims)}
        if not (result.type.has_static_shape and source.type.has_static_shape):
            return facts.build(
                op.name,
                [source, op.operands[1]],
                result.type,
                facts.shape(result),
                attributes,
            )
    return facts.broadcast(source, dims, result.type, facts.shape(result))


def into_dot(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """dot_general(x, broadcast(y)) along a batch dimension ==> dot_general(x, y).

    The batch dimension becomes one of the rows, so the result must have its dimensions in the same
    order. A reshape that adds batch dimensions of size 1 is such a broadcast.
    """
    sides = dot_sides(op)
    for k, side in enumerate(sides):
        inner = defined_by(op.operands[k], *BROADCASTS, *RESHAPES)
        if inner is None:
            continue
        if inner.name in BROADCASTS:
            dims = broadcast_dims(inner)
        else:
            dims = [d for d in range(inner.results[0].type.rank) if d not in side.batch]
            if not all(facts.shape(inner.results[0])[d].is_one for d in side.batch):
                continue
        added = [d for d in side.batch if d not in dims]
        # All batch dimensions go, so those of the other side stay before its rows.
        if not added or len(added) != len(side.batch) or k == 0:
            continue
        other = sides[1 - k]
        if other.batch != tuple(range(len(other.batch))) or dims != sorted(dims):
            continue
        if any(d not in dims for d in (*side.free, *side.contracting)):
            continue
        small = inner.operands[0]
        if not facts.same_shape(
            facts.shape(small), tuple(facts.shape(op.operands[k])[d] for d in dims)
        ):
            continue
        attributes = dict(op.attributes.items())
        attributes["dot_dimension_numbers"] = dot_numbers(
            ((), ()), (other.contracting, [dims.index(d) for d in side.contracting])
        )
        result = op.results[0]
        return facts.build(
            op.name, [op.operands[0], small], result.type, facts.shape(result), attributes
        )
    return None


_ALL = (of_same_shape, of_units_only, of_broadcast, of_added_unit_dimensions)
RULES = {"stablehlo.dot_general": (into_dot,), **dict.fromkeys(BROADCASTS, _ALL)}

register(RulePass("fold-broadcasts", RULES))
