"""Sorted elements with the places they come from; NaN is the largest element, as in PyTorch."""

from __future__ import annotations

from shlo_disc.ingest.arrays import constant, converted, first_of, iota
from shlo_disc.ingest.region_ops import sorted_with_places
from shlo_disc.ingest.size_arithmetic import Size, sizes_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, create, element_of, while_loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, typed
from shlo_disc.torch.bodies.recurrent import entry


def sort(call: BodyCall) -> list[ir.Value]:
    """`aten.sort`, and `aten.sort.stable(self, stable, dim, descending)`."""
    return _sorted(call["self"], call["dim"], descending=call["descending"])


def topk(call: BodyCall) -> list[ir.Value]:
    """`aten.topk(self, k, dim, largest, sorted)`; of equal elements the first ones are taken."""
    x, k = call["self"], call["k"]
    kind = ir.RankedTensorType(x.type)
    if kind.rank == 0:
        return _sorted(x, 0, descending=True)
    axis = call["dim"] % kind.rank
    values, places = _sorted(x, axis, descending=call["largest"])
    return [_first(values, axis, k), _first(places, axis, k)]


def order_of_rows(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.order_of_rows(columns, places)`: a stable sort by each column, from the last."""
    columns, places = call["columns"], call["places"]
    left, none, one = extent(columns, 0), constant(0, "i64"), constant(1, "i64")
    taken = ir.Attribute.parse(
        "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    )

    def step(left: ir.Value, order: ir.Value) -> list[ir.Value]:
        column = entry(columns, binary("subtract", left, one))
        keys = create(
            "stablehlo.gather", [column, order], typed(order, element_of(columns)),
            dimension_numbers=taken, slice_sizes=[1],
        )  # fmt: skip
        _, order = sorted_with_places(keys, order, 0, lambda a, b: _before(a, b, descending=False))
        return [binary("subtract", left, one), order]

    return while_loop([left, places], lambda k, _: compare("GT", k, none), step)[1:]


def _first(value: ir.Value, axis: int, count: Size) -> ir.Value:
    """The first `count` elements of a dimension."""
    return first_of(value, [count if k == axis else n for k, n in enumerate(sizes_of(value))])


def _sorted(x: ir.Value, dim: int, *, descending: bool) -> list[ir.Value]:
    """The elements in order, equal ones as they come, and their indices as i64."""
    kind = ir.RankedTensorType(x.type)
    i64 = ir.IntegerType.get_signless(64)
    if kind.rank == 0:
        return [x, constant(0, i64)]
    i32 = ir.IntegerType.get_signless(32)
    values, places = sorted_with_places(
        x, iota(sizes_of(x), dim % kind.rank, i32), dim % kind.rank,
        lambda a, b: _before(a, b, descending=descending),
    )  # fmt: skip
    return [values, converted(places, i64)]


def _before(a: ir.Value, b: ir.Value, *, descending: bool) -> ir.Value:
    """True where `a` comes before `b`."""
    truth = typed(a, ir.IntegerType.get_signless(1))
    first, second = (b, a) if descending else (a, b)
    less = compare("LT", first, second)
    if not isinstance(element_of(a), ir.FloatType):
        return less
    number = compare("EQ", first, first)
    nan = compare("NE", second, second)
    last = create("stablehlo.and", [number, nan], truth)
    return create("stablehlo.or", [less, last], truth)
