"""Ops whose number of results comes from data: where elements are not 0, and repeated rows.

    %n = reduce add of (%x != 0)
    %k = the running sum of (%x != 0) - 1        the row of each element that is found
    %y = scatter of the indices of %x at %k      [n, rank]; rows behind the last one are dropped

The compiler runs such a program in two parts, between which the size is read.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import Array
from shlo_disc.torch.bodies.call import BodyCall
from shlo_disc.torch.bodies.totals import running_sum


def nonzero(call: BodyCall) -> list[Array]:
    """`aten.nonzero`: the indices, as i64 [n, rank], in the order of the elements."""
    x, zero = call["self"], Array.constant(0, "i64")
    if 0 in x.shape:
        return [Array.constant(0, "i64", [0, x.rank])]
    row = x.differs(0).to("i64").flat()
    count = row.reduce("add", [0])
    # An element that is not found goes behind all rows.
    places = row.differs(0).where(running_sum(call, row, 0) - 1, count)
    if x.rank == 0:
        return [zero.expand([count, 0])]
    found = []
    for axis in range(x.rank):
        rows = zero.expand([count]).scatter(places, x.iota(axis).flat(), None)
        found.append(rows.reshape([count, 1]))
    return [Array.join(found, 1)]


def repeat_interleave(call: BodyCall) -> list[Array]:
    """`aten.repeat_interleave.Tensor(repeats, output_size)`: i as often as `repeats[i]` says.

    At each place, that is how many rows end before it or there.
    """
    repeats = call["repeats"].to("i64")
    is_given = call.given("output_size") is not None
    count = call.size("output_size") if is_given else repeats.reduce("add", [0])
    start = Array.constant(0, "i64").expand([count])
    ends = start.scatter(running_sum(call, repeats, 0), repeats.full(1), "add")
    return [running_sum(call, ends, 0).to(call.element)]
