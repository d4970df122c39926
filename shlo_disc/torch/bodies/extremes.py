"""Extreme elements and their places: a NaN is the extreme one, of equal ones the first counts.

    %v = reduce maximum of %x
    %i = reduce minimum of (select (%x == %v or %x is NaN), iota, the number of elements)

torch-mlir's comparison never takes a NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.ir.builders import compare, create, reduced
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import (
    Body,
    BodyCall,
    constant,
    element_of,
    highest,
    iota,
    lowest,
    spread,
    typed,
)

_Start = Callable[[ir.Type], ir.Value]


def _with_place(name: str, start: _Start) -> Body:
    """`aten.max.dim(self, dim, keepdim)`."""

    def body(call: BodyCall) -> list[ir.Value]:
        x = call["self"]
        rank = ir.RankedTensorType(x.type).rank
        if rank == 0:
            return [x, constant(0, [], "i64")]
        axis = call["dim"] % rank
        found = _extreme(x, axis, name, start)
        return [_kept(value, x, axis) for value in found] if call["keepdim"] else found

    return body


def _place(name: str, start: _Start) -> Body:
    """`aten.argmax(self, dim, keepdim)`; without `dim` of all elements in a row."""

    def body(call: BodyCall) -> list[ir.Value]:
        x, dim = call["self"], call["dim"]
        kind = ir.RankedTensorType(x.type)
        if kind.rank == 0:
            return [constant(0, [], "i64")]
        if dim is not None:
            axis = dim % kind.rank
            _, place = _extreme(x, axis, name, start)
            return [_kept(place, x, axis) if call["keepdim"] else place]
        _, place = _extreme(_flat(x), 0, name, start)
        if call["keepdim"]:
            sizes = vector([constant(1, [], "i64")] * kind.rank)
            wanted = ir.RankedTensorType.get([1] * kind.rank, element_of(place))
            place = create("stablehlo.dynamic_reshape", [place, sizes], wanted)
        return [place]

    return body


def _extreme(x: ir.Value, axis: int, name: str, start: _Start) -> list[ir.Value]:
    """The extreme elements along `axis`, and their places as i64."""
    rank, element = ir.RankedTensorType(x.type).rank, element_of(x)
    i64 = ir.IntegerType.get_signless(64)
    value = reduced(x, [axis], name, start(element))
    truth = typed(x, ir.IntegerType.get_signless(1))
    others = [k for k in range(rank) if k != axis]
    is_it = compare("EQ", x, spread(value, others, x), truth)
    if isinstance(element, ir.FloatType):
        is_it = binary("or", is_it, compare("NE", x, x, truth))
    place = iota(x, axis, i64)
    behind = spread(extent(x, axis), [], place)
    place = create("stablehlo.select", [is_it, place, behind], place.type)
    return [value, reduced(place, [axis], "minimum", highest(i64))]


def _kept(value: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """`value` with a dimension of size 1 at `axis`."""
    kind = ir.RankedTensorType(x.type)
    shape = [1 if k == axis else n for k, n in enumerate(kind.shape)]
    one = constant(1, [], "i64")
    sizes = [one if k == axis else extent(x, k) for k in range(kind.rank)]
    wanted = ir.RankedTensorType.get(shape, element_of(value))
    return create("stablehlo.dynamic_reshape", [value, vector(sizes)], wanted)


def _flat(x: ir.Value) -> ir.Value:
    """All elements in a row."""
    kind = ir.RankedTensorType(x.type)
    total = constant(1, [], "i64")
    for axis in range(kind.rank):
        total = binary("multiply", total, extent(x, axis))
    wanted = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size()], element_of(x))
    return create("stablehlo.dynamic_reshape", [x, vector([total])], wanted)


max_dim, min_dim = _with_place("maximum", lowest), _with_place("minimum", highest)
argmax, argmin = _place("maximum", lowest), _place("minimum", highest)
