"""fold-transposes: no transpose that a reader can do without.

    transpose (transpose %x, [1, 0]), [1, 0]                    ==>  %x
    transpose %x, dims = [0, 2, 1] : [b, 1, t] -> [b, t, 1]     ==>  dynamic_reshape %x
    dot_general %x, (transpose %w), contracting [1] x [0]       ==>  dot_general %x, %w, [1] x [1]
    multiply (transpose %x), (broadcast %s)                     ==>  transpose (multiply %x, ...)
    slice (transpose %x); reshape (transpose %x) without 1s     ==>  transpose (slice %x); ...
    dynamic_slice (transpose %x), %i, %j    ==>  transpose (dynamic_slice %x, %j, %i)

Why     A transpose of memory costs as much as reading and writing it; a dense kernel packs its
        operands anyway and reads every layout. So transposes go towards products.
Needs   `resolve-shapes`.   Keeps  every result, bit for bit.
Cost    O(transposes and dots x chain length).
Source  StableHLO spec, transpose_c3 and dot_general (the order of its result's dimensions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.ir.attributes import broadcast_dims, permutation
from shlo_disc.ir.contractions import dot_numbers, dot_sides
from shlo_disc.ir.indexing import gather_numbers
from shlo_disc.ir.mlir import ir, producer, stablehlo
from shlo_disc.passes.base import register
from shlo_disc.passes.fold_broadcasts import added_unit_dimensions
from shlo_disc.passes.op_classes import BROADCASTS, ELEMENTWISE, RESHAPES, is_splat_constant
from shlo_disc.passes.rules import Facts, RulePass, Sizes, defined_by, permuted, takes_one_window

_PER_DIMENSION = ("limit_indices", "start_indices", "strides")
"""Attributes of a slice with a number for each dimension."""


def of_nothing(op: ir.Operation, _: Facts) -> ir.Value | None:
    """transpose(x) that leaves every dimension where it is ==> x."""
    dims = permutation(op)
    return op.operands[0] if dims == sorted(dims) else None


def of_transpose(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """transpose(transpose(x)) ==> transpose(x)."""
    inner = defined_by(op.operands[0], "stablehlo.transpose")
    if inner is None:
        return None
    inner_dims = permutation(inner)
    dims = [inner_dims[d] for d in permutation(op)]
    result = op.results[0]
    return facts.build(
        op.name,
        [inner.operands[0]],
        result.type,
        facts.shape(result),
        {"permutation": ir.DenseI64ArrayAttr.get(dims)},
    )


def of_unit_dimensions(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """transpose(x) that moves only dimensions of size 1 ==> reshape(x)."""
    sizes = facts.shape(op.operands[0])
    moved = [d for d in permutation(op) if not sizes[d].is_one]
    if moved != sorted(moved):
        return None
    result = op.results[0]
    return facts.reshape(op.operands[0], result.type, facts.shape(result))


def into_dot(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """dot_general(transpose(x), y) ==> dot_general(x, y), if x's free dimensions stay in order."""
    sides = list(dot_sides(op))
    operands = list(op.operands)
    changed = False
    for side in (0, 1):
        inner = defined_by(operands[side], "stablehlo.transpose")
        if inner is None:
            continue
        dims = permutation(inner)
        moved = replace(
            sides[side],
            **{
                name: tuple(dims[d] for d in getattr(sides[side], name))
                for name in ("batch", "contracting", "free")
            },
        )
        if list(moved.free) != sorted(moved.free):
            continue
        sides[side], operands[side] = moved, inner.operands[0]
        changed = True
    if not changed:
        return None
    attributes = dict(op.attributes.items())
    left, right = sides
    attributes["dot_dimension_numbers"] = dot_numbers(
        (left.batch, right.batch), (left.contracting, right.contracting)
    )
    result = op.results[0]
    return facts.build(op.name, operands, result.type, facts.shape(result), attributes)


def over_elementwise(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """f(transpose(x), y) ==> transpose(f(x, y)), if `y` are transposes alike, or broadcasts.

    Nobody else reads the transposes: row work reads some twice, and its reductions stay behind. A
    product in another order is not moved: its kernel writes it so.
    """
    first = next((v for v in op.operands if defined_by(v, "stablehlo.transpose")), None)
    if first is None or op.name == "stablehlo.bitcast_convert" or not facts.has_one_reader(first):
        return None
    transpose = producer(first)
    assert transpose is not None
    if defined_by(transpose.operands[0], "stablehlo.dot_general"):
        return None
    dims = permutation(transpose)
    sizes = facts.shape(transpose.operands[0])
    operands: list[ir.Value] = []
    for value in op.operands:
        operand = _before(value, dims, sizes, facts)
        if operand is None:
            return None
        operands.append(operand)
    result = op.results[0]
    kind = permuted(result.type, _inverse(dims))
    made = facts.build(op.name, operands, kind, sizes, dict(op.attributes.items()))
    return facts.transpose(made, dims)


def _before(value: ir.Value, dims: Sequence[int], sizes: Sizes, facts: Facts) -> ir.Value | None:
    """What is `value` if transposed by `dims`, and has `sizes`; None if there is no cheap way."""
    if not value.type.rank:
        return value
    op = producer(value)
    if op is None:
        return None
    if (
        op.name == "stablehlo.transpose"
        and permutation(op) == list(dims)
        and facts.has_one_reader(value)
    ):
        operand: ir.Value = op.operands[0]
        return operand
    kind = permuted(value.type, _inverse(dims))
    if op.name in BROADCASTS:
        places = [dims[d] for d in broadcast_dims(op)]
        if places == sorted(places):  # emitters read a broadcast as strides
            return facts.broadcast(op.operands[0], places, kind, sizes)
    if is_splat_constant(op) and kind.has_static_shape:
        number = ir.DenseElementsAttr.get_splat(kind, op.attributes["value"].get_splat_value())
        return facts.build(op.name, [], kind, sizes, {"value": number})
    return None


def over_slice(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """slice(transpose(x)) ==> transpose(slice(x)), static, or dynamic where the sizes are known."""
    inner = defined_by(op.operands[0], "stablehlo.transpose")
    if inner is None:
        return None
    dims = permutation(inner)
    back = _inverse(dims)
    operands = [inner.operands[0]]
    attributes = dict(op.attributes.items())
    if op.name == "stablehlo.real_dynamic_slice":
        for value in op.operands[1:]:
            numbers = facts.contents(value)
            if numbers is None:
                return None
            numbers = tuple(numbers[d] for d in back)
            operands.append(facts.shape_operand(numbers, value.type.element_type))
    for name in _PER_DIMENSION:
        if name in attributes:
            given = list(ir.DenseI64ArrayAttr(attributes[name]))
            attributes[name] = ir.DenseI64ArrayAttr.get([given[d] for d in back])
    result = op.results[0]
    shape = facts.shape(result)
    kind = permuted(result.type, back)
    made = facts.build(op.name, operands, kind, tuple(shape[d] for d in back), attributes)
    return facts.transpose(made, dims)


def over_part(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """part(transpose(x)) ==> transpose(part(x)), for a window of what is computed beside it.

    What a loop does not change is transposed once, in front of it.
    """
    inner = defined_by(op.operands[0], "stablehlo.transpose")
    if inner is None or inner.block != op.block:
        return None
    source, operands = inner.operands[0], list(op.operands)
    maker = producer(source)
    if (source.owner if maker is None else maker.block) != op.block:
        return None
    dims, attributes = permutation(inner), dict(op.attributes.items())
    back = _inverse(dims)
    operands[0], new = source, dims
    if op.name == "stablehlo.dynamic_slice":
        operands[1:] = [operands[1 + d] for d in back]
    else:
        numbers = gather_numbers(op)
        if not takes_one_window(op):
            return None
        kept = [dims[k] for k in numbers.kept_dims(len(dims))]
        new = [sorted(kept).index(d) for d in kept]
        attributes["dimension_numbers"] = stablehlo.GatherDimensionNumbers.get(
            list(numbers.window_dims),
            sorted(dims[k] for k in numbers.collapsed_dims),
            [],
            [],
            [dims[k] for k in numbers.indexed_dims],
            numbers.index_vector_dim,
        )
    if "slice_sizes" in attributes:
        given = list(ir.DenseI64ArrayAttr(attributes["slice_sizes"]))
        attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get([given[d] for d in back])
    else:
        sizes = facts.contents(operands[2])
        if sizes is None:
            return None
        element = operands[2].type.element_type
        operands[2] = facts.shape_operand(tuple(sizes[d] for d in back), element)
    result, order = op.results[0], _inverse(new)
    shape = tuple(facts.shape(result)[d] for d in order)
    made = facts.build(op.name, operands, permuted(result.type, order), shape, attributes)
    return facts.transpose(made, new)


def over_lost_units(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(transpose(x)) that only drops dimensions of size 1 ==> transpose(reshape(x))."""
    inner = defined_by(op.operands[0], "stablehlo.transpose")
    if inner is None:
        return None
    result = op.results[0]
    shape, whole = facts.shape(result), facts.shape(inner.results[0])
    kept = added_unit_dimensions(shape, whole, facts)
    if kept is None or len(shape) == len(whole):
        return None
    dims = permutation(inner)
    sources = sorted(dims[k] for k in kept)
    new = [sources.index(dims[k]) for k in kept]
    kind = permuted(result.type, _inverse(new))
    small = facts.reshape(inner.operands[0], kind, tuple(shape[k] for k in _inverse(new)))
    return facts.transpose(small, new)


def _inverse(dims: Sequence[int]) -> list[int]:
    return [dims.index(d) for d in range(len(dims))]


RULES = {
    "stablehlo.dot_general": (into_dot,),
    "stablehlo.real_dynamic_slice": (over_slice,),
    "stablehlo.slice": (over_slice,),
    **dict.fromkeys(
        ("stablehlo.dynamic_slice", "stablehlo.gather", "stablehlo.dynamic_gather"), (over_part,)
    ),
    **dict.fromkeys(sorted(ELEMENTWISE), (over_elementwise,)),
    **dict.fromkeys(sorted(RESHAPES), (over_lost_units,)),
    "stablehlo.transpose": (of_nothing, of_transpose, of_unit_dimensions),
}

FOLD_TRANSPOSES = register(RulePass("fold-transposes", RULES))
