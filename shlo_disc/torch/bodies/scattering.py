"""Elements joined with those that are there, at places that an operand gives.

    %y = scatter(%x, %places, %updates), each element of %updates joined by `maximum`

Elements of one place are joined in any order.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import constant, converted, first_of, identity, iota, joined
from shlo_disc.ingest.size_arithmetic import reshaped, sizes_of
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import compare, element_of, scattered, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread

_JOINS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
"""The `reduce` of PyTorch -> the StableHLO op that joins two elements."""


def scatter_reduce(call: BodyCall) -> list[ir.Value]:
    """`aten.scatter_reduce.two(self, dim, index, src, reduce, include_self)`."""
    x, kind = call["self"], call["reduce"]
    if kind not in _JOINS:
        raise UnsupportedError(f"no reduction is called {kind}")
    if isinstance(element_of(x), ir.IntegerType) and element_of(x).width == 1:
        raise UnsupportedError("of truth values is not covered")
    rank = ir.RankedTensorType(x.type).rank
    index, updates = call["index"], call["src"]
    if rank == 0:
        x, updates, index = (reshaped(value, [1]) for value in (x, updates, index))
    places = _places(index, call["dim"] % max(rank, 1))
    updates = first_of(updates, sizes_of(index))
    if not call["include_self"]:  # what is written starts anew
        start = spread(identity(_JOINS[kind], element_of(x)), [], updates)
        x = scattered(x, places, start, None)
    y = scattered(x, places, updates, _JOINS[kind])
    if kind == "mean":
        y = _mean(y, places, updates, includes_self=call["include_self"])
    if rank == 0:
        y = reshaped(y, [])
    return [y]


def _places(index: ir.Value, axis: int) -> ir.Value:
    """[*index, rank]: where each element goes."""
    index, sizes = converted(index, "i64"), sizes_of(index)
    parts = [index if k == axis else iota(sizes, k, "i64") for k in range(len(sizes))]
    return joined([reshaped(part, [*sizes, 1]) for part in parts], len(sizes))


def _mean(total: ir.Value, places: ir.Value, updates: ir.Value, *, includes_self: bool) -> ir.Value:
    """`total` divided by the number of elements joined; whole numbers are rounded down."""
    element = element_of(total)
    is_float = isinstance(element, ir.FloatType)
    counting = element if is_float and ir.FloatType(element).width >= 32 else _i64_or_f32(element)
    one = constant(1, counting)
    start = one if includes_self else constant(0, counting)
    count = spread(start, [], total)
    count = scattered(count, places, spread(one, [], updates), "add")
    count = binary("maximum", count, spread(one, [], count))
    count = converted(count, element)
    quotient = binary("divide", total, count)
    if is_float:
        return quotient
    zero = spread(constant(0, element), [], total)
    rest = binary("remainder", total, count)
    is_below = binary("and", compare("NE", rest, zero), compare("LT", total, zero))
    less = binary("subtract", quotient, spread(constant(1, element), [], total))
    return select(is_below, less, quotient)


def _i64_or_f32(element: ir.Type) -> ir.Type:
    """A type that counts exactly where `element` may not."""
    is_float = isinstance(element, ir.FloatType)
    return ir.F32Type.get() if is_float else ir.IntegerType.get_signless(64)
