"""Where elements are among others: sorted ones, boundaries, the largest, distinct ones.

    %i = LowerBound(%sorted [b, n], %values [b, m])
    ==>
    %t = compare LT, %sorted as [b, m, n], %values as [b, m, n]
    %i = reduce add of %t along the last dimension

The comparisons are part of the kernel of the sum, so none is stored.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, converted, iota, taken
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.region_ops import running, sorted_with_places
from shlo_disc.ingest.size_arithmetic import size_of, sizes_of, value_of
from shlo_disc.ingest.size_values import Sizes, binary
from shlo_disc.ir.builders import compare, create, element_of, select, summed
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.scattering import places_of, scattered
from shlo_disc.tensorflow.ops.values import module_of, result

Values = list[ir.Value]


def bound(direction: str) -> Rule:
    """`LowerBound(sorted_inputs, values)`, with `LT`; `UpperBound`, with `LE`."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        row, values = op.operands
        (batch, count), wanted = sizes_of(row), size_of(values, 1)
        full = [batch, wanted, count]
        a, b = broadcast_to(row, [0, 2], full), broadcast_to(values, [0, 1], full)
        return [summed(converted(compare(direction, a, b), result(op).element_type), [2])]

    return rule


def bucketize(sizes: Sizes, op: ir.Operation) -> Values:
    """`Bucketize(input)`: how many of the boundaries are not above each element."""
    array = op.operands[0]
    found = broadcast_to(constant(0, "i32"), [], sizes_of(array))
    element = element_of(array)
    # Boundaries are floats: of integers, too.
    inner = element if isinstance(element, ir.FloatType) else ir.F32Type.get()
    numbers = converted(array, inner)
    for number in ir.ArrayAttr(op.attributes["boundaries"]):
        edge = broadcast_to(constant(ir.FloatAttr(number).value, inner), [], sizes_of(array))
        found = binary("add", found, converted(compare("LE", edge, numbers), "i32"))
    return [found]


def in_top_k(sizes: Sizes, op: ir.Operation) -> Values:
    """`InTopKV2(predictions, targets, k)`: fewer than k are above the target's, which is finite."""
    scores, targets, k = op.operands
    own = sizes_of(scores)
    rows = own[0]
    zero = constant(0, element_of(scores))
    is_target = compare("EQ", iota(own, 1, element_of(targets)), broadcast_to(targets, [0], own))
    zeros = broadcast_to(zero, [], own)
    score = summed(select(is_target, scores, zeros), [1])
    above = summed(converted(compare("LT", broadcast_to(score, [0], own), scores), "i32"), [1])
    few = compare("LT", above, broadcast_to(converted(k, "i32"), [], [rows]))
    finite = [
        create("stablehlo.is_finite", [score], few.type),
        compare("LT", broadcast_to(constant(0, "i32"), [], [rows]),
               summed(converted(is_target, "i32"), [1])),
    ]  # fmt: skip
    return [binary("and", binary("and", few, finite[0]), finite[1])]


def unique(*, has_counts: bool) -> Rule:
    """`Unique(x)`, `UniqueWithCounts(x)`: distinct elements in the order of the first of each.

    Equal elements are neighbours when sorted, the first one in front. Data tells how many.
    """

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        (array,) = op.operands
        if ir.RankedTensorType(array.type).rank != 1:
            raise UnsupportedError("an array of several dimensions")
        module = module_of(op)
        own = sizes_of(array)
        place = iota(own, 0, "i32")
        ordered, places = _sorted(array, place)
        zero, one = (broadcast_to(constant(n, "i32"), [], own) for n in (0, 1))
        before = create("stablehlo.maximum", [binary("subtract", place, one), zero], place.type)
        is_new = compare("NE", ordered, taken(ordered, before, 0))
        is_new = binary("or", is_new, compare("EQ", place, zero))
        start = select(is_new, place, zero)
        start = running(module, start, 0, "maximum", constant(0, "i32"))
        first = scattered(zero, places, taken(places, start, 0), None)  # of each, its first equal
        is_first = compare("EQ", first, place)
        number = running(module, converted(is_first, "i32"), 0, "add", constant(0, "i32"))
        index = taken(binary("subtract", number, one), first, 0)
        found = places_of(module, is_first)
        wide = result(op, 1).element_type
        values = [taken(array, found, 0), converted(index, wide)]
        if has_counts:
            base = broadcast_to(constant(0, "i32"), [], [value_of(size_of(found, 0))])
            values.append(converted(scattered(base, index, one, "add"), wide))
        return values

    return rule


def _sorted(array: ir.Value, place: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A vector sorted, and the place of each element; NaNs are at the ends, all zeros equal."""
    truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
    if not isinstance(element_of(array), ir.FloatType):
        return sorted_with_places(array, place, 0, lambda a, b: compare("LT", a, b))
    zeros = broadcast_to(constant(0, element_of(array)), [], sizes_of(array))
    array = select(compare("EQ", array, zeros), zeros, array)

    def comes_before(a: ir.Value, b: ir.Value) -> ir.Value:
        return create(
            "stablehlo.compare",
            [a, b],
            truth,
            comparison_direction=ir.Attribute.parse("#stablehlo<comparison_direction LT>"),
            compare_type=ir.Attribute.parse("#stablehlo<comparison_type TOTALORDER>"),
        )

    return sorted_with_places(array, place, 0, comes_before)
