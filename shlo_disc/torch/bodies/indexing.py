"""Elements at computed places: torch-mlir leaves out slice sizes that are dynamic.

    %y = aten.index(%x, [None, %i, %j])  ==>  %k = concatenate %i, %j, each [..., 1]
                                              %y = dynamic_gather %x, %k, [size 0, 1, 1, size 3]

Indices are broadcast. Negative ones count from behind. PyTorch raises for others that are out of
bounds; here reads are clamped, and nothing is written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from shlo_disc.base.records import dataclass
from shlo_disc.ingest.arrays import constant, converted, joined
from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.ir.builders import compare, create, element_of, scattered, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread


@dataclass(frozen=True)
class _Indexed:
    """Which elements of a tensor indices are of: the shape `[*kept, *indices, *kept]`."""

    axes: list[int]
    """The dimensions of the tensor that have an index."""
    kept: list[int]
    """The others."""
    windows: list[int]
    """The dimensions of the result that the kept ones become."""
    first: int
    """The first dimension of the result that the indices give."""
    lead: int
    """How many they give."""


def _indexed(call: BodyCall) -> _Indexed:
    given = call.given("indices")
    rank = len(call.shape("self"))
    axes = [axis for axis, one in enumerate(given) if one is not None]
    lead = max(len(given[axis].meta["val"].shape) for axis in axes)
    kept = [axis for axis in range(rank) if axis not in axes]
    # Indices that stand apart have their dimensions first in the result, others where they stand.
    together = axes == list(range(axes[0], axes[-1] + 1))
    first = axes[0] if together else 0
    windows = [place if place < first else place + lead for place in range(len(kept))]
    return _Indexed(axes, kept, windows, first, lead)


def has_numbers(arguments: Mapping[str, Any]) -> bool:
    """True if no index is a mask."""
    given = [one.meta["val"].dtype for one in arguments["indices"] if one is not None]
    return not any(dtype in (torch.bool, torch.uint8) for dtype in given)


def index(call: BodyCall) -> list[ir.Value]:
    """`aten.index.Tensor(self, indices)`; masks have become indices before."""
    x, found = call["self"], _indexed(call)
    kind = ir.RankedTensorType(x.type)
    places = _places(call, found)
    sizes = [constant(1, "i64") if k in found.axes else extent(x, k) for k in range(kind.rank)]
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {found.windows}, collapsed_slice_dims = {found.axes}, "
        f"start_index_map = {found.axes}, index_vector_dim = {found.lead}>"
    )
    result = ir.RankedTensorType.get(_shape(x, places, found), kind.element_type)
    operands = [x, places, vector(sizes)]
    return [create("stablehlo.dynamic_gather", operands, result, dimension_numbers=numbers)]


def index_put(call: BodyCall) -> list[ir.Value]:
    """`aten.index_put(self, indices, values, accumulate)`; masks have become indices before.

    Of several values at one place the last one stays, or all are added in order.
    """
    x, found = call["self"], _indexed(call)
    places = _places(call, found)
    values = converted(call["values"], element_of(x))
    kind = ir.RankedTensorType.get(_shape(x, places, found), element_of(x))
    sizes = [extent(places, k) for k in range(found.lead)]
    kept = [extent(x, axis) for axis in found.kept]
    sizes = [*kept[: found.first], *sizes, *kept[found.first :]]
    own = ir.RankedTensorType(values.type).rank
    values = create(
        "stablehlo.dynamic_broadcast_in_dim", [values, vector(sizes)], kind,
        broadcast_dimensions=range(kind.rank - own, kind.rank),
    )  # fmt: skip
    is_truth = isinstance(element_of(x), ir.IntegerType) and element_of(x).width == 1
    join = ("or" if is_truth else "add") if call["accumulate"] else None
    return [scattered(x, places, values, join, found.windows, found.axes)]


def _shape(x: ir.Value, places: ir.Value, found: _Indexed) -> list[int]:
    """The static shape of the elements of `x` at `places`."""
    own = ir.RankedTensorType(x.type).shape
    kept = [own[axis] for axis in found.kept]
    lead = ir.RankedTensorType(places.type).shape[: found.lead]
    return [*kept[: found.first], *lead, *kept[found.first :]]


def _places(call: BodyCall, found: _Indexed) -> ir.Value:
    """The indices, broadcast, those of one element in the last dimension; none is negative."""
    x, values, lead = call["self"], call["indices"], found.lead
    given = [call.given("indices")[axis].meta["val"] for axis in found.axes]
    wanted = torch.broadcast_shapes(*(one.shape for one in given))
    shapes = {axis: list(one.shape) for axis, one in zip(found.axes, given, strict=True)}
    sizes, static = [], []
    for place, size in enumerate(wanted):
        behind = place - lead
        holder = next(a for a, own in shapes.items() if len(own) >= -behind and own[behind] == size)
        sizes.append(extent(values[holder], len(shapes[holder]) + behind))
        static.append(ir.RankedTensorType(values[holder].type).shape[behind])
    i64 = ir.IntegerType.get_signless(64)
    kind = ir.RankedTensorType.get([*static, 1], i64)
    columns = []
    for axis in found.axes:
        number = converted(values[axis], i64)
        zero = spread(constant(0, "i64"), [], number)
        behind_end = binary("add", number, spread(extent(x, axis), [], number))
        is_behind = compare("LT", number, zero)
        number = select(is_behind, behind_end, number)
        dims = list(range(lead - len(shapes[axis]), lead))
        columns.append(
            create(
                "stablehlo.dynamic_broadcast_in_dim",
                [number, vector([*sizes, constant(1, "i64")])],
                kind,
                broadcast_dimensions=dims,
            )
        )
    return columns[0] if len(columns) == 1 else joined(columns, lead)
