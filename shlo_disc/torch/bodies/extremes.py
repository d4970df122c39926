"""Extreme elements and their places: a NaN is the extreme one, of equal ones the first counts.

    %v = reduce maximum of %x
    %i = reduce minimum of (select (%x == %v or %x is NaN), iota, the number of elements)

torch-mlir's comparison never takes a NaN.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import Array
from shlo_disc.torch.bodies.call import BodyCall


def max_dim(call: BodyCall) -> list[Array]:
    """`aten.max.dim(self, dim, keepdim)`."""
    return _extremes(call, "maximum")


def min_dim(call: BodyCall) -> list[Array]:
    """`aten.min.dim(self, dim, keepdim)`."""
    return _extremes(call, "minimum")


def argmax(call: BodyCall) -> list[Array]:
    """`aten.argmax(self, dim, keepdim)`; without `dim` of all elements in a row."""
    return _extremes(call, "maximum")[1:]


def argmin(call: BodyCall) -> list[Array]:
    """`aten.argmin(self, dim, keepdim)`."""
    return _extremes(call, "minimum")[1:]


def _extremes(call: BodyCall, name: str) -> list[Array]:
    """The extreme elements along `dim`, and their places as i64."""
    given, dim = call["self"], call["dim"]
    if given.rank == 0:
        return [given, Array.constant(0, "i64")]
    x, axis = (given.flat(), 0) if dim is None else (given, dim % given.rank)
    value = x.reduce(name, [axis])
    is_it = x.equals(value.spread([k for k in range(x.rank) if k != axis], x))
    if x.is_float:
        is_it = is_it | x.differs(x)
    place = is_it.where(x.iota(axis), x.extent(axis))
    found = [value, place.reduce("minimum", [axis])]
    if not call["keepdim"]:
        return found
    sizes = [1 if dim is None or k == axis else n for k, n in enumerate(given.sizes)]
    return [one.reshape(sizes) for one in found]
