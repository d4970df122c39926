"""Sorted elements with the places they come from; NaN is the largest element, as in PyTorch."""

from __future__ import annotations

from shlo_disc.ingest.region_ops import sorted_with_places
from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.ir.builders import compare, create, while_loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, converted, element_of, iota, typed
from shlo_disc.torch.bodies.recurrent import entry

_I64 = "i64"


def sort(call: BodyCall) -> list[ir.Value]:
    """`aten.sort(self, dim, descending)`."""
    return _sorted(call["self"], call["dim"], descending=call["descending"])


def sort_stable(call: BodyCall) -> list[ir.Value]:
    """`aten.sort.stable(self, stable, dim, descending)`."""
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
    left, none, one = extent(columns, 0), constant(0, [], _I64), constant(1, [], _I64)
    truth = typed(none, ir.IntegerType.get_signless(1))
    taken = ir.Attribute.parse(
        "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    )

    def step(left: ir.Value, order: ir.Value) -> list[ir.Value]:
        column = entry(columns, binary("subtract", left, one))
        keys = create(
            "stablehlo.gather", [column, order], typed(order, element_of(columns)),
            dimension_numbers=taken, slice_sizes=ir.DenseI64ArrayAttr.get([1]),
        )  # fmt: skip
        _, order = sorted_with_places(keys, order, 0, lambda a, b: _before(a, b, descending=False))
        return [binary("subtract", left, one), order]

    return while_loop([left, places], lambda k, _: compare("GT", k, none, truth), step)[1:]


def _first(value: ir.Value, axis: int, count: int | ir.Value) -> ir.Value:
    """The first `count` elements of a dimension."""
    kind = ir.RankedTensorType(value.type)
    dynamic = ir.ShapedType.get_dynamic_size()
    is_number = isinstance(count, int)
    sizes = [
        (count if is_number else dynamic) if k == axis else n for k, n in enumerate(kind.shape)
    ]
    result = ir.RankedTensorType.get(sizes, kind.element_type)
    if is_number and dynamic not in kind.shape:
        return create(
            "stablehlo.slice", [value], result,
            start_indices=ir.DenseI64ArrayAttr.get([0] * kind.rank),
            limit_indices=ir.DenseI64ArrayAttr.get(sizes),
            strides=ir.DenseI64ArrayAttr.get([1] * kind.rank),
        )  # fmt: skip
    none, one = constant(0, [], _I64), constant(1, [], _I64)
    limits = [extent(value, k) for k in range(kind.rank)]
    limits[axis] = constant(count, [], _I64) if is_number else count
    return create(
        "stablehlo.real_dynamic_slice",
        [value, vector([none] * kind.rank), vector(limits), vector([one] * kind.rank)],
        result,
    )


def _sorted(x: ir.Value, dim: int, *, descending: bool) -> list[ir.Value]:
    """The elements in order, equal ones as they come, and their indices as i64."""
    kind = ir.RankedTensorType(x.type)
    i64 = ir.IntegerType.get_signless(64)
    if kind.rank == 0:
        return [x, constant(0, [], i64)]
    i32 = ir.IntegerType.get_signless(32)
    values, places = sorted_with_places(
        x, iota(x, dim % kind.rank, i32), dim % kind.rank,
        lambda a, b: _before(a, b, descending=descending),
    )  # fmt: skip
    return [values, converted(places, i64)]


def _before(a: ir.Value, b: ir.Value, *, descending: bool) -> ir.Value:
    """True where `a` comes before `b`."""
    truth = typed(a, ir.IntegerType.get_signless(1))
    first, second = (b, a) if descending else (a, b)
    less = compare("LT", first, second, truth)
    if not isinstance(element_of(a), ir.FloatType):
        return less
    number = compare("EQ", first, first, truth)
    nan = compare("NE", second, second, truth)
    last = create("stablehlo.and", [number, nan], truth)
    return create("stablehlo.or", [less, last], truth)
