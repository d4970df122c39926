"""Elements at computed places: torch-mlir leaves out slice sizes that are dynamic.

    %y = aten.index(%x, [None, %i, %j])  ==>  %k = concatenate %i, %j, each [..., 1]
                                              %y = dynamic_gather %x, %k, [size 0, 1, 1, size 3]

Indices are broadcast. Negative ones count from behind. PyTorch raises for others that are out of
bounds; here reads are clamped, and nothing is written there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shlo_disc.base.records import dataclass
from shlo_disc.ingest.arrays import Array
from shlo_disc.ingest.size_arithmetic import shape_vector
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, broadcast, sizes_at


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

    def around(self, kept: Sequence[Any], lead: Sequence[Any]) -> list[Any]:
        """`kept`, of all dimensions of the tensor, with `lead` in the place of the indices."""
        own = [kept[axis] for axis in self.kept]
        return [*own[: self.first], *lead[: self.lead], *own[self.first :]]


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
    places = _places(call, found)
    sizes = [1 if k in found.axes else x.extent(k) for k in range(x.rank)]
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {found.windows}, collapsed_slice_dims = {found.axes}, "
        f"start_index_map = {found.axes}, index_vector_dim = {found.lead}>"
    )
    result = ir.RankedTensorType.get(found.around(x.shape, places.shape), x.element)
    operands = [x, places, shape_vector(sizes)]
    return [create("stablehlo.dynamic_gather", operands, result, dimension_numbers=numbers)]


def index_put(call: BodyCall) -> list[Array]:
    """`aten.index_put(self, indices, values, accumulate)`; masks have become indices before.

    Of several values at one place the last one stays, or all are added in order.
    """
    x, found = call["self"], _indexed(call)
    places = _places(call, found)
    kind = ir.RankedTensorType.get(found.around(x.shape, places.shape), x.element)
    own, lead = ([array.extent(k) for k in range(array.rank)] for array in (x, places))
    values = broadcast(call["values"].to(x.element), found.around(own, lead), kind)
    is_truth = isinstance(x.element, ir.IntegerType) and x.element.width == 1
    join = ("or" if is_truth else "add") if call["accumulate"] else None
    return [x.scatter(places, values, join, found.windows, found.axes)]


def _places(call: BodyCall, found: _Indexed) -> Array:
    """The indices, broadcast, those of one element in the last dimension; none is negative."""
    x, values = call["self"], [call["indices"][axis] for axis in found.axes]
    shapes = [call.given("indices")[axis].meta["val"].shape for axis in found.axes]
    holders = list(zip(shapes, values, strict=True))
    sizes, static = sizes_at(torch.broadcast_shapes(*shapes), holders)
    kind = ir.RankedTensorType.get([*static, 1], ir.IntegerType.get_signless(64))
    columns = []
    for axis, number in zip(found.axes, values, strict=True):
        number = number.to("i64")
        number = (number < 0).where(number + x.extent(axis), number)
        columns.append(broadcast(number, [*sizes, Array.size(1)], kind, behind=1))
    return columns[0] if len(columns) == 1 else Array.join(columns, found.lead)
