"""Ops whose number of results comes from data: where elements are not 0, and repeated rows.

    %n = reduce add of (%x != 0)
    %k = the running sum of (%x != 0) - 1        the row of each element that is found
    %y = scatter of the indices of %x at %k      [n, rank]; rows behind the last one are dropped

The compiler runs such a program in two parts, between which the size is read.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import broadcast_to, constant, converted, flat, iota, joined
from shlo_disc.ingest.size_arithmetic import reshaped, sizes_of
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import compare, element_of, reduced, scattered, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread
from shlo_disc.torch.bodies.totals import running_sum


def nonzero(call: BodyCall) -> list[ir.Value]:
    """`aten.nonzero`: the indices, as i64 [n, rank], in the order of the elements."""
    x = call["self"]
    kind = ir.RankedTensorType(x.type)
    i64 = ir.IntegerType.get_signless(64)
    zero = constant(0, i64)
    none = spread(constant(0, element_of(x)), [], x)
    is_found = compare("NE", x, none)
    if 0 in kind.shape:
        return [constant(0, i64, [0, kind.rank])]
    row = flat(converted(is_found, i64))
    count = reduced(row, [0], "add", zero)
    # An element that is not found goes behind all rows.
    places = binary("subtract", running_sum(call, row, 0), spread(constant(1, i64), [], row))
    yes = compare("NE", row, spread(zero, [], row))
    places = select(yes, places, spread(count, [], row))
    if kind.rank == 0:
        return [broadcast_to(zero, [], [count, 0])]
    found = []
    for axis in range(kind.rank):
        index = flat(iota(sizes_of(x), axis, i64))
        rows = scattered(broadcast_to(zero, [], [count]), places, index, None)
        found.append(reshaped(rows, [count, 1]))
    return [joined(found, 1)]


def repeat_interleave(call: BodyCall) -> list[ir.Value]:
    """`aten.repeat_interleave.Tensor(repeats, output_size)`: i as often as `repeats[i]` says.

    At each place, that is how many rows end before it or there.
    """
    i64 = ir.IntegerType.get_signless(64)
    repeats, zero = converted(call["repeats"], i64), constant(0, i64)
    is_given = call.given("output_size") is not None
    count = call.size("output_size") if is_given else reduced(repeats, [0], "add", zero)
    start = broadcast_to(zero, [], [count])
    one = spread(constant(1, i64), [], repeats)
    ends = scattered(start, running_sum(call, repeats, 0), one, "add")
    result = ir.RankedTensorType(call.results[0]).element_type
    return [converted(running_sum(call, ends, 0), result)]
