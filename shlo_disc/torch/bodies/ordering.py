"""Sorted elements with the places they come from; NaN is the largest element, as in PyTorch."""

from __future__ import annotations

from shlo_disc.ingest.arrays import Array, loop
from shlo_disc.ingest.region_ops import sorted_with_places
from shlo_disc.ingest.size_arithmetic import Size
from shlo_disc.ir.builders import create, with_element
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall


def sort(call: BodyCall) -> list[Array]:
    """`aten.sort`, and `aten.sort.stable(self, stable, dim, descending)`."""
    return _sorted(call["self"], call["dim"], descending=call["descending"])


def topk(call: BodyCall) -> list[Array]:
    """`aten.topk(self, k, dim, largest, sorted)`; of equal elements the first ones are taken."""
    x, k = call["self"], call["k"]
    if x.rank == 0:
        return _sorted(x, 0, descending=True)
    axis = call["dim"] % x.rank
    return [_first(one, axis, k) for one in _sorted(x, axis, descending=call["largest"])]


def order_of_rows(call: BodyCall) -> list[Array]:
    """`shlo_disc.order_of_rows(columns, places)`: a stable sort by each column, from the last."""
    columns = call["columns"]
    taken = ir.Attribute.parse(
        "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    )

    def step(left: Array, order: Array) -> list[ir.Value]:
        keys = create(
            "stablehlo.gather", [columns.entry(left - 1), order],
            with_element(order.type, columns.element), dimension_numbers=taken, slice_sizes=[1],
        )  # fmt: skip
        _, order = sorted_with_places(keys, order, 0, lambda a, b: _before(a, b, descending=False))
        return [left - 1, order]

    return loop([columns.extent(0), call["places"]], lambda left, _: left > 0, step)[1:]


def _first(value: Array, axis: int, count: Size) -> Array:
    """The first `count` elements of a dimension."""
    return value.first([count if k == axis else n for k, n in enumerate(value.sizes)])


def _sorted(x: Array, dim: int, *, descending: bool) -> list[Array]:
    """The elements in order, equal ones as they come, and their indices as i64."""
    if x.rank == 0:
        return [x, Array.constant(0, "i64")]
    axis = dim % x.rank
    values, places = sorted_with_places(
        x, x.iota(axis, "i32"), axis, lambda a, b: _before(a, b, descending=descending)
    )
    return [Array(values), Array(places).to("i64")]


def _before(a: ir.Value, b: ir.Value, *, descending: bool) -> Array:
    """True where `a` comes before `b`."""
    first, second = map(Array, (b, a) if descending else (a, b))
    less = first < second
    if not first.is_float:
        return less
    return less | (first.equals(first) & second.differs(second))
