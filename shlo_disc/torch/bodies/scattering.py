"""Elements joined with those that are there, at places that an operand gives.

    %y = scatter(%x, %places, %updates), each element of %updates joined by `maximum`

Elements of one place are joined in any order.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.ir.builders import compare, create, scattered
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import (
    BodyCall,
    constant,
    converted,
    element_of,
    highest,
    iota,
    lowest,
    spread,
    typed,
)

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
        one = ir.RankedTensorType.get([1], element_of(x))
        x = create("stablehlo.reshape", [x], one)
        updates = create("stablehlo.reshape", [updates], one)
        index = create(
            "stablehlo.reshape", [index], ir.RankedTensorType.get([1], element_of(index))
        )
    places = _places(index, call["dim"] % max(rank, 1))
    updates = _first(updates, index)
    if not call["include_self"]:  # what is written starts anew
        start = spread(_identity(_JOINS[kind], element_of(x)), [], updates)
        x = scattered(x, places, start, None)
    y = scattered(x, places, updates, _JOINS[kind])
    if kind == "mean":
        y = _mean(y, places, updates, includes_self=call["include_self"])
    if rank == 0:
        y = create("stablehlo.reshape", [y], ir.RankedTensorType.get([], element_of(y)))
    return [y]


def _identity(join: str, element: ir.Type) -> ir.Value:
    """What an element joined with it is itself."""
    if join in ("add", "multiply"):
        return constant(1 if join == "multiply" else 0, [], element)
    return lowest(element) if join == "maximum" else highest(element)


def _places(index: ir.Value, axis: int) -> ir.Value:
    """[*index, rank]: where each element goes."""
    kind = ir.RankedTensorType(index.type)
    i64 = ir.IntegerType.get_signless(64)
    index = converted(index, i64)
    parts = [index if k == axis else iota(index, k, i64) for k in range(kind.rank)]
    sizes = [extent(index, k) for k in range(kind.rank)]
    wide = ir.RankedTensorType.get([*kind.shape, 1], i64)
    columns = [
        create("stablehlo.reshape", [part], wide)
        if kind.has_static_shape
        else create(
            "stablehlo.dynamic_reshape", [part, vector([*sizes, constant(1, [], "i64")])], wide
        )
        for part in parts
    ]
    return create(
        "stablehlo.concatenate", columns, ir.RankedTensorType.get([*kind.shape, kind.rank], i64),
        dimension=ir.IntegerAttr.get(i64, kind.rank),
    )  # fmt: skip


def _first(value: ir.Value, like: ir.Value) -> ir.Value:
    """The first elements of every dimension, as many as `like` has."""
    kind, wanted = ir.RankedTensorType(value.type), typed(like, element_of(value))
    if kind == wanted and kind.has_static_shape:
        return value
    rank = kind.rank
    none, one = (constant(n, [rank], "i64") for n in (0, 1))
    limits = vector([extent(like, k) for k in range(rank)])
    return create("stablehlo.real_dynamic_slice", [value, none, limits, one], wanted)


def _mean(total: ir.Value, places: ir.Value, updates: ir.Value, *, includes_self: bool) -> ir.Value:
    """`total` divided by the number of elements joined; whole numbers are rounded down."""
    element = element_of(total)
    is_float = isinstance(element, ir.FloatType)
    counting = element if is_float and ir.FloatType(element).width >= 32 else _i64_or_f32(element)
    one = constant(1, [], counting)
    start = one if includes_self else constant(0, [], counting)
    count = spread(start, [], total)
    count = scattered(count, places, spread(one, [], updates), "add")
    count = binary("maximum", count, spread(one, [], count))
    count = converted(count, element)
    quotient = binary("divide", total, count)
    if is_float:
        return quotient
    truth = typed(total, ir.IntegerType.get_signless(1))
    zero = spread(constant(0, [], element), [], total)
    rest = binary("remainder", total, count)
    is_below = binary("and", compare("NE", rest, zero, truth), compare("LT", total, zero, truth))
    less = binary("subtract", quotient, spread(constant(1, [], element), [], total))
    return create("stablehlo.select", [is_below, less, quotient], total.type)


def _i64_or_f32(element: ir.Type) -> ir.Type:
    """A type that counts exactly where `element` may not."""
    is_float = isinstance(element, ir.FloatType)
    return ir.F32Type.get() if is_float else ir.IntegerType.get_signless(64)
