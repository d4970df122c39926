"""What a body is given, and the StableHLO that bodies share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from shlo_disc.ingest.arrays import Array
from shlo_disc.ingest.size_values import vector
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.importer import Carried


class BodyCall:
    """One op: its operands as arrays, its other arguments as they are, the types it must give."""

    def __init__(
        self,
        module: ir.Module,
        carried: Carried,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
    ) -> None:
        self.module = module
        self.results = results
        self.carried = carried
        self.node = carried.node
        """The op in the graph."""
        self._values = dict(zip(carried.operands, operands, strict=True))

    def __getitem__(self, name: str) -> Any:
        """An argument: an array for a tensor or a size, a list of those, else as in the graph."""
        return torch.fx.map_arg(self.carried.arguments[name], self._value)

    def get(self, name: str, default: Any) -> Any:
        """An argument; `default` for an op without one of that name."""
        return self[name] if name in self.carried.arguments else default

    def given(self, name: str) -> Any:
        """An argument as the graph has it."""
        return self.carried.arguments[name]

    def _value(self, node: torch.fx.Node) -> Array:
        value = self._values[node]
        if not isinstance(value.type, ir.RankedTensorType):  # a number
            kind = ir.RankedTensorType.get([], value.type)
            value = create("tensor.from_elements", [value], kind)
        return Array(value)

    def shape(self, name: str) -> tuple[Any, ...]:
        """The symbolic sizes of a tensor argument."""
        return tuple(self.given(name).meta["val"].shape)

    @property
    def element(self) -> ir.Type:
        """The element type of the first result."""
        return ir.RankedTensorType(self.results[0]).element_type

    @property
    def where(self) -> str:
        """The source line of the op."""
        return str(self.node.meta.get("place", "unknown location"))

    def size(self, name: str) -> Array:
        """An integer argument as a rank-0 i64."""
        return Array.size(self[name])

    @staticmethod
    def cast(value: ir.Value, kind: ir.Type) -> ir.Value:
        """`value` with the sizes of `kind`."""
        return value if value.type == kind else create("tensor.cast", [value], kind)


Body: TypeAlias = Callable[[BodyCall], Sequence[ir.Value]]
"""Writes an op at the insertion point and gives its results."""


def by_op(*rows: tuple[Body, Sequence[Any]]) -> dict[Any, Body]:
    """Overload -> its body."""
    return {op: body for body, ops in rows for op in ops}


def sizes_at(
    shape: Sequence[Any], holders: Sequence[tuple[Sequence[Any], Array]]
) -> tuple[list[Array], list[int]]:
    """The sizes of a broadcast to the symbolic `shape`, and these as types have them.

    `holders` are symbolic shapes with their arrays; each size is read from an array that has it.
    """
    found, static = [], []
    for place in range(-len(shape), 0):
        own, array = next(
            (own, array)
            for own, array in holders
            if len(own) >= -place and own[place] == shape[place]
        )
        found.append(array.extent(len(own) + place))
        static.append(array.shape[place])
    return found, static


def broadcast(
    array: Array, sizes: Sequence[ir.Value], kind: ir.RankedTensorType, behind: int = 0
) -> Array:
    """`array` as `kind`, which has these sizes; its last dimension has `behind` more after it."""
    last = kind.rank - behind
    return Array(
        create(
            "stablehlo.dynamic_broadcast_in_dim", [array, vector(sizes)], kind,
            broadcast_dimensions=range(last - array.rank, last),
        )
    )  # fmt: skip


def aligned(call: BodyCall, *names: str, element: ir.Type | None = None) -> list[Array]:
    """Tensor arguments and numbers in the shape of the one result, of its element type.

    `element` is another type for them.
    """
    result = ir.RankedTensorType(call.results[0])
    kind = ir.RankedTensorType.get(result.shape, element or result.element_type)
    given = [call[name] for name in names]
    holders = [
        (call.shape(name), value)
        for name, value in zip(names, given, strict=True)
        if isinstance(value, Array) and value.rank
    ]
    sizes, _ = sizes_at(call.node.meta["val"].shape, holders)
    found = []
    for value in given:
        is_array = isinstance(value, Array)
        one = value if is_array else Array.constant(value, kind.element_type)
        one = one.to(kind.element_type)
        is_done = one.type == kind and kind.has_static_shape
        found.append(one if is_done else broadcast(one, sizes, kind))
    return found
