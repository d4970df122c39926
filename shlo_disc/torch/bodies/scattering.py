"""Elements joined with those that are there, at places that an operand gives.

    %y = scatter(%x, %places, %updates), each element of %updates joined by `maximum`

Elements of one place are joined in any order.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array, identity
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall

_JOINS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
"""The `reduce` of PyTorch -> the StableHLO op that joins two elements."""


def scatter_reduce(call: BodyCall) -> list[Array]:
    """`aten.scatter_reduce.two(self, dim, index, src, reduce, include_self)`."""
    x, kind = call["self"], call["reduce"]
    if kind not in _JOINS:
        raise UnsupportedError(f"no reduction is called {kind}")
    if isinstance(x.element, ir.IntegerType) and x.element.width == 1:
        raise UnsupportedError("of truth values is not covered")
    rank, index, updates = x.rank, call["index"], call["src"]
    if rank == 0:
        x, updates, index = (value.reshape([1]) for value in (x, updates, index))
    places = _places(index.to("i64"), call["dim"] % max(rank, 1))
    updates = updates.first(index.sizes)
    if not call["include_self"]:  # what is written starts anew
        start = updates.full(identity(_JOINS[kind], x.element))
        x = x.scatter(places, start, None)
    y = x.scatter(places, updates, _JOINS[kind])
    if kind == "mean":
        y = _mean(y, places, updates, includes_self=call["include_self"])
    return [y if rank else y.reshape([])]


def _places(index: Array, axis: int) -> Array:
    """[*index, rank]: where each element goes."""
    parts = [index if k == axis else index.iota(k) for k in range(index.rank)]
    return Array.join([part.reshape([*index.sizes, 1]) for part in parts], index.rank)


def _mean(total: Array, places: Array, updates: Array, *, includes_self: bool) -> Array:
    """`total` divided by the number of elements joined; whole numbers are rounded down."""
    element = total.element
    wide = total.is_float and ir.FloatType(element).width >= 32
    counting = element if wide else ir.Type.parse("f32" if total.is_float else "i64")
    start = Array.constant(int(includes_self), counting).spread([], total)
    ones = Array.constant(1, counting).spread([], updates)
    count = start.scatter(places, ones, "add").maximum(1).to(element)
    quotient = total / count
    if total.is_float:
        return quotient
    is_below = (total % count).differs(0) & (total < 0)
    return is_below.where(quotient - 1, quotient)
