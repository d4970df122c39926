"""fold-reshapes: one reshape at most between two computations.

    dynamic_reshape (dynamic_reshape %x, %s), %t  ==>  dynamic_reshape %x, %t
    dynamic_reshape %x, (the shape of %x)         ==>  %x
    reshape (broadcast of a scalar)               ==>  broadcast of that scalar
    dot_general (reshape %x : [b, t, k] -> [b*t, k]), %w
        ==>  reshape (dot_general %x, %w : [b, t, n]) : [b*t, n]

Why     A reshape is free between kernels but ends fusion when its shapes do not line up; `vmap`
        and `einsum` leave pairs that undo each other. PyTorch multiplies matrices of rank 2 and 3
        only; so a product gets the dimensions back that were merged before it.
Needs   `resolve-shapes` (guards hold the element counts from then on).
Keeps   every result, bit for bit.   Cost  O(reshapes x chain length).
Source  StableHLO spec, reshape_c1 and dynamic_reshape: elements keep their row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.attributes import broadcast_dims
from shlo_disc.ir.contractions import dot_numbers, dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.op_classes import BROADCASTS, ELEMENTWISE, RESHAPES
from shlo_disc.passes.rules import Facts, RulePass, Sizes, defined_by


def to_same_shape(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(x) to x's own shape ==> x."""
    operand = op.operands[0]
    if facts.same_shape(facts.shape(operand), facts.shape(op.results[0])):
        return operand
    return None


def of_reshape(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(reshape(x)) ==> reshape(x)."""
    inner = defined_by(op.operands[0], *RESHAPES)
    if inner is None:
        return None
    result = op.results[0]
    return facts.reshape(inner.operands[0], result.type, facts.shape(result))


def of_scalar_broadcast(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(broadcast(scalar)) ==> broadcast(scalar)."""
    inner = defined_by(op.operands[0], *BROADCASTS)
    if inner is None or inner.operands[0].type.rank != 0:
        return None
    result = op.results[0]
    return facts.broadcast(inner.operands[0], [], result.type, facts.shape(result))


def of_splat(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """reshape(one repeated number), static ==> that number, repeated.

    With sizes of the run time it would be a broadcast, which fold-broadcasts makes a reshape again
    where all sizes are 1.
    """
    element, result = facts.splat_element(op.operands[0]), op.results[0]
    if element is None or not result.type.has_static_shape:
        return None
    return facts.filled(element, result.type, facts.shape(result))


@dataclass(frozen=True)
class _Merged:
    """An operand of a product that merges dimensions of another value."""

    value: ir.Value
    """The value before dimensions were merged."""
    factors: list[Sizes]
    """For each dimension of the operand the sizes it is a product of, without those that are 1."""


def _merged(operand: ir.Value, facts: Facts) -> _Merged:
    shape = facts.shape(operand)
    inner = defined_by(operand, *RESHAPES)
    factors = None if inner is None else _factors(facts.shape(inner.operands[0]), shape, facts)
    if inner is None or factors is None:
        return _Merged(operand, [(size,) for size in shape])
    return _Merged(inner.operands[0], factors)


def _factors(sizes: Sizes, merged: Sizes, facts: Facts) -> list[Sizes] | None:
    """Which of `sizes`, in order, make up each of `merged`; None if some are split instead."""
    found: list[Sizes] = []
    rest = [size for size in sizes if not size.is_one]
    for product in merged:
        taken: list[Expr] = []
        while not facts.same(Expr.product(taken), product):
            if not rest:
                return None
            taken.append(rest.pop(0))
        found.append(tuple(taken))
    return None if rest else found


def _tensor(sizes: Sequence[Expr], element: ir.Type) -> ir.Type:
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([s.value if s.is_const else dynamic for s in sizes], element)


def into_dot(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """dot_general(reshape(x), y) ==> reshape(dot_general(x, y)), if the reshape merges dimensions.

    Batch dimensions are split where both sides can be, and rows of products without any: those of
    an attention have one dimension of keys. The innermost dimension of an operand stays whole, as
    kernels read it, and so do sums.
    """
    sides = dot_sides(op)
    merged = [_merged(value, facts) for value in op.operands]
    for m, side, value in zip(merged, sides, op.operands, strict=True):
        rows = side.free if side.batch else ()
        last = range(value.type.rank)[-1:]
        for d in {*side.contracting, *rows, *last}:
            m.factors[d] = (facts.shape(value)[d],)
    for left, right in zip(sides[0].batch, sides[1].batch, strict=True):
        ways = _common(merged[0].factors[left], merged[1].factors[right], facts)
        merged[0].factors[left], merged[1].factors[right] = ways
    if all(len(ways) <= 1 for m in merged for ways in m.factors):
        return None
    element = op.results[0].type.element_type
    operands, batches, contractings = [], [], []
    sizes = [way for d in sides[0].batch for way in merged[0].factors[d] or (Expr.const(1),)]
    for m, side in zip(merged, sides, strict=True):
        places = _places(m.factors)
        shape = [way for ways in m.factors for way in ways or (Expr.const(1),)]
        operand = m.value
        if not facts.same_shape(facts.shape(operand), tuple(shape)):
            kind = _tensor(shape, operand.type.element_type)
            operand = facts.reshape(operand, kind, tuple(shape))
        operands.append(operand)
        batches.append([p for d in side.batch for p in places[d]])
        contractings.append([p for d in side.contracting for p in places[d]])
        sizes += [shape[p] for d in side.free for p in places[d]]
    attributes = dict(op.attributes.items())
    attributes["dot_dimension_numbers"] = dot_numbers(
        (batches[0], batches[1]), (contractings[0], contractings[1])
    )
    product = facts.build(op.name, operands, _tensor(sizes, element), tuple(sizes), attributes)
    return facts.reshape(product, op.results[0].type, facts.shape(op.results[0]))


def _common(left: Sizes, right: Sizes, facts: Facts) -> tuple[Sizes, Sizes]:
    """Two products that are equal, with the factors of each joined until they are equal, too."""
    found: tuple[list[Expr], list[Expr]] = [], []
    i = j = 0
    for end in range(1, len(left) + 1):
        ours = Expr.product(left[i:end])
        for stop in range(j + 1, len(right) + 1):
            theirs = Expr.product(right[j:stop])
            if facts.same(ours, theirs):
                found[0].append(ours)
                found[1].append(theirs)
                i, j = end, stop
                break
    if (i, j) == (len(left), len(right)):
        return tuple(found[0]), tuple(found[1])
    return (Expr.product(left),), (Expr.product(right),)


def over_elementwise(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """f(reshape(x), y) ==> reshape(f(x, y)), if x is the only operand that is no splat.

    If the reshape merges dimensions, other operands may be reshaped alike, or be broadcasts along
    dimensions that are not merged. Nobody else reads the reshaped values: row work reads some
    twice, and its reductions stay behind the reshape.
    """
    shape = facts.shape(op.results[0])
    whole = [v for v in op.operands if v.type.rank == len(shape)]
    found = ((v, defined_by(v, *RESHAPES)) for v in whole)
    first, inner = next(((v, op) for v, op in found if op is not None), (None, None))
    if first is None or inner is None or not shape or op.name == "stablehlo.bitcast_convert":
        return None
    if not facts.has_one_reader(first):
        return None
    merged = _merged(first, facts)
    source = inner.operands[0]
    if all(v == first or facts.splat(v) is not None for v in op.operands):
        sizes, places = facts.shape(source), None
    elif any(len(ways) > 1 for ways in merged.factors):
        sizes = tuple(way for ways in merged.factors for way in ways or (Expr.const(1),))
        places = _places(merged.factors)
    else:
        return None
    operands: list[ir.Value] = []
    for value in op.operands:
        operand = _before(value, sizes, places, facts)
        if operand is None:
            return None
        operands.append(operand)
    result = op.results[0]
    kind = _tensor(sizes, result.type.element_type)
    made = facts.build(op.name, operands, kind, sizes, dict(op.attributes.items()))
    return facts.reshape(made, result.type, shape)


def _places(factors: Sequence[Sizes]) -> list[range]:
    """Where the sizes are that each dimension is a product of; one of size 1 if there are none."""
    places: list[range] = []
    for ways in factors:
        first = places[-1].stop if places else 0
        places.append(range(first, first + max(len(ways), 1)))
    return places


def _before(
    value: ir.Value, sizes: Sizes, places: Sequence[range] | None, facts: Facts
) -> ir.Value | None:
    """`value`, which has `sizes` reshaped, in these sizes; None if there is no cheap way.

    `places`: see `_places`; None where only splats and the reshaped value itself are asked for.
    """
    if not value.type.rank:
        return value
    kind = _tensor(sizes, value.type.element_type)
    if (element := facts.splat_element(value)) is not None:
        return facts.filled(element, kind, sizes)
    broadcast = defined_by(value, *BROADCASTS)
    if broadcast is not None and places is not None:
        dims = broadcast_dims(broadcast)
        if any(len(places[d]) > 1 for d in dims):
            return None
        return facts.broadcast(broadcast.operands[0], [places[d][0] for d in dims], kind, sizes)
    reshape = defined_by(value, *RESHAPES)
    if reshape is None or not facts.has_one_reader(value):
        return None
    source = reshape.operands[0]
    if facts.same_shape(facts.shape(source), sizes):
        return source
    alike = places is not None and facts.same_shape(
        tuple(way for ways in _merged(value, facts).factors for way in ways or (Expr.const(1),)),
        sizes,
    )
    return facts.reshape(source, kind, sizes) if alike else None


_ALL = (to_same_shape, of_reshape, of_scalar_broadcast, of_splat)
RULES = {
    "stablehlo.dot_general": (into_dot,),
    **dict.fromkeys(sorted(ELEMENTWISE), (over_elementwise,)),
    **dict.fromkeys(sorted(RESHAPES), _ALL),
}

register(RulePass("fold-reshapes", RULES))
