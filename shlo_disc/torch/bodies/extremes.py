"""Extreme elements and their places: a NaN is the extreme one, of equal ones the first counts.

    %v = reduce maximum of %x
    %i = reduce minimum of (select (%x == %v or %x is NaN), iota, the number of elements)

torch-mlir's comparison never takes a NaN.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import constant, flat, identity, iota
from shlo_disc.ingest.size_arithmetic import reshaped, sizes_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, element_of, reduced, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall, spread


def _with_place(name: str) -> Body:
    """`aten.max.dim(self, dim, keepdim)`."""

    def body(call: BodyCall) -> list[ir.Value]:
        x = call["self"]
        rank = ir.RankedTensorType(x.type).rank
        if rank == 0:
            return [x, constant(0, "i64")]
        axis = call["dim"] % rank
        found = _extreme(x, axis, name)
        return [_kept(value, x, axis) for value in found] if call["keepdim"] else found

    return body


def _place(name: str) -> Body:
    """`aten.argmax(self, dim, keepdim)`; without `dim` of all elements in a row."""

    def body(call: BodyCall) -> list[ir.Value]:
        x, dim = call["self"], call["dim"]
        kind = ir.RankedTensorType(x.type)
        if kind.rank == 0:
            return [constant(0, "i64")]
        if dim is not None:
            axis = dim % kind.rank
            _, place = _extreme(x, axis, name)
            return [_kept(place, x, axis) if call["keepdim"] else place]
        _, place = _extreme(flat(x), 0, name)
        if call["keepdim"]:
            place = reshaped(place, [1] * kind.rank)
        return [place]

    return body


def _extreme(x: ir.Value, axis: int, name: str) -> list[ir.Value]:
    """The extreme elements along `axis`, and their places as i64."""
    rank, element = ir.RankedTensorType(x.type).rank, element_of(x)
    i64 = ir.IntegerType.get_signless(64)
    value = reduced(x, [axis], name, identity(name, element))
    others = [k for k in range(rank) if k != axis]
    is_it = compare("EQ", x, spread(value, others, x))
    if isinstance(element, ir.FloatType):
        is_it = binary("or", is_it, compare("NE", x, x))
    place = iota(sizes_of(x), axis, i64)
    behind = spread(extent(x, axis), [], place)
    place = select(is_it, place, behind)
    return [value, reduced(place, [axis], "minimum", identity("minimum", i64))]


def _kept(value: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """`value` with a dimension of size 1 at `axis`."""
    return reshaped(value, [1 if k == axis else n for k, n in enumerate(sizes_of(x))])


max_dim, min_dim = _with_place("maximum"), _with_place("minimum")
argmax, argmin = _place("maximum"), _place("minimum")
